"""The launcher's private view of the file system, when it is root.

A cell's bubblewrap runs as the sandbox's own uid and must reach the workspace by a path. Workspaces may lie
under `/root`, where that uid may not even look. So the launcher leaves the host's mount namespace and puts
the folders that cells need side by side on a small tmpfs that everybody may pass through.
"""

import ctypes
import os
import re
import stat
import sys

from petri.launcher.libc import check, mount

_CLONE_NEWNS = 0x0002_0000
_MNT_DETACH = 2
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19
_PLACES = ("/mnt", "/media", "/srv", "/opt")
"""Folders every Linux has and no cell needs; one of them disappears behind the view, for us alone.
Programs may lie in the last two: they come only where one of the others is missing."""
_NEEDED = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix")
"""Where programs and their libraries lie, with whatever is mounted there."""


_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_LINKS = {
    **{"ptmx": "pts/ptmx", "fd": "/proc/self/fd"},
    **{"stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"},
}
_MOUNT_POINTS = ("pts", "shm")
"""What every cell has of its own in there: terminals, and shared memory."""


def arrange(folders: dict[str, str]) -> str:
    """Enter a mount namespace in which `folders` (name → host path) lie side by side; return where."""
    place = _place()
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.unshare(_CLONE_NEWNS), "unshare the mount namespace")
    # A slave, not private: what the host mounts under the workspaces later must show up here too.
    mount(libc, "none", "/", None, _MS_REC | _MS_SLAVE, None)
    held = {name: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for name, path in folders.items()}
    mount(libc, "petri", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0711,size=64k")
    for name, descriptor in held.items():
        os.mkdir(f"{place}/{name}", 0o711)
        mount(libc, f"/proc/self/fd/{descriptor}", f"{place}/{name}", None, _MS_BIND | _MS_REC, None)
        os.close(descriptor)
    _forget_the_rest(libc, place)
    return place


def _place() -> str:
    """Return where to put the view: of two places the one that hides fewer mounts.

    What is mounted below it could not be reached any more, and would stay in the list: `_forget_the_rest`.
    """
    first_two = [place for place in _PLACES if os.path.isdir(place)][:2]
    return min(first_two, key=lambda place: sum(_is_within(mounted, place) for mounted in _mounted()))


def make_devices(place: str) -> str | None:
    """Make a `/dev` for all cells and return where it lies; None if this root may make no devices.

    Bound whole, it costs a cell less than bubblewrap's `--dev`, which binds each device by itself. The host's
    own is out of our view then.
    """
    folder = f"{place}/dev"
    libc = ctypes.CDLL(None, use_errno=True)
    os.mkdir(folder, 0o755)
    mount(libc, "petri", folder, "tmpfs", _MS_NOSUID | _MS_NOEXEC, "mode=0755,size=64k")
    try:
        for name, numbers in _DEVICES.items():
            os.mknod(f"{folder}/{name}", stat.S_IFCHR, os.makedev(*numbers))
            os.chmod(f"{folder}/{name}", 0o666)
    except PermissionError:  # a container's root may lack it
        libc.umount2(folder.encode(), _MNT_DETACH)
        return None
    for name, target in _LINKS.items():
        os.symlink(target, f"{folder}/{name}")
    for name in _MOUNT_POINTS:
        os.mkdir(f"{folder}/{name}")
        os.chmod(f"{folder}/{name}", 0o755)
    mount(libc, "petri", folder, None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NOEXEC, None)
    if not any(_is_within(path, "/dev") for path in _ours()):
        _forget(libc, "/dev")
    return folder


def _forget_the_rest(libc: ctypes.CDLL, place: str) -> None:
    """Take every mount that no cell needs out of our view; the host's own is not touched.

    A cell's bubblewrap begins with a copy of all our mounts and reads the list of them for every bind:
    each mount costs each cell some 30 microseconds.
    """
    needed = (place, *_NEEDED, *_ours())
    for mounted in sorted(_mounted(), reverse=True):  # what lies deeper goes first
        if not any(_is_within(path, mounted) or _is_within(mounted, path) for path in needed):
            _forget(libc, mounted)


def _ours() -> tuple[str, str]:
    """Return where the interpreter that runs us lies, and where our own code does."""
    return sys.base_prefix, os.path.dirname(__file__)


def _forget(libc: ctypes.CDLL, mounted: str) -> None:
    """Take what is mounted there out of our view, and what it was mounted over."""
    while libc.umount2(mounted.encode(), _MNT_DETACH) == 0:
        pass


def _mounted() -> set[str]:
    with open("/proc/self/mountinfo") as file:
        points = {line.split(" ")[4] for line in file}
    # The kernel writes spaces and the like as \040.
    found = {re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point) for point in points}
    return found - {"/", "/proc", "/dev"}


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
