"""A tree that records are changing, one after the other. Strict: a record that does not fit is refused.

Only the folders that records speak of are opened, and nothing recurses: a path may have 2,048 names.
"""

import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NoReturn

from petri.errors import Invalid, TooLarge
from petri.syncing.records import (
    LONGEST_PATH,
    NOTHING,
    ChangedFile,
    Delete,
    KnownFile,
    MakeFolder,
    MakeLink,
    Move,
    Record,
    SetMode,
    WholeFile,
)
from petri.trees import EMPTY, Entry, Fetch, File, Folder, Link, Put, encode

_LONGEST = 2 * LONGEST_PATH
"""What one path moved into another makes. Where files are made of it, less is allowed, and told better."""


class _Open:
    """A folder that is looked into, and may be changed."""

    __slots__ = ("entries",)

    def __init__(self, entries: "dict[bytes, Entry | _Open]") -> None:
        self.entries = entries


class Growing:
    """What `tree` is becoming. `fetch` gives folder objects; `NOTHING` is the empty tree, too.

    `most_folders` can come by themselves around other things: a path of a few bytes may have 2,048 of them.
    """

    def __init__(self, fetch: Fetch, tree: bytes, most_folders: int = sys.maxsize) -> None:
        self._fetch = fetch
        self._most_folders = most_folders
        self.folders_made = 0
        """How many came by themselves."""
        self._root = self._opened(EMPTY if tree == NOTHING else tree)
        self._near: tuple[bytes | None, _Open] = None, self._root
        """The folder that something was last put into: what comes next is often put there, too."""

    def apply(self, record: Record) -> None:
        """Change the tree as `record` says; `Invalid` if that cannot be done, with the tree as it was."""
        if isinstance(record, WholeFile | KnownFile | ChangedFile):
            self._put(record.path, File(record.digest, record.size, record.mode))
        elif isinstance(record, MakeLink):
            self._put(record.path, Link(record.target))
        elif isinstance(record, Delete):
            folder, name = self._holder(record.path)
            del folder.entries[name]
        elif isinstance(record, MakeFolder):
            folder, name = self._free(record.path)
            folder.entries[name] = Folder(EMPTY)
        elif isinstance(record, SetMode):
            self._set_mode(record)
        elif isinstance(record, Move):
            self._move(record)
        else:
            raise Invalid(f"a {type(record).__name__} record does not belong among the changes to a tree")

    def set(self, path: bytes, entry: Entry | None) -> None:
        """Have `entry` at `path`, or nothing, whatever is there; folders around it are made if need be."""
        if entry is not None:
            folder, name = self._around(path)
            folder.entries[name] = entry
            return
        with suppress(Invalid):
            folder, name = self._holder(path)
            del folder.entries[name]

    def has(self, path: bytes) -> bool:
        """Say whether there is something at `path`."""
        with suppress(Invalid):
            return bool(self._holder(path))
        return False

    def inside(self, path: bytes) -> Collection[bytes] | None:
        """Return the names in the folder at `path`; None if there is no folder."""
        with suppress(Invalid):
            inner = self._inner(*self._holder(path))
            return inner.entries.keys() if inner is not None else None
        return None

    def tree(self, put: Put) -> bytes:
        """Return the address of what the tree has become; its new folder objects are put.

        `Invalid` if a path in it is far longer than paths can be: no record has one, but folders move into
        folders, and all the paths of a tree that is 100,000 folders deep would take ten gigabytes.
        """
        addresses: dict[_Open, bytes] = {}
        longest: dict[_Open, int] = {}
        waiting = [self._root]
        while waiting:
            folder = waiting[-1]
            entries = folder.entries.items()
            if missing := [each for _, each in entries if isinstance(each, _Open) and each not in addresses]:
                waiting += missing
                continue
            closed = {
                name: Folder(addresses[each]) if isinstance(each, _Open) else each for name, each in entries
            }
            longest[folder] = _longest(folder, longest)
            addresses[folder] = put(encode(closed)) if closed else EMPTY
            waiting.pop()
        return addresses[self._root]

    def _put(self, path: bytes, entry: File | Link) -> None:
        folder, name = self._around(path)
        if isinstance(folder.entries.get(name), Folder | _Open):
            _refuse(path, "is a folder; it must be deleted first")
        folder.entries[name] = entry

    def _set_mode(self, record: SetMode) -> None:
        folder, name = self._holder(record.path)
        file = folder.entries[name]
        if not isinstance(file, File):
            _refuse(record.path, "is not a file, and nothing else has a mode")
        folder.entries[name] = file._replace(mode=record.mode)

    def _move(self, record: Move) -> None:
        source, name = self._holder(record.source)
        if (record.target + b"/").startswith(record.source + b"/"):
            _refuse(record.source, "cannot be moved into itself")
        target, new_name = self._free(record.target)
        target.entries[new_name] = source.entries.pop(name)

    def _holder(self, path: bytes) -> tuple[_Open, bytes]:
        """Return the folder around what is at `path`, and its name in there."""
        self._near = None, self._root  # whoever asks may take it away
        *above, name = path.split(b"/")
        folder = self._root
        for part in above:
            inner = self._inner(folder, part)
            if inner is None:
                _refuse(path, "is not there")
            folder = inner
        if name not in folder.entries:
            _refuse(path, "is not there")
        return folder, name

    def _free(self, path: bytes) -> tuple[_Open, bytes]:
        """Return the folder around `path`, where nothing must be yet."""
        folder, name = self._around(path)
        if name in folder.entries:
            _refuse(path, "is there already")
        return folder, name

    def _around(self, path: bytes) -> tuple[_Open, bytes]:
        """Return the folder around `path`, made if it is not there."""
        around, _, name = path.rpartition(b"/")
        if around != self._near[0]:
            self._near = around, self._made(path, around)
        return self._near[1], name

    def _made(self, path: bytes, around: bytes) -> _Open:
        above = around.split(b"/") if around else []
        folder = self._root
        for part in above:
            inner = self._inner(folder, part)
            if inner is None:
                if part in folder.entries:
                    _refuse(path, "lies within a file or a link")
                if self.folders_made == self._most_folders:
                    raise TooLarge("there are more folders than are allowed")
                self.folders_made += 1
                inner = folder.entries[part] = _Open({})
            folder = inner
        return folder

    def _inner(self, folder: _Open, name: bytes) -> _Open | None:
        """Return a folder in another one, opened; None if it is something else, or nothing."""
        found = folder.entries.get(name)
        if isinstance(found, Folder):
            found = folder.entries[name] = self._opened(found.address)
        return found if isinstance(found, _Open) else None

    def _opened(self, address: bytes) -> _Open:
        return _Open({} if address == EMPTY else dict(self._fetch(address)))


def _longest(folder: _Open, longest: Mapping[_Open, int]) -> int:
    """Return how long the longest path in `folder` is, as far as it was opened; `Invalid` if too long."""
    inside = (
        len(name) + (longest[each] + 1 if isinstance(each, _Open) else 0)
        for name, each in folder.entries.items()
    )
    found = max(inside, default=0)
    if found > _LONGEST:
        raise Invalid(f"a path would have {found} bytes and more; {LONGEST_PATH} is the most")
    return found


def _refuse(path: bytes, why: str) -> NoReturn:
    raise Invalid(f"{path!r} {why}")
