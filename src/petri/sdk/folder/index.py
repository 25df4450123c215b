"""What a folder was found to be when it was last looked through: a row for each name, by folder.

A file whose row still tells its size, times, inode and rights is not read again. One that was written in the
same tick of the clock in which it was read could change once more without any of these showing: its row has
a time that no file has, and it is read again. Kept in columns: a folder in which nothing changed is compared
with what the system says of it column by column, and only one in which something did is made rows of.
"""

import os
import stat
import struct
import time
from array import array
from operator import attrgetter, methodcaller
from typing import NamedTuple

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
COARSE_TICK_NS = 2_000_000_000 + TICK_NS
"""The same where times are whole seconds, or every second one: FAT, HFS+, ext4 with small inodes."""
_SECOND_NS = 1_000_000_000

_HEADER = struct.Struct("<8sIIIQQ")
_MAGIC = b"pt-indx2"
_DIGEST_BYTES = 32
_KINDS = "IQqqQ"
"""Of the columns of a key, for `array`."""
_key_of = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")
_looked_at = methodcaller("stat", follow_symlinks=False)


class Columns(NamedTuple):
    """All rows of an index, as they lie in its file: for each folder its files, then the rest of it."""

    keys: "list[array[int]]"
    names: list[bytes]
    contents: memoryview
    """Digests and addresses, one behind the other; of a link, nothing that counts."""

    def row(self, number: int) -> Row:
        """Return one row."""
        mode, size, modified, changed, inode = (column[number] for column in self.keys)
        content = self.contents[number * _DIGEST_BYTES : (number + 1) * _DIGEST_BYTES]
        return (mode, size, modified, changed, inode), bytes(content)


class Span(NamedTuple):
    """Where in `columns` one folder lies: its files from `begin`, the rest from `middle` to `end`."""

    columns: Columns
    begin: int
    middle: int
    end: int
    links: dict[int, bytes]
    """The targets of its links, by the numbers of their rows."""

    def rows(self) -> Rows:
        """Return it row by row."""
        columns, begin, _, end, links = self
        contents = bytes(columns.contents[begin * _DIGEST_BYTES : end * _DIGEST_BYTES])
        each = [contents[at : at + _DIGEST_BYTES] for at in range(0, len(contents), _DIGEST_BYTES)]
        for number, target in links.items():
            each[number - begin] = target
        keys = zip(*(column[begin:end] for column in columns.keys), strict=True)
        return dict(zip(columns.names[begin:end], zip(keys, each, strict=True), strict=True))

    def rest(self) -> Rows:
        """Return what are no files: folders, and what is ignored."""
        columns = self.columns
        return {columns.names[number]: columns.row(number) for number in range(self.middle, self.end)}

    def are_still(self, files: "list[os.DirEntry[bytes]]") -> bool:
        """Say whether these are exactly the files here, by name and all that a key tells, and in this order.

        A row for each need not be made for that: it goes column by column, without a line of ours for a file.
        """
        columns, begin, middle, _, _ = self
        if columns.names[begin:middle] != [entry.name for entry in files]:
            return False
        try:
            found = list(map(_key_of, map(_looked_at, files)))
        except FileNotFoundError:
            return False
        return found == list(zip(*(column[begin:middle] for column in columns.keys), strict=True))


