"""What a sync did, for programs and for people."""

import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from petri.syncing import Delete, Move, NewFile, SetMode, Step
from petri.syncing import Mode as Mode
from petri.syncing import Prefer as Prefer

_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
"""What `os.fsdecode` asks for at each call; a first upload has very many paths."""

Progress = Callable[[int, int | None], None]
"""Called as bytes pass: how many have, and of how many, where that is known."""


class Moved(NamedTuple):
    """What went from one side to the other. A folder that went or moved as a whole is named alone."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """From where, and to where."""

    @property
    def is_nothing(self) -> bool:
        """Whether it is nothing at all."""
        return not any(self)


class PathConflict(NamedTuple):
    """A path that both sides changed, each in its own way. It is as it was, here and in the sandbox."""

    path: str
    reason: str


class Skipped(NamedTuple):
    """Something that cannot be synced, and why."""

    path: str
    reason: str


class Synced(NamedTuple):
    """What a push, a pull or a sync did; or would do, if it was asked to try."""

    sandbox: str
    sent: Moved
    received: Moved
    conflicts: tuple[PathConflict, ...]
    skipped: tuple[Skipped, ...]
    bytes_sent: int
    """Over the line, in all requests, with their headers."""
    bytes_received: int
    tree: str
    """The address of what the folder holds now."""
    sandbox_tree: str
    """The address of what the sandbox holds now, with what is ignored here; empty if nobody was asked."""
    is_dry_run: bool = False


def moved(steps: Iterable[Step]) -> Moved:
    """Return steps as what a person reads."""
    added: list[str] = []
    modified: list[str] = []
    deleted, renamed = [], []
    for step in steps:
        if isinstance(step, NewFile):  # first: there may be very many
            (added if step.old is None else modified).append(as_text(step.path))
        elif isinstance(step, Move):
            renamed.append((as_text(step.source), as_text(step.target)))
        elif isinstance(step, Delete):
            deleted.append(as_text(step.path))
        elif isinstance(step, SetMode):
            modified.append(as_text(step.path))
        else:
            added.append(as_text(step.path))
    return Moved(tuple(added), tuple(modified), tuple(deleted), tuple(renamed))


def as_text(path: bytes) -> str:
    """Return a path as Python has them; bytes that are no text are kept as surrogates."""
    return path.decode(_ENCODING, _ERRORS)
