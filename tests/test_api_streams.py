"""A run as it happens: its events in order, from any point, for whoever comes back."""

import json
import time

import httpx
import pytest

from tests.calls import Said, events, eventually, following, line, put, refused, replay, run, sh, text
from tests.conftest import Server


def begin_and_hang_up(server: Server, sandbox: str, body: dict[str, str], accept: str = "*/*") -> None:
    """Ask for a run and cut the line without waiting for a word."""
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/sandboxes/{sandbox}/exec HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with line(server) as connection:
        connection.sendall(head.encode() + content)
        time.sleep(0.1)


def newest_run(http: httpx.Client, sandbox: str) -> dict[str, object]:
    runs = http.get(f"/v1/sandboxes/{sandbox}/runs", params={"limit": 1}).json()["runs"]
    return dict(runs[0]) if runs else {"state": "none"}


# ------------------------------------------------------------------------------------------ the events


def test_events_come_in_order_and_end_with_the_answer(http: httpx.Client, sandbox: str) -> None:
    with following(http, sandbox, command="echo one; sleep 0.1; echo two >&2; exit 3") as stream:
        said = list(stream)

    assert [each.kind for each in said] == ["started", "stdout", "stderr", "done"]
    assert [each.data.get("text") for each in said[1:3]] == ["one\n", "two\n"]
    assert said[0].data["sandbox_id"] == sandbox
    ids = [each.id for each in said]
    assert ids == sorted(ids)
    assert ids[0] == 0
    done = said[-1].data
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (3, "one\n", "two\n")
    assert done["run_id"] == said[0].data["run_id"]


def test_output_comes_while_the_command_runs(http: httpx.Client, sandbox: str) -> None:
    put(
        http,
        sandbox,
        "main.py",
        "print('now'); import os, time\nwhile not os.path.exists('go'): time.sleep(.01)",
    )

    with following(http, sandbox, filename="main.py") as stream:
        for said in stream:
            if said.kind == "stdout":
                put(http, sandbox, "go", "")  # it ends only because its output was seen before its end
    assert said.kind == "done"
    assert said.data["exit_code"] == 0


def test_a_character_split_between_two_chunks_stays_whole(http: httpx.Client, sandbox: str) -> None:
    code = (
        "import os, time\n"
        "for byte in 'zoë 🦊'.encode(): os.write(1, bytes([byte])); time.sleep(.02)\n"
        "os.write(2, b'\\xc3'); time.sleep(.05); os.write(1, b'!')"
    )
    with following(http, sandbox, code=code) as stream:
        said = list(stream)

    assert text(said) == "zoë 🦊!"
    assert text(said, "stderr") == "\ufffd"
    assert "\ufffd" not in said[-1].data["stdout"]


def test_coming_back_in_the_middle_of_a_character_loses_nothing(http: httpx.Client, sandbox: str) -> None:
    halves = "(b'a\\xf0\\x9f', b'\\xa6\\x8ab')"
    code = f"import os, time\nfor half in {halves}: os.write(1, half); time.sleep(.1)"
    whole = replay(http, run(http, sandbox, code=code)["run_id"])
    assert text(whole) == "a🦊b"

    seen = ""
    for said in whole:
        if said.kind == "stdout":
            seen += said.data["text"]
        again = replay(http, whole[0].data["run_id"], params={"from": said.id})
        if said.kind != "done":
            assert seen + text(again) == "a🦊b", said


@pytest.mark.long
def test_large_output_streams_whole(http: httpx.Client, sandbox: str) -> None:
    with following(http, sandbox, command="head -c 3000000 /dev/zero | tr '\\0' x; echo end") as stream:
        said = list(stream)

    assert len(text(said)) == 3_000_004
    assert said[-1].data["stdout_truncated"]


def test_a_refusal_is_an_answer_and_no_stream(http: httpx.Client, sandbox: str) -> None:
    answer = http.post(
        f"/v1/sandboxes/{sandbox}/exec", json={"filename": "no.py"}, headers={"Accept": "text/event-stream"}
    )

    refused(answer, 422)


