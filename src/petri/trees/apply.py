"""Changes put into effect: one tree, and what changed, give the other."""

from collections.abc import Callable, Iterable

from petri.errors import Conflict, Invalid
from petri.trees.diff import Change
from petri.trees.entries import Entry, Folder, FolderObject, encode
from petri.trees.walk import Fetch, open_folder

Put = Callable[[bytes], bytes]
"""Keeps an encoded folder object and returns its address."""


class _Touched:
    """A folder that something changes in, or far below."""

    __slots__ = ("above", "below", "changes", "entries", "name")

    def __init__(self, above: "_Touched | None", name: bytes) -> None:
        self.above = above
        self.name = name
        self.below: dict[bytes, _Touched] = {}
        self.changes: dict[bytes, Change] = {}
        self.entries: dict[bytes, Entry] = {}


def apply(fetch: Fetch, put: Put, tree: bytes, changes: Iterable[Change]) -> bytes:
    """Return the tree that `changes` make of `tree`. Its new folder objects are put, the lowest first.

    `apply(fetch, put, a, diff(fetch, a, b)) == b`. Raises `Conflict` if at some path there is not what
    the change says was there, and `Invalid` if one change lies within another.
    """
    folders = _touched(changes)
    for folder in folders:  # from the root down: what a folder was stands in the one above
        folder.entries = dict(_opened(fetch, tree, folder))
        for name, change in folder.changes.items():
            _change(folder, name, change)
    for folder in reversed(folders):
        address = put(encode(folder.entries))
        if folder.above is None:
            return address
        folder.above.entries[folder.name] = Folder(address)
    return tree


def _touched(changes: Iterable[Change]) -> list[_Touched]:
    """Return every folder that has to be written anew, each behind the one above it."""
    root = _Touched(None, b"")
    folders = [root]
    for change in changes:
        folder = root
        *above, name = change.path.split(b"/")
        for part in above:
            if part not in folder.below:
                folder.below[part] = _Touched(folder, part)
                folders.append(folder.below[part])
            folder = folder.below[part]
        if name in folder.changes:
            raise Invalid(f"two changes are at one path, {change.path!r}; each path changes once")
        folder.changes[name] = change
    return folders if root.below or root.changes else []


def _opened(fetch: Fetch, tree: bytes, folder: _Touched) -> FolderObject:
    if folder.above is None:
        return open_folder(fetch, tree)
    change = folder.above.changes.get(folder.name)
    if change is not None:
        raise Invalid(f"a change lies within the one at {change.path!r}; put what is in there into that one")
    entry = folder.above.entries.get(folder.name)
    if not isinstance(entry, Folder):
        raise Conflict(f"{folder.name!r} is not a folder there, as the changes in it say")
    return open_folder(fetch, entry.address)


def _change(folder: _Touched, name: bytes, change: Change) -> None:
    if folder.entries.get(name) != change.old:
        raise Conflict(f"{change.path!r} is not what the change says it was; look at the tree again")
    if change.new is None:
        folder.entries.pop(name, None)
    else:
        folder.entries[name] = change.new
