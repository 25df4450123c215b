"""Reading zip archives from strangers.

`zipfile` reads the table of contents; whatever it is about to take for one is counted first, since each of
its rows becomes an object of half a kilobyte, and what the archive itself says of their number may be a lie.
"""

import io
import os
import stat
import struct
import zipfile
from collections.abc import Iterator

from petri.errors import Invalid, TooLarge
from petri.workspace.members import CHUNK_BYTES, Allowance, Member, Members
from petri.workspace.paths import MAX_PATH_BYTES, quoted

_BYTES_PER_FILE = 512
"""Of the table of contents, which `zipfile` reads at once and keeps in memory."""
_END_BYTES = 1 << 17
"""More than the record at the end of a zip, with its comment."""
_ENCRYPTED = 1
_UNDERSTOOD = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Not LZMA: its header may ask for a dictionary of 4 GiB before the first byte comes out."""
_UNIX = 3
_ROW = struct.Struct("<4s24xHHH12x")
"""A row of the table of contents: its signature, and how long name, extra field and comment behind it are."""
_ROW_MAGIC = b"PK\1\2"
_HEAD_BYTES = 30
"""The least a member takes before its content."""


def unzip(fd: int, max_files: int, allowance: Allowance) -> Members:
    """Yield the members of the zip archive open as `fd`, names still unchecked."""
    with _Frugal(fd, max_files) as file, zipfile.ZipFile(file) as archive:
        file.has_table = True
        _refuse_overlaps(archive)
        for info in archive.infolist():
            allowance.header()
            # What `zipfile` cut off at a NUL is still in `orig_filename`.
            name = info.orig_filename
            _require_readable(info, name)
            yield _member(archive, info, name), _content(archive, info, allowance)


class _Frugal(io.FileIO):
    """A file that refuses to be read whole, as the table of contents of a crafted zip would have it."""

    def __init__(self, fd: int, max_files: int) -> None:
        super().__init__(os.dup(fd))
        self._max_files = max_files
        self.has_table = False
        """Whether the table of contents has been read: what follows is content, in small pieces."""

    def read(self, size: int | None = -1, /) -> bytes:
        at_most = CHUNK_BYTES if self.has_table else self._max_files * _BYTES_PER_FILE + _END_BYTES
        if size is not None and size > at_most:
            raise self._too_many()
        found = super().read(at_most if size is None or size < 0 else size) or b""
        if not self.has_table and _has_more_rows(found, self._max_files):
            raise self._too_many()
        return found

    def _too_many(self) -> TooLarge:
        return TooLarge(
            f"the archive's table of contents names more than {self._max_files} files; "
            "send them in smaller parts"
        )


def _has_more_rows(table: bytes, most: int) -> bool:
    """Say whether `table` is a table of contents with more than `most` rows."""
    start = rows = 0
    while rows <= most and start + _ROW.size <= len(table):
        magic, *lengths = _ROW.unpack_from(table, start)
        if magic != _ROW_MAGIC:
            return False
        start += _ROW.size + sum(lengths)
        rows += 1
    return rows > most


def _refuse_overlaps(archive: zipfile.ZipFile) -> None:
    """Refuse members that share bytes: only so can a small zip hold more than its size allows."""
    members = sorted(archive.infolist(), key=lambda info: info.header_offset)
    ends = [info.header_offset + _HEAD_BYTES + info.compress_size for info in members]
    starts = [*(info.header_offset for info in members[1:]), archive.start_dir]
    for info, end, following in zip(members, ends, starts, strict=False):
        if end > following:
            raise Invalid(
                f"the archive's member {quoted(info.orig_filename)} overlaps with what follows it; "
                "make the archive anew"
            )


def _require_readable(info: zipfile.ZipInfo, name: str) -> None:
    if info.flag_bits & _ENCRYPTED:
        raise Invalid(f"the archive's member {quoted(name)} is encrypted; send it without a password")
    if info.compress_type not in _UNDERSTOOD:
        raise Invalid(f"the archive's member {quoted(name)} is not deflated; no other compression is read")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Member:
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    if name.endswith("/"):
        return Member(name, "folder")
    if stat.S_ISLNK(mode):
        return Member(name, "link", target=_target(archive, info))
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise Invalid(f"the archive's member {quoted(name)} is neither a file, a folder nor a link")
    return Member(name, "file", stat.S_IMODE(mode) or 0o644)


def _target(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    with archive.open(info) as file:
        return file.read(MAX_PATH_BYTES).decode("utf-8", "surrogateescape")


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, allowance: Allowance) -> Iterator[bytes]:
    with archive.open(info) as file:
        while chunk := file.read(CHUNK_BYTES):
            allowance.spend(len(chunk))
            yield chunk
