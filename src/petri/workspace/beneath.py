"""Opening what is beneath a folder, and nothing else, while hostile code renames things there.

Checking a path and then using it are two moments; between them a folder can become a link. So the
kernel does both at once: openat2 with RESOLVE_BENEATH resolves every part, links included, and
refuses (EXDEV) to take one step out of the folder it began in. Whatever was opened is then used by
descriptor. Links that stay inside are followed, unless the caller would rather not.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from petri.workspace import kernel
from petri.workspace.paths import as_bytes

FOLDER = os.O_RDONLY | os.O_DIRECTORY
"""A folder one may list, rename into and fsync."""
FILE = os.O_RDONLY
LOOK = os.O_PATH
"""Only to look at or pass through: needs no permission on the thing itself, and wakes no FIFO."""

_HARMLESS = os.O_NONBLOCK | os.O_NOCTTY
"""A FIFO nobody writes to, a leased file or a terminal must neither hold us nor become ours."""
_TRIES = 64
"""openat2 says EAGAIN when a rename elsewhere could have hidden a step out by `..`."""


def open_beneath(top: int, path: str, flags: int, *, follow: bool = True) -> int:
    """Return a descriptor of `path`, wherever beneath `top` it is at this moment.

    Without `follow`, no link is passed at all. O_NOFOLLOW with LOOK opens a final link itself.
    """
    flags |= os.O_CLOEXEC
    if not flags & os.O_PATH:
        flags |= _HARMLESS
    if not path:  # the folder itself: there is no step that could lead out, and each look begins with it
        return os.open(".", flags, dir_fd=top)
    if _is_one_step(path):
        with suppress(OSError):  # a link, or whatever openat2 will say of it
            return _step(top, path, flags)
    if not kernel.has_openat2():
        return _open_by_parts(top, path, flags)
    resolve = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_MAGICLINKS
    if not follow:
        resolve |= kernel.RESOLVE_NO_SYMLINKS
    for _ in range(_TRIES):
        try:
            return kernel.openat2(top, as_bytes(path), flags, resolve)
        except BlockingIOError:
            continue
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


class Held:
    """A descriptor that is closed in the end. A generator would take three times as long, for each folder."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def beneath(top: int, path: str, flags: int, *, follow: bool = True) -> Held:
    """Hold `path` open; see `open_beneath`."""
    return Held(open_beneath(top, path, flags, follow=follow))


@contextmanager
def trusted(folder: Path) -> Iterator[int]:
    """Hold open a folder of our own, whose path nobody else can change."""
    fd = os.open(folder, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_one_step(path: str) -> bool:
    """Say whether nothing is passed on the way, so that an ordinary open is as good where there is no link.

    By way of ctypes openat2 takes ten times as long.
    """
    return "/" not in path and path != ".."


def _open_by_parts(top: int, path: str, flags: int) -> int:
    """What openat2 does, for kernels without it; every link on the way is refused."""
    *folders, name = path.split("/")
    current = os.dup(top)
    try:
        for folder in folders:
            inner = _step(current, folder, os.O_PATH | os.O_CLOEXEC)
            os.close(current)
            current = inner
        return _step(current, name or ".", flags)
    finally:
        os.close(current)


def _step(folder: int, name: str, flags: int) -> int:
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise
    # O_PATH opens a link itself; only who asked for exactly that may have it.
    if flags & os.O_PATH and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return fd
