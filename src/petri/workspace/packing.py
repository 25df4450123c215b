"""What of a folder goes into an archive: files, folders and links, each as it is at one moment.

Archives say a file's size before its content. A file that shrinks meanwhile is filled up with zeros
and one that grows is cut, so that what follows stays readable.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from petri.workspace.walk import Found, walk

_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Packed:
    """One member. A file's `fd` is open only until the next member is asked for."""

    path: str
    stat: os.stat_result
    target: str = ""
    """Where it points, if it is a link."""
    fd: int = -1

    def content(self) -> Iterator[bytes]:
        """Yield exactly as many bytes as `stat` promises."""
        left = self.stat.st_size if self.fd >= 0 else 0
        while left:
            size = min(left, _CHUNK_BYTES)
            chunk = os.read(self.fd, size) or bytes(size)
            left -= len(chunk)
            yield chunk


def packed(top: int) -> Iterator[Packed]:
    """Yield what is below `top`. FIFOs, sockets, devices and what is closed to us are left out."""
    with closing(walk(top, recursive=True)) as everything:
        for found in everything:
            if stat.S_ISREG(found.stat.st_mode):
                yield from _file(found)
            elif found.is_folder:
                yield Packed(found.path, found.stat)
            elif stat.S_ISLNK(found.stat.st_mode):
                yield from _link(found)


def _link(found: Found) -> Iterator[Packed]:
    try:
        target = os.readlink(found.name, dir_fd=found.folder)
    except OSError:
        return
    yield Packed(found.path, found.stat, target)


def _file(found: Found) -> Iterator[Packed]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(found.name, flags, dir_fd=found.folder)
    except OSError:
        return
    try:
        # Looked at again: the name may lead to another file by now, or to a FIFO.
        seen = os.fstat(fd)
        if stat.S_ISREG(seen.st_mode):
            yield Packed(found.path, seen, fd=fd)
    finally:
        os.close(fd)
