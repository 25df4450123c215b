"""What of a folder goes into an archive: files, folders and links, each as it is at one moment.

Archives say a file's size before its content. A file that shrinks meanwhile is filled up with zeros
and one that grows is cut, so that what follows stays readable.

No kind of archive that everybody can read knows holes, so those of a sparse file would be sent as zeros.
A terabyte of them is made in no time and would be sent for hours: there may be so many and no more.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from petri.errors import TooLarge
from petri.workspace.errand import Errand
from petri.workspace.paths import quoted
from petri.workspace.walk import Found, walk

_CHUNK_BYTES = 1 << 18
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own is."""


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


def refuse_holes(top: int, most_bytes: int, errand: Errand) -> None:
    """Refuse if the files below `top` have more holes in all than may be sent as zeros."""
    with closing(walk(top, recursive=True, in_order=False)) as everything:
        for found in everything:
            errand.check()
            most_bytes -= _holes(found.stat)
            if most_bytes < 0:
                raise TooLarge(
                    f"{quoted(found.path)} has holes of {_holes(found.stat)} bytes, which an archive would "
                    "hold as zeros, and that is too much; delete the file, or download it by itself"
                )


def _holes(seen: os.stat_result) -> int:
    return max(0, seen.st_size - seen.st_blocks * _BLOCK_BYTES) if stat.S_ISREG(seen.st_mode) else 0


def packed(top: int, most_holes_bytes: int) -> Iterator[Packed]:
    """Yield what is below `top`. FIFOs, sockets, devices and what is closed to us are left out.

    So are files that got holes beyond `most_holes_bytes` since `refuse_holes` looked.
    """
    with closing(walk(top, recursive=True)) as everything:
        for found in everything:
            if stat.S_ISREG(found.stat.st_mode):
                for member in _file(found):
                    if (holes := _holes(member.stat)) <= most_holes_bytes:
                        most_holes_bytes -= holes
                        yield member
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
