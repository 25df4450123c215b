"""What a folder was found to be when it was last looked through: a row for each name, by folder.

A file whose row still tells its size, times, inode and rights is not read again. One that was written in the
same tick of the clock in which it was read could change once more without any of these showing: its row has
a time that no file has, and it is read again. Kept in columns, which load ten times as fast as rows.
"""

import stat
import struct
import time
from array import array
from itertools import chain

from blake3 import blake3

from petri.trees import EMPTY, Entry, File, Folder, FolderObject, Link

Key = tuple[int, int, int, int, int]
"""Type and rights, size, times of the last change to the content and to the rest, inode."""
Row = tuple[Key, bytes]
"""And the digest of a file, the target of a link, or the address of a folder."""
Rows = dict[bytes, Row]

FOLDER: Key = (stat.S_IFDIR, 0, 0, 0, 0)
IGNORED_FILE: Key = (1, 0, 0, 0, 0)
IGNORED_FOLDER: Key = (2, 0, 0, 0, 0)
LEAST_OF_FILES = stat.S_IFREG
"""Modes from this on are of files and links; those below are of folders and of what is ignored."""

TICK_NS = 20_000_000
"""Longer than the clocks of file systems take for a tick."""

_HEADER = struct.Struct("<8sIIQQ")
_MAGIC = b"pt-indx1"
_DIGEST_BYTES = 32


class Listing:
    """What is in one folder, and the address that has as a folder object."""

    __slots__ = ("address", "rows")

    def __init__(self, rows: Rows, address: bytes) -> None:
        self.rows = rows
        self.address = address

    def entries(self) -> FolderObject:
        """Return it as a folder object."""
        return {name: _entry(row) for name, row in self.rows.items() if row[0][0] >= stat.S_IFDIR}


class Index:
    """Every folder's listing, by its path; the top's is empty."""

    def __init__(self) -> None:
        self.folders: dict[bytes, Listing] = {}

    @property
    def tree(self) -> bytes:
        """The address of the whole."""
        return self.folders[b""].address if self.folders else EMPTY

    def reachable(self) -> list[bytes]:
        """Return the paths of the folders that are still there, each behind the one around it."""
        found = [b""] if self.folders else []
        for path in found:
            prefix = path + b"/" if path else b""
            found += [prefix + name for name, row in self.folders[path].rows.items() if row[0] == FOLDER]
        return found

    def find(self, path: bytes) -> Row | None:
        """Return the row at `path`."""
        folder, _, name = path.rpartition(b"/")
        listing = self.folders.get(folder)
        return listing.rows.get(name) if listing is not None else None

    def hollow(self) -> list[bytes]:
        """Return the folders that have only ignored things in them; some may be gone by now."""
        return [path for path, each in self.folders.items() if each.address == EMPTY and each.rows and path]

    def places(self) -> dict[bytes, bytes]:
        """Return a path for each content there is, by its digest."""
        found = {}
        for folder in self.reachable():
            prefix = folder + b"/" if folder else b""
            for name, (key, content) in self.folders[folder].rows.items():
                if stat.S_ISREG(key[0]):
                    found[content] = prefix + name
        return found

    def to_bytes(self) -> bytes:
        """Return it as bytes, for a file on this machine."""
        paths = self.reachable()
        listings = [self.folders[path] for path in paths]
        names = list(chain.from_iterable(listing.rows for listing in listings))
        rows = list(chain.from_iterable(listing.rows.values() for listing in listings))
        columns = list(zip(*(key for key, _ in rows), strict=True)) or [()] * 5
        contents = [content for _, content in rows]
        links = [content for key, content in rows if stat.S_ISLNK(key[0])]
        names_together, targets = b"\0".join(names), b"\0".join(links)
        body = b"".join(
            (
                _HEADER.pack(_MAGIC, len(paths), len(rows), len(names_together), len(targets)),
                *(array(kind, column).tobytes() for kind, column in zip("IQqqQ", columns, strict=True)),
                array("I", [len(listing.rows) for listing in listings]).tobytes(),
                b"".join(listing.address for listing in listings),
                # Of a link, what stands here is not looked at.
                b"".join(each if len(each) == _DIGEST_BYTES else bytes(_DIGEST_BYTES) for each in contents),
                names_together,
                targets,
                b"\0".join(paths),
            )
        )
        return body + blake3(body).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Index":
        """Return the index that `to_bytes` made these of; an empty one if it did not."""
        index = cls()
        body = memoryview(data)[:-_DIGEST_BYTES]
        if len(body) < _HEADER.size or blake3(body).digest() != data[-_DIGEST_BYTES:]:
            return index
        magic, folder_count, row_count, names_length, targets_length = _HEADER.unpack_from(body)
        if magic != _MAGIC:
            return index
        reader = _Reader(body)
        columns = [reader.column(kind, row_count) for kind in "IQqqQ"]
        counts = reader.column("I", folder_count)
        addresses = reader.digests(folder_count)
        contents = reader.digests(row_count)
        names = reader.texts(names_length)
        targets = iter(reader.texts(targets_length))
        paths = bytes(reader.rest()).split(b"\0") if folder_count else []
        for number, mode in enumerate(columns[0]):
            if stat.S_ISLNK(mode):
                contents[number] = next(targets)
        rows = list(zip(zip(*columns, strict=True), contents, strict=True))
        at = 0
        for path, count, address in zip(paths, counts, addresses, strict=True):
            end = at + count
            index.folders[path] = Listing(dict(zip(names[at:end], rows[at:end], strict=True)), address)
            at = end
        return index


class _Reader:
    """Takes one column after the other."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = _HEADER.size

    def column(self, kind: str, count: int) -> "array[int]":
        found = array(kind)
        found.frombytes(self._take(count * found.itemsize))
        return found

    def digests(self, count: int) -> list[bytes]:
        joined = bytes(self._take(count * _DIGEST_BYTES))
        return [joined[at : at + _DIGEST_BYTES] for at in range(0, len(joined), _DIGEST_BYTES)]

    def texts(self, length: int) -> list[bytes]:
        return bytes(self._take(length)).split(b"\0")

    def rest(self) -> memoryview:
        return self._body[self._at :]

    def _take(self, length: int) -> memoryview:
        self._at += length
        return self._body[self._at - length : self._at]


def settled(key: Key, read_at_ns: int) -> Key:
    """Return the key of what was read then; another one, if it may have changed in that very moment."""
    mode, size, modified, changed, inode = key
    return key if max(modified, changed) < read_at_ns - TICK_NS else (mode, size, modified, 0, inode)


def now_ns() -> int:
    """Return the time, as file systems tell it."""
    return time.time_ns()


def _entry(row: Row) -> Entry:
    (mode, size, *_), content = row
    if mode == stat.S_IFDIR:
        return Folder(content)
    return Link(content) if stat.S_ISLNK(mode) else File(content, size, mode >> 6 & 7)
