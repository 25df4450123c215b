"""The life of one cell: forked, watched, killed when asked, gone without a trace.

A cell is over when three things are true: its bubblewrap has been reaped, the first process inside is no
more, and its cgroup, where it has one, is empty and removed. Only then is anybody told.
"""

import contextlib
import errno
import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from petri.launcher import processes
from petri.launcher.cgroups import Hierarchy, Limits, Spent, Unusable, name_of
from petri.launcher.networks import Network, Networks
from petri.launcher.terminals import Devpts, Terminals

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
"""All a bubblewrap gets: its own environment can be read from inside the cell."""
_BORN = "b"
_PID_BYTES = 4
_REMOVED_S = 1.0
"""How long the end of a cell may wait for its empty group to be removed; milliseconds are usual."""


@dataclass
class Cell:
    """One cell that is not over yet."""

    id: int
    status_fd: int
    """Where bubblewrap says which process is the first one inside."""
    group: str | None
    sandbox: str | None
    """Whose next cell gets its network; nobody's if None."""
    network: Network | None = None
    devpts: Devpts | None = None
    """Its terminals, where we make some and no network brings them."""
    pid: int = -1
    said: bytes = b""
    """What bubblewrap said so far: it writes its line in pieces."""
    inner_pid: int | None = None
    wait_status: int | None = None
    used: resource.struct_rusage | None = None
    doomed: bool = False
    spent: Spent | None = None
    """Known once it is empty."""
    told_by: float = 0.0
    """When its end is told though its group cannot be removed."""


