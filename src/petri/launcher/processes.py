"""What the kernel says of a process, and its end."""

import contextlib
import os
import signal


def exists(pid: int) -> bool:
    """Say whether `pid` lives; a zombie does not."""
    return _stat(pid)[:1] not in (b"", b"Z", b"X")


def parent(pid: int) -> int:
    """Return the parent of `pid`, or 0."""
    fields = _stat(pid).split()
    return int(fields[1]) if len(fields) > 1 else 0


def children() -> list[int]:
    """Return those whose parent we are."""
    everybody = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return [pid for pid in everybody if parent(pid) == os.getpid()]


def sigkill(pid: int) -> None:
    """Kill a process that may be gone by now."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> bytes:
    """Return what /proc says of `pid` behind its name: state, parent, …"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2]
    except OSError:
        return b""
