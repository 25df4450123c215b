"""The BLAKE3 of a file's content, remembered for as long as the file has not changed."""

import os
import threading
import time
from collections import OrderedDict

from blake3 import blake3

from petri.errors import TooLarge, Unavailable

CHUNK_BYTES = 1 << 20
MAX_BYTES = 64 << 30
"""What is hashed for one request at most: about half a minute of one processor. Without a bound,
a sparse file of terabytes, which costs its maker nothing, would cost us an hour."""
_REMEMBERED = 16_384
_RACY_NS = 50_000_000
"""A file changed so recently could change again within the clock's tick and keep its times; git calls
such an entry racily clean. Half a dozen ticks of the slowest kernel clock (100 Hz) are enough."""

_Key = tuple[int, int, int, int, int]


class Digests:
    """Digests by what the kernel says of a file. Safe to use from many threads.

    `st_ctime` cannot be set back by any program, so a file that changed has another key. (Code that
    keeps writing through one dirty mapped page escapes the clock until writeback; it fools only
    whoever asks for its own files.)
    """

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, str] = OrderedDict()
        self._guard = threading.Lock()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Give up every hashing that is under way: the server is ending."""
        self._stopping.set()

    def of(self, fd: int) -> str:
        """Return the digest of the regular file open as `fd`."""
        before = os.fstat(fd)
        if (known := self._recall(_key(before))) is not None:
            return known
        if before.st_size > MAX_BYTES:
            raise TooLarge(f"the file is {before.st_size} bytes; only {MAX_BYTES} can be hashed at once")
        digest = self._hash(fd, before.st_size)
        after = os.fstat(fd)
        if _key(before) == _key(after) and not _is_racy(after):
            self._remember(_key(after), digest)
        return digest

    def _hash(self, fd: int, size: int) -> str:
        hasher = blake3()
        offset = 0
        # Not until the end of the file: a program that appends as fast as we read would hold us for ever.
        while offset < size and (chunk := os.pread(fd, min(CHUNK_BYTES, size - offset), offset)):
            if self._stopping.is_set():
                raise Unavailable("the server is stopping")
            hasher.update(chunk)
            offset += len(chunk)
        return hasher.hexdigest()

    def _recall(self, key: _Key) -> str | None:
        with self._guard:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def _remember(self, key: _Key, digest: str) -> None:
        with self._guard:
            self._known[key] = digest
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _key(seen: os.stat_result) -> _Key:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _is_racy(seen: os.stat_result) -> bool:
    return time.time_ns() - max(seen.st_mtime_ns, seen.st_ctime_ns) < _RACY_NS
