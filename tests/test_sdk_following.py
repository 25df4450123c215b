"""Following a run over connections that break, without any connection."""

import json

import pytest

from petri.errors import EngineFailed, PetriError, Unavailable
from petri.sdk import Done, Output, Started
from petri.sdk.following import ATTEMPTS, Following

BROKEN = Unavailable("broken")
ANSWER = {
    "run_id": "run-a",
    "sandbox_id": "sb-a",
    "state": "done",
    "exit_code": 0,
    "signal": None,
    "signal_name": None,
    "timed_out": False,
    "oom_killed": False,
    "cancelled": False,
    "stdout": "",
    "stderr": "",
    "stdout_truncated": False,
    "stderr_truncated": False,
    "stdout_bytes": 0,
    "stderr_bytes": 0,
    "duration_ms": 1.0,
    "usage": {"cpu_ms": 1.0, "peak_memory_bytes": 1},
    "tree_before": None,
    "tree_after": None,
    "changes": None,
    "environment": None,
    "installed": [],
}


def event(kind: str, position: int, **said: object) -> bytes:
    return f"id: {position}\nevent: {kind}\ndata: {json.dumps(said)}\n\n".encode()


STARTED = event("started", 0, run_id="run-a", sandbox_id="sb-a", state="running")


def test_events_come_typed() -> None:
    following = Following()

    found = list(following.take(STARTED + event("stderr", 9, text="no\n") + event("done", 9, **ANSWER)))

    assert found[0] == Started("run-a", "sb-a", "running")
    assert found[1] == Output("stderr", "no\n", 9)
    assert isinstance(found[2], Done) and found[2].answer.exit_code == 0
    assert following.ended


def test_a_broken_stream_goes_on_after_the_last_piece_seen() -> None:
    following = Following()
    list(following.take(STARTED + event("stdout", 12, text="one") + b"id: 99\nevent: stdout\nda"))

    ask, pause_s = following.broke(BROKEN)

    assert (ask.path, ask.params) == ("/v1/runs/run-a/events", {"from": 12})
    assert 0 < pause_s < 1


def test_half_a_message_does_not_run_into_the_next_connection() -> None:
    following = Following()
    list(following.take(STARTED + b"id: 99\nevent: stdout\nda"))
    following.broke(BROKEN)

    assert list(following.take(event("stdout", 12, text="one"))) == [Output("stdout", "one", 12)]


def test_started_is_told_once() -> None:
    following = Following()
    list(following.take(STARTED))
    following.broke(BROKEN)

    assert list(following.take(STARTED)) == []


def test_a_run_without_a_name_cannot_be_followed_further() -> None:
    with pytest.raises(Unavailable):
        Following().broke(BROKEN)


def test_it_gives_up_when_nothing_comes_any_more() -> None:
    following = Following("run-a")
    for _ in range(ATTEMPTS):
        following.broke(BROKEN)
        list(following.take(STARTED))

    with pytest.raises(Unavailable):
        following.broke(BROKEN)


@pytest.mark.parametrize("news", [event("stdout", 1, text="."), b": keep-alive\n\n"])
def test_anything_new_is_a_reason_for_more_patience(news: bytes) -> None:
    following = Following("run-a")
    for _ in range(3 * ATTEMPTS):
        following.broke(BROKEN)
        list(following.take(news))


def test_the_engine_s_failure_is_raised_by_its_code() -> None:
    problem = {
        "type": "about:blank",
        "title": "x",
        "status": 500,
        "detail": "no cell",
        "code": "engine_failed",
    }

    with pytest.raises(EngineFailed, match="no cell"):
        list(Following().take(STARTED + event("failed", 0, **problem)))


def test_an_event_of_a_later_release_is_no_trouble() -> None:
    assert list(Following().take(event("telemetry", 0, cpu=1))) == []


@pytest.mark.parametrize("data", ["", "[]", "{}", '{"run_id": 1', "null"])
def test_an_event_that_cannot_be_read_is_a_sentence(data: str) -> None:
    with pytest.raises(PetriError, match="cannot read"):
        list(Following().take(f"event: started\ndata: {data}\n\n".encode()))
