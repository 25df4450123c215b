"""The note that makes an upload of many files appear whole or not at all.

It lies in the staging folder, durable, before the first file moves: from then on the upload has
happened, and after a crash `tidy` moves what had not moved yet.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

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
        fd = os.open(
            f"{_NAME}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=staging
        )
        with os.fdopen(fd, "w", encoding="ascii") as file:
            json.dump([self.sandbox_id, self.owner, [_row(move) for move in self.moves]], file)
            file.flush()
            os.fsync(fd)
        os.rename(f"{_NAME}.new", _NAME, src_dir_fd=staging, dst_dir_fd=staging)
        os.fsync(staging)
        above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=staging)
        try:
            os.fsync(above)
        finally:
            os.close(above)

    @classmethod
    def read(cls, stage: Path) -> Self | None:
        """Return the journal in `stage`; None if its upload was never committed."""
        try:
            sandbox_id, owner, rows = json.loads((stage / _NAME).read_text(encoding="ascii"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            return None  # the disk has lost it; nobody was told that this upload had happened
        return cls(sandbox_id, owner, [Move(*row) for row in rows])


def erase(staging: int) -> None:
    """Make the upload one that never happened, durably: nothing may roll forward what was undone."""
    with suppress(OSError):
        os.unlink(_NAME, dir_fd=staging)
        os.fsync(staging)


def _row(move: Move) -> tuple[str, str, int, str]:
    return move.path, move.staged, move.inode, move.kind
