"""The note that makes an upload of many files appear whole or not at all.

It lies in the staging folder, durable, before the first file moves: from then on the upload has
happened, and after a crash `tidy` moves what had not moved yet.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from petri.workspace.plan import Move

_NAME = "journal"


@dataclass(frozen=True, slots=True)
class Journal:
    """What an upload will put where."""

    sandbox_id: str
    owner: int | None
    moves: list[Move]

    def write(self, staging: int) -> None:
        """Make the journal durable in the staging folder, which is then durable too."""
        rows = [_row(move) for move in self.moves]
        keep(staging, _NAME, json.dumps([self.sandbox_id, self.owner, rows]))

    @classmethod
    def read(cls, stage: Path) -> Self | None:
        """Return the journal in `stage`; None if its upload was never committed."""
        kept = recall(stage, _NAME)
        if kept is None:
            return None
        sandbox_id, owner, rows = kept
        return cls(sandbox_id, owner, [Move(*row) for row in rows])


def keep(staging: int, name: str, note: str) -> None:
    """Have `note` durable in the staging folder, which is then durable too."""
    fd = os.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=staging)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(note)
        file.flush()
        os.fsync(fd)
    os.rename(f"{name}.new", name, src_dir_fd=staging, dst_dir_fd=staging)
    os.fsync(staging)
    above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=staging)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def recall(stage: Path, name: str) -> Any:
    """Return the note that was kept in `stage`; None if it never was."""
    try:
        return json.loads((stage / name).read_text(encoding="ascii"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return None  # the disk has lost it; nobody was told that this had happened


def erase(staging: int) -> None:
    """Make the upload one that never happened, durably: nothing may roll forward what was undone."""
    with suppress(OSError):
        os.unlink(_NAME, dir_fd=staging)
        os.fsync(staging)


def _row(move: Move) -> tuple[str, str, int, str]:
    return move.path, move.staged, move.inode, move.kind
