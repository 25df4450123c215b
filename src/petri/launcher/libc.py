"""What the C library says when it refuses: Python has no words for some of its calls."""

import ctypes
import os


def check(answer: int, what: str) -> None:
    """Raise `OSError` with the reason that the last call gave, unless its `answer` is that all is well."""
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"could not {what}: {os.strerror(number)}")


def mount(
    libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int, options: str | None
) -> None:
    """Mount as mount(2) does; `libc` keeps its errors."""
    answer = libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    check(answer, f"mount {target}")
