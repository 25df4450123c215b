"""Few descriptors left, for those who must leave none open when they are refused one."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def descriptors() -> set[int]:
    """Return what this process has open, and the number of the folder that tells it."""
    return {int(each.name) for each in Path("/proc/self/fd").iterdir()}


@contextmanager
def room_for(more: int) -> Iterator[None]:
    """Let this process have so many descriptors more, whatever numbers are free below those it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(descriptors())
    held = [os.dup(0)]
    while held[-1] < highest:
        held.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1 + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
