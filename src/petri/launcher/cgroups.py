"""Limits and accounting of a cell, on cgroup v2 and on v1 or hybrid hosts.

Every cell has a group of its own, made before its first process and removed after its last. All groups lie
under one base whose name holds the server's tag, or beside it and begin with its name, so that the next life
finds what a crash left.
"""

import contextlib
import os
import resource

from petri.launcher.descriptors import all_or_none
from petri.launcher.groups import (
    Unusable,
    is_empty,
    is_idle,
    mkdir,
    pids,
    read,
    read_at_once,
    rmdir,
    set_idle,
    value,
    write,
    write_if_there,
)
from petri.launcher.hierarchy import Hierarchy, Limits, Spent
from petri.launcher.processes import sigkill
from petri.launcher.sweeping import sweep

__all__ = ["Hierarchy", "Limits", "Spent", "Unusable", "find", "known", "name_of", "sweep"]

NEEDED = ("cpu", "memory", "pids")
_LEAF = "petri-server"
_PERIOD_US = 100_000
_SMALLEST_QUOTA_US = 1_000
"""The kernel refuses less than a millisecond a period."""
_YOUNG_TO_OLD = 8
"""How much more of a contested processor a cell gets while it is young."""
_YOUNG_SHARES = 256
"""On v1, of a program's 1024: cells compete with the server one by one, and it must come between many."""
_SOCKET_BYTES = 1 << 25
"""What a cell's sockets may hold on v1, which does not count it as memory. The kernel has one purse for the
TCP of the whole host, about a tenth of its memory: filled from a cell, the server could not send either."""
_PURSE = "/proc/sys/net/ipv4/tcp_mem"

_Where = tuple[str, int | None]
"""A path, and the descriptor it begins at; None if it begins at the top."""


def find(tag: str) -> Hierarchy:
    """Return the hierarchy this process may use, its base folders made, or raise `Unusable`."""
    mounts = _mounts()
    own = _own_groups()
    if "" in mounts and set(NEEDED) <= set(read(f"{mounts['']}/cgroup.controllers").split()):
        return V2.under(mounts[""], own.get("", "/"), tag)
    missing = [name for name in NEEDED if name not in mounts]
    if missing:
        raise Unusable(f"no cgroup controller for {', '.join(missing)} is mounted")
    return V1.under(mounts, own, tag)


def known(folders: dict[str, str] | None) -> Hierarchy | None:
    """Return the hierarchy that another process found, given its `folders`: to look, and no more."""
    if folders is None:
        return None
    return V2(folders[""]) if "" in folders else V1(folders)


def name_of(cell_id: int) -> str:
    """Return what the group of a cell is called."""
    return f"cell-{cell_id}"


