"""A folder as one stream: tar, tar.gz, tar.zst or zip. Memory stays small, the folder may change."""

import os
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Literal, Protocol

import zstandard

from petri.errors import Invalid
from petri.workspace.beneath import FOLDER, LOOK, beneath
from petri.workspace.errand import Errand
from petri.workspace.packing import Packed, packed, refuse_holes
from petri.workspace.paths import clean, quoted
from petri.workspace.reading import require_folder
from petri.workspace.refusals import refusing
from petri.workspace.zipping import zipped

ArchiveKind = Literal["tar", "tar.gz", "tar.zst", "zip"]

KINDS: tuple[ArchiveKind, ...] = ("tar", "tar.gz", "tar.zst", "zip")
_PIECE_BYTES = 1 << 16
"""What is yielded at a time, about: many small members make one piece."""
_PIECES = 64
"""What is gathered at most: of a sparse file, gigabytes are compressed before a piece is full, and a
caller who has gone away can only be noticed between pieces."""
_GZIP = 31


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def archived(workspace: int, path: str, kind: ArchiveKind, most_holes_bytes: int) -> Iterator[bytes]:
    """Yield an archive of the folder at `path`; its members are named from there."""
    with refusing(path), beneath(workspace, path, FOLDER) as top:
        members = packed(top, most_holes_bytes)
        if kind == "tar":
            yield from _gathered(_tarred(members))
        elif kind == "tar.gz":
            yield from _gathered(_compressed(_tarred(members), zlib.compressobj(wbits=_GZIP)))
        elif kind == "tar.zst":
            yield from _gathered(_compressed(_tarred(members), zstandard.ZstdCompressor().compressobj()))
        else:
            yield from _gathered(zipped(members))


def archivable(workspace: int, path: str, kind: str, most_holes_bytes: int, errand: Errand) -> str:
    """Return the plain form of `path` if it can be archived; refuse before the first byte is sent."""
    if kind not in KINDS:
        raise Invalid(f"{quoted(kind)} is no kind of archive; ask for one of {', '.join(KINDS)}")
    path = clean(path, new=False, empty=True)
    with refusing(path), beneath(workspace, path, LOOK) as fd:
        require_folder(os.fstat(fd), path)
        with beneath(fd, "", FOLDER) as top:
            refuse_holes(top, most_holes_bytes, errand)
    return path


def _tarred(members: Iterable[Packed]) -> Iterator[bytes]:
    for member in members:
        yield _header(member).tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        size = 0
        for chunk in member.content():
            size += len(chunk)
            yield chunk
        yield bytes(-size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _header(member: Packed) -> tarfile.TarInfo:
    """Return who, what and when, but not whose: uids of this host mean nothing elsewhere."""
    header = tarfile.TarInfo(member.path)
    header.mode = stat.S_IMODE(member.stat.st_mode) & 0o777
    header.mtime = int(member.stat.st_mtime)
    if stat.S_ISDIR(member.stat.st_mode):
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(member.stat.st_mode):
        header.type = tarfile.SYMTYPE
        header.linkname = member.target
    else:
        header.size = member.stat.st_size
    return header


def _compressed(pieces: Iterator[bytes], compressor: _Compressor) -> Iterator[bytes]:
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES or (size and len(held) >= _PIECES):
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)
