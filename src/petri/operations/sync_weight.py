"""What a sync brings to a workspace: how much it weighs, and what goes for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from petri import trees
from petri.errors import Invalid
from petri.trees import Entry, Fetch, File, Folder
from petri.workspace import Weight

_BLOCK_BYTES = 4096
"""What most file systems give out at a time."""
_LONGEST_PATH = 4094
"""What a look sees of a workspace: one more, and of an empty folder it would not know what is in it."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What turns one tree into another, by its weight."""

    paths: list[bytes]
    files: dict[bytes, tuple[bytes, File]]
    """Files that are new or changed, by their digests, with a path of each."""
    size: int
    """Of the files that are new or changed, in bytes."""
    comes: Weight
    goes: Weight

    @property
    def count(self) -> int:
        """How many paths are new, changed, moved or gone."""
        return len(self.paths)

    @property
    def growth_bytes(self) -> int:
        """By how much the workspace grows."""
        return max(0, self.comes.disk_bytes - self.goes.disk_bytes)

    def weight(self) -> Weight:
        """Return what it brings at most."""
        return self.comes

    def replaces(self) -> Weight:
        """Return what goes for it."""
        return self.goes


NOTHING = Brought([], {}, 0, Weight(0, 0), Weight(0, 0))


def brought(fetch: Fetch, old: bytes, new: bytes) -> Brought:
    """Return what lies between two trees. What only moves weighs nothing.

    `Invalid` if a path would be longer than a workspace can have: folders may move into others.
    """
    moves, rest = trees.renames(trees.diff(fetch, old, new))
    come = [found for change in rest for found in _all(fetch, change.path, change.new)]
    gone = [found for change in rest for found in _all(fetch, change.path, change.old)]
    deeper = [each for each in moves if len(each.destination) > len(each.source)]
    _refuse_too_long(path for each in deeper for path, _ in _all(fetch, each.destination, each.entry))
    arrived = [path for path, _ in come]
    _refuse_too_long(arrived)
    paths = [move.destination for move in moves]
    paths += [change.path for change in rest if change.new is None]
    files = [(path, entry) for path, entry in come if isinstance(entry, File)]
    return Brought(
        paths + arrived,
        _by_digest(files),
        sum(file.size for _, file in files),
        _weight(come),
        _weight(gone),
    )


def _all(fetch: Fetch, path: bytes, entry: Entry | None) -> Iterable[tuple[bytes, Entry]]:
    """Return what is at `path`, and all that is in it."""
    if isinstance(entry, Folder):
        return chain([(path, entry)], trees.walk(fetch, entry.address, prefix=path + b"/"))
    return [] if entry is None else [(path, entry)]


def _by_digest(files: list[tuple[bytes, File]]) -> dict[bytes, tuple[bytes, File]]:
    """Return one of the files for each content; `Invalid` if two are said to differ in size."""
    found: dict[bytes, tuple[bytes, File]] = {}
    for path, file in files:
        other, first = found.setdefault(file.digest, (path, file))
        if first.size != file.size:
            raise Invalid(
                f"{other!r} and {path!r} have the same content, as the sync says, and "
                f"{first.size} and {file.size} bytes"
            )
    return found


def _refuse_too_long(paths: Iterable[bytes]) -> None:
    longest = max(paths, key=len, default=b"")
    if len(longest) > _LONGEST_PATH:
        raise Invalid(
            f"a path would have {len(longest)} bytes, and {_LONGEST_PATH} is the most: use fewer or shorter "
            f"folders; it begins {longest[:100]!r}; nothing was changed"
        )


def _weight(found: list[tuple[bytes, Entry]]) -> Weight:
    blocks = sum(-(-entry.size // _BLOCK_BYTES) if isinstance(entry, File) else 1 for _, entry in found)
    return Weight(blocks * _BLOCK_BYTES, len(found))