class V1:
    """One folder for each controller; a task moves itself by writing `0` to `tasks`.

    Writing to `tasks` and not to `cgroup.procs`, and from inside: the kernel then takes no lock over
    all thread groups, which costs about 12 ms on five hierarchies.

    Of processors, cells have their groups beside the base: a group that is idle is so to its siblings alone,
    and the server is one only there. Inside, a cell that waits would take turns with it like any program.
    """

    version = 1
    way_in = "w"

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders
        self._begin({folder: (folder, None) for folder in folders.values()})

    @classmethod
    def under(cls, mounts: dict[str, str], own: dict[str, str], tag: str) -> "V1":
        """Return the hierarchy with a base folder beside this process in every controller."""
        wanted = [name for name in (*NEEDED, "cpuacct") if name in mounts]
        folders = {name: f"{mounts[name]}{own.get(name, '/').rstrip('/')}/{tag}" for name in wanted}
        for folder in folders.values():
            mkdir(folder)
        return cls(folders)

    def bases(self) -> list[str]:
        return sorted(set(self._folders.values()))

    def folders(self) -> dict[str, str]:
        return self._folders

    def hold(self) -> None:
        held = {folder: _held(folder) for folder in self.bases()}
        self._begin({folder: (os.path.basename(folder), at) for folder, at in held.items()})
        self._folders = {name: _below(held[folder], folder) for name, folder in self._folders.items()}

    def _begin(self, seen: dict[str, _Where]) -> None:
        """Take note of how the path of a group begins in each hierarchy, and from where on."""
        bounded = self._folders["memory"], self._folders["pids"]  # as a whole: with a group around them
        self._stems = {
            name: (seen[folder][0] + ("/" if folder in bounded else "-"), seen[folder][1])
            for name, folder in self._folders.items()
        }
        self._distinct = list(dict.fromkeys((self._stems["pids"], *self._stems.values())))
        """`pids` first: who is in any of them is in that one."""

    def make(self, name: str, limits: Limits, *, aside: bool) -> None:
        try:
            self._make_groups(name)
        except Unusable:  # somebody may have tidied the bases away
            for folder in self.bases():
                mkdir(folder)
            self._make_groups(name)
        _bound_memory(*self._group("memory", name), limits.memory_bytes, _SOCKET_BYTES)
        pids_group, at = self._group("pids", name)
        write(f"{pids_group}/pids.max", limits.processes, at)
        cpu, at = self._group("cpu", name)
        quota_us = _quota_us(limits.cpus)  # of a period that a new group has by itself
        write(f"{cpu}/cpu.cfs_quota_us", quota_us, at)
        if aside:
            self.stand_aside(name)
        else:
            write(f"{cpu}/cpu.shares", _YOUNG_SHARES, at)

    def _make_groups(self, name: str) -> None:
        for stem, at in self._distinct:
            mkdir(f"{stem}{name}", at)

    def doors(self, name: str) -> list[int]:
        """Return the `tasks` of every controller."""
        with all_or_none() as doors:
            for stem, at in self._distinct:
                doors.append(os.open(f"{stem}{name}/tasks", os.O_WRONLY | os.O_CLOEXEC, dir_fd=at))
            return doors

    def is_empty(self, name: str) -> bool:
        return is_empty(*self._group("pids", name))

    def kill(self, name: str) -> None:
        for pid in pids(*self._group("pids", name)):
            sigkill(pid)

    def bound(self, memory_bytes: int, processes: int) -> None:
        memory = self._folders["memory"]
        if read(f"{memory}/memory.use_hierarchy").strip() == "0":  # before Linux 5.11
            write(f"{memory}/memory.use_hierarchy", 1)
        _bound_memory(memory, None, memory_bytes, _all_sockets_bytes())
        write(f"{self._folders['pids']}/pids.max", processes)

    def give_way(self, name: str) -> None:
        cpu, at = self._group("cpu", name)
        write(f"{cpu}/cpu.shares", _YOUNG_SHARES // _YOUNG_TO_OLD, at)

    def stand_aside(self, name: str) -> None:
        if not set_idle(*self._group("cpu", name), is_idle=True):
            self.give_way(name)

    def come_first(self, name: str) -> bool:
        cpu, at = self._group("cpu", name)
        stood_aside = is_idle(cpu, "cpu.shares", _YOUNG_SHARES // _YOUNG_TO_OLD, at)
        set_idle(cpu, at, is_idle=False)
        # Whoever is idle no more has 1024, as much as the whole server has, and not what it had before.
        write(f"{cpu}/cpu.shares", _YOUNG_SHARES, at)
        return stood_aside

    def spent(self, name: str) -> Spent:
        memory, at = self._group("memory", name)
        # The peak comes last: if there is one, the group was still there when the others were read.
        oom_killed = value(f"{memory}/memory.oom_control", "oom_kill", at) > 0
        nanoseconds = 0
        if "cpuacct" in self._stems:
            cpuacct, cpuacct_at = self._group("cpuacct", name)
            nanoseconds = int(read_at_once(f"{cpuacct}/cpuacct.usage", cpuacct_at) or 0)
        peak = int(read_at_once(f"{memory}/memory.max_usage_in_bytes", at) or 0)
        return Spent(nanoseconds / 1e6, peak, oom_killed)

    def remove(self, name: str) -> bool:
        """Others than the first may only go with it: who is on the way in is in that one already."""
        (first, first_at), *others = self._distinct
        return rmdir(f"{first}{name}", first_at) and all([rmdir(f"{stem}{name}", at) for stem, at in others])

    def _group(self, controller: str, name: str) -> _Where:
        stem, at = self._stems[controller]
        return f"{stem}{name}", at


class V2:
    """One folder for all controllers."""

    version = 2
    way_in = "b"

    def __init__(self, base: str) -> None:
        self._base = base

    @classmethod
    def under(cls, mount: str, own: str, tag: str) -> "V2":
        """Return the hierarchy with its base at the top as root, beside this process otherwise.

        A group with processes of its own cannot hand controllers down, except the topmost. Whoever may
        not use the top has been given a group (`Delegate=yes`): we step into a leaf of it first.
        """
        # A launcher that is started anew is in the leaf its predecessor stepped into: never one deeper.
        parent = mount if os.geteuid() == 0 else f"{mount}{own.removesuffix(f'/{_LEAF}').rstrip('/')}"
        try:
            if not _hands_down(parent):
                _step_aside(parent)
                write(f"{parent}/cgroup.subtree_control", " ".join(f"+{name}" for name in NEEDED))
            base = f"{parent}/{tag}"
            mkdir(base)
            write(f"{base}/cgroup.subtree_control", " ".join(f"+{name}" for name in NEEDED))
        except OSError as error:
            raise Unusable(f"this server may not divide its cgroup: {error.strerror}") from error
        return cls(base)

    def bases(self) -> list[str]:
        return [self._base]

    def folders(self) -> dict[str, str]:
        return {"": self._base}

    def hold(self) -> None:
        self._base = _below(_held(self._base), self._base)

    def make(self, name: str, limits: Limits, *, aside: bool) -> None:
        group = f"{self._base}/{name}"
        mkdir(group)
        write(f"{group}/memory.max", limits.memory_bytes)
        write_if_there(f"{group}/memory.swap.max", 0)
        write(f"{group}/pids.max", limits.processes)
        write(f"{group}/cpu.max", f"{_quota_us(limits.cpus)} {_PERIOD_US}")
        if aside:
            self.stand_aside(name)

    def doors(self, name: str) -> list[int]:
        """Return the group itself, for clone3(CLONE_INTO_CGROUP)."""
        return [os.open(f"{self._base}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]

    def is_empty(self, name: str) -> bool:
        return is_empty(f"{self._base}/{name}")

    def kill(self, name: str) -> None:
        try:
            write(f"{self._base}/{name}/cgroup.kill", 1)
        except OSError:  # before Linux 5.14
            for pid in pids(f"{self._base}/{name}"):
                sigkill(pid)

    def bound(self, memory_bytes: int, processes: int) -> None:
        write(f"{self._base}/memory.max", memory_bytes)
        write_if_there(f"{self._base}/memory.swap.max", 0)
        write(f"{self._base}/pids.max", processes)

    def give_way(self, name: str) -> None:
        write(f"{self._base}/{name}/cpu.weight", 100 // _YOUNG_TO_OLD)

    def stand_aside(self, name: str) -> None:
        if not set_idle(f"{self._base}/{name}", is_idle=True):
            self.give_way(name)

    def come_first(self, name: str) -> bool:
        group = f"{self._base}/{name}"
        stood_aside = is_idle(group, "cpu.weight", 100 // _YOUNG_TO_OLD)
        if not set_idle(group, is_idle=False):
            write(f"{group}/cpu.weight", 100)
        return stood_aside

    def spent(self, name: str) -> Spent:
        group = f"{self._base}/{name}"
        oom_killed = value(f"{group}/memory.events", "oom_kill") > 0
        cpu_ms = value(f"{group}/cpu.stat", "usage_usec") / 1e3
        peak = int(read_at_once(f"{group}/memory.peak") or 0)  # the last, as in V1
        return Spent(cpu_ms, peak, oom_killed)

    def remove(self, name: str) -> bool:
        return rmdir(f"{self._base}/{name}")


def _bound_memory(group: str, at: int | None, memory_bytes: int, socket_bytes: int) -> None:
    """Bound what a group on v1 may hold: memory, the same with swap, and of it in sockets."""
    write(f"{group}/memory.limit_in_bytes", memory_bytes, at)
    write_if_there(f"{group}/memory.memsw.limit_in_bytes", memory_bytes, at)
    write_if_there(f"{group}/memory.kmem.tcp.limit_in_bytes", min(memory_bytes, socket_bytes), at)


def _mounts() -> dict[str, str]:
    """Return where each v1 controller is mounted, and v2 under the empty name."""
    found: dict[str, str] = {}
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, behind = line.partition(" - ")
        kind, _, options = behind.split(" ", 2)
        where = before.split(" ")[4]
        if kind == "cgroup2":
            found.setdefault("", where)
        elif kind == "cgroup":
            for name in options.split(","):
                found.setdefault(name, where)
    return found


def _own_groups() -> dict[str, str]:
    """Return the group of this process in each v1 hierarchy, and in v2 under the empty name."""
    own: dict[str, str] = {}
    for line in read("/proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            own[name] = path
    return own


def _held(folder: str) -> int:
    """Return a descriptor that holds what is above `folder`, whatever becomes of the mount it lies on."""
    return os.open(os.path.dirname(folder), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _below(held: int, folder: str) -> str:
    """Return a path to `folder` that leads through what holds it."""
    return f"/proc/self/fd/{held}/{os.path.basename(folder)}"


def _hands_down(group: str) -> bool:
    return set(NEEDED) <= set(read(f"{group}/cgroup.subtree_control").split())


def _step_aside(parent: str) -> None:
    """Move everybody in `parent` into a leaf of it; only where the group is ours to divide."""
    if os.path.exists(f"{parent}/cgroup.type"):  # the topmost group has no type and needs none of this
        mkdir(f"{parent}/{_LEAF}")
        for pid in pids(parent):
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                write(f"{parent}/{_LEAF}/cgroup.procs", pid)


def _quota_us(cpus: float) -> int:
    return max(_SMALLEST_QUOTA_US, round(cpus * _PERIOD_US))


def _all_sockets_bytes() -> int:
    """Return what the sockets of all cells may hold: half of what the kernel does not mind."""
    return max(_SOCKET_BYTES, int((read(_PURSE).split() or ["0"])[0]) * resource.getpagesize() // 2)
