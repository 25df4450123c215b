"""What lies between two trees, found by looking only where their addresses differ.

A change is said as high up as it can be: a folder that appeared, vanished, or became a file is one
change, whatever is in it, and so a folder of thousands costs as little as a file. Only where there is
a folder on both sides is it looked into. Hence no two changes lie within each other, an empty folder
needs no rule of its own, and the changes together with the one tree give exactly the other.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeGuard

from petri.trees.entries import EMPTY, Entry, File, Folder, FolderObject
from petri.trees.walk import Fetch, open_folder, walk


class Change(NamedTuple):
    """What was at a path and what is there now; nothing before if it was added, nothing now if deleted.

    A folder stands for all that is in it.
    """

    path: bytes
    old: Entry | None
    new: Entry | None


class Move(NamedTuple):
    """A file or a whole folder that is now at another path, as it was."""

    source: bytes
    destination: bytes
    entry: File | Folder


class Renamed(NamedTuple):
    """Changes as moves, and what remains of them. The moves go from paths that end to paths that begin."""

    moves: list[Move]
    rest: list[Change]


def diff(fetch: Fetch, old: bytes, new: bytes) -> Iterator[Change]:
    """Yield what turns the tree `old` into the tree `new`, in the order of `walk`."""
    if old == new:
        return
    levels = [(b"", *_differing(open_folder(fetch, old), open_folder(fetch, new)))]
    while levels:
        prefix, before, after, names = levels[-1]
        for name in names:
            was, is_now = before.get(name), after.get(name)
            if isinstance(was, Folder) and isinstance(is_now, Folder):
                inside = open_folder(fetch, was.address), open_folder(fetch, is_now.address)
                levels.append((prefix + name + b"/", *_differing(*inside)))
                break
            yield Change(prefix + name, was, is_now)
        else:
            levels.pop()


def _differing(
    before: FolderObject, after: FolderObject
) -> tuple[FolderObject, FolderObject, Iterator[bytes]]:
    names = {name for name, entry in before.items() if after.get(name) != entry}
    return before, after, iter(sorted(names | (after.keys() - before.keys())))


def flatten(fetch: Fetch, changes: Iterable[Change]) -> Iterator[Change]:
    """Yield `changes` as a person reads them: each file, each link, each empty folder by itself.

    A folder with something in it gives way to that. The outcome is to be read, not to be applied: it
    cannot tell a folder that is gone from one that is empty now.
    """
    for path, old, new in changes:
        if not _is_full(old) and not _is_full(new):
            yield Change(path, old, new)
            continue
        left = Change(path, None if _is_full(old) else old, None if _is_full(new) else new)
        if left.old is not None or left.new is not None:
            yield left
        for inner, entry in _leaves(fetch, path, old):
            yield Change(inner, entry, None)
        for inner, entry in _leaves(fetch, path, new):
            yield Change(inner, None, entry)


def _is_full(entry: Entry | None) -> bool:
    return isinstance(entry, Folder) and entry.address != EMPTY


def _leaves(fetch: Fetch, path: bytes, entry: Entry | None) -> Iterator[tuple[bytes, Entry]]:
    if not isinstance(entry, Folder):
        return
    for inner, leaf in walk(fetch, entry.address):
        if not _is_full(leaf):
            yield path + b"/" + inner, leaf


def renames(changes: Iterable[Change]) -> Renamed:
    """Tell the moves among `changes`: what is gone from one path and is, as it was, at another.

    Of several alike, those with the same name belong together. What is empty does not move: any two
    empty files would. A folder that was moved and then changed is no move.
    """
    changes = list(changes)
    gone = [Move(path, b"", old) for path, old, new in changes if new is None and _can_move(old)]
    come = [Move(b"", path, new) for path, old, new in changes if old is None and _can_move(new)]
    moves = {move.destination: move for move in _paired(gone, come, _by_name)}
    taken = {move.source for move in moves.values()}
    gone = [each for each in gone if each.source not in taken]
    come = [each for each in come if each.destination not in moves]
    moves |= {move.destination: move for move in _paired(gone, come, lambda move: move.entry)}
    taken = {move.source for move in moves.values()} | moves.keys()
    return Renamed(
        [moves[change.path] for change in changes if change.path in moves],
        [change for change in changes if change.path not in taken],
    )


def _can_move(entry: Entry | None) -> TypeGuard[File | Folder]:
    return entry.size > 0 if isinstance(entry, File) else _is_full(entry)


def _by_name(move: Move) -> Hashable:
    return move.entry, (move.source or move.destination).rpartition(b"/")[2]


def _paired(gone: list[Move], come: list[Move], alike: Callable[[Move], Hashable]) -> Iterator[Move]:
    """Pair what is alike, first with first."""
    waiting: defaultdict[Hashable, deque[bytes]] = defaultdict(deque)
    for move in gone:
        waiting[alike(move)].append(move.source)
    for move in come:
        if sources := waiting[alike(move)]:
            yield Move(sources.popleft(), move.destination, move.entry)