class Cells:
    """Every cell there is."""

    def __init__(
        self,
        gate: str,
        hierarchy: Hierarchy | None,
        networks: Networks | None,
        terminals: Terminals | None,
    ) -> None:
        self._gate = gate
        """The program that becomes bubblewrap; see `cell/gate.c`."""
        self._hierarchy = hierarchy
        self._networks = networks
        self._terminals = terminals
        self._living: dict[int, Cell] = {}
        self._children: dict[int, Cell] = {}
        """The same by the process that was started for each, until it is reaped."""
        self._going: dict[int, Cell] = {}
        """Those that are reaped, or are to be killed."""
        self._left: set[str] = set()
        """Groups that are empty and could not be removed."""

    def __len__(self) -> int:
        return len(self._living)

    def spawn(self, order: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        """Start what `order` says, in a group of its own; raises `OSError` when it cannot be started."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        cell = Cell(order["id"], reading, group=None, sandbox=order.get("network"))
        try:
            cell.group = self._group(order)
            cell.network = self._network(cell.sandbox)
            if cell.network is None and self._terminals is not None:
                cell.devpts = self._terminals.make()
            cell.pid = self._start(order, (*descriptors, writing), cell)
        except OSError:
            os.close(reading)
            for lent in (cell.network, cell.devpts):
                if lent is not None:
                    lent.close()  # for good: we do not know whether anybody is in there
            self._discard(cell.group)
            raise
        finally:
            os.close(writing)
        self._living[cell.id] = self._children[cell.pid] = cell

    def _group(self, order: dict[str, Any]) -> str | None:
        if self._hierarchy is None:
            return None
        group = name_of(order["id"])
        try:
            self._hierarchy.make(group, Limits(**order["limits"]), aside=bool(order.get("waits")))
        except (OSError, Unusable) as error:
            self._discard(group)
            raise OSError(errno.EAGAIN, f"the cell's cgroup could not be made: {error}") from error
        return group

    def _network(self, sandbox: str | None) -> Network | None:
        """Return the network of a new cell; None where we make none, and bubblewrap was told to.

        Where we do, no cell begins in the host's, even if no order is as it should be.
        """
        if self._networks is not None:
            return self._networks.make() if sandbox is None else self._networks.take(sandbox)
        if sandbox is not None:
            raise OSError(errno.ENOSYS, "this launcher makes no networks")
        return None

    def _start(self, order: dict[str, Any], descriptors: tuple[int, ...], cell: Cell) -> int:
        if self._hierarchy is None or cell.group is None:
            return self._spawn(order, descriptors, [], "", cell)
        doors = self._hierarchy.doors(cell.group)
        hearing = -1
        try:
            if self._hierarchy.way_in == _BORN:
                hearing, telling = os.pipe2(os.O_CLOEXEC)
                doors.append(telling)
            pid = self._spawn(order, descriptors, doors, self._hierarchy.way_in, cell)
        except OSError:
            if hearing >= 0:
                os.close(hearing)
            raise
        finally:
            for door in doors:
                os.close(door)
        return pid if hearing < 0 else _told(hearing)

    def _spawn(
        self,
        order: dict[str, Any],
        descriptors: tuple[int, ...],
        doors: list[int],
        way_in: str,
        cell: Cell,
    ) -> int:
        """Start the gate. What it inherits is what is named here: everything else closes as it starts."""
        targets = order["targets"]
        first = max(targets) + 1
        devpts = cell.devpts if cell.network is None else cell.network.devpts
        lent = [each.namespace for each in (cell.network, devpts) if each is not None]
        behind = range(first, first + len(doors) + len(lent))
        sources = zip((*descriptors, *doors, *lent), (*targets, *behind), strict=True)
        words = (
            f"{way_in}{first}-{first + len(doors) - 1}" if doors else "-",
            "-" if cell.network is None else str(first + len(doors)),
            str(first),
            ",".join(f"{kind}={most}" for kind, most in order["rlimits"]) or "-",
            "-" if devpts is None else str(behind[-1]),
            "-" if order["uid"] is None else str(order["uid"]),
        )
        return os.posix_spawn(
            self._gate,
            ["petri-gate", *words, *order["argv"]],
            _ENVIRONMENT,
            file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in sources],
            setsid=True,
        )

    def kill(self, cell_id: int) -> None:
        """End the cell, however far it has come. Killing one that is over is fine."""
        if cell := self._living.get(cell_id):
            cell.doomed = True
            self._going[cell_id] = cell
            if self._hierarchy is not None and cell.group is not None:
                with contextlib.suppress(OSError):
                    self._hierarchy.come_first(cell.group)  # to die takes a moment of a processor as well
            self._strike(cell)

    def age(self, cell_id: int) -> None:
        """Have a cell make way for younger ones. One that is over needs not."""
        cell = self._living.get(cell_id)
        if cell is not None and cell.group is not None and self._hierarchy is not None:
            with contextlib.suppress(OSError):  # it is a courtesy
                self._hierarchy.give_way(cell.group)

    def hurry(self, cell_id: int) -> None:
        """Have a cell that waited come before those that still do. One that is over needs not."""
        cell = self._living.get(cell_id)
        if cell is not None and cell.group is not None and self._hierarchy is not None:
            with contextlib.suppress(OSError):  # it is a courtesy
                self._hierarchy.come_first(cell.group)

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
            if cell := self._children.pop(pid, None):
                cell.wait_status, cell.used = status, used
                self._going[cell.id] = cell

    def finished(self) -> Iterator[dict[str, Any]]:
        """Give what to say of each cell that is over by now; once it was said, let go of what the cell had.

        The server waits for the one and nobody for the other.
        """
        for cell in list(self._going.values()):
            if self._is_over(cell):
                del self._living[cell.id], self._going[cell.id]
                yield self._ending(cell)
                self._let_go(cell)

    def waiting(self) -> bool:
        """Say whether some cell is on its way out, so that it is worth looking again soon."""
        return bool(self._going)

    def clear(self) -> bool:
        """Try again to remove what could not be; say whether nothing of the kind is left."""
        for group in list(self._left):
            self._discard(group)
        return not self._left

    def drop_idle_networks(self) -> float | None:
        """Let go of a network that nobody has used for long; return after how many seconds to look again."""
        return None if self._networks is None else self._networks.drop_idle()

    def _strike(self, cell: Cell) -> None:
        if self._hierarchy is not None and cell.group is not None:
            self._hierarchy.kill(cell.group)
        # The first process inside takes all others with it, and bubblewrap then ends by itself.
        if inner := self._living_inner(cell):
            processes.sigkill(inner)
        elif cell.wait_status is None:
            processes.sigkill(cell.pid)

    def _living_inner(self, cell: Cell) -> int | None:
        inner = self._inner(cell)
        if inner is None or not processes.exists(inner):
            return None
        # A pid that was ours a moment ago may be a stranger's now, but then it has another parent.
        return inner if processes.parent(inner) in (cell.pid, os.getpid()) else None

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
            return self._is_removed(self._hierarchy, cell, cell.group)
        # With no cgroup: bubblewrap may have been killed during set-up with its child left behind.
        if inner := self._living_inner(cell):
            processes.sigkill(inner)
            return False
        return True

    def _is_removed(self, hierarchy: Hierarchy, cell: Cell, group: str) -> bool:
        """Say whether its group is gone, which takes that nobody is left in it.

        An empty one has its time to go: the kernel may need a moment or more.
        """
        cell.spent = cell.spent or self._spent(cell)  # before: it goes with the group
        if hierarchy.remove(group):
            self._left.discard(group)
            return True
        if not hierarchy.is_empty(group):
            cell.spent = None
            hierarchy.kill(group)
            return False
        self._left.add(group)
        cell.told_by = cell.told_by or time.monotonic() + _REMOVED_S
        return time.monotonic() > cell.told_by

    def _ending(self, cell: Cell) -> dict[str, Any]:
        spent = cell.spent or self._spent(cell)
        return {"says": "ended", "id": cell.id, "status": cell.wait_status, **spent._asdict()}

    def _let_go(self, cell: Cell) -> None:
        os.close(cell.status_fd)
        if cell.devpts is not None:
            cell.devpts.close()
        if cell.network is not None and self._networks is not None:
            if cell.sandbox is None:
                cell.network.close()
            else:
                self._networks.give_back(cell.sandbox, cell.network)

    def _spent(self, cell: Cell) -> Spent:
        counted = Spent(0, 0, False)
        if self._hierarchy is not None and cell.group is not None:
            counted = self._hierarchy.spent(cell.group)
        waited = cell.used
        assert waited is not None
        return Spent(
            counted.cpu_ms or (waited.ru_utime + waited.ru_stime) * 1e3,
            counted.peak_memory_bytes or waited.ru_maxrss * 1024,
            counted.oom_killed,
        )

    def _discard(self, group: str | None) -> None:
        if self._hierarchy is not None and group is not None:
            if self._hierarchy.remove(group):
                self._left.discard(group)
            else:
                self._left.add(group)


def _told(hearing: int) -> int:
    """Return the pid of the process that the gate had in its stead."""
    try:
        told = os.read(hearing, _PID_BYTES)
    finally:
        os.close(hearing)
    if len(told) < _PID_BYTES:
        raise ChildProcessError("the cell's process could not be born in its cgroup")
    return int.from_bytes(told, sys.byteorder)


def _child_pid(said: bytes) -> int | None:
    found = re.search(rb'"child-pid": (\d+)[,\s}]', said)
    return int(found[1]) if found else None
