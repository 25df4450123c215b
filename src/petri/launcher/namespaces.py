"""Where the launcher is, in one kind of namespace: it leaves that for a moment only, and comes back."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from petri.launcher.libc import check

_KINDS = {"mnt": (0x0002_0000, "its mounts"), "net": (0x4000_0000, "its network")}
"""Their numbers in `CLONE_NEW…`, and what an operator is told of."""


class Home:
    """One to come back to. Raises `OSError` where it could be left and not come back to."""

    def __init__(self, kind: str) -> None:
        self._flag, self._what = _KINDS[kind]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._here = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            check(self._libc.setns(self._here, self._flag), f"come back to {self._what}")
        except OSError:
            os.close(self._here)
            raise

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Be in a new one for a moment; who cannot get out of it again must end."""
        check(self._libc.unshare(self._flag), f"leave {self._what}")
        try:
            yield
        finally:
            if self._libc.setns(self._here, self._flag) != 0:
                os._exit(1)
