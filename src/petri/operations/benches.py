"""Benches: where long work on files is done. A few for each sandbox, so that nobody takes every thread."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Literal
from weakref import WeakValueDictionary

from petri.errors import Busy

Work = Literal["hashing", "archiving", "unpacking", "comparing", "syncing"]

EACH = 2
"""Pieces of the same work at one time in one sandbox."""
ALL = 32
"""Pieces of long work at one time on this host: half of the threads there are for files."""
MAY_WAIT: Mapping[Work, int] = {"hashing": 64, "archiving": 0, "unpacking": 0, "comparing": 8, "syncing": 8}
"""Hashing unasked takes a second at most, so who downloads many files need not come back for each. Most syncs
are over in a moment. The others take as long as their client, and nobody should wait for that."""


class Benches:
    """Hands out benches, by sandbox and kind of work."""

    def __init__(self, each: int = EACH, all_of_them: int = ALL) -> None:
        self._each = each
        self._all = all_of_them
        self._taken = 0
        self._waiting: Counter[tuple[str, Work]] = Counter()
        self._free: WeakValueDictionary[tuple[str, Work], asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def bench(self, sandbox_id: str, work: Work) -> AsyncIterator[None]:
        """Hold a bench, once there is one; `Busy` at once if as many wait as may."""
        where = (sandbox_id, work)
        free = self._free.setdefault(where, asyncio.Semaphore(self._each))
        if free.locked() and self._waiting[where] >= MAY_WAIT[work]:
            raise Busy(
                f"{work} goes on {self._each} times in this sandbox already, which is as often as may at "
                "one time; try again shortly"
            )
        self._waiting[where] += 1
        try:
            await free.acquire()
        finally:
            self._waiting -= Counter([where])
        try:
            with self._counted():
                yield
        finally:
            free.release()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._taken >= self._all:
            raise Busy(
                f"{self._all} long pieces of work on files go on here, which is as many as may at one "
                "time; try again shortly"
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
