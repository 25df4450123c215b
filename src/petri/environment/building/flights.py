"""Work that many wait for and that is done once.

Whoever asks for what is already under way waits for that, and hears how it goes from there on. Whoever gives
up waiting leaves the others alone; when the last one does, the work is called off, and is over before
that last one gets its way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from petri.environment.building.progress import Progress, Tell
from petri.threads import settled

T = TypeVar("T")


class Flights(Generic[T]):
    """Everything of one kind that is under way, by key."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._under_way: dict[str, _Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def join(self, key: str, work: Callable[[Tell], Awaitable[T]], tell: Tell) -> T:
        """Return what `work` comes to, done now unless it is being done already."""
        flight = self._under_way.get(key)
        if flight is None:
            flight = self._under_way[key] = _Flight()
            flight.task = self._tasks.create_task(self._carry_out(key, flight, work))
        return await flight.ride(tell, lambda: self._forget(key, flight))

    async def _carry_out(self, key: str, flight: "_Flight[T]", work: Callable[[Tell], Awaitable[T]]) -> None:
        """Do the work. Never raises what the work does: it shares a task group with everything else."""
        result = flight.result
        try:
            ended = await work(flight.tell)
            if not result.done():
                result.set_result(ended)
        except Exception as error:  # noqa: BLE001 - it is for those who wait
            if not result.done():
                result.set_exception(error)
        finally:
            self._forget(key, flight)
            result.cancel()  # unless it is settled

    def _forget(self, key: str, flight: "_Flight[T]") -> None:
        if self._under_way.get(key) is flight:
            del self._under_way[key]


class _Flight(Generic[T]):
    """One piece of work and who waits for it."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._listening: list[Tell] = []
        self._so_far: list[Progress] = []

    def tell(self, progress: Progress) -> None:
        self._so_far.append(progress)
        for tell in self._listening:
            tell(progress)

    async def ride(self, tell: Tell, give_up: Callable[[], None]) -> T:
        for progress in self._so_far:
            tell(progress)
        self._listening.append(tell)
        try:
            return await asyncio.shield(self.result)
        except asyncio.CancelledError:
            if len(self._listening) == 1 and not self.result.done():
                give_up()  # whoever asks from now on begins anew
                self.task.cancel()
                with suppress(asyncio.CancelledError):
                    await settled(self.task)
            raise
        finally:
            self._listening.remove(tell)
            if self.result.done() and not self.result.cancelled():
                self.result.exception()  # looked at, lest it be reported as forgotten
