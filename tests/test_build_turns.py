"""Turns for builds: so many at one time, and no tenant takes the place of every other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from petri.environment.building.turns import Turns

PLACES = 4


class Line:
    """Everybody who holds a place or waits for one, in the order in which places were got."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.turns = Turns(PLACES)
        self.got: list[str] = []
        self._tasks = tasks
        self._ends: dict[str, asyncio.Event] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self.places: dict[str, int] = {}

    async def come(self, *names: str) -> None:
        """Have these come; the first letter is the tenant."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._at_work[name] = self._tasks.create_task(self._work(name))
        await asyncio.sleep(0.01)

    async def _work(self, name: str) -> None:
        async with self.turns.hold(name[0]) as place:
            assert place not in self.places.values()
            self.places[name] = place
            self.got.append(name)
            try:
                await self._ends[name].wait()
            finally:
                del self.places[name]

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await asyncio.sleep(0.01)

    async def cancel(self, *names: str) -> None:
        for name in names:
            self._at_work[name].cancel()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def opened() -> AsyncIterator[Line]:
    async with asyncio.TaskGroup() as tasks:
        line = Line(tasks)
        yield line
        await line.cancel(*line._at_work)


async def test_one_tenant_has_half_of_the_places_however_much_it_asks_for() -> None:
    async with opened() as line:
        await line.come("a1", "a2", "a3", "a4", "a5")

        assert line.got == ["a1", "a2"]


async def test_who_comes_behind_somebody_elses_hundred_does_not_wait_for_them() -> None:
    async with opened() as line:
        await line.come(*(f"a{number}" for number in range(100)), "b1")

        assert line.got == ["a0", "a1", "b1"]


async def test_the_next_place_goes_to_who_holds_fewest_and_then_to_who_waited_longest() -> None:
    async with opened() as line:
        await line.come("a1", "a2", "a3", "b1", "b2", "b3", "c1", "d1")
        assert line.got == ["a1", "a2", "b1", "b2"]

        await line.end("a1")
        await line.end("b1")
        await line.end("a2")

        assert line.got[4:] == ["c1", "d1", "a3"]


@pytest.mark.parametrize("who", ["a1", "a3"])
async def test_who_gives_up_leaves_the_line_or_the_place_to_the_next(who: str) -> None:
    async with opened() as line:
        await line.come("a1", "a2", "a3", "a4")

        await line.cancel(who)
        await line.end("a2")

        assert line.got == ["a1", "a2", *(["a3", "a4"] if who == "a1" else ["a4"])]


async def test_in_the_end_every_place_is_free_again() -> None:
    async with opened() as line:
        await line.come("a1", "a2", "b1", "b2", "c1")
        await line.cancel("a1", "b1", "c1")
        await line.end("a2")
        await line.end("b2")

        await line.come("d1", "d2", "e1", "e2")

        assert sorted(line.places.values()) == list(range(PLACES))
