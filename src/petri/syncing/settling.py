"""What becomes of a sandbox, of a folder, and of what they agree on, when the two are brought together. Pure.

Three trees meet: the one last *agreed* on, the *folder*'s, and the *sandbox*'s. Of the sandbox, only what the
folder's rules do not ignore takes part: that is its *visible* tree. What is ignored stays where it is, even
in a folder that is deleted otherwise. A folder with nothing visible in it is visible only if agreed on.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from petri import trees
from petri.errors import PathsConflict
from petri.syncing.growing import Growing
from petri.syncing.ignoring import Ignoring
from petri.trees import EMPTY, Entry, Fetch, Folder, PathConflict, Put

Mode = Literal["push", "pull", "sync"]
Prefer = Literal["local", "sandbox"]

CONFLICT = b".petri-conflict-"
"""Between the name of a file that lost and the time at which it did."""
_LONGEST_NAME = 255
_SLASH = ord("/")


class Settled(NamedTuple):
    """The outcome of a sync, as trees."""

    sandbox: bytes
    """What the sandbox is to be."""
    folder: bytes
    """What the folder is to be."""
    agreed: bytes
    """What both have in common from then on."""
    conflicts: list[tuple[bytes, str]]
    """Paths that are as they were on both sides, and why."""


class Meeting(NamedTuple):
    """The three trees, and what is needed to read them."""

    fetch: Fetch
    put: Put
    agreed: bytes
    folder: bytes
    sandbox: bytes
    ignoring: Ignoring
    """The rules of the folder's tree."""


def settle(meeting: Meeting, mode: Mode, prefer: Prefer | None, stamp: bytes) -> Settled:
    """Say what becomes of everybody. A `push` that finds conflicts raises `PathsConflict`.

    With `prefer`, that side's version of a path in conflict is taken, and the other one stays beside it,
    under a name with `stamp` in it.
    """
    fetch, put, agreed, folder = meeting[:4]
    if meeting.sandbox == agreed:  # it has changed nothing, so there is nothing to bring together
        return Settled(agreed if mode == "pull" else folder, folder, agreed if mode == "pull" else folder, [])
    visible = visible_part(meeting)
    up = trees.merge(fetch, agreed, visible, folder)
    down = trees.merge(fetch, agreed, folder, visible)
    new_visible = trees.apply(fetch, put, visible, up.changes)
    new_folder = trees.apply(fetch, put, folder, down.changes)
    conflicts = up.conflicts
    if prefer is not None:
        new_visible = _resolved(meeting, new_visible, conflicts, prefer, stamp)
        new_folder = _resolved(meeting, new_folder, conflicts, prefer, stamp)
        conflicts = []
    told = [(conflict.path, _reason(conflict)) for conflict in conflicts]
    if mode == "pull":
        return Settled(meeting.sandbox, new_folder, _without(meeting, visible, conflicts), told)
    if mode == "push":
        if told:
            raise PathsConflict(_summary(told), conflicts=told)
        new_folder = folder
    new_sandbox = grafted(meeting, visible, new_visible)
    return Settled(new_sandbox, new_folder, _without(meeting, new_folder, conflicts), told)


def visible_part(meeting: Meeting) -> bytes:
    """Return the sandbox's tree without what is ignored and was not agreed on."""
    growing = Growing(meeting.fetch, meeting.agreed)
    for path, _, new in trees.diff(meeting.fetch, meeting.agreed, meeting.sandbox):
        growing.set(path, _sifted(meeting, path, new))
    return growing.tree(meeting.put)


def grafted(meeting: Meeting, old: bytes, new: bytes) -> bytes:
    """Return the sandbox's tree with its visible part `old` turned into `new`, and the rest as it is."""
    growing = Growing(meeting.fetch, meeting.sandbox)
    for path, before, after in trees.diff(meeting.fetch, old, new):
        if before is not None:
            _remove(meeting.fetch, growing, path, before)
        if after is not None:
            _add(meeting.fetch, growing, path, after)
    return growing.tree(meeting.put)


def but(fetch: Fetch, put: Put, tree: bytes, paths: Iterable[bytes], other: bytes) -> bytes:
    """Return `tree`, but with `paths` as `other` has them, and with the folders around them that it has."""
    growing = Growing(fetch, tree)
    for path in paths:
        growing.set(path, trees.find(fetch, other, path))
        for end in (at for at, byte in enumerate(path) if byte == _SLASH):
            around = path[:end]
            if not growing.has(around) and isinstance(trees.find(fetch, other, around), Folder):
                growing.set(around, Folder(EMPTY))
    return growing.tree(put)


