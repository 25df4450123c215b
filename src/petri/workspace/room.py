"""Room for an upload: what fits into a workspace's share of the disk, and into the disk itself."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from petri.errors import StorageFull
from petri.workspace import quota
from petri.workspace.beneath import LOOK, beneath
from petri.workspace.plan import Move, ancestors
from petri.workspace.space import look, refuse_if_short
from petri.workspace.weight import Weight

_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Room:
    """What one upload may take while it grows. Whether it fits beside what is there is asked at its end."""

    root: Path
    reserve_bytes: int
    disk_bytes: int | None = None
    """All that the workspace may ever hold."""
    project: int | None = None
    """Where quotas hold: whose they are, so that the staged files may be moved to where they belong."""

    def allow(self, total_bytes: int) -> None:
        """Raise `StorageFull` if an upload of `total_bytes` so far can never fit."""
        if self.disk_bytes is not None and total_bytes > self.disk_bytes:
            raise StorageFull(
                f"the upload holds more than {self.disk_bytes} bytes, which is all that this sandbox may "
                "hold (limits.disk_bytes); nothing was written",
                field="limits.disk_bytes",
            )
        refuse_if_short(look(self.root), self.reserve_bytes)

    def own(self, stage: Path) -> None:
        """Have what is staged in `stage` counted as the sandbox's own."""
        if self.project is not None:
            quota.give(stage, self.project)


def standing(workspace: int, moves: Iterable[Move]) -> Weight:
    """Return what stands in the open `workspace` where `moves` go: files that go away, folders that stay."""
    disk_bytes, inodes = 0, 0
    moves = list(moves)
    for path in ancestors(move.path for move in moves) | {move.path for move in moves}:
        with suppress(OSError), beneath(workspace, path, LOOK | os.O_NOFOLLOW) as fd:
            seen = os.fstat(fd)
            # A file with other names stays on the disk when this one goes.
            if stat.S_ISDIR(seen.st_mode) or seen.st_nlink == 1:
                disk_bytes += seen.st_blocks * _BLOCK_BYTES
            inodes += 1
    return Weight(disk_bytes, inodes)