# ---------------------------------------------------------------------------------- going and coming


@pytest.mark.long
@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_a_client_that_goes_away_does_not_end_its_run(
    server: Server, http: httpx.Client, sandbox: str, accept: str
) -> None:
    body = {"command": "echo begun; sleep 0.5; echo done > done.txt; echo done"}
    begin_and_hang_up(server, sandbox, body, accept)

    eventually(lambda: newest_run(http, sandbox)["state"] == "done")
    assert sh(http, sandbox, "cat done.txt") == "done\n"


@pytest.mark.long
def test_whoever_comes_back_goes_on_where_the_line_broke(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    put(http, sandbox, "main.py", "import os, time\nfor i in range(40): print(i); time.sleep(.02)")
    begin_and_hang_up(server, sandbox, {"filename": "main.py"}, "text/event-stream")
    run_id = str(newest_run(http, sandbox)["run_id"])
    numbers = "".join(f"{number}\n" for number in range(40))

    first: list[Said] = []
    with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        for said in events(response):
            first.append(said)
            if len(first) > 8:
                break
    assert first[-1].kind == "stdout", "the line broke while the run was under way"
    rest = replay(http, run_id, params={"from": first[-1].id})

    assert text(first) + text(rest) == numbers
    assert (rest[0].kind, rest[-1].kind) == ("started", "done")
    assert text(replay(http, run_id)) == numbers, "from the beginning, when it is long over"
    by_header = replay(http, run_id, headers={"Last-Event-ID": str(first[-1].id)})
    assert text(by_header) == text(rest)
    last = replay(http, run_id, params={"from": rest[-1].id})
    assert [each.kind for each in last] == ["started", "done"]


def test_two_watchers_see_the_same(server: Server, http: httpx.Client, sandbox: str) -> None:
    begin_and_hang_up(server, sandbox, {"command": "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done"})
    run_id = str(newest_run(http, sandbox)["run_id"])

    with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        watching = events(response)
        next(watching)
        other = replay(http, run_id)
        assert text(list(watching)) == text(other) == "1\n2\n3\n4\n5\n"


# ---------------------------------------------------------------------------- positions that are none


@pytest.mark.long
def test_a_position_that_is_none_of_the_run_s_is_refused(http: httpx.Client, sandbox: str) -> None:
    run_id = run(http, sandbox, command="echo hello; sleep 0.1; echo world")["run_id"]
    own = {said.id for said in replay(http, run_id)}

    for position in range(30):
        answer = http.get(f"/v1/runs/{run_id}/events", params={"from": position})
        if position in own:
            assert answer.status_code == 200
        else:
            assert refused(answer, 422)["field"] == "from"
    refused(http.get(f"/v1/runs/{run_id}/events", params={"from": 2**53}), 422)


@pytest.mark.long
def test_output_made_to_look_like_frames_cannot_mislead_or_stall_a_watcher(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    # What looks like the head of a frame that never becomes whole: read from there, one waits for ever.
    body = {"command": r"printf '\000\020\000\000\000\001\003\000\000\000abc'; sleep 1"}
    begin_and_hang_up(server, sandbox, body)
    run_id = str(newest_run(http, sandbox)["run_id"])
    eventually(lambda: len(http.get(f"/v1/runs/{run_id}/stdout").content) == 13)

    for position in (5, 10):
        refused(http.get(f"/v1/runs/{run_id}/events", params={"from": position}), 422)
    assert http.get("/health", timeout=3).status_code == 200, "nobody else is held up"
    assert text(replay(http, run_id)) == "\0\x10\0\0\0\1\3\0\0\0abc"


@pytest.mark.parametrize("position", ["-1", "x", "1.5", "", "9" * 30])
def test_a_position_that_is_no_number_is_refused(http: httpx.Client, sandbox: str, position: str) -> None:
    run_id = run(http, sandbox, command="echo hello")["run_id"]

    refused(http.get(f"/v1/runs/{run_id}/events", params={"from": position}), 422)
    if position:
        refused(http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": position}), 422)
