"""Everything below a folder, one entry at a time, however deep, wide or restless it is.

One folder is open at a time and each is entered from the top by its path, no link passed: memory and
descriptors do not grow with depth, and a folder swapped for a link is not entered.
"""

import errno
import heapq
import os
import stat
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from petri.workspace.beneath import FOLDER, beneath
from petri.workspace.paths import fits, join

_BATCH = 10_000
"""Names sorted at a time. A folder of more is read again for each batch: slower, never larger."""
_LOST = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EAGAIN})
"""How entering a folder fails when the code has just moved, swapped or closed it."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something below the top. `folder` is open only until the next one is asked for."""

    path: str
    """Relative to the top of the walk."""
    folder: int
    name: str
    stat: os.stat_result

    @property
    def is_folder(self) -> bool:
        """A folder itself, not a link to one."""
        return stat.S_ISDIR(self.stat.st_mode)


def walk(top: int, *, recursive: bool) -> Generator[Found, None, None]:
    """Yield what is below the folder open as `top`: each folder's entries by name, then what is in them.

    Skips what vanishes or is closed to us. Does not enter a folder whose path the kernel would not take.
    """
    waiting = [iter([""])]
    while waiting:
        folder = next(waiting[-1], None)
        if folder is None:
            waiting.pop()
            continue
        inner = []
        for found in _entries(top, folder):
            if recursive and found.is_folder and fits(found.path):
                inner.append(found.path)
            yield found
        waiting.append(iter(inner))


def _entries(top: int, folder: str) -> Iterator[Found]:
    try:
        with beneath(top, folder, FOLDER, follow=False) as fd:
            for name in _names(fd):
                if (seen := _seen(fd, name)) is not None:
                    yield Found(join(folder, name), fd, name, seen)
    except OSError as error:
        if error.errno not in _LOST:
            raise


def _seen(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, PermissionError):
        return None


def _names(fd: int) -> Iterator[str]:
    last = ""
    while batch := _names_after(fd, last):
        yield from batch
        if len(batch) < _BATCH:
            return
        last = batch[-1]


def _names_after(fd: int, last: str) -> list[str]:
    with os.scandir(fd) as entries:
        return heapq.nsmallest(_BATCH, (entry.name for entry in entries if entry.name > last))
