"""What happens on the way to a run's start, for whoever watches it."""

import asyncio
from collections.abc import AsyncGenerator

from petri.environment.building import Progress

Step = Progress
"""Packages on their way."""


class Steps:
    """Takes each step as it happens; those who follow see all of them, however late they come."""

    def __init__(self) -> None:
        self._so_far: list[Step] = []
        self._over = False
        self._waiting: list[asyncio.Future[None]] = []

    def __call__(self, step: Step) -> None:
        """Take a step. Never raises."""
        self._so_far.append(step)
        self._wake()

    def end(self) -> None:
        """There is nothing more to come. Ending twice is fine."""
        self._over = True
        self._wake()

    async def follow(self, silence_s: float) -> AsyncGenerator[Step | None]:
        """Yield every step as it comes, until there is nothing more to come; None after so much silence."""
        seen = 0
        while True:
            is_over = self._over  # asked first: what came before the end is then seen too
            for step in self._so_far[seen:]:
                seen += 1
                yield step
            if is_over:
                return
            if not await self._changed(silence_s):
                yield None

    async def _changed(self, silence_s: float) -> bool:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await asyncio.wait((waiting,), timeout=silence_s)
        return waiting.done()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
