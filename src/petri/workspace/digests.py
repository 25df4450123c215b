"""The BLAKE3 of a file's content, remembered for as long as the file has not changed."""

import os
import threading
from collections import OrderedDict

from blake3 import blake3

from petri.errors import TooLarge
from petri.holes import windows
from petri.workspace.errand import Errand
from petri.workspace.versions import Key, is_racy, key

CHUNK_BYTES = 1 << 20
AT_ONCE_BYTES = 16 << 20
"""Hashed in the blink of an eye, so never made a fuss of."""
UNASKED_BYTES = 1 << 30
"""What is hashed for a caller who did not ask: half a second of one processor. Larger files go by their
stamp (see `versions`)."""
MAX_BYTES = 64 << 30
"""What is hashed for one request at most: about half a minute of one processor. Without a bound,
a sparse file of terabytes, which costs its maker nothing, would cost us an hour."""
_REMEMBERED = 16_384


class Digests:
    """Digests by what the kernel says of a file. Safe to use from many threads.

    `st_ctime` cannot be set back by any program, so a file that changed has another key. (Code that
    keeps writing through one dirty mapped page escapes the clock until writeback; it fools only
    whoever asks for its own files.)
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Key, str] = OrderedDict()
        self._guard = threading.Lock()

    def known(self, seen: os.stat_result) -> str | None:
        """Return the digest of a file that looks like `seen`, if that is known."""
        with self._guard:
            if key(seen) in self._known:
                self._known.move_to_end(key(seen))
            return self._known.get(key(seen))

    def of(self, fd: int, errand: Errand) -> str:
        """Return the digest of the regular file open as `fd`."""
        before = os.fstat(fd)
        if (known := self.known(before)) is not None:
            return known
        if before.st_size > MAX_BYTES:
            raise TooLarge(
                f"the file is {before.st_size} bytes; only {MAX_BYTES} can be hashed, so name its version "
                "by the ETag that a HEAD of it shows"
            )
        digest = _hash(fd, before.st_size, errand)
        after = os.fstat(fd)
        if key(before) == key(after) and not is_racy(after):
            self._remember(key(after), digest)
        return digest

    def _remember(self, where: Key, digest: str) -> None:
        with self._guard:
            self._known[where] = digest
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _hash(fd: int, size: int, errand: Errand) -> str:
    hasher = blake3()
    # Not until the end of the file: a program that appends as fast as we read would hold us for ever.
    for chunk in windows(fd, size, CHUNK_BYTES):
        errand.check()
        hasher.update(chunk)
    return hasher.hexdigest()
