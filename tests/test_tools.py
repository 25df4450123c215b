"""Programs that the server runs itself: bounded, heard line by line, and gone whatever happens."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from petri.engine.tools import Finished, Tool, _has_life, run_tool
from petri.errors import Unavailable
from tests.calls import eventually

SERVER = """
import asyncio, sys
from pathlib import Path
from petri.engine.tools import Tool, run_tool

asyncio.run(run_tool(Tool(["/bin/sh", "-c", sys.argv[1]], Path("/"), {"PATH": "/usr/bin:/bin"}, 60)))
"""
HEADLESS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"""
"""Ends its first thread alone, by the system call `exit`."""


def sh(script: str, *, timeout_s: float = 20, **others: object) -> Tool:
    """Return a shell as a tool."""
    return Tool(["/bin/sh", "-c", script], Path("/"), {"PATH": "/usr/bin:/bin"}, timeout_s, **others)  # type: ignore[arg-type]


async def test_what_it_says_and_how_it_ends_is_told() -> None:
    lines: list[str] = []

    done = await run_tool(sh("echo out; echo one >&2; printf two >&2; exit 3", said=lines.append))

    assert done == Finished(3, b"out\n", "one\ntwo")
    assert lines == ["one", "two"]


async def test_it_sees_nothing_of_the_servers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETRI_API_KEY", "secret-secret-secret")

    done = await run_tool(sh("env"))

    assert b"secret" not in done.stdout


async def test_one_whose_time_is_up_is_ended() -> None:
    begun = time.monotonic()

    done = await run_tool(sh("sleep 60", timeout_s=0.3))

    assert done.status is None
    assert time.monotonic() - begun < 5


async def test_one_that_may_not_go_on_is_ended_with_all_it_started(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    # Whoever holds no pipe of ours is waited for all the same.
    start = "for n in $(seq 100); do sleep 60 > /dev/null 2>&1 & echo $!; done"

    done = await run_tool(sh(f"{start}; touch {ready}; wait", may_go_on=lambda: not ready.exists()))

    assert done.status is None
    assert len(done.stdout.split()) == 100
    assert [pid for pid in done.stdout.split() if _lives(int(pid))] == []


async def test_who_cancels_leaves_nothing_running(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run_tool(sh(f"echo $$ > {pid}; sleep 60")))
        while not pid.exists() or not pid.read_text().strip():  # noqa: ASYNC110 - written by the child
            await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    assert not _lives(int(pid.read_text()))


def test_a_tool_does_not_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = subprocess.Popen([sys.executable, "-c", SERVER, f"echo $$ > {pid}; exec sleep 60"])
    eventually(lambda: pid.exists() and pid.read_text().strip() != "")

    server.kill()
    server.wait()

    eventually(lambda: not _lives(int(pid.read_text())))


def test_the_dead_are_not_waited_for_until_somebody_takes_notice() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    assert _has_life(child.pid)

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    os.killpg(child.pid, 0)  # the group is still there
    assert not _has_life(child.pid)
    child.wait()


def test_who_has_lost_its_first_thread_is_not_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", HEADLESS], start_new_session=True)
    eventually(lambda: _state_of(child.pid) == "Z")

    assert _has_life(child.pid)
    child.kill()
    child.wait()


@pytest.mark.long
async def test_who_escapes_and_holds_the_pipes_is_not_waited_for() -> None:
    begun = time.monotonic()

    done = await run_tool(sh("setsid sleep 8 & echo done"))

    assert done.stdout == b"done\n"
    assert time.monotonic() - begun < 6


async def test_a_program_that_is_not_there_is_an_error_with_its_name() -> None:
    with pytest.raises(Unavailable, match="nosuch could not be started"):
        await run_tool(Tool(["/usr/bin/nosuch"], Path("/"), {}, 1))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return _state_of(pid) != "Z"


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