class Listing:
    """What is in one folder, and the address that has as a folder object."""

    __slots__ = ("_rest", "_rows", "address", "span")

    def __init__(self, rows: Rows | None, address: bytes, span: Span | None = None) -> None:
        self._rows = rows
        self._rest: Rows | None = None
        self.address = address
        self.span = span

    @property
    def rows(self) -> Rows:
        """A row for each name. Not to be changed."""
        if self._rows is None:
            assert self.span is not None
            self._rows = self.span.rows()
        return self._rows

    @property
    def rest(self) -> Rows:
        """The rows of what are no files."""
        if self._rest is None:
            if self.span is not None:
                self._rest = self.span.rest()
            else:
                self._rest = {name: row for name, row in self.rows.items() if row[0][0] < LEAST_OF_FILES}
        return self._rest

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it, not even what is ignored."""
        return self.span.begin == self.span.end if self.span is not None else not self.rows

    def is_still(self, entries: "list[os.DirEntry[bytes]]") -> bool:
        """Say whether this is what is in the folder; if it is not the order that differs, for certain."""
        if self.span is None:
            return False
        rest = self.rest
        files = [entry for entry in entries if entry.name not in rest] if rest else entries
        if len(entries) - len(files) != len(rest) or not self.span.are_still(files):
            return False
        return not rest or all(
            rest[entry.name][0] in (FOLDER, IGNORED_FOLDER)
            if entry.is_dir(follow_symlinks=False)
            else rest[entry.name][0] == IGNORED_FILE
            for entry in entries
            if entry.name in rest
        )

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
            found += [prefix + name for name, row in self.folders[path].rest.items() if row[0] == FOLDER]
        return found

    def find(self, path: bytes) -> Row | None:
        """Return the row at `path`."""
        folder, _, name = path.rpartition(b"/")
        listing = self.folders.get(folder)
        return listing.rows.get(name) if listing is not None else None

    def hollow(self) -> list[bytes]:
        """Return the folders that have only ignored things in them; some may be gone by now."""
        return [
            path
            for path, each in self.folders.items()
            if each.address == EMPTY and path and not each.is_empty
        ]

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
        writer = _Writer()
        for path in self.reachable():
            writer.add(path, self.folders[path])
        return writer.done()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Index":
        """Return the index that `to_bytes` made these of; an empty one if it did not."""
        index = cls()
        body = memoryview(data)[:-_DIGEST_BYTES]
        if len(body) < _HEADER.size or blake3(body).digest() != data[-_DIGEST_BYTES:]:
            return index
        magic, folder_count, row_count, link_count, names_length, targets_length = _HEADER.unpack_from(body)
        if magic != _MAGIC:
            return index
        reader = _Reader(body)
        keys = [reader.column(kind, row_count) for kind in _KINDS]
        file_counts, rest_counts = reader.column("I", folder_count), reader.column("I", folder_count)
        links = reader.column("I", link_count)
        addresses = reader.digests(folder_count)
        contents = reader.take(row_count * _DIGEST_BYTES)
        columns = Columns(keys, reader.texts(names_length), contents)
        targets = dict(zip(links, reader.texts(targets_length), strict=False))
        paths = bytes(reader.rest()).split(b"\0") if folder_count else []
        end = 0
        for path, files, rest, address in zip(paths, file_counts, rest_counts, addresses, strict=True):
            begin, middle, end = end, end + files, end + files + rest
            theirs = {}
            while targets and next(iter(targets)) < middle:
                number = next(iter(targets))
                theirs[number] = targets.pop(number)
            index.folders[path] = Listing(None, address, Span(columns, begin, middle, end, theirs))
        return index


class _Writer:
    """Takes one listing after the other."""

    def __init__(self) -> None:
        self._paths: list[bytes] = []
        self._addresses: list[bytes] = []
        self._keys = [array(kind) for kind in _KINDS]
        self._counts: tuple[array[int], array[int]] = array("I"), array("I")
        self._names: list[bytes] = []
        self._contents: list[bytes | memoryview] = []
        self._links: dict[int, bytes] = {}

    def add(self, path: bytes, listing: Listing) -> None:
        self._paths.append(path)
        self._addresses.append(listing.address)
        if listing.span is not None:
            self._add_span(listing.span)
            return
        rows = filed(listing.rows)
        self._counts[1].append(len(listing.rest))
        self._counts[0].append(len(rows) - len(listing.rest))
        self._add_rows(rows)

    def _add_span(self, span: Span) -> None:
        columns, begin, middle, end, links = span
        shift = len(self._names) - begin
        self._links.update((number + shift, target) for number, target in links.items())
        self._counts[0].append(middle - begin)
        self._counts[1].append(end - middle)
        self._names += columns.names[begin:end]
        for column, taken in zip(self._keys, columns.keys, strict=True):
            column.extend(taken[begin:end])
        self._contents.append(columns.contents[begin * _DIGEST_BYTES : end * _DIGEST_BYTES])

    def _add_rows(self, rows: Rows) -> None:
        for column, values in zip(
            self._keys, zip(*(key for key, _ in rows.values()), strict=True), strict=False
        ):
            column.extend(values)
        for number, (key, content) in enumerate(rows.values(), len(self._names)):
            if stat.S_ISLNK(key[0]):
                self._links[number] = content
            # Of a link, what stands here is not looked at, and what is ignored has no content.
            self._contents.append(content if len(content) == _DIGEST_BYTES else bytes(_DIGEST_BYTES))
        self._names += rows

    def done(self) -> bytes:
        names, targets = b"\0".join(self._names), b"\0".join(self._links.values())
        counts = len(self._paths), len(self._names), len(self._links), len(names), len(targets)
        columns = (*self._keys, *self._counts, array("I", self._links))
        body = b"".join(
            (
                _HEADER.pack(_MAGIC, *counts),
                *(column.tobytes() for column in columns),
                *self._addresses,
                *self._contents,
                names,
                targets,
                b"\0".join(self._paths),
            )
        )
        return body + blake3(body).digest()


class _Reader:
    """Takes one column after the other."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = _HEADER.size

    def column(self, kind: str, count: int) -> "array[int]":
        found = array(kind)
        found.frombytes(self.take(count * found.itemsize))
        return found

    def digests(self, count: int) -> list[bytes]:
        joined = bytes(self.take(count * _DIGEST_BYTES))
        return [joined[at : at + _DIGEST_BYTES] for at in range(0, len(joined), _DIGEST_BYTES)]

    def texts(self, length: int) -> list[bytes]:
        return bytes(self.take(length)).split(b"\0")

    def rest(self) -> memoryview:
        return self._body[self._at :]

    def take(self, length: int) -> memoryview:
        self._at += length
        return self._body[self._at - length : self._at]


def filed(rows: Rows) -> Rows:
    """Return rows as a folder has them: files first, then the rest, each in the order in which they come."""
    files = {name: row for name, row in rows.items() if row[0][0] >= LEAST_OF_FILES}
    return {**files, **rows}


def settled(key: Key, read_at_ns: int) -> Key:
    """Return the key of what was read then; another one, if it may have changed in that very moment."""
    mode, size, modified, changed, inode = key
    tick_ns = TICK_NS if changed % _SECOND_NS else COARSE_TICK_NS
    return key if max(modified, changed) < read_at_ns - tick_ns else (mode, size, modified, 0, inode)


def now_ns() -> int:
    """Return the time, as file systems tell it."""
    return time.time_ns()


def _entry(row: Row) -> Entry:
    (mode, size, *_), content = row
    if mode == stat.S_IFDIR:
        return Folder(content)
    return Link(content) if stat.S_ISLNK(mode) else File(content, size, mode >> 6 & 7)
