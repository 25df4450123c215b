"""Looking through a folder: what is in it as a tree, and reading only what changed since the last time."""

import os
import stat
from collections.abc import Collection, Iterable
from typing import NamedTuple

from petri.errors import Invalid
from petri.sdk.folder.contents import Contents, Restless, key_of
from petri.sdk.folder.index import (
    FOLDER,
    IGNORED_FILE,
    IGNORED_FOLDER,
    LEAST_OF_FILES,
    Index,
    Listing,
    Row,
    Rows,
    filed,
    now_ns,
    settled,
)
from petri.syncing import GITIGNORE, LONGEST_PATH, LONGEST_RULES, PETRIIGNORE, STAGE, Ignoring
from petri.trees import EMPTY, FolderObject, address, encode

_RULES = frozenset({PETRIIGNORE, GITIGNORE})
_KINDS = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a FIFO"}


class Skipped(NamedTuple):
    """Something that no tree can hold."""

    path: bytes
    reason: str


class _Look(NamedTuple):
    """A folder that is to be looked at."""

    path: bytes
    is_fresh: bool
    """The rules around it are not those of the last time."""
    is_whole: bool
    """All below it is to be looked at, too."""


class Scan:
    """One look through the folder `top`. What it finds replaces, in `index`, what the last one found."""

    def __init__(self, top: bytes, index: Index, contents: Contents, apart: bytes | None = None) -> None:
        self._top = top
        self._apart = frozenset({STAGE, apart})
        """What is never looked at: our own."""
        self._index = index
        self._contents = contents
        self._by_inode: dict[int, Row] | None = None
        self._listed: dict[bytes, Collection[bytes]] = {}
        """The names in folders that were looked at."""
        self.ignoring = Ignoring(self._read_rules)
        self.objects: dict[bytes, bytes] = {}
        """The folder objects that are new, by their addresses."""
        self.opened: dict[bytes, FolderObject] = {}
        """The same, not encoded."""
        self.skipped: list[Skipped] = []
        self.is_new = False
        """Whether anything is not as the index had it, if only the time of a file."""

    def run(self, touched: Iterable[bytes] | None = None) -> bytes:
        """Return the tree that the folder is now.

        With `touched`, only these paths are looked at, and all below those that are folders.
        """
        whole = touched is None or not self._index.folders
        ends = frozenset(touched or ())
        needed = {path[:at] for path in ends for at, byte in enumerate(path) if byte == _SLASH} | ends
        waiting = [_Look(b"", is_fresh=False, is_whole=whole or b"" in ends)]
        looked: list[tuple[bytes, Rows | None, list[bytes]]] = []
        while waiting:
            look = waiting.pop()
            rows, folders, is_fresh = self._look(look)
            looked.append((look.path, rows, folders))
            prefix = look.path + b"/" if look.path else b""
            for name in folders:
                path = prefix + name
                is_new = rows is not None and not rows[name][1]
                is_whole = look.is_whole or is_fresh or path in ends or is_new
                if is_whole or path in needed:
                    waiting.append(_Look(path, is_fresh, is_whole))
        for path, rows, folders in reversed(looked):
            self._settle(path, rows, folders)
        return self._index.tree

    def _look(self, look: _Look) -> tuple[Rows | None, list[bytes], bool]:
        """Return what is in a folder, which of that are folders, and whether rules are new there.

        Nothing, where all is as the index has it.
        """
        listing = self._index.folders.get(look.path)
        entries = self._list(look.path)
        if listing is not None and not look.is_fresh and listing.is_still(entries):
            return None, [name for name, row in listing.rest.items() if row[0] == FOLDER], False
        known = listing.rows if listing is not None else {}
        present = self._listed[look.path] = {entry.name: entry for entry in entries}
        folders, others = _compared(present, known)
        gone = known.keys() - present.keys()
        is_fresh = look.is_fresh or not _RULES.isdisjoint(gone) or any(each.name in _RULES for each in others)
        if is_fresh:
            folders, others = [], entries
        apart = {entry.name for entry in others}
        # In the order in which they are: the next look then sees at once that nothing changed.
        rows: Rows = {name: known[name] for name in present if name in known and name not in apart}
        for entry in others:
            self._add(look.path, entry, known.get(entry.name), rows, folders)
        return {name: rows[name] for name in present if name in rows}, folders, is_fresh

    def _list(self, path: bytes) -> "list[os.DirEntry[bytes]]":
        try:
            with os.scandir(self._top + b"/" + path) as entries:
                return list(entries)
        except PermissionError:
            raise Invalid(
                f"the folder {os.fsdecode(path) or '.'} cannot be read: change its rights, "
                "or name it in .petriignore"
            ) from None
        except (FileNotFoundError, NotADirectoryError):
            if not path:
                raise
            raise Restless(f"{os.fsdecode(path)} vanished while it was looked at") from None

    def _add(
        self, folder: bytes, entry: "os.DirEntry[bytes]", row: Row | None, rows: Rows, folders: list[bytes]
    ) -> None:
        """Put what is there now into `rows`."""
        name = entry.name
        path = folder + b"/" + name if folder else name
        is_folder = entry.is_dir(follow_symlinks=False)
        if path in self._apart:
            return
        if self.ignoring.ignores(path, is_folder=is_folder):
            rows[name] = (IGNORED_FOLDER if is_folder else IGNORED_FILE, b"")
        elif len(path) > LONGEST_PATH:
            raise Invalid(f"{os.fsdecode(path)[:80]}… is too long to be synced: {len(path)} bytes")
        elif is_folder:
            rows[name] = row if row is not None and row[0] == FOLDER else (FOLDER, b"")
            folders.append(name)
        else:
            try:
                # Where nothing is known, a file need not be looked at before it is opened.
                is_first = not self._index.folders and entry.is_file(follow_symlinks=False)
                found = (
                    self._contents.examine(path)
                    if is_first
                    else self._leaf(path, entry.stat(follow_symlinks=False), row)
                )
            except FileNotFoundError:
                return
            if found is not None:
                rows[name] = found

    def _leaf(self, path: bytes, status: os.stat_result, row: Row | None) -> Row | None:
        key, kind = key_of(status), stat.S_IFMT(status.st_mode)
        if row is not None and row[0] == key:
            return row
        if kind == stat.S_IFLNK:
            read_at = now_ns()
            return settled(key, read_at), os.readlink(self._top + b"/" + path)
        if kind != stat.S_IFREG:
            self.skipped.append(Skipped(path, f"it is {_KINDS.get(kind, 'a device')}"))
            return None
        if row is None and (moved := self._inodes().get(key[4])) is not None and moved[0] == key:
            return moved
        old = row[1] if row is not None and stat.S_ISREG(row[0][0]) else None
        return self._contents.examine(path, old)

    def _inodes(self) -> dict[int, Row]:
        """Return the files of the last time by inode: one that was moved need not be read."""
        if self._by_inode is None:
            listings = self._index.folders.values()
            rows = (row for listing in listings for row in listing.rows.values())
            self._by_inode = {row[0][4]: row for row in rows if stat.S_ISREG(row[0][0])}
        return self._by_inode

    def _settle(self, path: bytes, rows: Rows | None, folders: list[bytes]) -> None:
        """Put a folder into the index, whose inner folders are there already."""
        listing = self._index.folders.get(path)
        prefix = path + b"/" if path else b""
        inner = {name: (FOLDER, self._index.folders[prefix + name].address) for name in folders}
        if rows is None:
            assert listing is not None
            if all(listing.rest[name] == row for name, row in inner.items()):
                return
            rows = listing.rows
        rows = filed({**rows, **inner})
        if listing is not None and list(rows.items()) == list(listing.rows.items()):
            return
        self.is_new = True
        listing = self._index.folders[path] = Listing(rows, EMPTY)
        if entries := listing.entries():
            encoded = encode(entries)
            listing.address = address(encoded)
            self.objects[listing.address] = encoded
            self.opened[listing.address] = entries

    def _read_rules(self, path: bytes) -> bytes | None:
        folder, _, name = path.rpartition(b"/")
        if name not in self._listed.get(folder, _RULES):
            return None
        try:
            with self._contents.opened(path) as file:
                content = file.read(0, LONGEST_RULES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(content) > LONGEST_RULES:
            raise Invalid(f"{os.fsdecode(path)} has more than {LONGEST_RULES} bytes of rules")
        return content


_SLASH = ord("/")


def _compared(
    present: "dict[bytes, os.DirEntry[bytes]]", known: Rows
) -> "tuple[list[bytes], list[os.DirEntry[bytes]]]":
    """Return which of what is present are folders, as before, and what is not as before."""
    folders, others = [], []
    for name, entry in present.items():
        row = known.get(name)
        if row is None:
            others.append(entry)
        elif row[0][0] >= LEAST_OF_FILES:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                others.append(entry)
                continue
            # Not by `key_of`: this line runs once for every file there is.
            if row[0] != (
                status.st_mode,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
            ):
                others.append(entry)
        elif row[0] == FOLDER and entry.is_dir(follow_symlinks=False):
            folders.append(name)
        elif row[0] != (IGNORED_FOLDER if entry.is_dir(follow_symlinks=False) else IGNORED_FILE):
            others.append(entry)
    return folders, others
