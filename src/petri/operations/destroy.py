"""End a sandbox: on record first, then its runs, then its files. The history stays."""

import asyncio
import logging
from dataclasses import replace

from petri.errors import Conflict, NotFound, PetriError
from petri.model import Event, RunEvent, Sandbox, State
from petri.operations import Caller, Host
from petri.operations.becoming import call_off
from petri.threads import in_own_thread

_log = logging.getLogger("petri.destroy")


async def destroy(host: Host, caller: Caller, sandbox_id: str) -> None:
    """End a sandbox for good. Ending one that has ended is fine."""
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    await end(host, sandbox, Event.DELETE)


async def end(host: Host, sandbox: Sandbox, event: Event) -> None:
    """Bring a sandbox to its end because of `event`; returns when its files are gone.

    Several may want the same end at once: whoever comes second helps to finish it.
    """
    while sandbox.state in (State.CREATING, State.READY):
        try:
            sandbox = await host.ledger.advance(sandbox, event)
        except Conflict:
            sandbox = await host.ledger.sandbox(sandbox.id, sandbox.tenant)
    if sandbox.state is State.DELETING:
        await finish(host, sandbox)


async def use_up(host: Host, sandbox: Sandbox) -> None:
    """End an ephemeral sandbox after its first run, from inside that run.

    Never raises: that the sandbox could not be tidied away must not replace what the run came to. What
    is left is the reaper's.
    """
    try:
        sandbox = await host.ledger.sandbox(sandbox.id, sandbox.tenant)
        if sandbox.state is State.READY:
            sandbox = await host.ledger.advance(sandbox, Event.USED_UP)
            await _remove(host, sandbox)
    except Conflict:
        pass  # somebody else is ending it
    except PetriError as error:
        _log.warning("sandbox %s is not tidied away yet: %s (%s)", sandbox.id, error.message, error.detail)


async def give_up(host: Host, sandbox: Sandbox) -> None:
    """End a sandbox that could not be made, or that nobody waits for any more.

    It may be on record all the same: who gives up waiting for a transaction does not undo it. What fails
    here is left to the reaper, or to the next life.
    """
    ready = replace(sandbox, state=State.READY, generation=sandbox.generation + 1)
    try:
        try:
            await finish(host, await host.ledger.advance(ready, Event.DELETE))
        except NotFound:
            await _remove(host, sandbox)
    except PetriError as error:
        _log.warning("sandbox %s is left half made: %s (%s)", sandbox.id, error.message, error.detail)


async def finish(host: Host, sandbox: Sandbox) -> None:
    """Do what a `deleting` sandbox still needs. Also called by the reaper, after a crash."""
    runs = [live for live in host.live.values() if live.run.sandbox_id == sandbox.id]
    for live in runs:
        live.cut(RunEvent.CANCELLED)
    if runs:
        await asyncio.wait([live.ended for live in runs])
    await _remove(host, sandbox)


async def _remove(host: Host, sandbox: Sandbox) -> None:
    await host.parking.clear(sandbox.id)
    await call_off(host, sandbox)
    await in_own_thread(host.shares.close, sandbox.id, host.owner_of(sandbox))
    host.used.pop(sandbox.id, None)
    host.agreed.pop(sandbox.id, None)
    async with host.keeper.at_work(
        sandbox.id
    ):  # who was keeping its files has noted by now that they are kept
        host.keeper.kept.pop(sandbox.id, None)
        host.keeper.owed.discard(sandbox.id)
    try:
        await host.ledger.advance(sandbox, Event.REMOVED)
    except Conflict:
        now = await host.ledger.sandbox(sandbox.id, sandbox.tenant)
        if now.state is not State.DELETED:
            raise
