"""A workspace to look around in: what is there, and what small files say. Nothing raises.

For whoever wants to know what a project needs. Every path is resolved by the kernel beneath the workspace;
what cannot be opened, or is no plain file, is not there.
"""

import os
import stat
import struct
from itertools import islice
from typing import Literal

from petri.workspace.beneath import FILE, FOLDER, LOOK, beneath
from petri.workspace.versions import is_racy

_MOST_NAMES = 20_000
_STAMP = struct.Struct("<5Q")


class View:
    """The workspace open as `top`, for as long as that is open."""

    def __init__(self, top: int) -> None:
        self._top = top

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Return a file's content; None where there is no file, or one longer than `most_bytes`."""
        try:
            with beneath(self._top, path, FILE) as fd:
                seen = os.fstat(fd)
                if not stat.S_ISREG(seen.st_mode) or seen.st_size > most_bytes:
                    return None
                content = os.read(fd, seen.st_size + 1)
                while len(content) <= most_bytes and (more := os.read(fd, most_bytes + 1 - len(content))):
                    content += more
        except (OSError, ValueError):
            return None
        return content if len(content) <= most_bytes else None

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """Say what is at `path`; None for nothing and for what is neither."""
        seen = self._seen(path)
        if seen is None:
            return None
        return "folder" if stat.S_ISDIR(seen.st_mode) else "file" if stat.S_ISREG(seen.st_mode) else None

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, in any order, the first twenty thousand."""
        try:
            with beneath(self._top, folder, FOLDER) as fd, os.scandir(fd) as entries:
                return [entry.name for entry in islice(entries, _MOST_NAMES)]
        except (OSError, ValueError):
            return []

    def digest(self, path: str) -> bytes | None:
        """Return what changes whenever the content does: which file it is, and when it last changed.

        No program can set back `ctime`. A file that changed within the clock's last ticks has no digest yet:
        it could change again unseen.
        """
        seen = self._seen(path)
        if seen is None or not stat.S_ISREG(seen.st_mode) or is_racy(seen):
            return None
        return _STAMP.pack(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns % 2**64, seen.st_ctime_ns)

    def _seen(self, path: str) -> os.stat_result | None:
        try:
            with beneath(self._top, path, LOOK) as fd:
                return os.fstat(fd)
        except (OSError, ValueError):
            return None
