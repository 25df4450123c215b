"""kill -9 of a server and its launcher in one moment, whichever it is: nothing outlives them."""

import ctypes
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from benchmarks.footprint import launcher_of

from petri.launcher import processes
from tests.calls import ask, create, eventually
from tests.conftest import Server

pytestmark = pytest.mark.slow

PR_SET_CHILD_SUBREAPER = 36
ROUNDS = 25
COMMANDS = (
    {"code": "print(1)"},  # in a cell that stood ready
    {"command": "true"},
    {"command": "setsid sleep 300 & sleep 0.05"},
    {"command": "sleep 300"},
)


@pytest.fixture
def orphans() -> Iterator[Callable[[], list[int]]]:
    """Those who lost their parent and still live: they become children of this process."""
    ours = frozenset(processes.children())
    adopt = ctypes.CDLL(None).prctl
    adopt(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def living() -> list[int]:
        adopted = [pid for pid in processes.children() if pid not in ours]
        for pid in adopted:
            os.waitpid(pid, os.WNOHANG)
        return [pid for pid in adopted if processes.exists(pid)]

    yield living
    adopt(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for pid in living():
        processes.sigkill(pid)


def keep_busy(server: Server, commands: random.Random, stop: threading.Event) -> None:
    """Run one thing after another in a sandbox, until the server dies."""
    with server.client() as http:
        try:
            sandbox = create(http)
            while not stop.is_set():
                ask(http, sandbox, **commands.choice(COMMANDS), timeout_s=20)
        except (httpx.TransportError, AssertionError):
            return


def kill_both(server: Server, after_s: float, order: random.Random) -> None:
    assert server.process is not None
    launcher = launcher_of(server.process.pid)
    threading.Event().wait(after_s)
    for pid in order.sample((server.process.pid, launcher), 2):
        os.kill(pid, signal.SIGKILL)


def test_nothing_outlives_a_server_killed_together_with_its_launcher(
    new_server: Callable[..., Server], orphans: Callable[[], list[int]]
) -> None:
    server, chance = new_server(), random.Random(7)
    for number in range(ROUNDS):
        stop = threading.Event()
        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(keep_busy, server, random.Random(chance.random()), stop)
            kill_both(server, chance.uniform(0.2, 0.9), chance)
            stop.set()
        server.wait()

        eventually(lambda: orphans() == [])

        if number < ROUNDS - 1:
            server.start()
