"""The contents of files on this machine, read while others write to them, and a piece at a time."""

import errno
import os
import stat
from collections.abc import Callable, Iterator

from blake3 import blake3

from petri.errors import Invalid
from petri.sdk.folder.index import Key, now_ns, settled
from petri.syncing import PIECE_BYTES, WORTH_SIGNING, Delta, Signature, compare

HELD_IN_ALL = 64 * 2**20
"""Small contents that were just read are likely to be sent next; so much of them is kept until then."""
HELD_EACH = 2**20
_AT_ONCE = 2**20

Signed = Callable[[bytes], Signature | None]
"""Gives the signature of a content by its digest, if one is kept."""


class Restless(Exception):
    """A file changes faster than it can be read."""


class Contents:
    """What files beneath `top` hold, and what was found out about them."""

    def __init__(self, top: bytes, signed: Signed = lambda _: None) -> None:
        self._top = top
        self._signed = signed
        self._held_bytes = 0
        self.held: dict[bytes, bytes] = {}
        """Small contents, by their digests."""
        self.deltas: dict[tuple[bytes, bytes], Delta] = {}
        """How a large content differs from what was there before, by the digests of the old and the new."""

    def examine(self, path: bytes, old: bytes | None = None) -> tuple[Key, bytes]:
        """Return how a file is now, and the digest of what it holds; `old` is the digest it had before.

        Raises FileNotFoundError if it is gone, or no file any more.
        """
        with _opened(self._top + b"/" + path) as file:
            status = file.status
            for last in (False, False, True):
                read_at, before = now_ns(), key_of(status)
                digest: bytes | None
                try:
                    digest = self._digest(file, before[1], old)
                except EOFError:
                    digest = None
                status = os.fstat(file.fd)
                if digest is None:
                    continue
                if key_of(status) == before:
                    return settled(before, read_at), digest
                if last:  # a log that is being written to is what it was a moment ago
                    return settled(before, 0), digest
        raise Restless(f"{os.fsdecode(path)} changes faster than it can be read")

    def pieces(self, path: bytes, size: int, offset: int = 0) -> Iterator[bytes]:
        """Yield what a file holds from `offset` to `size`; raises `Restless` if it has become shorter."""
        with _opened(self._top + b"/" + path) as file:
            while offset < size:
                piece = file.read(offset, min(PIECE_BYTES, size - offset))
                if not piece:
                    raise Restless(f"{os.fsdecode(path)} became shorter while it was read")
                offset += len(piece)
                yield piece

    def opened(self, path: bytes) -> "Opened":
        """Open a file to read any part of it; to be closed, as a context."""
        return _opened(self._top + b"/" + path)

    def drop_held(self) -> None:
        """Forget the contents themselves."""
        self.held, self._held_bytes = {}, 0

    def _digest(self, file: "Opened", size: int, old: bytes | None) -> bytes:
        if size >= WORTH_SIGNING and old is not None and (signature := self._signed(old)) is not None:
            delta = compare(signature, file.read, size)
            self.deltas[old, delta.digest] = delta
            return delta.digest
        if size <= HELD_EACH:
            content = file.read(0, size)
            if len(content) != size:
                raise EOFError
            digest = blake3(content).digest()
            self._hold(digest, content)
            return digest
        return _digest_of(file, size)

    def _hold(self, digest: bytes, content: bytes) -> None:
        if self._held_bytes + len(content) <= HELD_IN_ALL:
            self.held[digest] = content
            self._held_bytes += len(content)


class Opened:
    """An open file, read by offset."""

    def __init__(self, fd: int, status: os.stat_result) -> None:
        self.fd = fd
        self.status = status
        """What the system said of it when it was opened."""

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on; fewer only at the end."""
        data = os.pread(self.fd, length, offset)
        while len(data) < length and (more := os.pread(self.fd, length - len(data), offset + len(data))):
            data += more
        return data


def key_of(status: os.stat_result) -> Key:
    """Return what tells one state of a file from another."""
    return status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _opened(path: bytes) -> Opened:
    try:
        # No link is followed, and a FIFO put there in this moment does not hold us.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise Invalid(
            f"{os.fsdecode(path)} cannot be read: change its rights, or name it in .petriignore"
        ) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):  # it is a link or a socket by now
            raise FileNotFoundError(error.errno, error.strerror, path) from None
        raise
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "is no file any more", path)
    return Opened(fd, status)


def _digest_of(file: Opened, size: int) -> bytes:
    whole = blake3()
    for offset in range(0, size, _AT_ONCE):
        data = file.read(offset, min(_AT_ONCE, size - offset))
        if not data:
            raise EOFError
        whole.update(data)
    return whole.digest()
