"""Finish what a crash left, and end what has outlived its time."""

import asyncio
import logging
import time

from petri.errors import PetriError
from petri.model import Event, Sandbox, State
from petri.operations import Host
from petri.operations.destroy import end, finish
from petri.threads import in_own_thread

_log = logging.getLogger("petri.reap")
_LOOK_S = 1.0
"""A sandbox ends at most this long after its time."""


async def recover(host: Host) -> None:
    """Bring what an earlier life left unfinished to an end. Called once, before the first request."""
    interrupted = await host.ledger.interrupt_unfinished_runs(time.time())
    if interrupted:
        _log.warning("%d runs were cut off when the server last ended", interrupted)
    await in_own_thread(host.workspaces.tidy, None)
    for sandbox in await host.ledger.unfinished():
        await _finish(host, sandbox)
    for sandbox in await host.ledger.used_up():
        await _end(host, sandbox, Event.USED_UP)


async def _finish(host: Host, sandbox: Sandbox) -> None:
    """Finish one sandbox; one that cannot be must not keep the server from its others."""
    try:
        if sandbox.state is State.CREATING:
            # Nobody was told its id; what was made of it goes.
            sandbox = await host.ledger.advance(sandbox, Event.BROKE)
        await finish(host, sandbox)
    except PetriError as error:
        _log.warning("sandbox %s could not be finished: %s (%s)", sandbox.id, error.message, error.detail)


async def _end(host: Host, sandbox: Sandbox, event: Event) -> None:
    try:
        await end(host, sandbox, event)
    except PetriError as error:
        _log.warning("sandbox %s could not be ended: %s (%s)", sandbox.id, error.message, error.detail)


async def expire_forever(host: Host) -> None:
    """End each sandbox when its time is up. Runs until cancelled."""
    clock = _SteadyClock()
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            await expire(host, clock.now())
        except Exception:  # noqa: BLE001 - the next look may succeed; the server must not end over this one
            _log.exception("sandboxes could not be expired")


async def expire(host: Host, now: float) -> None:
    """End every sandbox whose time was up at `now`."""
    for sandbox in await host.ledger.expired(now):
        expiry = _expiry(host, sandbox)
        if expiry is None or expiry[0] > now:
            continue
        _log.info("sandbox %s ends: its %s is over", sandbox.id, expiry[1])
        await _end(host, sandbox, Event.EXPIRE_TTL if expiry[1] == "ttl" else Event.EXPIRE_IDLE)


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
