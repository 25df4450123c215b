"""The files that cgroups are made of: read, written, made and removed.

A path begins at the top, or, if one is given, at a descriptor: of a long way that leads through `/proc`, the
kernel would take every step for each of the twenty files that a cell is made and ended with.
"""

import errno
import os
from collections.abc import Callable

_READ_BYTES = 65_536
_GONE = (errno.ENOENT, errno.ENODEV)
"""What a file says of a group that is removed: before it is opened, and after."""


class Unusable(Exception):
    """This host's cgroups cannot be used; the message says why."""


def value(path: str, key: str, at: int | None = None) -> int:
    """Return the number behind `key` in a file of names and numbers; 0 if it is not there."""
    for line in read_at_once(path, at).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def pids(group: str, at: int | None = None) -> list[int]:
    """Return who is in a group; nobody, if there is no such group or it does not say."""
    return [int(pid) for pid in read(f"{group}/cgroup.procs", at).split()]


def is_empty(group: str, at: int | None = None) -> bool:
    """Say whether nobody is in a group, or there is no such group. Whoever cannot look does not know that."""
    try:
        descriptor = os.open(f"{group}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
    except OSError as error:
        return error.errno in _GONE
    try:
        return not _first(descriptor)
    except OSError as error:
        return error.errno in _GONE
    finally:
        os.close(descriptor)


def read(path: str, at: int | None = None) -> str:
    """Return what a file says; nothing if it is not there any more."""
    return _said(path, at, _all)


def read_at_once(path: str, at: int | None = None) -> str:
    """Return the same of a file that is no list: the kernel says all of it when it is first asked."""
    return _said(path, at, _first)


def write(path: str, value: int | str, at: int | None = None) -> None:
    """Write one value into a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=at)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def write_if_there(path: str, value: int | str, at: int | None = None) -> bool:
    """Write one value into a file that not every kernel has; say whether this one has it."""
    try:
        write(path, value, at)
    except FileNotFoundError:
        return False
    return True


def set_idle(group: str, at: int | None = None, *, is_idle: bool) -> bool:
    """Have a group run only while nobody else wants to, or as others do; False if there is no such choice.

    That is so before Linux 5.15, and of a group that is gone. A smaller share would not do: from who is idle
    whoever wakes up takes the processor at once, and from others only when they have had their slice of it.
    """
    return write_if_there(f"{group}/cpu.idle", int(is_idle), at)


def is_idle(group: str, share: str, less: int, at: int | None = None) -> bool:
    """Say whether a group was set aside, before Linux 5.15 by having `less` of a `share`."""
    told = read_at_once(f"{group}/cpu.idle", at)
    return told.strip() == "1" if told else read_at_once(f"{group}/{share}", at).strip() == str(less)


def mkdir(path: str, at: int | None = None) -> None:
    """Make a group, unless it is there."""
    try:
        os.mkdir(path, dir_fd=at)
    except FileExistsError:
        pass
    except OSError as error:
        raise Unusable(f"this server may not make cgroups: {error.strerror}") from error


def rmdir(path: str, at: int | None = None) -> bool:
    """Remove an empty group; say whether it is gone."""
    try:
        os.rmdir(path, dir_fd=at)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _said(path: str, at: int | None, ask: Callable[[int], bytes]) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        return ""
    try:
        return ask(descriptor).decode()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _first(descriptor: int) -> bytes:
    return os.read(descriptor, _READ_BYTES)


def _all(descriptor: int) -> bytes:
    return b"".join(iter(lambda: _first(descriptor), b""))
