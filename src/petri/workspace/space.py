"""How full the disk is that holds the workspaces, and what of it nobody may touch.

One statvfs, about a microsecond. ext4, XFS and tmpfs count in it what was written or set aside at once, and
not only when it reaches the disk. So it tells that something grew, though not what.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from petri.errors import StorageFull

_UNCOUNTED = 1 << 60
"""btrfs makes inodes as they are needed and says that there are none."""
_RESERVE_BYTES, _SMALL_DISK_SHARE = 1 << 30, 50
_RESERVED_SHARE = 100
"""One inode in so many is kept for the host: with none left it cannot even write its log."""


@dataclass(frozen=True, slots=True)
class Space:
    """What a disk holds at one moment."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    """What an ordinary user may still write: ext4 keeps some for root."""
    total_inodes: int
    used_inodes: int
    free_inodes: int

    def is_short(self, reserve_bytes: int) -> bool:
        """Say whether less is free than the host needs for itself."""
        return self.free_bytes < reserve_bytes or self.free_inodes < self.total_inodes // _RESERVED_SHARE


def look(folder: Path) -> Space:
    """Return what the disk of `folder` holds now."""
    seen = os.statvfs(folder)
    has_inodes = seen.f_files > 0
    return Space(
        total_bytes=seen.f_blocks * seen.f_frsize,
        used_bytes=(seen.f_blocks - seen.f_bfree) * seen.f_frsize,
        free_bytes=seen.f_bavail * seen.f_frsize,
        total_inodes=seen.f_files if has_inodes else _UNCOUNTED,
        used_inodes=seen.f_files - seen.f_ffree,
        free_inodes=seen.f_favail if has_inodes else _UNCOUNTED,
    )


def default_reserve(space: Space) -> int:
    """Return what is kept free of a disk where nobody says how much."""
    return min(_RESERVE_BYTES, space.total_bytes // _SMALL_DISK_SHARE)


def refuse_if_short(space: Space, reserve_bytes: int) -> None:
    """Raise `StorageFull` when the host needs for itself what is left."""
    if space.is_short(reserve_bytes):
        raise StorageFull(
            f"the disk that holds the workspaces has {space.free_bytes} bytes and {space.free_inodes} files "
            f"left, and {reserve_bytes} bytes and one file in {_RESERVED_SHARE} are kept for the host "
            "(PETRI_DISK_RESERVE_BYTES); delete what is not needed and try again"
        )
