"""How a server stops: what finishes, what is cut short, and what it does not wait for."""

import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.calls import ask, create, eventually, run, scraps, sh, workspaces
from tests.conftest import Server
from tests.test_crash import cells

pytestmark = pytest.mark.slow


def test_sigterm_lets_a_short_run_finish_and_tells_its_client(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with server.client() as http, ThreadPoolExecutor(1) as pool:
        sandbox = create(http)
        waiting = pool.submit(run, http, sandbox, command="sleep 1; echo finished")
        eventually(lambda: http.get("/v1/metrics").json()["running"] == 1)

        status = server.stop()

        assert waiting.result()["stdout"] == "finished\n"
    assert status == 0, server.log()
    assert "ERROR" not in server.log()


def test_an_ephemeral_sandbox_does_not_outlive_a_crash(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with server.client() as http, ThreadPoolExecutor(1) as pool:
        body = {"files": {"secret.txt": "s"}, "command": "sleep 60"}
        waiting = pool.submit(http.post, "/v1/exec", json=body)
        eventually(lambda: http.get("/v1/metrics").json()["runs"]["running"] == 1)
        server.stop(signal.SIGKILL)
        assert waiting.exception() is not None
    server.start()

    with server.client() as http:
        eventually(lambda: http.get("/v1/metrics").json()["sandboxes"]["deleted"] == 1)
        left = http.get("/v1/sandboxes", params={"state": "all"}).json()["sandboxes"]
        assert [(each["state"], each["ended_because"]) for each in left] == [("deleted", "ephemeral")]
    assert list((server.home / "petri" / "workspaces").glob("sb-*")) == []


def test_a_server_is_ready_before_its_trash_is_empty(new_server: Callable[..., Server]) -> None:
    """A crash may leave hundreds of thousands of files that were on their way out."""
    server = new_server()
    with server.client() as http:
        sandbox = create(http)
    server.stop(signal.SIGKILL)
    thrown = [workspaces(server) / place / "old" for place in (".trash", ".staging")]
    for place in thrown:
        place.mkdir()
        for number in range(20_000):
            (place / f"{number}").touch()

    server.start()

    left = sum(1 for path in (workspaces(server) / ".trash").rglob("*") if path.is_file())
    assert left > 20_000, "it was emptied before anybody could ask for anything"
    with server.client() as http:
        assert sh(http, sandbox, "echo works") == "works\n"
        eventually(lambda: scraps(server) == [], within_s=60)


def test_a_server_that_empties_its_trash_stops_when_told_to(new_server: Callable[..., Server]) -> None:
    server = new_server()
    server.stop(signal.SIGKILL)
    (workspaces(server) / ".trash/old").mkdir()
    for number in range(20_000):
        (workspaces(server) / f".trash/old/{number}").touch()
    server.start()

    assert server.stop() == 0

    assert scraps(server) != [], "what is left waits for the next life"
    assert "ERROR" not in server.log()


def test_slow_work_on_one_sandbox_s_files_holds_up_neither_its_neighbours_nor_the_end(
    new_server: Callable[..., Server],
) -> None:
    server = new_server(PETRI_DRAIN_S="1")
    with server.client() as http:
        greedy, neighbour = create(http), create(http)
        with (workspaces(server) / greedy / "big").open("wb") as sparse:  # larger than a run may make one
            sparse.truncate(60 << 30)
        address = httpx.URL(server.url)
        lines = []
        for _ in range(12):  # each would hash for half a minute, and hang up at once
            line = socket.create_connection((str(address.host), address.port or 0))
            named = f'If-Match: "{"0" * 64}"'  # who names a digest has the file hashed
            head = f"HEAD /v1/sandboxes/{greedy}/files/big HTTP/1.1\r\nHost: localhost\r\n{named}\r\n\r\n"
            line.sendall(head.encode())
            lines.append(line)
        time.sleep(0.5)

        begun = time.monotonic()
        assert ask(http, neighbour, command="echo hi").json()["stdout"] == "hi\n"
        assert create(http)
        took = time.monotonic() - begun
        for line in lines:
            line.close()
    begun = time.monotonic()
    assert server.stop() == 0

    assert took < 10
    assert time.monotonic() - begun < 20


def test_sigterm_cuts_what_takes_too_long_and_says_so(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_DRAIN_S="0.5")
    with server.client() as http, ThreadPoolExecutor(2) as pool:
        sandbox = create(http)
        waiting = [pool.submit(ask, http, sandbox, command="echo begun; sleep 60") for _ in range(2)]
        eventually(lambda: http.get("/v1/metrics").json()["waiting"] == 1)

        begun = time.monotonic()
        status = server.stop()
        took = time.monotonic() - begun

        answers = [each.result() for each in waiting]
    assert (status, took < 6) == (0, True), server.log()
    assert all(answer.json()["state"] == "interrupted" for answer in answers)
    server.start()
    with server.client() as http:
        runs = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]
        assert [each["state"] for each in runs] == ["interrupted", "interrupted"]
        http.get("/v1/languages")
        assert cells(server) == []
