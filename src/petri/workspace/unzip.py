"""Reading zip archives from strangers."""

import io
import os
import stat
import zipfile
from collections.abc import Iterator

from petri.errors import Invalid, TooLarge
from petri.workspace.members import CHUNK_BYTES, Member, Members
from petri.workspace.paths import MAX_PATH_BYTES, quoted

_BYTES_PER_FILE = 512
"""Of the table of contents, which `zipfile` reads at once and keeps in memory."""
_END_BYTES = 1 << 17
"""More than the record at the end of a zip, with its comment."""
_ENCRYPTED = 1
_UNDERSTOOD = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Not LZMA: its header may ask for a dictionary of 4 GiB before the first byte comes out."""
_UNIX = 3


def unzip(fd: int, max_files: int) -> Members:
    """Yield the members of the zip archive open as `fd`, names still unchecked."""
    with _Frugal(fd, max_files * _BYTES_PER_FILE + _END_BYTES) as file, zipfile.ZipFile(file) as archive:
        file.at_most = CHUNK_BYTES
        for info in archive.infolist():
            # What `zipfile` cut off at a NUL is still in `orig_filename`.
            name = info.orig_filename
            _require_readable(info, name)
            yield _member(archive, info, name), _content(archive, info)


class _Frugal(io.FileIO):
    """A file that refuses to be read whole, as the table of contents of a crafted zip would have it."""

    def __init__(self, fd: int, at_most: int) -> None:
        super().__init__(os.dup(fd))
        self.at_most = at_most

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self.at_most:
            raise TooLarge("the archive's table of contents names more files than are taken in one request")
        return super().read(self.at_most if size is None or size < 0 else size) or b""


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


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
