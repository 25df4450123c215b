"""Finish what a crash or a full disk left, and end what has outlived its time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from petri.errors import Conflict, PetriError
from petri.model import Event, RunEvent, Sandbox, State
from petri.operations import Host
from petri.operations.becoming import settled_files
from petri.operations.destroy import end, finish
from petri.operations.sweeping import Sweeper
from petri.threads import in_own_thread

_log = logging.getLogger("petri.reap")
_LOOK_S = 1.0
"""A sandbox ends at most this long after its time."""
_TIDY_S = 10.0
"""How often is looked for what was left over."""
_AT_ONCE = 4
"""Sandboxes ended at one time: one with very many files must not hold up the others."""
_FIRST_AGAIN_S = {State.DELETING: 5.0, State.CREATING: 300.0}
"""How long others may be at work on a sandbox before the reaper takes it for left over."""
_LAST_AGAIN_S = 600.0
_UNSEEN_S = 300.0
"""How long a tree that a run saw as a peer stays a folder for the next one."""
_SLICE_S = 0.05
"""How long the trash is emptied before requests are let in between."""


async def recover(host: Host) -> set[str]:
    """Write down how everything an earlier life left has ended; return the sandboxes whose files go now.

    Called once, before the first request, which waits for it: so uploads that had happened are completed,
    but nothing is removed. That is the reaper's.
    """
    interrupted = await host.ledger.interrupt_unfinished_runs(time.time())
    if interrupted:
        _log.warning("%d runs were cut off when the server last ended", interrupted)
    await in_own_thread(host.workspaces.tidy)
    await in_own_thread(host.workspaces.drop_unknown, await host.ledger.live())
    host.becomings.due.update({each.id: each.becoming or "" for each in await host.ledger.unsettled()})
    unfinished = await host.ledger.unfinished()
    # Of one that was being made nobody was told the id; what was made of it goes.
    half_made = [sandbox for sandbox in unfinished if sandbox.state is State.CREATING]
    used_up = await host.ledger.used_up()
    await asyncio.gather(
        *(_write_down(host, sandbox, Event.BROKE) for sandbox in half_made),
        *(_write_down(host, sandbox, Event.USED_UP) for sandbox in used_up),
    )
    return {sandbox.id for sandbox in (*unfinished, *used_up)}


async def _write_down(host: Host, sandbox: Sandbox, event: Event) -> None:
    try:
        await host.ledger.advance(sandbox, event)
    except PetriError as error:
        _log.warning("sandbox %s could not be ended: %s (%s)", sandbox.id, error.message, error.detail)


Work = Callable[[Host, Sandbox], Awaitable[None]]


class Reaper:
    """Looks now and then, for as long as the server runs. What it could not finish it tries again, later."""

    def __init__(self, host: Host, left_over: Iterable[str] = ()) -> None:
        self._host = host
        self._clock = _SteadyClock()
        self._tasks = asyncio.TaskGroup()
        self._at_work: set[str] = set()
        self._again: dict[str, tuple[float, float]] = dict.fromkeys(left_over, (0.0, _LOOK_S))
        """When to try a sandbox again, by a clock that only goes forward, and how long after that."""

    async def run(self) -> None:
        """Reap until cancelled; then nothing of the reaper's is still at work."""
        tidy_at = 0.0
        async with self._tasks:
            self._tasks.create_task(self._empty_trash())
            self._tasks.create_task(self._sweep())
            while True:
                await self._try(self._expire)
                if time.monotonic() >= tidy_at:
                    tidy_at = time.monotonic() + _TIDY_S
                    for step in (
                        self._settle,
                        self._finish,
                        self._use_up,
                        self._close_runs,
                        self._host.ledger.restore_ballast,
                    ):
                        await self._try(step)
                await asyncio.sleep(_LOOK_S)

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception:  # noqa: BLE001 - the next look may succeed; the server must not end over this one
            _log.exception("the reaper could not do all it should")

    async def _expire(self) -> None:
        """End every sandbox whose time is up."""
        now = self._clock.now()
        for sandbox in await self._host.ledger.expired(now):
            expiry = _expiry(self._host, sandbox)
            if expiry is not None and expiry[0] <= now:
                self._start(sandbox, _expire_ttl if expiry[1] == "ttl" else _expire_idle)

    async def _finish(self) -> None:
        """Finish sandboxes that nobody is at work on any more."""
        now, found = time.monotonic(), await self._host.ledger.unfinished()
        known = {sandbox.id for sandbox in found}
        self._again = {each: again for each, again in self._again.items() if each in known or again[0] > now}
        for sandbox in found:
            pause_s = _FIRST_AGAIN_S[sandbox.state]
            self._again.setdefault(sandbox.id, (now + pause_s, pause_s))
            self._start(sandbox, _finish)

    async def _settle(self) -> None:
        """Have files become what they are to be, where nobody is at it: a crash or an error left that."""
        if self._host.becomings.due:
            for sandbox in await self._host.ledger.unsettled():
                if not self._host.is_in_use(sandbox.id):
                    self._start(sandbox, settled_files)

    async def _use_up(self) -> None:
        """End ephemeral sandboxes that had their run, but could not be ended after it."""
        for sandbox in await self._host.ledger.used_up():
            if not self._host.is_in_use(sandbox.id):
                self._start(sandbox, _use_up)

    async def _close_runs(self) -> None:
        """Write down the end of runs whose own record of it could not be written."""
        for run in await self._host.ledger.unfinished_runs():
            if run.id not in self._host.live:
                with suppress(Conflict):  # it ended while we looked
                    await self._host.ledger.advance_run(run, RunEvent.INTERRUPTED, at=time.time())

    async def _empty_trash(self) -> None:
        """Empty the trash, a moment at a time: disk and processor are left to others in between."""
        while True:
            all_tried = True
            try:
                all_tried = await in_own_thread(self._free)
            except PetriError as error:
                _log.warning("the trash could not be emptied: %s (%s)", error.message, error.detail)
            await asyncio.sleep(_TIDY_S if all_tried else _SLICE_S)

    def _free(self) -> bool:
        swept = self._host.checkouts.sweep(_UNSEEN_S, within_s=_SLICE_S)
        return self._host.workspaces.empty_trash(within_s=_SLICE_S) and swept

    async def _sweep(self) -> None:
        """Sweep the store now and then."""
        sweeper = Sweeper(self._host)
        while True:
            await asyncio.sleep(self._host.policy.remembering.sweep_s)
            await self._try(sweeper.sweep_all)

    def _start(self, sandbox: Sandbox, work: Work) -> None:
        """Have `work` done, unless it is under way or not due yet, or much else is: it will come up again."""
        due, _ = self._again.get(sandbox.id, (0.0, 0.0))
        if sandbox.id not in self._at_work and len(self._at_work) < _AT_ONCE and time.monotonic() >= due:
            self._at_work.add(sandbox.id)
            self._tasks.create_task(self._work(sandbox, work))

    async def _work(self, sandbox: Sandbox, work: Work) -> None:
        try:
            await work(self._host, sandbox)
            self._again.pop(sandbox.id, None)
        except Exception as error:  # noqa: BLE001 - whatever keeps one from ending must not keep the others
            pause_s = min(2 * self._again.get(sandbox.id, (0.0, _LOOK_S))[1], _LAST_AGAIN_S)
            self._again[sandbox.id] = (time.monotonic() + pause_s, pause_s)
            why = f"{error.message} ({error.detail})" if isinstance(error, PetriError) else repr(error)
            _log.warning("sandbox %s is not as it should be yet, again in %g s: %s", sandbox.id, pause_s, why)
        finally:
            self._at_work.discard(sandbox.id)


