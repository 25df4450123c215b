"""Ballast: space the ledger keeps for the day the disk is full.

Deleting a sandbox frees space, but first it must be written down, and how a run ended must be too. So a file
beside the ledger holds a few megabytes that nobody else can take. When the disk is full and something must
be written, a piece of it is let go; it is filled up again when there is room. In pieces, because whoever
filled the disk may be quicker than we are to fill what was let go.
"""

import os
from contextlib import suppress
from pathlib import Path

WHOLE_BYTES = 4 << 20
PIECE_BYTES = 512 << 10
"""Enough for the rows of several deletions, with the pages of the write-ahead log they come in."""


class Ballast:
    """One file, or none for a ledger in memory. Used by the writer's thread alone."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.is_whole = path is None
        """Whether there is nothing to fill up. May be read from any thread."""

    def release(self) -> bool:
        """Let go of a piece; say whether there was one."""
        self.is_whole = self._path is None
        if self._path is None:
            return False
        with suppress(OSError):
            size = self._path.stat().st_size
            if size > 0:
                os.truncate(self._path, max(0, size - PIECE_BYTES))
                return True
        return False

    def restore(self) -> None:
        """Have it whole again, if that leaves as much space to others."""
        if self._path is None:
            return
        with suppress(OSError):
            self._fill(self._path)

    def _fill(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            missing = WHOLE_BYTES - os.fstat(descriptor).st_size
            disk = os.fstatvfs(descriptor)
            if missing > 0 and disk.f_bavail * disk.f_frsize > missing + WHOLE_BYTES:
                # Noise, and really written: a file system may compress zeros, or promise what it has not.
                os.write(descriptor, os.urandom(missing))
                os.fsync(descriptor)
            self.is_whole = os.fstat(descriptor).st_size >= WHOLE_BYTES
        finally:
            os.close(descriptor)
