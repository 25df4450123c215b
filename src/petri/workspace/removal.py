"""Removing trees that hostile code made, and may still be standing in.

A tree is first renamed into the trash, which the code cannot reach: from then on it is gone for
everybody. Then it is taken apart from the top: a folder's files are unlinked and its folders lifted up
to lie beside it in the trash. So ten thousand levels need no recursion, no long path and two
descriptors; and what lies directly in the trash cannot be swapped for a link under our hands.
"""

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from petri.workspace.beneath import FOLDER, trusted

_PASSES = 64
"""How often a folder that does not get empty is tried: code that still holds it may be filling it."""


_RAZE_S = 60.0


class Trash:
    """The folder where things go to vanish. Nothing new is made in it: removing works on a full disk."""

    def __init__(self, folder: Path, ending: threading.Event) -> None:
        self._folder = folder
        self._ending = ending

    def throw(self, folder: int, name: str) -> str:
        """Move `name` in here, whatever it is, at once and whole; return what it is called now."""
        with trusted(self._folder) as trash:
            return _lift(folder, name, trash)

    def burn(self, thrown: str, *, patience_s: float) -> None:
        """Free what `throw` moved in. What is left after `patience_s` waits for `empty`.

        Code that is still alive, and of our own user, can refill a tree for ever.
        """
        with trusted(self._folder) as trash:
            _burn(trash, thrown, self._patience(patience_s))

    def empty(self, *, patience_s: float) -> bool:
        """Free what is in here; say whether `patience_s` were enough to try all of it."""
        may_go_on = self._patience(patience_s)
        with trusted(self._folder) as trash:
            for thrown in self._folder.iterdir():
                _burn(trash, thrown.name, may_go_on)
        return may_go_on() or self._ending.is_set()

    def _patience(self, seconds: float) -> Callable[[], bool]:
        """Return a question that is answered yes until the time is up, or the server ends."""
        deadline = time.monotonic() + seconds
        return lambda: time.monotonic() < deadline and not self._ending.is_set()


def raze(folder: Path) -> None:
    """Have `folder` gone, whatever is in it; nobody who made it is left. One that is not there is fine.

    For folders beside which nobody but us may write.
    """
    thrown = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}")
    thrown.mkdir(mode=0o700)
    trash = Trash(thrown, threading.Event())
    parent = os.open(folder.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            trash.throw(parent, folder.name)
    finally:
        os.close(parent)
    trash.empty(patience_s=_RAZE_S)
    with suppress(OSError):
        thrown.rmdir()


def loosen(folder: int, name: str) -> None:
    """Give us, its owner, every right on the folder `name`. Never acts on what a link points to."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        # fchmod refuses O_PATH descriptors, and one that could read is what we may not open yet.
        Path(f"/proc/self/fd/{fd}").chmod(stat.S_IRWXU)
    finally:
        os.close(fd)


def _lift(folder: int, name: str, trash: int) -> str:
    lifted = secrets.token_hex(16)
    try:
        os.rename(name, lifted, src_dir_fd=folder, dst_dir_fd=trash)
    except PermissionError:
        # Moving a folder rewrites its `..`, so its own permissions count, unless we are root.
        loosen(folder, name)
        os.rename(name, lifted, src_dir_fd=folder, dst_dir_fd=trash)
    return lifted


def _burn(trash: int, first: str, may_go_on: Callable[[], bool]) -> None:
    waiting = [(first, _PASSES)]
    while waiting and may_go_on():
        name, passes = waiting.pop()
        lifted = _strip(trash, name, may_go_on)
        if not _vanished(trash, name) and passes:
            waiting.append((name, passes - 1))
        waiting.extend((inner, _PASSES) for inner in lifted)


def _strip(trash: int, name: str, may_go_on: Callable[[], bool]) -> list[str]:
    """Unlink what lies in the folder `name`; return the folders that now lie beside it."""
    lifted: list[str] = []
    with suppress(OSError), _opened(trash, name) as folder, os.scandir(folder) as entries:
        for entry in entries:
            if not may_go_on():
                break
            # Whatever fails here was changed by somebody, or the disk is full: the next pass sees it.
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    lifted.append(_lift(folder, entry.name, trash))
                else:
                    os.unlink(entry.name, dir_fd=folder)
    return lifted


@contextmanager
def _opened(trash: int, name: str) -> Iterator[int]:
    try:
        fd = os.open(name, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=trash)
    except PermissionError:
        loosen(trash, name)
        fd = os.open(name, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=trash)
    try:
        _seize(fd)
        yield fd
    finally:
        os.close(fd)


def _seize(folder: int) -> None:
    """Make a folder ours alone: code that still stands in it, as another user, can add nothing more."""
    seen = os.fstat(folder)
    if seen.st_uid != os.geteuid():
        with suppress(PermissionError):
            os.fchown(folder, os.geteuid(), os.getegid())
    if stat.S_IMODE(seen.st_mode) != stat.S_IRWXU:
        os.fchmod(folder, stat.S_IRWXU)


def _vanished(trash: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=trash)
    except NotADirectoryError:
        with suppress(FileNotFoundError):  # somebody else empties the trash too
            os.unlink(name, dir_fd=trash)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
