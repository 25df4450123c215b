"""Counting what a folder holds, however deep, wide or restless it is. Standard library only.

Hostile code may own the folder and be at work in it: it nests a hundred thousand levels, links one file a
million times, closes folders to everybody, moves them under our feet, and deletes files that it still holds
open. So every folder is opened from its parent's descriptor, no link is passed, every inode is counted once,
and counting ends as soon as there is more than was asked about.

What is large is counted by a process of its own, this file as a program: it may be nice, it does not hold the
server's interpreter lock, it may have as many descriptors as the tree has levels, and as an ordinary user it
can enter a user namespace, where folders that are closed to their own owner are not.

Imported by: `workspace`, and by `engine`, which starts the program. Imports: nothing.
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import stat
import sys
from dataclasses import asdict, dataclass

_BLOCK_BYTES = 512
"""What `st_blocks` counts in, whatever the file system's own blocks are."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CLONE_NEWUSER = 0x1000_0000
_PR_SET_PDEATHSIG = 1
_NICENESS = 10
_FEW_LEVELS = 64
_MOST_LEVELS = 1 << 20
"""As many descriptors as Linux gives to a process, unless it was told otherwise."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a folder holds, itself included."""

    disk_bytes: int
    """Blocks on disk: holes in a file are not there, and a file with two names is there once."""
    inodes: int
    """Names: each file, folder and link counts as often as it is named."""
    whole: bool = True
    """False when counting was given up, because there is more than was asked about."""
    hidden: bool = False
    """True when a cell holds files that can be neither found nor counted."""


class _Count:
    """A tally that grows."""

    def __init__(self, device: int, most_bytes: int, most_inodes: int) -> None:
        self.device = device
        self.disk_bytes = 0
        self.inodes = 0
        self.is_too_deep = False
        self._most_bytes = most_bytes
        self._most_inodes = most_inodes
        self._seen: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Whether there is more than was asked about."""
        too_much = self.disk_bytes > self._most_bytes or self.inodes > self._most_inodes
        return too_much or self.is_too_deep

    def add(self, found: os.stat_result) -> bool:
        """Count one name; False if what it names was counted before."""
        self.inodes += 1
        if found.st_ino in self._seen:  # a second name, or moved here while we were counting
            return False
        self._seen.add(found.st_ino)
        self.disk_bytes += found.st_blocks * _BLOCK_BYTES
        return True

    def add_deleted(self, found: os.stat_result | None) -> None:
        """Count a file that has no name any more, once."""
        if found is None or found.st_nlink > 0 or found.st_dev != self.device:
            return
        if found.st_ino not in self._seen:
            self.add(found)


def tally(folder: str, most_bytes: int, most_inodes: int) -> Tally:
    """Count what is in `folder`, until there is more than `most_bytes` or `most_inodes`, or it is deep."""
    top = _opened(folder)
    try:
        count = _Count(os.fstat(top).st_dev, most_bytes, most_inodes)
        count.add(os.fstat(top))
        _walk(os.dup(top), count, _FEW_LEVELS)
    finally:
        os.close(top)
    return Tally(count.disk_bytes, count.inodes, whole=not count.is_over)


def tally_with_cell(folder: str, within: str, most_bytes: int, most_inodes: int) -> Tally:
    """Count what is in `folder`, and what cells that see it as `within` have deleted but still hold."""
    top = _opened(folder)
    here = os.fstat(top)
    count = _Count(here.st_dev, most_bytes, most_inodes)
    # First of all: in a user namespace of our own we may not look at other processes any more.
    hidden = _add_held(count, here, within)
    _look_past_permissions()
    count.add(here)
    _walk(top, count, _MOST_LEVELS)
    return Tally(count.disk_bytes, count.inodes, not count.is_over, hidden)


def _walk(top: int, count: _Count, most_levels: int) -> None:
    """Count everything below the folder open as `top`, and close it."""
    levels = [(top, _names_of_folders(top, count))]
    try:
        while levels and not count.is_over:
            folder, names = levels[-1]
            if not names:
                os.close(levels.pop()[0])
            else:
                count.is_too_deep = len(levels) > most_levels or not _enter(names.pop(), levels, count)
    finally:
        for folder, _ in levels:
            os.close(folder)


def _enter(name: str, levels: list[tuple[int, list[str]]], count: _Count) -> bool:
    """Open a folder of the innermost level and count its entries; False if it is deeper than we can go."""
    try:
        levels.append((_opened(name, levels[-1][0]), []))
        levels[-1][1].extend(_names_of_folders(levels[-1][0], count))
    except OSError as error:
        # Moved, swapped or closed since it was listed; but without descriptors we see no further.
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def _names_of_folders(folder: int, count: _Count) -> list[str]:
    """Count the entries of one folder; return the folders among them."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if count.is_over:
                break
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            is_new = count.add(found)
            if is_new and stat.S_ISDIR(found.st_mode) and found.st_dev == count.device:
                names.append(entry.name)
    return names


