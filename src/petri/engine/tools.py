"""Programs of this host that the server itself runs and waits for: installers.

They run as the server, so none of them may ever run what a project or a package brought along; that is for
cells. What they are told is data: words, a made environment, and nothing of the server's own.
"""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from petri.engine.taps import Tap
from petri.errors import Unavailable
from petri.threads import settled

_KEPT_BYTES = 64 << 20
_SHOWN_BYTES = 64 << 10
_DRAIN_S = 2
_LOOK_S = 0.25
_REAPED_S = 0.005
_LARGEST_FILE = 8 << 30
"""Of one file: what unpacks to more was made to fill a disk."""
_BOUND = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes the tool, once the kernel knows that it is to be killed with the server (PR_SET_PDEATHSIG).

A killed server can end nobody, and an installer may go on for minutes, in folders the next life clears.
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """What to run on this host: a program that was installed with the server or by its operator."""

    argv: Sequence[str]
    folder: Path
    env: Mapping[str, str]
    timeout_s: float
    said: Callable[[str], None] = lambda _: None
    """Takes each line it writes on stderr, as it comes; must not raise."""
    may_go_on: Callable[[], bool] = lambda: True
    """Asked now and then; once it says no, the tool is ended."""
    told: bytes = b""
    """Its input: what is for nobody else on this host to read, as its words are."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How it ended, and what it said."""

    status: int | None
    """The exit code, or the negative number of a signal; None when its time was up, or it might not go on."""
    stdout: bytes
    stderr: str
    """The last of it, if it was much."""


async def run_tool(tool: Tool) -> Finished:
    """Run `tool` to its end, whatever that end is.

    On every way out of here, cancellation included, it and all it started in its group are dead and reaped.
    """
    child = _spawn(tool)
    assert child.stdout is not None
    assert child.stderr is not None
    kept, lines = bytearray(), _Lines(tool.said)
    taps = [
        Tap(os.dup(child.stdout.fileno()), lambda chunk: _keep(kept, chunk)),
        Tap(os.dup(child.stderr.fileno()), lines.take),
    ]
    for pipe in (child.stdout, child.stderr):
        pipe.close()
    gone = _gone(child.pid)
    try:
        in_time = await _ended_by_itself(gone, tool)
    finally:
        _kill_group(child.pid)
        await settled(gone)
        child.wait()  # it is dead: this only takes its status
        await _emptied(child.pid)
        await _drained(taps)
    lines.end()
    return Finished(child.returncode if in_time else None, bytes(kept), lines.tail)


def _spawn(tool: Tool) -> subprocess.Popen[bytes]:
    program = shutil.which(tool.argv[0])
    if program is None:
        raise Unavailable(f"{Path(tool.argv[0]).name} could not be started: there is no such program")
    bound = [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid())]
    told = _as_file(tool.told)
    try:
        child = subprocess.Popen(
            [*bound, program, *tool.argv[1:]],
            cwd=tool.folder,
            env=dict(tool.env),
            stdin=told,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=0o022,
        )
    except OSError as error:
        raise Unavailable(f"{Path(tool.argv[0]).name} could not be started: {error.strerror}") from error
    finally:
        os.close(told)
    with suppress(ProcessLookupError):
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    return child


def _as_file(content: bytes) -> int:
    """Return a descriptor to read `content` from, which nobody must feed."""
    descriptor = os.memfd_create("told", os.MFD_CLOEXEC)
    os.pwrite(descriptor, content, 0)
    return descriptor


def _gone(pid: int) -> asyncio.Future[None]:
    """Return a future of the end of `pid`, of the process and not of its pipes."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    descriptor = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        gone.set_result(None)

    loop.add_reader(descriptor, ended)
    return gone


async def _ended_by_itself(gone: asyncio.Future[None], tool: Tool) -> bool:
    deadline = time.monotonic() + tool.timeout_s
    while not gone.done() and time.monotonic() < deadline and tool.may_go_on():
        await asyncio.wait((gone,), timeout=min(_LOOK_S, deadline - time.monotonic()))
    return gone.done()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def _emptied(group: int) -> None:
    """Wait until nobody lives in a group that was killed: killed is not dead.

    Whoever is dead may be there for seconds more, until the host's init takes notice; there is nothing to
    wait for then.
    """
    deadline = time.monotonic() + _DRAIN_S
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            await asyncio.sleep(_REAPED_S)
            if not await asyncio.to_thread(_has_life, group):
                return


def _has_life(group: int) -> bool:
    """Say whether any process of a group is still more than an entry in the kernel's table."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it is gone by now
            words = stat.read_bytes().rpartition(b") ")[2].split()
            # One whose first thread ended is called a zombie, too, whatever its other threads do.
            if int(words[2]) == group and (words[0] not in (b"Z", b"X") or int(words[17]) > 1):
                return True
    return False


async def _drained(taps: Sequence[Tap]) -> None:
    """Take what is left in the pipes; who escaped the group may hold them open, and is not waited for."""
    for tap in taps:
        tap.hurry()
    try:
        await asyncio.wait([tap.ended for tap in taps], timeout=_DRAIN_S)
    finally:
        for tap in taps:
            tap.close()


def _keep(kept: bytearray, chunk: bytes) -> None:
    kept.extend(chunk[: max(0, _KEPT_BYTES - len(kept))])


class _Lines:
    """Cuts what comes into lines, and keeps the last of them."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self._said = said
        self._rest = b""
        self._tail = b""

    @property
    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def take(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk)[-_SHOWN_BYTES:]
        *whole, self._rest = (self._rest + chunk)[-_SHOWN_BYTES:].split(b"\n")
        for line in whole:
            self._said(line.decode(errors="replace"))

    def end(self) -> None:
        if self._rest:
            self._said(self._rest.decode(errors="replace"))
            self._rest = b""
