"""A cell as bubblewrap arguments. Pure, so that tests can read it like data (`tests/golden/bwrap.txt`).

The level of protection bubblewrap gives is entirely that of its arguments: this file is the wall.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

REPORT_FD, GO_FD, ARGUMENTS_FD, SECCOMP_FD, STATUS_FD, BRIEF_FD, STDIN_FD, WAKE_FD, READY_FD = range(3, 12)
TARGETS = [0, 1, 2, REPORT_FD, GO_FD, ARGUMENTS_FD, SECCOMP_FD, BRIEF_FD, STDIN_FD, STATUS_FD]
"""The numbers that what a cell inherits has there: what the server sends, and then the launcher's own."""
_INIT_AT = "/etc/petri/init"
"""Within what is bound anyway: a bind of its own would cost every cell a quarter of a millisecond."""
INIT = (_INIT_AT, *(str(fd) for fd in (REPORT_FD, GO_FD, BRIEF_FD, STDIN_FD, WAKE_FD, READY_FD)))
"""What bubblewrap becomes; behind it, how many processes there may be, and who is ahead: `cell/init.c`."""
WORKSPACE = "/workspace"

HARDENING = (
    ("--unshare-user", "capabilities inside mean nothing outside"),
    ("--unshare-pid", "no host process can be seen, and all inside die with the first one"),
    ("--unshare-ipc", "no shared memory or semaphores of the host"),
    ("--unshare-uts", "the host's name is nobody's business"),
    ("--unshare-cgroup-try", "cgroup paths of the host stay unseen"),
    ("--disable-userns", "most kernel holes of recent years need a nested user namespace"),
    ("--die-with-parent", "best effort, should the launcher itself be killed"),
    ("--new-session", "no injecting keystrokes into our terminal"),
    ("--as-pid-1", "our own init, which reports exactly how the command ended"),
    ("--clearenv", "host secrets tend to live in the host's environment"),
)

UNSHARE_NET = "--unshare-net"
"""No interface but a private loopback; not for a cell that has a network of the launcher's."""

MASKED = (
    ("/proc/cmdline", "how the host was started, secrets of its maker included"),
    ("/proc/kcore", "physical memory"),
    ("/proc/keys", "names of the host's keyrings"),
    ("/proc/key-users", "who has keys on the host"),
    ("/proc/timer_list", "kernel addresses"),
    ("/proc/sched_debug", "the host's processes by name"),
    ("/proc/interrupts", "a side channel on keystrokes and neighbours"),
    ("/proc/kallsyms", "kernel addresses"),
    ("/proc/kmsg", "the kernel's log"),
    ("/proc/vmallocinfo", "kernel addresses"),
    ("/proc/slabinfo", "heap layout of the kernel"),
    ("/proc/kpagecount", "physical memory layout"),
    ("/proc/kpageflags", "physical memory layout"),
    ("/proc/kpagecgroup", "physical memory layout"),
    ("/proc/sysrq-trigger", "reboots the machine"),
    ("/proc/latency_stats", "what the host does"),
)
"""Files that a pid namespace does not hide; each is covered by /dev/null where everybody may read it."""

_LINKS = (("usr/bin", "/bin"), ("usr/sbin", "/sbin"), ("usr/lib", "/lib"), ("usr/lib64", "/lib64"))


@dataclass(frozen=True, slots=True)
class Walls:
    """What `confine` needs to know of the host and the run."""

    folder: str
    """The workspace, as the launcher sees it."""
    rootfs: str
    """What `rootfs.build` made, as the launcher sees it."""
    masked: tuple[str, ...]
    tmp_bytes: int
    devices: str | None
    """A `/dev` made for cells, as the launcher sees it; None for one by bubblewrap."""
    mounts: tuple[tuple[str, str], ...] = ()
    """Folders as the launcher sees them, and where the cell sees each, to read only."""
    own_network: bool = True
    """Whether bubblewrap makes its network; False for one that is born in it, see `launcher.networks`."""
    links: tuple[tuple[str, str], ...] = ()
    """Where each leads, and where the cell finds it."""


def confine(walls: Walls, env: Mapping[str, str]) -> list[str]:
    """Return the arguments of `bwrap` up to the first process.

    `env` is for what is started ahead of the command. The command's own is in its brief.
    """
    return [
        *(flag for flag, _ in HARDENING),
        *((UNSHARE_NET,) if walls.own_network else ()),
        *("--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--hostname", "sandbox"),
        *("--seccomp", str(SECCOMP_FD), "--json-status-fd", str(STATUS_FD)),
        *_root(walls),
        *("--bind", walls.folder, WORKSPACE),
        *_flatten(("--ro-bind", folder, at) for folder, at in walls.mounts),
        *_flatten(("--symlink", target, at) for target, at in walls.links),
        *("--remount-ro", "/", "--chdir", WORKSPACE),
        *_flatten(("--setenv", name, value) for name, value in env.items()),
    ]


def _root(walls: Walls) -> list[str]:
    return [
        *("--ro-bind", "/usr", "/usr"),
        *_flatten(("--symlink", target, link) for target, link in _LINKS),
        *("--ro-bind", f"{walls.rootfs}/etc", "/etc"),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        # Whoever may write there has the kernel watch all of the host's load for him, as often as he likes.
        *("--ro-bind-try", "/proc/pressure", "/proc/pressure"),
        *_flatten(("--ro-bind", f"{walls.devices or '/dev'}/null", path) for path in walls.masked),
        *_devices(walls),
        *("--perms", "1777", "--size", str(walls.tmp_bytes), "--tmpfs", "/tmp", "--dir", "/run"),
    ]


def _devices(walls: Walls) -> list[str]:
    shared_memory = ["--perms", "1777", "--size", str(walls.tmp_bytes), "--tmpfs", "/dev/shm"]
    if walls.devices is None:
        return ["--dev", "/dev", *shared_memory, "--remount-ro", "/dev"]
    return ["--dev-bind", walls.devices, "/dev", *shared_memory]  # read-only as it is; see `launcher.view`


def readable(paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of `paths` that this host lets everybody read.

    The others are root's, and a cell is never root: covering them would cost it time and gain nothing.
    """
    return tuple(path for path in paths if Path(path).exists() and Path(path).stat().st_mode & 0o007)


def _flatten(groups: Iterable[tuple[str, ...]]) -> list[str]:
    return [word for group in groups for word in group]