def _opened(name: str, folder: int | None = None) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOATIME, dir_fd=folder)
    except PermissionError:  # only an owner may leave no trace in the time of last access
        return os.open(name, _FOLDER, dir_fd=folder)


# -------------------------------------------------------------------------- what is deleted but still held


def _add_held(count: _Count, here: os.stat_result, within: str) -> bool:
    """Count the deleted files that cells over the folder `here` hold; say whether some cannot be found."""
    hidden = False
    for pid in _numbers("/proc"):
        try:
            seen = os.stat(f"/proc/{pid}/root{within}")
        except OSError:
            continue
        if (seen.st_dev, seen.st_ino) == (here.st_dev, here.st_ino):
            for task in _numbers(f"/proc/{pid}/task"):
                hidden |= _add_open(count, f"/proc/{pid}/task/{task}")
            hidden |= _add_mapped(count, f"/proc/{pid}")
    return hidden


def _add_open(count: _Count, task: str) -> bool:
    """Count what one task holds open; True if files are under way in one of its sockets."""
    hidden = False
    for number in _numbers(f"{task}/fd"):
        found = _stat(f"{task}/fd/{number}")
        if found is not None and stat.S_ISSOCK(found.st_mode):
            # A descriptor that was sent and not received yet is held by nobody, and its file by the socket.
            hidden |= _under_way(f"{task}/fdinfo/{number}")
        else:
            count.add_deleted(found)
    return hidden


def _add_mapped(count: _Count, process: str) -> bool:
    """Count what a process has mapped; True if there is something that only root may look at."""
    ranges = _deleted_ranges(f"{process}/maps", count.device)
    if os.geteuid() != 0:
        return bool(ranges)
    for start, end in ranges:
        count.add_deleted(_stat(f"{process}/map_files/{start:x}-{end:x}"))
    return False


def _deleted_ranges(maps: str, device: int) -> list[tuple[int, int]]:
    """Return where deleted files of `device` are mapped."""
    name = f"{os.major(device):02x}:{os.minor(device):02x}"
    ranges = []
    try:
        with open(maps) as file:
            for line in file:
                place, _, _, lies_on, _ = line.split(None, 4)
                if lies_on == name and line.endswith(" (deleted)\n"):
                    start, _, end = place.partition("-")
                    ranges.append((int(start, 16), int(end, 16)))
    except OSError:
        return []
    return ranges


def _under_way(info: str) -> bool:
    try:
        with open(info) as file:
            return any(line.startswith("scm_fds:") and int(line.split()[1]) > 0 for line in file)
    except OSError:
        return False


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _numbers(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdecimal()]
    except OSError:
        return []


# --------------------------------------------------------------------------------------- as a program


def _look_past_permissions() -> None:
    """As an ordinary user: enter a user namespace, in which no folder of our own is closed to us."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 or ctypes.CDLL(None).unshare(_CLONE_NEWUSER):
        return
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


def main() -> None:
    """Print the tally of the folder that the first argument, in JSON, speaks of."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.nice(_NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):  # one for each level of the deepest tree, if we may have them
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (_MOST_LEVELS, _MOST_LEVELS))
    print(json.dumps(asdict(tally_with_cell(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
