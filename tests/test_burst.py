"""Bursts: a hundred sandboxes born at once, a thousand runs in line. All are served, and in turn."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from benchmarks.footprint import footprint

from tests.calls import create, put, run
from tests.conftest import Server

pytestmark = pytest.mark.slow

BORN, IN_LINE, SANDBOXES = 100, 1000, 32
WITHIN_S = 240
"""Only bounds the unthinkable."""
GROWTH_BYTES = 64 << 20
"""What a thousand requests, all open at one time, may leave in a server's memory: allocators keep some."""
ECHO = "import sys\nprint(sys.argv[1])\n"


@asynccontextmanager
async def _callers(server: Server, count: int) -> AsyncIterator[httpx.AsyncClient]:
    """Give so many callers a line each."""
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with (
        asyncio.timeout(WITHIN_S),
        httpx.AsyncClient(base_url=server.url, limits=limits, timeout=WITHIN_S, trust_env=False) as http,
    ):
        yield http


async def _ask(http: httpx.AsyncClient, method: str, path: str, **how: Any) -> Any:
    answer = await http.request(method, path, **how)
    assert answer.status_code < 300, f"{answer.status_code} {answer.text}"
    return answer.json()


async def test_a_hundred_sandboxes_are_created_and_first_run_at_once(
    new_server: Callable[..., Server],
) -> None:
    server = new_server()

    async def live(http: httpx.AsyncClient, number: int) -> str:
        sandbox = (await _ask(http, "POST", "/v1/sandboxes", json={}))["id"]
        await _ask(http, "PUT", f"/v1/sandboxes/{sandbox}/files/main.py", content=ECHO)
        body = {"filename": "main.py", "args": [str(number)]}
        said: str = (await _ask(http, "POST", f"/v1/sandboxes/{sandbox}/exec", json=body))["stdout"]
        return said

    async with _callers(server, BORN) as http:
        said = await asyncio.gather(*(live(http, number) for number in range(BORN)))

    assert said == [f"{number}\n" for number in range(BORN)]
    assert "ERROR" not in server.log()


async def test_a_thousand_runs_in_line_are_served_in_turn_and_leave_nothing(
    new_server: Callable[..., Server],
) -> None:
    server = new_server()
    assert server.process is not None
    with server.client() as http:
        sandboxes = [create(http) for _ in range(SANDBOXES)]
        for sandbox in sandboxes:
            put(http, sandbox, "main.py", ECHO)
            run(http, sandbox, filename="main.py", args=["warm"])
        before = footprint(server.process.pid, server.home / "petri")

        ended = await _all_at_once(server, sandboxes)

        after = footprint(server.process.pid, server.home / "petri")
        assert after.server_bytes - before.server_bytes < GROWTH_BYTES
        assert after.launcher_bytes - before.launcher_bytes < GROWTH_BYTES // 8
        assert len(after.server_descriptors) <= len(before.server_descriptors) + SANDBOXES
        _assert_fair(ended, sandboxes)
        for sandbox in sandboxes:
            _assert_in_order(http, sandbox)
        assert run(http, sandboxes[0], filename="main.py", args=["fine"])["stdout"] == "fine\n"
    assert "ERROR" not in server.log()


async def _all_at_once(server: Server, sandboxes: list[str]) -> list[str]:
    """Ask for a thousand runs; return whose each was, in the order they ended."""
    ended = []

    async def one(http: httpx.AsyncClient, number: int) -> None:
        sandbox = sandboxes[number % SANDBOXES]
        body = {"filename": "main.py", "args": [str(number)]}
        answer = await http.post(f"/v1/sandboxes/{sandbox}/exec", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["stdout"] == f"{number}\n"
        ended.append(sandbox)

    async with _callers(server, IN_LINE) as http:
        await asyncio.gather(*(one(http, number) for number in range(IN_LINE)))
    return ended


def _assert_fair(ended: list[str], sandboxes: list[str]) -> None:
    """When the first sandbox has all its runs behind it, every other has half of them."""
    so_far: Counter[str] = Counter()
    for sandbox in ended:
        so_far[sandbox] += 1
        if so_far[sandbox] == IN_LINE // SANDBOXES:
            break
    assert min(so_far[sandbox] for sandbox in sandboxes) >= IN_LINE // SANDBOXES // 2, so_far


def _assert_in_order(http: httpx.Client, sandbox: str) -> None:
    """Whoever asked first was run first."""
    told = http.get(f"/v1/sandboxes/{sandbox}/runs", params={"limit": 100}).json()
    runs = sorted(told["runs"], key=lambda each: each["started_at"])
    assert len(runs) > IN_LINE // SANDBOXES
    assert [each["asked_at"] for each in runs] == sorted(each["asked_at"] for each in runs)
