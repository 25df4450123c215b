"""The life of one cell: forked, watched, killed when asked, gone without a trace.

A cell is over when three things are true: its bubblewrap has been reaped, the first process inside is no
more, and its cgroup, where it has one, is empty and removed. Only then is anybody told.
"""

import contextlib
import ctypes
import errno
import os
import re
import resource
import signal
from dataclasses import dataclass
from typing import Any, NoReturn

from petri.launcher.cgroups import V2, Hierarchy, Limits, Spent, Unusable

_PATH = "/usr/local/bin:/usr/bin:/bin"
_LAUNCHER_ENV = {"PATH": _PATH}
"""All a bubblewrap gets: its own environment can be read from inside the cell."""
_CLONE_INTO_CGROUP = 0x2_0000_0000
_SYS_CLONE3 = 435
_COULD_NOT = 126


@dataclass
class Cell:
    """One cell that is not over yet."""

    id: int
    pid: int
    status_fd: int
    """Where bubblewrap says which process is the first one inside."""
    group: str | None
    said: bytes = b""
    """What bubblewrap said so far: it writes its line in pieces."""
    inner_pid: int | None = None
    wait_status: int | None = None
    used: resource.struct_rusage | None = None
    doomed: bool = False


class Cells:
    """Every cell there is."""

    def __init__(self, hierarchy: Hierarchy | None) -> None:
        self._hierarchy = hierarchy
        self._living: dict[int, Cell] = {}

    def __len__(self) -> int:
        return len(self._living)

    def spawn(self, order: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        """Start what `order` says, in a group of its own; raises `OSError` when it cannot be started."""
        group = None
        if self._hierarchy is not None:
            group = f"cell-{order['id']}"
            self._make_group(group, Limits(**order["limits"]))
        try:
            self._living[order["id"]] = self._start(order, descriptors, group)
        except OSError:
            self._discard(group)
            raise

    def _start(self, order: dict[str, Any], descriptors: tuple[int, ...], group: str | None) -> Cell:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        doors: list[int] = []
        try:
            pid = self._clone(group)
            if pid is None:
                doors = self._hierarchy.doors(group) if self._hierarchy is not None and group else []
                pid = os.fork()
            if pid == 0:
                _become(order, (*descriptors, writing), doors)
        except OSError:
            os.close(reading)
            raise
        finally:
            for descriptor in (writing, *doors):
                os.close(descriptor)
        os.set_blocking(reading, False)
        return Cell(order["id"], pid, reading, group)

    def kill(self, cell_id: int) -> None:
        """End the cell, however far it has come. Killing one that is over is fine."""
        if cell := self._living.get(cell_id):
            cell.doomed = True
            self._strike(cell)

    def kill_all(self) -> None:
        """End every cell."""
        for cell_id in list(self._living):
            self.kill(cell_id)

    def reap(self) -> None:
        """Collect whoever died, our orphans included."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for cell in self._living.values():
                if cell.pid == pid:
                    cell.wait_status, cell.used = status, used

    def finished(self) -> list[dict[str, Any]]:
        """Return what to say of each cell that is over by now, and forget it."""
        over = [cell for cell in self._living.values() if self._is_over(cell)]
        return [self._close(cell) for cell in over]

    def waiting(self) -> bool:
        """Say whether some cell is on its way out, so that it is worth looking again soon."""
        return any(cell.doomed or cell.wait_status is not None for cell in self._living.values())

    def _make_group(self, group: str, limits: Limits) -> None:
        assert self._hierarchy is not None
        try:
            self._hierarchy.make(group, limits)
        except (OSError, Unusable) as error:
            self._discard(group)
            raise OSError(errno.EAGAIN, f"the cell's cgroup could not be made: {error}") from error

    def _clone(self, group: str | None) -> int | None:
        """On cgroup v2 have a child that is born in its group, since moving it would cost 10 ms."""
        if isinstance(self._hierarchy, V2) and group is not None:
            return _clone_into(self._hierarchy, group)
        return None

    def _strike(self, cell: Cell) -> None:
        if self._hierarchy is not None and cell.group is not None:
            self._hierarchy.kill(cell.group)
        # The first process inside takes all others with it, and bubblewrap then ends by itself.
        if inner := self._living_inner(cell):
            _sigkill(inner)
        elif cell.wait_status is None:
            _sigkill(cell.pid)

    def _living_inner(self, cell: Cell) -> int | None:
        inner = self._inner(cell)
        if inner is None or not _exists(inner):
            return None
        # A pid that was ours a moment ago may be a stranger's now, but then it has another parent.
        return inner if _parent(inner) in (cell.pid, os.getpid()) else None

    def _inner(self, cell: Cell) -> int | None:
        if cell.inner_pid is None:
            try:
                said = os.read(cell.status_fd, 4096)
            except BlockingIOError:
                return None
            cell.said += said
            cell.inner_pid = _child_pid(cell.said)
        return cell.inner_pid

    def _is_over(self, cell: Cell) -> bool:
        if cell.wait_status is None:
            if cell.doomed:
                self._strike(cell)
            return False
        if self._hierarchy is not None and cell.group is not None:
            if self._hierarchy.processes(cell.group):
                self._hierarchy.kill(cell.group)
                return False
            return True
        # With no cgroup: bubblewrap may have been killed during set-up with its child left behind.
        if inner := self._living_inner(cell):
            _sigkill(inner)
            return False
        return True

    def _close(self, cell: Cell) -> dict[str, Any]:
        del self._living[cell.id]
        os.close(cell.status_fd)
        spent = self._spent(cell)
        self._discard(cell.group)
        return {
            "says": "ended",
            "id": cell.id,
            "status": cell.wait_status,
            "cpu_ms": spent.cpu_ms,
            "peak_memory_bytes": spent.peak_memory_bytes,
            "oom_killed": spent.oom_killed,
        }

    def _spent(self, cell: Cell) -> Spent:
        assert cell.used is not None
        waited = Spent((cell.used.ru_utime + cell.used.ru_stime) * 1e3, cell.used.ru_maxrss * 1024, False)
        if self._hierarchy is None or cell.group is None:
            return waited
        counted = self._hierarchy.spent(cell.group)
        return Spent(
            counted.cpu_ms or waited.cpu_ms,
            counted.peak_memory_bytes or waited.peak_memory_bytes,
            counted.oom_killed,
        )

    def _discard(self, group: str | None) -> None:
        if self._hierarchy is not None and group is not None:
            self._hierarchy.remove(group)


def _become(order: dict[str, Any], descriptors: tuple[int, ...], doors: list[int]) -> NoReturn:
    """Turn the freshly forked child into bubblewrap. Never returns, never raises.

    Every step here is paid by every cell, at the price of copied pages: what can be done in advance is.
    """
    try:
        os.setsid()
        for door in doors:
            os.write(door, b"0")
        for source, target in zip(descriptors, order["targets"], strict=True):
            os.dup2(source, target)
        os.closerange(max(order["targets"]) + 1, 1 << 20)
        _limit(resource.RLIMIT_NOFILE, order["open_files"])
        if order["uid"] is not None:
            os.setgroups([])
            os.setresgid(order["uid"], order["uid"], order["uid"])
            os.setresuid(order["uid"], order["uid"], order["uid"])
        os.execve(order["argv"][0], order["argv"], _LAUNCHER_ENV)
    except BaseException as error:  # noqa: BLE001 - there is nobody to catch it in this process
        os.write(2, f"petri-launcher: {error}\n".encode())
    os._exit(_COULD_NOT)


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (value, value))


def _clone_into(hierarchy: V2, group: str) -> int | None:
    """Fork into the group by clone3; None where the kernel is older than 5.7."""
    descriptor = hierarchy.descriptor(group)
    try:
        order = (ctypes.c_uint64 * 11)()
        order[0], order[4], order[10] = _CLONE_INTO_CGROUP, signal.SIGCHLD, descriptor
        # PyDLL keeps the interpreter's lock: the child comes back from this call holding it, like a fork's.
        libc = ctypes.PyDLL(None, use_errno=True)
        pid = libc.syscall(ctypes.c_long(_SYS_CLONE3), ctypes.byref(order), ctypes.c_size_t(88))
        return int(pid) if pid >= 0 else None
    finally:
        os.close(descriptor)


def _child_pid(said: bytes) -> int | None:
    found = re.search(rb'"child-pid": (\d+)[,\s}]', said)
    return int(found[1]) if found else None


def _exists(pid: int) -> bool:
    """Say whether `pid` lives; a zombie does not."""
    return _stat(pid)[:1] not in (b"", b"Z", b"X")


def _parent(pid: int) -> int:
    fields = _stat(pid).split()
    return int(fields[1]) if len(fields) > 1 else 0


def _stat(pid: int) -> bytes:
    """Return what /proc says of `pid` behind its name: state, parent, …"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2]
    except OSError:
        return b""


def _sigkill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
