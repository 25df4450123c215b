"""What a sync did, for programs and for people."""

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from petri.syncing import Delete, Move, NewFile, SetMode, Step

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
    """The address of what the sandbox holds now, with what is ignored here."""
    is_dry_run: bool = False


def moved(steps: Iterable[Step]) -> Moved:
    """Return steps as what a person reads."""
    added, modified, deleted, renamed = [], [], [], []
    for step in steps:
        if isinstance(step, Move):
            renamed.append((as_text(step.source), as_text(step.target)))
        elif isinstance(step, Delete):
            deleted.append(as_text(step.path))
        elif isinstance(step, SetMode) or (isinstance(step, NewFile) and step.old is not None):
            modified.append(as_text(step.path))
        else:
            added.append(as_text(step.path))
    return Moved(tuple(added), tuple(modified), tuple(deleted), tuple(renamed))


def as_text(path: bytes) -> str:
    """Return a path as Python has them; bytes that are no text are kept as surrogates."""
    return os.fsdecode(path)
