"""Two trees that come from one, brought together path by path.

What only one side changed is taken, what both changed alike is taken once, and everything else is a
conflict: said with its reason, ours left in place, theirs named, so that neither is lost. A path that
neither side touched is in no conflict. Swap the sides, and the same paths are in conflict.
"""

from collections.abc import Iterator
from typing import NamedTuple

from petri.trees.diff import Change, diff
from petri.trees.entries import Entry, File, Folder, FolderObject, Link
from petri.trees.walk import Fetch, open_folder, walk

_SLASH = ord("/")


class PathConflict(NamedTuple):
    """A path that both sides changed, each in its own way. In the merged tree it is as ours has it."""

    path: bytes
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None
    reason: str


class Merged(NamedTuple):
    """What to `apply` to ours, and what is left for somebody to decide; both in the order of `walk`."""

    changes: list[Change]
    conflicts: list[PathConflict]


class _At(NamedTuple):
    """One path, in the three trees."""

    path: bytes
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None


def merge(fetch: Fetch, base: bytes, ours: bytes, theirs: bytes) -> Merged:
    """Say what brings the changes from `base` to `theirs` into `ours`."""
    merged = Merged([], [])
    if theirs in (base, ours):
        return merged
    levels = [_level(fetch, _At(b"", Folder(base), Folder(ours), Folder(theirs)))]
    while levels:
        for at in levels[-1]:
            if isinstance(at.ours, Folder) and isinstance(at.theirs, Folder):
                levels.append(_level(fetch, at))
                break
            _decide(fetch, at, merged)
        else:
            levels.pop()
    return merged


def _level(fetch: Fetch, at: _At) -> Iterator[_At]:
    """Yield what there is to decide in a folder of both sides: what theirs changed and ours has otherwise."""
    base, theirs = _inside(fetch, at.base), _inside(fetch, at.theirs)
    ours = base if at.ours == at.base else _inside(fetch, at.ours)
    prefix = at.path + b"/" if at.path else b""
    names = {name for name, entry in theirs.items() if base.get(name) != entry}
    names |= base.keys() - theirs.keys()
    for name in sorted(names):
        inner = _At(prefix + name, base.get(name), ours.get(name), theirs.get(name))
        if inner.ours != inner.theirs:
            yield inner


def _inside(fetch: Fetch, entry: Entry | None) -> FolderObject:
    return open_folder(fetch, entry.address) if isinstance(entry, Folder) else {}


def _decide(fetch: Fetch, at: _At, merged: Merged) -> None:
    if at.ours == at.base:
        merged.changes.append(Change(at.path, at.ours, at.theirs))
    elif isinstance(at.base, Folder) and isinstance(at.ours, Folder) and at.theirs is None:
        _they_deleted(fetch, at, at.base, at.ours, merged)
    elif isinstance(at.base, Folder) and isinstance(at.theirs, Folder) and at.ours is None:
        _we_deleted(fetch, at, at.base, at.theirs, merged)
    elif (file := _both(at.base, at.ours, at.theirs)) is not None:
        if file != at.ours:
            merged.changes.append(Change(at.path, at.ours, file))
    else:
        reason = f"ours {_did(at.base, at.ours)}, theirs {_did(at.base, at.theirs)}"
        merged.conflicts.append(PathConflict(*at, reason))


def _they_deleted(fetch: Fetch, at: _At, base: Folder, ours: Folder, merged: Merged) -> None:
    """Delete what ours has left alone of a folder that theirs deleted; all of it, or around the conflicts."""
    changed = [change for change in diff(fetch, base.address, ours.address) if change.new is not None]
    if not changed:
        merged.changes.append(Change(at.path, ours, None))
    for path, was, is_now in changed:
        reason = f"ours {_did(was, is_now)}, theirs deleted the folder around it"
        merged.conflicts.append(PathConflict(at.path + b"/" + path, was, is_now, None, reason))
    if changed:
        kept = {path for path, _, _ in changed}
        merged.changes.extend(_deletions_around(fetch, at.path, ours, kept))


def _deletions_around(fetch: Fetch, above: bytes, folder: Folder, kept: set[bytes]) -> Iterator[Change]:
    """Yield the deletion of all that is in `folder`, but for what is `kept` and the folders around it."""
    around = {path[:end] for path in kept for end, byte in enumerate(path) if byte == _SLASH}
    for path, entry in walk(fetch, folder.address, around.__contains__):
        if path not in kept and path not in around:
            yield Change(above + b"/" + path, entry, None)


def _we_deleted(fetch: Fetch, at: _At, base: Folder, theirs: Folder, merged: Merged) -> None:
    for path, was, is_now in diff(fetch, base.address, theirs.address):
        if is_now is not None:
            reason = f"ours deleted the folder around it, theirs {_did(was, is_now)}"
            merged.conflicts.append(PathConflict(at.path + b"/" + path, was, None, is_now, reason))


def _both(base: Entry | None, ours: Entry | None, theirs: Entry | None) -> File | None:
    """Return the file that has both sides' changes, if one changed its content and the other its mode."""
    if not (isinstance(base, File) and isinstance(ours, File) and isinstance(theirs, File)):
        return None
    if ours.digest == base.digest:
        content = theirs
    elif theirs.digest in (base.digest, ours.digest):
        content = ours
    else:
        return None
    # A bit has two values: two who both change it agree.
    mode = base.mode ^ (ours.mode ^ base.mode | theirs.mode ^ base.mode)
    return File(content.digest, content.size, mode)


_NOUNS = {File: "file", Link: "link", Folder: "folder"}


def _did(old: Entry | None, new: Entry | None) -> str:
    if old is None or new is None:
        return f"deleted the {_NOUNS[type(old)]}" if old is not None else f"added a {_NOUNS[type(new)]}"
    if type(old) is type(new):
        return f"changed the {_NOUNS[type(old)]}"
    return f"replaced the {_NOUNS[type(old)]} by a {_NOUNS[type(new)]}"
