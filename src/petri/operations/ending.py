"""How a run ended: on record and on disk, before anybody is told."""

import asyncio
import logging
import time
from dataclasses import replace

from petri.errors import EngineFailed, HostError
from petri.ledger import Ending
from petri.model import Outcome, Run, RunEvent, Sandbox
from petri.operations import Host, LiveRun, trees
from petri.operations.adding import keep_added
from petri.operations.trial import verdict
from petri.operations.wearing import Wearing
from petri.threads import in_own_thread

_log = logging.getLogger("petri.exec")
_RECORD_AGAIN_S = (0.1, 0.5, 1, 2, 4, 8)


async def conclude(host: Host, sandbox: Sandbox, live: LiveRun, outcome: Outcome, wearing: Wearing) -> Run:
    """Have it durable how a command ended, what it did to the files, and what it wrote."""
    live.is_concluding = True
    if live.transcript.few is not None:  # it goes on record with the run's end
        return await _record_outcome(host, sandbox, live, outcome, wearing)
    # Neither need wait for the other.
    _, run = await asyncio.gather(_keep(live), _record_outcome(host, sandbox, live, outcome, wearing))
    return run


async def record(host: Host, live: LiveRun, event: RunEvent, ending: Ending) -> Run:
    """Write down how a run ended, and what it wrote if that is little."""
    wrote = live.transcript
    ending = replace(ending, stdout=wrote.kept("stdout"), stderr=wrote.kept("stderr"), output=wrote.few)
    run = await _advance(host, live.run, event, ending)
    wrote.on_record()
    return run


async def _record_outcome(
    host: Host, sandbox: Sandbox, live: LiveRun, outcome: Outcome, wearing: Wearing
) -> Run:
    event = live.cut_by if outcome.cancelled else RunEvent.ENDED
    host.workspaces.unlock(sandbox.id)
    tree, changes = await trees.after(host, sandbox)
    host.workspaces.unmark(sandbox.id)
    kept = await verdict(host, sandbox, live.run, outcome, tree)
    if kept:
        await keep_added(host, sandbox, live, wearing)
    live.run = await record(host, live, event, Ending(outcome, tree=tree, changes=changes, kept=kept))
    return live.run


async def _keep(live: LiveRun) -> None:
    try:
        await in_own_thread(live.transcript.make_durable)
    except OSError as error:
        raise EngineFailed("the run's output could not be kept", detail=str(error)) from error


async def _advance(host: Host, run: Run, event: RunEvent, ending: Ending) -> Run:
    """Do `event` to `run`. A ledger that is out of reach is asked again: the ending happens once."""
    at = time.time()
    for pause_s in _RECORD_AGAIN_S:
        try:
            return await host.ledger.advance_run(run, event, at=at, ending=ending)
        except HostError as error:
            _log.warning("the end of run %s is not on record yet: %s", run.id, error.message)
            await asyncio.sleep(pause_s)
    return await host.ledger.advance_run(run, event, at=at, ending=ending)
