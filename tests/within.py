"""Doing something in another namespace, by a process that is gone afterwards."""

import ctypes
import os
from collections.abc import Callable

_OF_ANY_KIND = 0


def within(namespace: int, act: Callable[[], object]) -> None:
    """Do it there; it must succeed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert ctypes.CDLL(None).setns(namespace, _OF_ANY_KIND) == 0
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
