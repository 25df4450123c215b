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


def walk(top: int, *, recursive: bool, in_order: bool = True) -> Generator[Found, None, None]:
    """Yield what is below the folder open as `top`: each folder's entries by name, then what is in them.

    Not `in_order`, entries come as the disk has them, which is quicker where a folder holds very many.
    Skips what vanishes or is closed to us. Does not enter a folder whose path the kernel would not take.
    """
    waiting: list[Iterator[str]] = [iter([""])]
    while waiting:
        folder = next(waiting[-1], None)
        if folder is None:
            waiting.pop()
            continue
        inner: list[str] = []
        for found in _entries(top, folder, in_order=in_order):
            if recursive and found.is_folder and len(inner) <= _BATCH:
                inner.append(found.name)
            yield found
        waiting.append(_inner(top, folder, inner))


def _inner(top: int, folder: str, names: list[str]) -> Iterator[str]:
    """Yield the paths of the folders in `folder`; more than a batch of `names` are looked up again."""
    if len(names) > _BATCH:
        names = _folders_after(top, folder, "")
    while names:
        for name in names[:_BATCH]:
            if fits(path := join(folder, name)):
                yield path
        names = _folders_after(top, folder, names[_BATCH - 1]) if len(names) > _BATCH else []


def _folders_after(top: int, folder: str, last: str) -> list[str]:
    """Return the names of the folders in `folder` behind `last`: one more than a batch, if there are more."""
    try:
        with beneath(top, folder, FOLDER, follow=False) as fd, os.scandir(fd) as entries:
            behind = (each for each in entries if each.name > last)
            names = (each.name for each in behind if each.is_dir(follow_symlinks=False))
            return heapq.nsmallest(_BATCH + 1, names)
    except OSError as error:
        if error.errno not in _LOST:
            raise
        return []


def _entries(top: int, folder: str, *, in_order: bool) -> Iterator[Found]:
    try:
        with beneath(top, folder, FOLDER, follow=False) as fd:
            for name in _sorted_names(fd) if in_order else _names(fd):
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
    with os.scandir(fd) as entries:
        for entry in entries:
            yield entry.name


def _sorted_names(fd: int) -> Iterator[str]:
    last = ""
    while batch := _names_after(fd, last):
        yield from batch
        if len(batch) < _BATCH:
            return
        last = batch[-1]


def _names_after(fd: int, last: str) -> list[str]:
    with os.scandir(fd) as entries:
        return heapq.nsmallest(_BATCH, (entry.name for entry in entries if entry.name > last))
