"""What one upload will put where, and how much of it there may be."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from petri.errors import Invalid, TooLarge
from petri.workspace.paths import quoted, split
from petri.workspace.weight import Weight

_BLOCK_BYTES = 4096
"""What most file systems give out at a time."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may bring: bytes once unpacked, and files, links and folders."""

    max_upload_bytes: int
    max_files: int


@dataclass(frozen=True, slots=True)
class Move:
    """Something staged, and the path it goes to."""

    path: str
    staged: str
    """Its name in the staging folder."""
    inode: int
    """After a crash a staged name may hold the file that was replaced; its inode tells."""
    kind: Literal["file", "folder", "link"]
    size: int = 0
    digest: str = ""


class Plan:
    """The moves of one upload. For a path named twice, the later one counts."""

    def __init__(self, bounds: Bounds, allow: Callable[[int], None]) -> None:
        self._bounds = bounds
        self._allow = allow
        """Called with all bytes so far; raises when they are more than there is room for."""
        self._bytes = 0
        self._entries = 0
        self._folders: set[str] = set()
        self._moves: dict[str, Move] = {}
        self._spoiled = False

    @contextmanager
    def careful(self) -> Iterator[None]:
        """Remember it if a step fails: what it left must never be committed as if it were whole."""
        try:
            yield
        except BaseException:
            self._spoiled = True
            raise

    def count(self, size: int) -> None:
        """Allow for `size` more bytes."""
        self._bytes += size
        if self._bytes > self._bounds.max_upload_bytes:
            raise TooLarge(
                f"the upload holds more than {self._bounds.max_upload_bytes} bytes; send it in smaller parts"
            )
        self._allow(self._bytes)

    @property
    def size(self) -> int:
        """The bytes allowed for so far."""
        return self._bytes

    def announce(self, path: str) -> None:
        """Allow for one more entry, and for the folders above it."""
        self._entries += 1
        # Their folders are bounded too: ten thousand paths of two thousand levels each are small
        # to send and twenty million folders to make.
        _add_ancestors(self._folders, path)
        if max(self._entries, len(self._folders)) > self._bounds.max_files:
            raise TooLarge(
                f"the upload holds more than {self._bounds.max_files} files; send them in smaller parts"
            )

    def add(self, move: Move) -> None:
        """Have `move` made at commit."""
        self._moves.pop(move.path, None)
        self._moves[move.path] = move

    def drop(self, path: str, staged: str, size: int) -> None:
        """Forget an archive that will be unpacked: what is in it counts instead."""
        if path in self._moves and self._moves[path].staged == staged:
            del self._moves[path]
        self._bytes -= size
        self._entries -= 1

    def staged(self) -> list[Move]:
        """Return the moves so far, whether they make sense or not."""
        return list(self._moves.values())

    def moves(self) -> list[Move]:
        """Return every move, if together they make sense."""
        if self._spoiled:
            raise Invalid("a part of this upload was refused, so none of it was written")
        for folder in ancestors(self._moves):
            if folder in self._moves and self._moves[folder].kind != "folder":
                raise Invalid(f"{quoted(folder)} is both a folder and a {self._moves[folder].kind} here")
        return list(self._moves.values())


def weigh(moves: Iterable[Move]) -> Weight:
    """Return what `moves` bring at most: every folder above them new, every file in whole blocks."""
    moves = list(moves)
    folders = ancestors(move.path for move in moves) | {move.path for move in moves if move.kind == "folder"}
    others = [move.size for move in moves if move.kind != "folder"]
    blocks = len(folders) + sum(-(-size // _BLOCK_BYTES) for size in others)
    return Weight(blocks * _BLOCK_BYTES, len(folders) + len(others))


def ancestors(paths: Iterable[str]) -> set[str]:
    """Return every folder above any of `paths`, the workspace itself left out."""
    found: set[str] = set()
    for path in paths:
        _add_ancestors(found, path)
    return found


def _add_ancestors(known: set[str], path: str) -> None:
    folder, _ = split(path)
    while folder and folder not in known:
        known.add(folder)
        folder, _ = split(folder)