async def _finish(host: Host, sandbox: Sandbox) -> None:
    if sandbox.state is State.CREATING:
        sandbox = await host.ledger.advance(sandbox, Event.BROKE)
    await finish(host, sandbox)


async def _use_up(host: Host, sandbox: Sandbox) -> None:
    await end(host, sandbox, Event.USED_UP)


async def _expire_ttl(host: Host, sandbox: Sandbox) -> None:
    _log.info("sandbox %s ends: its ttl is over", sandbox.id)
    await end(host, sandbox, Event.EXPIRE_TTL)


async def _expire_idle(host: Host, sandbox: Sandbox) -> None:
    _log.info("sandbox %s ends: it was idle for too long", sandbox.id)
    await end(host, sandbox, Event.EXPIRE_IDLE)


def _expiry(host: Host, sandbox: Sandbox) -> tuple[float, str] | None:
    """Return when a sandbox ends, counting uses that are not on disk yet, or not over yet."""
    used = host.used.get(sandbox.id, 0)
    if host.is_in_use(sandbox.id):
        used = time.time()
    return sandbox.used_at(max(used, sandbox.last_active_at)).expiry()


class _SteadyClock:
    """The time of day, deaf to jumps: a clock set forward by a day must not end anybody's sandbox."""

    def __init__(self) -> None:
        self._day = time.time()
        self._steady = time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        passed = time.clock_gettime(time.CLOCK_BOOTTIME) - self._steady
        return min(time.time(), self._day + passed)
