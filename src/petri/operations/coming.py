"""Cells for runs that nobody has asked for yet are made one after the other, when that costs nobody anything.

To make a cell takes longer than a short run does. Idle to the scheduler or not, whoever runs something beside
it pays: what is idle for long has a slice coming to it, and takes one whenever two others change places. So
one processor is left without, nothing is begun as long as something runs, and whoever has waited for a while
comes all the same.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from petri.engine import Ahead, Engine, Place
from petri.model import Sandbox
from petri.operations.desk import Desk
from petri.operations.parking import Parking

_BEHIND_THE_ANSWER_S = 0.003
"""A cell is gone before its run's answer is on its way; what is done for the next must not come between."""
_PATIENCE_S = 0.03
"""How long those who run something come first. A pause comes soon, and where none does it is made anyway."""
_PROCESSORS = len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Next:
    """What the next cell of a sandbox is to be like."""

    sandbox: Sandbox
    engine: Engine
    place: Place
    ahead: Ahead | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    wanted: Next
    begins: float
    """Not sooner."""
    is_late: float
    """From when on it does not wait for a pause."""


class Coming:
    """Who is to have a cell, one of each sandbox, whoever waits for longest first."""

    def __init__(
        self, desk: Desk, parking: Parking, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._desk = desk
        self._parking = parking
        self._spawn = spawn
        """Gives a piece of work an owner."""
        self._line: dict[str, _Waiting] = {}
        self._first: dict[str, _Waiting] = {}
        """Those who come before the line."""
        self._under_way = 0
        self._looking: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        desk.when_quiet(self._look_behind_the_answer)

    def add(self, wanted: Next) -> None:
        """Have a cell made for a run like the one that has just ended."""
        if self._parking.is_open:
            now = time.monotonic()
            former = self._line.get(wanted.sandbox.id)
            # Were the wait begun anew with each run, one that runs again and again would never be the one
            # that has waited for long, and hold up all who stand behind it.
            is_late = now + _PATIENCE_S if former is None else former.is_late
            # Whoever ran last knows best what the next run will be like, and keeps the place there was.
            self._line[wanted.sandbox.id] = _Waiting(
                wanted, min(now + _BEHIND_THE_ANSWER_S, is_late), is_late
            )
            self._look_behind_the_answer()

    def add_first(self, wanted: Next) -> None:
        """Have a cell made at once, since a run is about to come: one like the last, if there was any."""
        if self._parking.is_open:
            now = time.monotonic()
            former = self._line.pop(wanted.sandbox.id, None)
            first = _Waiting(wanted if former is None else former.wanted, now, now)
            self._first.setdefault(wanted.sandbox.id, first)
            self._look()

    def _look_behind_the_answer(self) -> None:
        if self._line or self._first:
            self._look_after(_BEHIND_THE_ANSWER_S)

    def _look_after(self, delay_s: float) -> None:
        """Look again then, or sooner."""
        moment = time.monotonic() + delay_s
        if self._looking is None or moment < self._looks_at:
            self._look_no_more()
            self._looking = asyncio.get_running_loop().call_later(_whole(delay_s), self._look)
            self._looks_at = moment

    def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _look(self) -> None:
        """Have made what may be made now. Whatever may not has us look again when it may."""
        self._look_no_more()
        while line := self._first or self._line:
            waiting, now = next(iter(line.values())), time.monotonic()
            if now < waiting.begins:
                self._look_after(waiting.begins - now)
                return
            if not self._may_begin(is_late=now >= waiting.is_late):
                if now < waiting.is_late:
                    self._look_after(waiting.is_late - now)
                return
            del line[waiting.wanted.sandbox.id]
            self._begin(waiting.wanted)

    def _may_begin(self, *, is_late: bool) -> bool:
        if is_late:
            return self._under_way < _PROCESSORS
        return self._desk.running() == 0 and self._under_way < max(1, _PROCESSORS - 1)

    def _begin(self, wanted: Next) -> None:
        if self._parking.is_open and self._desk.may_work_ahead(wanted.sandbox.id, _PROCESSORS):
            self._under_way += 1
            self._spawn(self._make(wanted))

    async def _make(self, wanted: Next) -> None:
        sandbox = wanted.sandbox
        try:
            # Whoever runs something next may have other limits than the run that this one comes after. Asked
            # here, nothing comes between that and `prepare`: who changes them waits for what it has begun.
            if not self._parking.is_outdated(sandbox):
                await self._parking.prepare(wanted.engine, wanted.place, wanted.ahead, sandbox.tenant)
        finally:
            self._under_way -= 1
        self._look()


def _whole(delay_s: float) -> float:
    """Return the next whole millisecond: uvloop counts those, and what it rounds down would come too soon.

    Whoever comes too soon has to come again, and with no time left to wait does so as fast as the loop turns.
    """
    return math.ceil(delay_s * 1e3) / 1e3
