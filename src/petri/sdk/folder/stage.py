"""Where arriving files grow: a folder beside the others, so that each appears in its place whole, by rename.

It is flat, and everything in it is named by its digest. What a crash left there is removed by the next sync.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from blake3 import blake3

from petri.errors import Invalid, PetriError, StorageFull
from petri.syncing import STAGE

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Stage:
    """Contents that have arrived, checked, by their digests. Made on first use; `close` removes it."""

    def __init__(self, top: bytes) -> None:
        self._path = top + b"/" + STAGE
        self._fd: int | None = None
        self._contents: set[bytes] = set()
        self._number = 0

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def fd(self) -> int:
        """The folder, open."""
        if self._fd is None:
            self._fd = self._opened()
        return self._fd

    def has(self, digest: bytes) -> bool:
        """Say whether a content has arrived."""
        return digest in self._contents

    def receive(self, digest: bytes, size: int, pieces: Iterable[bytes]) -> None:
        """Write a content down; `Invalid` if it is not the one it should be."""
        with _or_full(self._path):
            fd = os.open(digest.hex(), _NEW, 0o777, dir_fd=self.fd)
            try:
                found = self._written(fd, pieces)
            finally:
                os.close(fd)
        if found != (digest, size):
            os.unlink(digest.hex(), dir_fd=self.fd)
            raise Invalid(f"a content that arrived is not the one announced, {digest.hex()}")
        self._contents.add(digest)

    def take(self, digest: bytes, mode: int, others: int | None, *, is_last: bool) -> str:
        """Return the name of a file with this content and these rights, which the caller moves away.

        `mode` is the owner's; without `others`, the group and everybody get of it what the umask allows.
        """
        name = digest.hex()
        if not is_last:
            name = self._copied(name)
        else:
            self._contents.discard(digest)
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            if others is None:
                others = os.fstat(fd).st_mode & mode * 0o011
            os.fchmod(fd, mode << 6 | others)
        finally:
            os.close(fd)
        return name

    def link(self, target: bytes) -> str:
        """Return the name of a new link, which the caller moves away."""
        name = self._new_name()
        os.symlink(target, name, dir_fd=self.fd)
        return name

    def close(self) -> None:
        """Remove what is left, also what a crash left that had put everything in its place."""
        if self._fd is None and os.path.lexists(self._path):
            with suppress(PetriError):  # what is no folder is not ours
                self._fd = self._opened()
        if self._fd is not None:
            _emptied(self._fd)
            os.close(self._fd)
            self._fd = None
            self._contents.clear()
            with suppress(OSError):
                os.rmdir(self._path)

    def _opened(self) -> int:
        with suppress(FileExistsError):
            os.mkdir(self._path, 0o700)
        try:
            fd = os.open(self._path, _FOLDER)
        except OSError as error:
            raise PetriError(
                f"{os.fsdecode(self._path)} must be a folder, or not be there: {error.strerror}"
            ) from None
        _emptied(fd)
        return fd

    def _written(self, fd: int, pieces: Iterable[bytes]) -> tuple[bytes, int]:
        whole, size = blake3(), 0
        for piece in pieces:
            whole.update(piece)
            size += len(piece)
            at = 0
            while at < len(piece):
                at += os.write(fd, piece[at:])
        return whole.digest(), size

    def _copied(self, name: str) -> str:
        copy = self._new_name()
        source = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            target = os.open(copy, _NEW, 0o777, dir_fd=self.fd)
            try:
                while piece := os.read(source, 2**20):
                    os.write(target, piece)
            finally:
                os.close(target)
        finally:
            os.close(source)
        return copy

    def _new_name(self) -> str:
        self._number += 1
        return f"{self._number}"


@contextmanager
def _or_full(path: bytes) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull(f"no space is left here, at {os.fsdecode(path)}: {error.strerror}") from None
        raise


def _emptied(fd: int) -> None:
    """Remove the files in the folder; nothing of ours has folders in it."""
    for name in os.listdir(fd):
        with suppress(OSError):
            os.unlink(name, dir_fd=fd)
