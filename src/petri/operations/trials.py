"""Runs whose changes may be thrown away, and who writes to the same files meanwhile.

Throwing away means that the files are as they were before the run. Whatever somebody else wrote in between
would go with them, though they were told that it is there. So it is one or the other: while such a run goes
on nobody writes, and it begins when whoever was writing is done.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from petri.errors import Conflict


class Trials:
    """In which sandboxes such a run is under way, and how many write to which."""

    def __init__(self) -> None:
        self._under_way: set[str] = set()
        self._writing: Counter[str] = Counter()
        self._done: dict[str, asyncio.Event] = {}

    @contextmanager
    def writing(self, sandbox_id: str) -> Iterator[None]:
        """Write to the files of a sandbox in here; `Conflict` if a run there may throw that away."""
        self.refuse(sandbox_id)
        self._writing[sandbox_id] += 1
        try:
            yield
        finally:
            self._writing[sandbox_id] -= 1
            if not self._writing[sandbox_id]:
                del self._writing[sandbox_id]
                if sandbox_id in self._done:
                    self._done[sandbox_id].set()

    def refuse(self, sandbox_id: str) -> None:
        """Raise `Conflict` while the files may go back to what they were, or become others."""
        if self.has_begun(sandbox_id):
            raise Conflict(
                f"what is written to sandbox {sandbox_id} now could be lost: a run whose changes may be "
                "thrown away (`keep`), a merge or a restore is under way; try again when that has ended"
            )

    def has_begun(self, sandbox_id: str) -> bool:
        """Say whether somebody has the files of a sandbox for itself, or waits for those who still write."""
        return sandbox_id in self._under_way

    @asynccontextmanager
    async def under_way(self, sandbox_id: str) -> AsyncIterator[None]:
        """Have nobody else write to the files of a sandbox in here. Only whoever has its turn may ask."""
        self._under_way.add(sandbox_id)
        try:
            if self._writing[sandbox_id]:
                done = self._done[sandbox_id] = asyncio.Event()
                await done.wait()
            yield
        finally:
            self._under_way.discard(sandbox_id)
            self._done.pop(sandbox_id, None)
