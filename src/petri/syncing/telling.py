"""What turns one tree into another, as records. Contents are left to whoever knows where they are.

Moves come first: they go from paths that end to paths that begin, between folders that stay, so that none is
in another's way. A folder that was moved and then changed is moved, and then changed.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from petri import trees
from petri.syncing.records import Delete, MakeFolder, MakeLink, Move, SetMode
from petri.trees import EMPTY, Change, Entry, Fetch, File, Folder, Link

ALIKE = 0.5
"""A folder is another one, moved, if it has more than this share of what is in the larger of the two."""


class NewFile(NamedTuple):
    """A file whose content has to be there: new, or changed from `old`."""

    path: bytes
    file: File
    old: File | None


Step = Move | Delete | MakeFolder | MakeLink | SetMode | NewFile


def steps(fetch: Fetch, old: bytes, new: bytes) -> Iterator[Step]:
    """Yield what turns the tree `old` into the tree `new`, in an order that `Growing` takes."""
    moves, rest = trees.renames(trees.diff(fetch, old, new))
    for move in moves:
        yield Move(move.source, move.destination)
    pairs = _pairs(fetch, rest)
    for source, target in pairs.items():
        yield Move(source.path, target.path)
    moved = {*pairs, *pairs.values()}
    for change in rest:
        if change not in moved:
            yield from _change(fetch, change)
    for source, target in pairs.items():
        assert isinstance(source.old, Folder)
        assert isinstance(target.new, Folder)
        for path, before, after in trees.diff(fetch, source.old.address, target.new.address):
            yield from _change(fetch, Change(target.path + b"/" + path, before, after))


def _change(fetch: Fetch, change: Change) -> Iterator[Step]:
    path, old, new = change
    if old is not None and (new is None or isinstance(old, Folder) or isinstance(new, Folder)):
        yield Delete(path)
        old = None
    if isinstance(old, File) and isinstance(new, File) and new == old._replace(mode=new.mode):
        yield SetMode(path, new.mode)
    elif new is not None:
        yield from _add(fetch, path, new, old if isinstance(old, File) else None)


def _add(fetch: Fetch, path: bytes, new: Entry, old: File | None) -> Iterator[Step]:
    if isinstance(new, File):
        yield NewFile(path, new, old)
    elif isinstance(new, Link):
        yield MakeLink(path, new.target)
    elif new.address == EMPTY:
        yield MakeFolder(path)
    else:
        for inner, entry in trees.walk(fetch, new.address, prefix=path + b"/"):
            # Files first, and without a call: there may be very many.
            if isinstance(entry, File):
                yield NewFile(inner, entry, None)
            elif isinstance(entry, Link):
                yield MakeLink(inner, entry.target)
            elif entry.address == EMPTY:
                yield MakeFolder(inner)


def _pairs(fetch: Fetch, changes: list[Change]) -> dict[Change, Change]:
    """Return which folders that are gone are, with some changes, which folders that have come."""
    gone = [each for each in changes if each.new is None and isinstance(each.old, Folder)]
    come = [each for each in changes if each.old is None and isinstance(each.new, Folder)]
    if not gone or not come:
        return {}
    having: dict[tuple[bytes, Entry], list[Change]] = {}
    for change in gone:
        for item in _inside(fetch, change.old):
            having.setdefault(item, []).append(change)
    pairs: dict[Change, Change] = {}
    for change in come:
        items = _inside(fetch, change.new)
        common = Counter(each for item in items for each in having.get(item, ()) if each not in pairs)
        for candidate, count in common.most_common(1):
            if count > ALIKE * max(len(items), len(_inside(fetch, candidate.old))):
                pairs[candidate] = change
    return pairs


def _inside(fetch: Fetch, entry: Entry | None) -> list[tuple[bytes, Entry]]:
    """Return the files and links anywhere in a folder."""
    assert isinstance(entry, Folder)
    return [(path, each) for path, each in trees.walk(fetch, entry.address) if not isinstance(each, Folder)]
