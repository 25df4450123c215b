"""What a server leaves to be seen on its host: looked at from outside, by what the kernel says."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

FIRST_UID = 0x7000_0000
"""Of sandboxes, as PETRI_UID_BASE has it by default."""
_LAUNCHER = "petri-launcher"
_PARKED = b"petri-parked"
"""In the command line of a Python that waits to be told what to run."""
NETWORK, _MOUNTS = "net:", "mnt:"
"""What the launcher holds of each network and the terminals that go with it, and of where it is itself.

The files that tell of one are closed with it.
"""
_WITNESS = re.compile("/proc/[0-9]+/net/|.*/dev/pts$")


@dataclass(frozen=True)
class Footprint:
    """Everything of a server that could be left behind by a run, at one moment."""

    processes: tuple[str, ...]
    """What descends from the launcher, by name: cells in use, and whatever got out of them."""
    groups: tuple[str, ...]
    """Cgroups of cells in use, in every hierarchy."""
    host_mounts: int
    """Of what lies in the server's home."""
    launcher_mounts: int
    server_descriptors: tuple[str, ...]
    launcher_descriptors: tuple[str, ...]
    server_threads: int
    launcher_threads: int
    shared_memory: tuple[str, ...]
    """What sandboxes' users own of the host's: segments, semaphores, queues, files in memory or `/tmp`."""
    scraps: tuple[str, ...]
    """Files under way in the server's home."""
    server_bytes: int
    launcher_bytes: int


def footprint(server: int, home: Path) -> Footprint:
    """Look at the server whose process is `server` and whose PETRI_HOME is `home`."""
    launcher = launcher_of(server)
    ready = standing(launcher)
    return Footprint(
        processes=descendants(launcher, ready),
        groups=tuple(group for group in groups(home) if not _holds_only(group, ready)),
        host_mounts=_mounts("self", str(home)),
        launcher_mounts=_mounts(str(launcher)),
        server_descriptors=_descriptors(server),
        launcher_descriptors=_without_those_of(ready, _descriptors(launcher)),
        server_threads=_threads(server),
        launcher_threads=_threads(launcher),
        shared_memory=shared_memory(),
        scraps=_scraps(home),
        server_bytes=_resident(server),
        launcher_bytes=_resident(launcher),
    )


def launcher_of(server: int) -> int:
    """Return the process that owns the cells of `server`."""
    (launcher,) = launchers_of(server)
    return launcher


def launchers_of(process: int) -> frozenset[int]:
    """Return every launcher below a process: tests may have an engine of their own beside a whole server."""
    named = {pid for pid, name in _below(process) if name == _LAUNCHER}
    # What a launcher starts has its name for a moment, too.
    return frozenset(pid for pid, parent, _ in _processes() if pid in named and parent not in named)


def descendants(ancestor: int, but: frozenset[int] = frozenset()) -> tuple[str, ...]:
    """Return who descends from a process, zombies included."""
    return tuple(sorted(name for pid, name in _below(ancestor) if pid not in but))


def standing(launcher: int) -> frozenset[int]:
    """Return the processes of cells that stand ready: no command has been in them.

    Those are bubblewrap, init, and perhaps a Python that still has the name it was parked under.
    """
    cells = [[(pid, name), *_below(pid)] for pid, parent, name in _processes() if parent == launcher]
    ready = [cell for cell in cells if all(_is_waiting(pid, name) for pid, name in cell)]
    return frozenset(pid for cell in ready for pid, _ in cell)


def _is_waiting(pid: int, name: str) -> bool:
    try:
        return name in ("gate", "bwrap", "init") or _PARKED in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _holds_only(group: str, pids: frozenset[int]) -> bool:
    try:
        inside = (Path(group) / "cgroup.procs").read_text().split()
    except OSError:
        return False
    return bool(inside) and {int(pid) for pid in inside} <= pids


def _without_those_of(ready: frozenset[int], descriptors: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out what the launcher holds for each cell that stands ready: its pipe, network and terminals."""
    cells = sum(1 for pid in ready if _comm(pid) == "init")
    left = [each for each in descriptors if not _WITNESS.match(each)]
    lent = [kind for kind in (NETWORK, _MOUNTS) for _ in range(min(cells, left.count(kind) - 1))]
    for kind in ("pipe:",) * cells + tuple(lent):
        left.remove(kind)
    return tuple(left)


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _below(ancestor: int) -> list[tuple[int, str]]:
    """Return id and name of everybody who descends from a process."""
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, parent, name in _processes():
        children.setdefault(parent, []).append((pid, name))
    found, asked = [], [ancestor]
    while asked:
        below = children.get(asked.pop(), [])
        found += below
        asked += [pid for pid, _ in below]
    return found


def groups(home: Path) -> tuple[str, ...]:
    """Return the cgroups of cells of the server at `home`, wherever there are cgroups at all."""
    remembered = home / "engine" / "cgroups"
    tags = {Path(base).name for base in remembered.read_text().split()} if remembered.exists() else set()
    found: list[str] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, behind = line.partition(" - ")
        if behind.startswith("cgroup"):
            # By walking, which minds no groups of others that vanish meanwhile.
            for above, names, _ in os.walk(before.split(" ")[4]):
                found += [f"{above}/{name}" for name in names if _tag_of(Path(above).name, name) in tags]
    return tuple(sorted(set(found)))


def _tag_of(base: str, name: str) -> str:
    """Return the tag in the name of a group, if it lies beside its base; else what it lies in."""
    tag, is_beside, _ = name.partition("-cell-")
    return tag if is_beside else base


def groups_of(base: str) -> list[Path]:
    """Return the cgroups of cells that lie in a base, or beside it with names that begin with its own."""
    return [*Path(base).glob("cell-*"), *Path(base).parent.glob(f"{Path(base).name}-cell-*")]


def shared_memory() -> tuple[str, ...]:
    """Return what sandboxes' users own where everybody on the host may put something."""
    found = []
    for kind, uid_field in (("shm", 7), ("sem", 4), ("msg", 7)):
        for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
            if int(line.split()[uid_field]) >= FIRST_UID:
                found.append(f"{kind} {line}")
    for folder in ("/dev/shm", "/tmp"):
        with os.scandir(folder) as entries:
            found += [
                entry.path for entry in entries if entry.stat(follow_symlinks=False).st_uid >= FIRST_UID
            ]
    return tuple(found)


def _processes() -> list[tuple[int, int, str]]:
    """Return every process of the host: its id, its parent's, its name."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended while we looked
            name, _, rest = text.partition(" (")[2].rpartition(") ")
            found.append((int(entry.name), int(rest.split()[1]), name))
    return found


def _descriptors(pid: int) -> tuple[str, ...]:
    """Return what a process holds open; numbers, which differ each time, left out."""
    held = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # it was closed while we looked
        held.append(re.sub(r"\[\d+\]$", "", target))
    return tuple(sorted(held))


def _scraps(home: Path) -> tuple[str, ...]:
    folders = [home / "workspaces" / name for name in (".staging", ".trash")]
    folders.append(home / "environments/shelf/.windows")
    return tuple(
        sorted(path.name for folder in folders if os.access(folder, os.R_OK) for path in folder.iterdir())
    )


def _mounts(pid: str, of: str = "") -> int:
    return sum(of in line for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines())


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def _resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
