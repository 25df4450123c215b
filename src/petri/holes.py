"""Reads a file without reading its holes: what the file system never wrote is known to be zeros.

A hole costs whoever makes it nothing, and whoever reads it thirteen times what hashing it does: the kernel
fills its cache with zeros, page by page.

Imported by: `store`, `workspace`. Imports: nothing.
"""

import errno
import os
from collections.abc import Iterator
from functools import lru_cache


def windows(descriptor: int, size: int, most: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of an open file, up to `most` at a time; fewer only where the file ends.

    One question to the file system for each window at most, however many holes the file has: a window with
    data in it is read whole.
    """
    at = data = 0
    while at < size:
        length = min(most, size - at)
        if data <= at:
            data = _next_data(descriptor, at, size)
        if data >= at + length:
            window = _zeros(length)
        elif not (window := os.pread(descriptor, length, at)):
            return
        yield window
        at += len(window)


@lru_cache(maxsize=4)
def _zeros(length: int) -> bytes:
    return bytes(length)


def _next_data(descriptor: int, at: int, size: int) -> int:
    """Return where data begins, at `at` or behind it."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        # There is none, unless the file has become shorter; whatever cannot tell is read.
        is_hole = error.errno == errno.ENXIO and os.fstat(descriptor).st_size >= size
        return size if is_hole else at
