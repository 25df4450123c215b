"""Turns for what is heavy: a few places for all tenants, and none of them can take every one.

A tenant has half of the places at most, so that whoever else comes finds one that is free, or will be as soon
as one of the others ends. Who holds fewest comes first, and among those who waited longest.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Hands out numbered places."""

    def __init__(self, places: int) -> None:
        self._free = list(range(places))
        self._most_for_one = max(1, places // 2)
        self._held: Counter[str] = Counter()
        self._line: list[tuple[str, asyncio.Future[int]]] = []

    @asynccontextmanager
    async def hold(self, tenant: str) -> AsyncIterator[int]:
        """Hold a place for `tenant`, once it is its turn; its number is nobody else's meanwhile."""
        ticket: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._line.append((tenant, ticket))
        self._call_up()
        try:
            await asyncio.wait((ticket,))
            yield ticket.result()
        finally:
            if ticket.done():
                self._free.append(ticket.result())
                self._held -= Counter([tenant])
            else:
                self._line.remove((tenant, ticket))
            self._call_up()

    def _call_up(self) -> None:
        """Give free places to those who may have them."""
        while self._free and (may := [each for each in self._line if self._may(each[0])]):
            tenant, ticket = chosen = min(may, key=lambda each: self._held[each[0]])
            self._line.remove(chosen)
            self._held[tenant] += 1
            ticket.set_result(self._free.pop(0))

    def _may(self, tenant: str) -> bool:
        return self._held[tenant] < self._most_for_one
