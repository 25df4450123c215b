"""One run at a time in a sandbox, a bounded number in all, and an end whenever somebody asks for it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.calls import ask, at_work, create, eventually, following, refused, run, sh
from tests.conftest import Server


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as found:
        yield found


def runs(http: httpx.Client, sandbox: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]
    return found


def states(http: httpx.Client, sandbox: str) -> list[object]:
    return [each["state"] for each in runs(http, sandbox)]


# ----------------------------------------------------------------------------------------------- turns


@pytest.mark.long
def test_runs_of_one_sandbox_take_turns_in_the_order_they_came(
    http: httpx.Client, sandbox: str, pool: ThreadPoolExecutor
) -> None:
    futures = []
    for number in range(6):
        script = f"echo begin {number} >> log; sleep 0.1; echo end {number} >> log"
        futures.append(pool.submit(run, http, sandbox, command=script))
        eventually(lambda n=number: len(runs(http, sandbox)) == n + 1)  # type: ignore[misc]

    assert all(future.result()["exit_code"] == 0 for future in futures)
    lines = sh(http, sandbox, "cat log").splitlines()
    assert lines == [f"{what} {number}" for number in range(6) for what in ("begin", "end")]


def test_sandboxes_do_not_wait_for_each_other(http: httpx.Client) -> None:
    waiting, other = create(http), create(http)

    with at_work(http, waiting):
        sh(http, other, "true")
        assert states(http, waiting) == ["running"]


@pytest.mark.slow
def test_a_full_queue_says_so_at_once(new_server: Callable[..., Server], pool: ThreadPoolExecutor) -> None:
    server = new_server(PETRI_MAX_QUEUED_RUNS="2")
    with server.client() as http:
        sandbox = create(http)
        with at_work(http, sandbox):
            held = [pool.submit(run, http, sandbox, command="true") for _ in range(2)]
            full = ["queued", "queued", "running"]
            eventually(lambda: sorted(map(str, states(http, sandbox))) == full)

            answer = ask(http, sandbox, command="true")

            assert "PETRI_MAX_QUEUED_RUNS" in refused(answer, 429)["detail"]
            assert int(answer.headers["retry-after"]) >= 1
            assert http.get("/v1/metrics").json()["waiting"] == 2
            assert sorted(map(str, states(http, sandbox))) == full, "it was told while all the others wait"
        assert [each.result()["exit_code"] for each in held] == [0, 0]
        assert len(states(http, sandbox)) == 3, "what was refused is no run"
        assert run(http, sandbox, command="true")["exit_code"] == 0


@pytest.mark.slow
def test_a_full_server_says_so_at_once(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_MAX_RUNS="1", PETRI_MAX_QUEUED_RUNS="0")
    with server.client() as http:
        first, second = create(http), create(http)

        with at_work(http, first):
            answers = [ask(http, second, command="true"), http.post("/v1/exec", json={"command": "true"})]
            assert states(http, first) == ["running"]

        for answer in answers:
            assert "PETRI_MAX_RUNS" in refused(answer, 429)["detail"]
            assert int(answer.headers["retry-after"]) >= 1
        assert run(http, second, command="true")["exit_code"] == 0
        assert http.post("/v1/exec", json={"command": "true"}).json()["exit_code"] == 0
        live = http.get("/v1/sandboxes", params={"state": "ready"}).json()["sandboxes"]
        assert {each["id"] for each in live} == {first, second}, "a refused /v1/exec leaves no sandbox"


@pytest.mark.slow
def test_whoever_finds_no_place_waits_for_one_and_can_be_called_off(
    new_server: Callable[..., Server], pool: ThreadPoolExecutor
) -> None:
    server = new_server(PETRI_MAX_RUNS="1")
    with server.client() as http:
        first, second, third = create(http), create(http), create(http)

        with at_work(http, first):
            waiting = pool.submit(run, http, second, command="echo done")
            at_once = pool.submit(lambda: http.post("/v1/exec", json={"command": "echo done"}))
            called_off = pool.submit(run, http, third, command="true")
            eventually(lambda: http.get("/v1/metrics").json()["waiting"] == 3)
            assert states(http, second) == ["queued"]
            http.post(f"/v1/runs/{runs(http, third)[0]['run_id']}/cancel")
            assert called_off.result()["state"] == "cancelled"
            assert http.get("/v1/metrics").json()["running"] == 1

        assert waiting.result()["stdout"] == at_once.result().json()["stdout"] == "done\n"


# ------------------------------------------------------------------------------------------ cancelling


def test_cancelling_ends_everything_the_run_started(
    http: httpx.Client, sandbox: str, pool: ThreadPoolExecutor
) -> None:
    script = "echo begun; (while :; do date +%s%N > new; mv new beat; sleep 0.02; done) & sleep 60"
    waiting = pool.submit(run, http, sandbox, command=script)
    eventually(lambda: http.get(f"/v1/sandboxes/{sandbox}/files/beat").status_code == 200)
    run_id = runs(http, sandbox)[0]["run_id"]

    ended = http.post(f"/v1/runs/{run_id}/cancel")

    assert (ended.status_code, ended.json()["state"], ended.json()["cancelled"]) == (200, "cancelled", True)
    told = waiting.result()
    assert (told["cancelled"], told["exit_code"], told["state"]) == (True, None, "cancelled")
    assert (told["stdout"], told["timed_out"]) == ("begun\n", False)
    beats = [http.get(f"/v1/sandboxes/{sandbox}/files/beat").content]
    time.sleep(0.15)
    beats.append(http.get(f"/v1/sandboxes/{sandbox}/files/beat").content)
    assert beats[0] == beats[1], "when the cancellation is answered, nothing of the run is left"
    assert "over" in refused(http.post(f"/v1/runs/{run_id}/cancel"), 409)["detail"]


@pytest.mark.long
def test_a_waiting_run_can_be_cancelled_and_never_starts(
    http: httpx.Client, sandbox: str, pool: ThreadPoolExecutor
) -> None:
    first = pool.submit(run, http, sandbox, command="sleep 0.6")
    eventually(lambda: states(http, sandbox) == ["running"])
    second = pool.submit(run, http, sandbox, command="touch ran")
    eventually(lambda: states(http, sandbox) == ["queued", "running"])
    third = pool.submit(run, http, sandbox, command="touch third")
    eventually(lambda: states(http, sandbox) == ["queued", "queued", "running"])

    cancelled = http.post(f"/v1/runs/{runs(http, sandbox)[1]['run_id']}/cancel").json()

    assert (cancelled["state"], cancelled["started_at"]) == ("cancelled", None)
    assert not first.done(), "cancelling one leaves the others alone"
    assert (second.result()["cancelled"], second.result()["exit_code"]) == (True, None)
    assert (first.result()["exit_code"], third.result()["exit_code"]) == (0, 0)
    assert sh(http, sandbox, "ls") == "third\n"


def test_a_watcher_is_told_of_the_cancellation(http: httpx.Client, sandbox: str) -> None:
    with following(http, sandbox, command="sleep 60") as stream:
        said = next(stream)
        http.post(f"/v1/runs/{said.data['run_id']}/cancel")
        rest = list(stream)

    assert (rest[-1].kind, rest[-1].data["cancelled"]) == ("done", True)


def test_deleting_a_sandbox_ends_its_runs_first(
    http: httpx.Client, sandbox: str, pool: ThreadPoolExecutor
) -> None:
    futures = [pool.submit(ask, http, sandbox, command="sleep 60") for _ in range(3)]
    eventually(lambda: sorted(map(str, states(http, sandbox))) == ["queued", "queued", "running"])

    assert http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204

    assert [future.result().json()["state"] for future in futures] == ["cancelled"] * 3
    assert states(http, sandbox) == ["cancelled"] * 3
    refused(ask(http, sandbox, command="true"), 409)


# ------------------------------------------------------------------------------------------- ephemeral


@pytest.mark.parametrize("command", ["exit 0", "exit 7", "kill -9 $$"])
def test_an_ephemeral_sandbox_is_gone_after_its_first_exec(
    server: Server, http: httpx.Client, command: str
) -> None:
    sandbox = create(http, lifetime="ephemeral")
    sh_file = http.put(f"/v1/sandboxes/{sandbox}/files/in.txt", content="x")
    assert sh_file.status_code == 201

    told = run(http, sandbox, command=f"cat in.txt; {command}")

    assert told["stdout"] == "x"
    shown = http.get(f"/v1/sandboxes/{sandbox}").json()
    assert (shown["state"], shown["ended_because"]) == ("deleted", "ephemeral")
    assert not (server.home / "petri" / "workspaces" / sandbox).exists()
    refused(ask(http, sandbox, command="true"), 409)
    refused(http.get(f"/v1/sandboxes/{sandbox}/files"), 409)
    assert http.get(f"/v1/runs/{told['run_id']}/stdout").content == b"x", "the history stays"
    assert http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204


def test_a_request_that_makes_no_sense_does_not_use_up_an_ephemeral_sandbox(http: httpx.Client) -> None:
    sandbox = create(http, lifetime="ephemeral")

    refused(ask(http, sandbox, filename="missing.py"), 422)

    assert run(http, sandbox, command="true")["exit_code"] == 0


@pytest.mark.long
def test_of_two_execs_at_once_an_ephemeral_sandbox_takes_one(
    http: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    for _ in range(5):
        sandbox = create(http, lifetime="ephemeral")
        answers = list(pool.map(lambda each: ask(http, each, command="sleep 0.1"), [sandbox] * 4))

        assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
        assert len(runs(http, sandbox)) == 1


def test_cancelling_its_run_ends_an_ephemeral_sandbox(http: httpx.Client) -> None:
    sandbox = create(http, lifetime="ephemeral")
    with following(http, sandbox, command="sleep 60") as stream:
        run_id = next(stream).data["run_id"]
        assert http.post(f"/v1/runs/{run_id}/cancel").json()["state"] == "cancelled"
        list(stream)

    eventually(lambda: http.get(f"/v1/sandboxes/{sandbox}").json()["state"] == "deleted")
