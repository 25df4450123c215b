"""How the server takes memory from the kernel, and gives it back.

Imported by: `app`. Imports: the standard library.
"""

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""From malloc.h."""
_LARGE_BYTES = 2 << 20
"""Larger than the pieces that files travel in, which come by the thousand."""
_SPARE_BYTES = 4 << 20
"""What the heap may keep at its end for what comes next."""


def give_memory_back() -> None:
    """Have all threads allocate from one heap, and whatever is large apart from it.

    glibc gives each of up to eight threads a core a heap of its own, and none of them gives back what it once
    took: memory then grows for as long as threads come to do something large for the first time. And whenever
    something large is freed, it decides to take such things from the heap from then on, and to keep twice as
    much of it: after one answer of 12 MiB the server would be 14 MiB larger for good.
    """
    with suppress(AttributeError):  # another C library, without these habits
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
