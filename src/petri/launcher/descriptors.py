"""Descriptors that are had together or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def all_or_none() -> Iterator[list[int]]:
    """Give a list to put them in: should one more not be had, those in it are closed again."""
    had: list[int] = []
    try:
        yield had
    except OSError:
        for descriptor in had:
            os.close(descriptor)
        raise