def conflict_path(path: bytes, stamp: bytes, is_taken: Callable[[bytes], bool] = lambda _: False) -> bytes:
    """Return where the version that lost is kept: beside the one that won, where nothing is."""
    folder, slash, name = path.rpartition(b"/")
    for number in itertools.count(1):
        ending = CONFLICT + stamp + (b"-%d" % number if number > 1 else b"")
        found = folder + slash + name[: _LONGEST_NAME - len(ending)] + ending
        if not is_taken(found):
            return found
    raise AssertionError  # there is always another number


def _sifted(meeting: Meeting, path: bytes, entry: Entry | None) -> Entry | None:
    """Return what is visible of something in the sandbox that was not agreed on."""

    def is_ignored(inner: bytes, entry: Entry) -> bool:
        return meeting.ignoring.ignores(inner, is_folder=isinstance(entry, Folder))

    if entry is None or is_ignored(path, entry):
        return None
    if not isinstance(entry, Folder) or entry.address == EMPTY:
        return entry
    growing = Growing(meeting.fetch, EMPTY)
    prefix = path + b"/"
    for inner, each in trees.walk(
        meeting.fetch,
        entry.address,
        lambda inner: not meeting.ignoring.ignores(prefix + inner, is_folder=True),
    ):
        if not _is_full(each) and not is_ignored(prefix + inner, each):
            growing.set(inner, each)
    inside = growing.tree(meeting.put)
    return Folder(inside) if inside != EMPTY else None


def _remove(fetch: Fetch, growing: Growing, path: bytes, entry: Entry) -> None:
    """Remove what was visible at `path`; folders go with it unless something is left in them."""
    if isinstance(entry, Folder):
        inside = [(path + b"/" + inner, each) for inner, each in trees.walk(fetch, entry.address)]
        for inner, each in reversed(inside):
            if not isinstance(each, Folder) or not growing.inside(inner):
                growing.set(inner, None)
        if growing.inside(path):
            return
    growing.set(path, None)


def _add(fetch: Fetch, growing: Growing, path: bytes, entry: Entry) -> None:
    """Add something visible at `path`, where nothing visible is."""
    for inner, leaf in _leaves(fetch, path, entry):
        if not growing.has(inner):
            growing.set(inner, leaf)
        elif not isinstance(leaf, Folder) or growing.inside(inner) is None:
            raise _occupied(inner)


def _leaves(fetch: Fetch, path: bytes, entry: Entry) -> Iterator[tuple[bytes, Entry]]:
    if not isinstance(entry, Folder) or entry.address == EMPTY:
        yield path, entry
        return
    for inner, each in trees.walk(fetch, entry.address):
        if not _is_full(each):
            yield path + b"/" + inner, each


def _resolved(
    meeting: Meeting, tree: bytes, conflicts: list[PathConflict], prefer: Prefer, stamp: bytes
) -> bytes:
    growing = Growing(meeting.fetch, tree)
    taken: set[bytes] = set()

    def is_taken(path: bytes) -> bool:
        # Both sides are to call it the same, so it must be free on both.
        sides = (meeting.folder, meeting.sandbox)
        return path in taken or any(trees.find(meeting.fetch, each, path) is not None for each in sides)

    for path, _, sandbox, folder, _ in conflicts:
        winner, loser = (folder, sandbox) if prefer == "local" else (sandbox, folder)
        growing.set(path, winner)
        if loser is not None:
            beside = conflict_path(path, stamp, is_taken)
            taken.add(beside)
            growing.set(beside, loser)
    return growing.tree(meeting.put)


def _without(meeting: Meeting, tree: bytes, conflicts: list[PathConflict]) -> bytes:
    """Return `tree` with every path in conflict as it was agreed on."""
    return but(meeting.fetch, meeting.put, tree, [each.path for each in conflicts], meeting.agreed)


def _is_full(entry: Entry) -> bool:
    return isinstance(entry, Folder) and entry.address != EMPTY


def _reason(conflict: PathConflict) -> str:
    return conflict.reason.replace("ours ", "the sandbox ").replace("theirs ", "the folder ")


def _occupied(path: bytes) -> PathsConflict:
    reason = "the sandbox has something there that the folder's rules ignore"
    return PathsConflict(_summary([(path, reason)]), conflicts=[(path, reason)])


def _summary(conflicts: list[tuple[bytes, str]]) -> str:
    path, reason = conflicts[0]
    shown = path.decode(errors="backslashreplace")
    if len(conflicts) == 1:
        return f"{shown} is in conflict: {reason}"
    return f"{len(conflicts)} paths are in conflict, such as {shown}: {reason}"
