"""End a run before it ends by itself."""

import asyncio

from petri.errors import Conflict
from petri.model import Run, RunEvent
from petri.operations import Caller, Host


async def cancel(host: Host, caller: Caller, run_id: str) -> Run:
    """End a run, waiting or running; returns when nothing of it is left."""
    run = await host.ledger.run(run_id, caller.tenant)
    live = host.live.get(run.id)
    if live is None:
        raise Conflict(f"run {run.id} is over ({run.state}); there is nothing to cancel")
    live.cut(RunEvent.CANCELLED)
    return await asyncio.shield(live.ended)
