"""The files that cgroups are made of: read, written, made and removed."""

import errno
import os

_READ_BYTES = 65_536


class Unusable(Exception):
    """This host's cgroups cannot be used; the message says why."""


def value(path: str, key: str) -> int:
    """Return the number behind `key` in a file of names and numbers; 0 if it is not there."""
    for line in read(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def pids(group: str) -> list[int]:
    """Return who is in a group."""
    return [int(pid) for pid in read(f"{group}/cgroup.procs").split()]


def read(path: str) -> str:
    """Return what a file says; nothing if it is not there any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        pieces = []
        while piece := os.read(descriptor, _READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces).decode()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def write(path: str, value: int | str) -> None:
    """Write one value into a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def write_if_there(path: str, value: int | str) -> bool:
    """Write one value into a file that not every kernel has; say whether this one has it."""
    try:
        write(path, value)
    except FileNotFoundError:
        return False
    return True


def set_idle(group: str, *, is_idle: bool) -> bool:
    """Have a group run only while nobody else wants to, or as others do; False if there is no such choice.

    That is so before Linux 5.15, and of a group that is gone. A smaller share would not do: from who is idle
    whoever wakes up takes the processor at once, and from others only when they have had their slice of it.
    """
    return write_if_there(f"{group}/cpu.idle", int(is_idle))


def is_idle(group: str, share: str, less: int) -> bool:
    """Say whether a group was set aside, before Linux 5.15 by having `less` of a `share`."""
    told = read(f"{group}/cpu.idle")
    return told.strip() == "1" if told else read(share).strip() == str(less)


def mkdir(path: str) -> None:
    """Make a group, unless it is there."""
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise Unusable(f"this server may not make cgroups: {error.strerror}") from error


def rmdir(path: str) -> bool:
    """Remove an empty group; say whether it is gone."""
    try:
        os.rmdir(path)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True
