"""Writing zip archives as a stream, for folders of any size.

`zipfile` keeps an object for every member until the end; here the table of contents is packed as it
grows and spills to a temporary file, so that memory stays small.
"""

import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator

from petri.workspace.packing import Packed
from petri.workspace.paths import as_bytes

_SPOOL_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_MADE_BY_UNIX = 3 << 8 | 45
_NEEDS = 45
"""Version 4.5 of the format: sizes and offsets may have 64 bits."""
_UTF8 = 1 << 11
_SIZES_FOLLOW = 1 << 3
_STORED, _DEFLATED = 0, 8
_RAW_DEFLATE = -15
_FOLDER = 0x10
_FULL = 0xFFFFFFFF
"""In a field of 32 bits: the number is in the 64-bit extra field."""
_LARGE = 0xF0000000
"""From this size on, deflating what cannot be made smaller might need 64 bits."""
_FIRST_S, _LAST_S = 315_532_800, 4_354_819_198
"""1980 to 2107: what the format can say of a time."""


def zipped(members: Iterable[Packed]) -> Iterator[bytes]:
    """Yield a zip archive of `members`. Names that are not UTF-8 get `�` for what is not."""
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as table:
        offset = count = 0
        for member in members:
            record = _Record(member, offset)
            for piece in record.pieces():
                offset += len(piece)
                yield piece
            table.write(record.row())
            count += 1
        size = table.tell()
        table.seek(0)
        while chunk := table.read(_CHUNK_BYTES):
            yield chunk
        yield _end(count, size, offset)


class _Record:
    """One member: first its bytes, then its row in the table of contents."""

    def __init__(self, member: Packed, offset: int) -> None:
        self._member = member
        self._offset = offset
        self._is_file = stat.S_ISREG(member.stat.st_mode)
        self._flags = _UTF8 | _SIZES_FOLLOW if self._is_file else _UTF8
        self._method = _DEFLATED if self._is_file else _STORED
        self._is_large = self._is_file and member.stat.st_size > _LARGE
        self._sum = self._size = self._packed = 0
        ending = "/" if stat.S_ISDIR(member.stat.st_mode) else ""
        self._name = (as_bytes(member.path).decode("utf-8", "replace") + ending).encode()

    def pieces(self) -> Iterator[bytes]:
        if self._is_file:
            yield self._head()
            yield from self._deflated()
            yield struct.pack(
                "<4sLQQ" if self._is_large else "<4sLLL", b"PK\7\x08", self._sum, self._packed, self._size
            )
        else:
            body = as_bytes(self._member.target)
            self._sum, self._size, self._packed = zlib.crc32(body), len(body), len(body)
            yield self._head() + body

    def _head(self) -> bytes:
        extra = struct.pack("<HHQQ", 1, 16, 0, 0) if self._is_large else b""
        sizes = (_FULL, _FULL) if self._is_large else (self._packed, self._size)
        fields = (self._flags, self._method, *_clock(self._member.stat.st_mtime), self._sum, *sizes)
        return (
            struct.pack("<4sHHHHHLLLHH", b"PK\3\4", _NEEDS, *fields, len(self._name), len(extra))
            + self._name
            + extra
        )

    def _deflated(self) -> Iterator[bytes]:
        deflater = zlib.compressobj(wbits=_RAW_DEFLATE)
        for chunk in self._member.content():
            self._sum = zlib.crc32(chunk, self._sum)
            self._size += len(chunk)
            yield from self._counted(deflater.compress(chunk))
        yield from self._counted(deflater.flush())

    def _counted(self, piece: bytes) -> Iterator[bytes]:
        self._packed += len(piece)
        if piece:
            yield piece

    def row(self) -> bytes:
        numbers = (self._size, self._packed, self._offset)
        beyond = [number for number in numbers if number >= _FULL]
        extra = struct.pack(f"<HH{len(beyond)}Q", 1, 8 * len(beyond), *beyond) if beyond else b""
        size, packed, offset = (min(number, _FULL) for number in numbers)
        mode = self._member.stat.st_mode & (0o170000 | 0o777)
        head = struct.pack(
            "<4sHHHHHHLLLHHHHHLL",
            b"PK\1\2",
            _MADE_BY_UNIX,
            _NEEDS,
            self._flags,
            self._method,
            *_clock(self._member.stat.st_mtime),
            self._sum,
            packed,
            size,
            len(self._name),
            len(extra),
            *(0, 0, 0),
            mode << 16 | (_FOLDER if stat.S_ISDIR(mode) else 0),
            offset,
        )
        return head + self._name + extra


def _end(count: int, size: int, offset: int) -> bytes:
    """Return what closes the archive: the record with 64 bits, where that one is, and the old record."""
    large = struct.pack(
        "<4sQHHLLQQQQ", b"PK\6\6", 44, _MADE_BY_UNIX, _NEEDS, 0, 0, count, count, size, offset
    )
    where = struct.pack("<4sLQL", b"PK\6\7", 0, offset + size, 1)
    few = min(count, 0xFFFF)
    return (
        large
        + where
        + struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, few, few, min(size, _FULL), min(offset, _FULL), 0)
    )


def _clock(seconds: float) -> tuple[int, int]:
    now = time.gmtime(min(max(seconds, _FIRST_S), _LAST_S))
    return (
        now.tm_hour << 11 | now.tm_min << 5 | now.tm_sec // 2,
        now.tm_year - 1980 << 9 | now.tm_mon << 5 | now.tm_mday,
    )
