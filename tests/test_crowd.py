"""A thousand at once: every one is run, in its turn, and the server is none the worse for it."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

import httpx
import pytest
from benchmarks.footprint import footprint

from tests.calls import ask, create, eventually, run
from tests.conftest import Server

pytestmark = pytest.mark.slow

CROWD, SANDBOXES, AT_ONCE = 1000, 100, 4
TIMES = 5
"""Of a look at one sandbox: a refusal asks the ledger no more than that."""
GROWTH_BYTES = 200 << 20


def test_a_thousand_at_once_are_all_run(new_server: Callable[..., Server]) -> None:
    server = new_server()
    assert server.process is not None
    with server.client() as http:
        sandboxes = [create(http) for _ in range(SANDBOXES)]
        run(http, sandboxes[0], command="true")
        before = footprint(server.process.pid, server.home / "petri")

        answers = _crowd(server, sandboxes)

        counted = Counter(answer.status_code for answer in answers)
        assert counted == {200: CROWD}
        assert all(answer.json()["stdout"] == "done\n" for answer in answers)
        after = footprint(server.process.pid, server.home / "petri")
        assert after.server_bytes - before.server_bytes < GROWTH_BYTES
        assert (after.processes, after.groups) == ((), ())
        for number in range(100):
            assert run(http, sandboxes[number], command="echo fine")["stdout"] == "fine\n"


def _crowd(server: Server, sandboxes: list[str]) -> list[httpx.Response]:
    """Have a thousand ask at the same moment, each over a connection that is open already."""
    ready = threading.Barrier(CROWD)

    def one(number: int) -> httpx.Response:
        with server.client() as http:
            http.get("/health")
            ready.wait()
            return ask(http, sandboxes[number % SANDBOXES], command="sleep 0.2; echo done")

    with ThreadPoolExecutor(CROWD) as pool:
        return list(pool.map(one, range(CROWD)))


def test_a_refusal_takes_little_longer_than_a_look(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_MAX_RUNS=str(AT_ONCE), PETRI_MAX_QUEUED_RUNS="0")
    with server.client() as http, ThreadPoolExecutor(AT_ONCE) as pool:
        busy = [create(http) for _ in range(AT_ONCE)]
        waiting = [pool.submit(run, http, sandbox, command="sleep 60") for sandbox in busy]
        eventually(lambda: http.get("/v1/metrics").json()["running"] == AT_ONCE)
        one_more, looks, refusals = create(http), [], []
        for number in range(200):
            looks.append(_took(partial(http.get, f"/v1/sandboxes/{one_more}")))
            wanted = busy[0] if number % 2 else one_more
            refusals.append(_took(partial(_refused, http, wanted)))
        for sandbox in busy:
            http.delete(f"/v1/sandboxes/{sandbox}")
        [each.exception() for each in waiting]

    assert median(refusals) < TIMES * median(looks)


def _took(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _refused(http: httpx.Client, sandbox: str) -> None:
    answer = ask(http, sandbox, command="true")
    assert (answer.status_code, "Retry-After" in answer.headers) == (429, True), answer.text
