"""What one upload will put where, and how much of it there may be."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from petri.errors import Invalid, TooLarge
from petri.workspace.paths import quoted, split


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

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
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

    def moves(self) -> list[Move]:
        """Return every move, if together they make sense."""
        if self._spoiled:
            raise Invalid("a part of this upload was refused, so none of it was written")
        for folder in ancestors(self._moves):
            if folder in self._moves and self._moves[folder].kind != "folder":
                raise Invalid(f"{quoted(folder)} is both a folder and a {self._moves[folder].kind} here")
        return list(self._moves.values())


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
