"""Run a command in a sandbox and keep what it leaves in the workspace.

`begin` answers as soon as the run is on record; what follows belongs to the host, so that a client who goes
away takes nothing with it. A failing command is a normal ending; a failing engine is not. Either way the
ledger knew of the run before it began, and knows how it ended: the cell is made while the row is written,
but its leash holds the command until the row is there.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from petri.engine import Leash, Place
from petri.errors import Conflict, EngineFailed, HostError, PetriError, Unavailable
from petri.ledger import Ending
from petri.model import Outcome, Run, RunEvent, Sandbox, State, new_id
from petri.operations import Caller, Host, LiveRun, trees
from petri.operations.command import Ask, Decided, decide
from petri.operations.desk import Turn
from petri.operations.destroy import use_up
from petri.operations.watch import Watch
from petri.threads import in_own_thread

_log = logging.getLogger("petri.exec")
_RECORD_AGAIN_S = (0.1, 0.5, 1, 2, 4, 8)


async def begin(host: Host, caller: Caller, sandbox_id: str, ask: Ask) -> LiveRun:
    """Put a run on record and have it begin, now or when it is its turn."""
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    _refuse_unless_ready(host, sandbox)
    engine = host.engine_for(ask.engine or sandbox.engine)
    await host.tenant_disk.refuse_full(sandbox.tenant, host.access.quotas(sandbox.tenant).disk_bytes)
    decided = await decide(host, sandbox, ask)
    await host.shares.refuse_if_hopeless(sandbox, host.owner_of(sandbox))
    _refuse_while_draining(host)  # only now: much may have happened meanwhile
    _refuse_unless_ready(host, sandbox)
    turn = host.desk.take(sandbox.id, host.access.share(sandbox.tenant))
    live = _register(host, _new_run(sandbox, ask, decided, engine.name))
    host.tasks.create_task(_see_through(host, sandbox, live, decided, turn))
    await asyncio.wait((live.recorded, live.ended), return_when=asyncio.FIRST_COMPLETED)
    if not live.recorded.done():
        await live.ended  # it could not be put on record, and this raises why
    return live


async def outcome_of(live: LiveRun) -> Run:
    """Wait for the end of a run. Giving up the wait does not end the run."""
    return await asyncio.shield(live.ended)


def _refuse_while_draining(host: Host) -> None:
    if host.draining:
        raise Unavailable("the server is stopping; nothing new is started")


def _refuse_unless_ready(host: Host, sandbox: Sandbox) -> None:
    if sandbox.state is not State.READY:
        raise Conflict(f"sandbox {sandbox.id} is {sandbox.state}; only a ready one can run something")
    if sandbox.lifetime == "ephemeral" and host.desk.is_busy(sandbox.id):
        raise Conflict(f"sandbox {sandbox.id} is ephemeral and its one run is under way")


def _new_run(sandbox: Sandbox, ask: Ask, decided: Decided, engine: str) -> Run:
    return Run(
        id=new_id("run"),
        sandbox_id=sandbox.id,
        tenant=sandbox.tenant,
        form=decided.form,
        said=decided.said,
        argv=decided.command.argv,
        cwd=decided.command.cwd,
        timeout_s=decided.command.timeout_s,
        limits=decided.limits,
        engine=engine,
        asked_at=time.time(),
        asker=ask.asker,
        language=decided.language,
        env_names=tuple(sorted({*sandbox.env, *ask.env})),
        stdin_bytes=len(ask.stdin),
    )


def _register(host: Host, run: Run) -> LiveRun:
    loop = asyncio.get_running_loop()
    leash = Leash(go=loop.create_future(), cancelled=loop.create_future())
    transcript = host.transcripts.begin(run.id, run.limits.output_bytes if run.limits else None)
    live = LiveRun(run, transcript, leash, loop.create_future(), loop.create_future())
    # Nobody may be waiting when it fails; that is no fault of this future's.
    live.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    host.live[run.id] = live
    return live


async def _see_through(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn) -> None:
    """Carry a run to its end, whatever that is. Never raises: it shares a task group with all others."""
    with turn:
        try:
            run = await _perform(host, sandbox, live, decided, turn)
        except PetriError as error:
            _log.warning("run %s failed: %s (%s)", live.run.id, error.message, error.detail)
            _settle(live, error)
        except Exception:  # noqa: BLE001 - one run's fault must not cancel every other in the task group
            _log.exception("run %s failed", live.run.id)
            _settle(live, EngineFailed("the run failed for a reason only the server's log tells"))
        else:
            _settle(live, run)
        finally:
            if not live.ended.done():
                live.ended.set_exception(Unavailable("the server stopped while the command ran"))
            live.transcript.close()
            host.live.pop(live.run.id, None)


async def _perform(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn) -> Run:
    try:
        return await _run_and_record(host, sandbox, live, decided, turn)
    finally:
        if sandbox.lifetime == "ephemeral":
            await use_up(host, sandbox)


async def _run_and_record(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn) -> Run:
    try:
        outcome = await _run(host, sandbox, live, decided, turn)
    except PetriError as error:
        if live.recorded.done():
            await _record(host, live, RunEvent.BROKE, Ending(failure=error.message))
        raise
    # Both are on disk before anybody is told; neither need wait for the other.
    _, run = await asyncio.gather(_keep(live), _record_outcome(host, sandbox, live, outcome))
    return run


async def _record_outcome(host: Host, sandbox: Sandbox, live: LiveRun, outcome: Outcome | None) -> Run:
    ended = outcome is not None and not outcome.cancelled
    event = RunEvent.ENDED if ended else live.cut_by
    tree, changes = await trees.after(host, sandbox) if outcome is not None else (None, None)
    return await _record(host, live, event, Ending(outcome, tree=tree, changes=changes))


async def _run(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn) -> Outcome | None:
    """Return the outcome, or None for a run that was cancelled while it waited."""
    place = host.place_of(sandbox, decided.limits)
    if turn.is_now:
        return await _while_recording(host, live, _watched(host, live, place, decided))
    live.run = await host.ledger.add_run(live.run, start=False)
    live.recorded.set_result(None)
    await turn.come(unless=live.leash.cancelled)
    if live.leash.cancelled.done():
        return None
    live.run = await trees.before(host, live.run)
    live.run = await host.ledger.advance_run(live.run, RunEvent.START, at=time.time())
    live.leash.go.set_result(None)
    return await _watched(host, live, place, decided)


async def _watched(host: Host, live: LiveRun, place: Place, decided: Decided) -> Outcome:
    """Run the command; end it if its workspace comes to hold more than it may."""
    watch = Watch(host.shares, place.sandbox_id, place.owner, place.limits)
    watch.begin(host.tasks, lambda: live.cut(RunEvent.CANCELLED))
    engine = host.engine_for(live.run.engine)
    try:
        outcome = await engine.exec(place, decided.command, live.transcript, live.leash)
    finally:
        watch.stop()
    return await watch.conclude(outcome)


async def _while_recording(host: Host, live: LiveRun, running: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Have the cell made and the run put on record at the same time; a run not on record never starts."""

    async def put_on_record() -> None:
        try:
            live.run = await trees.before(host, live.run)
            live.run = await host.ledger.add_run(live.run, start=True)
        except BaseException:
            live.cut(RunEvent.BROKE)
            raise
        live.recorded.set_result(None)
        live.leash.go.set_result(None)

    outcome, record = await asyncio.gather(running, put_on_record(), return_exceptions=True)
    for result in (record, outcome):
        if isinstance(result, BaseException):
            raise result
    assert isinstance(outcome, Outcome)
    return outcome


async def _keep(live: LiveRun) -> None:
    try:
        await in_own_thread(live.transcript.make_durable)
    except OSError as error:
        raise EngineFailed("the run's output could not be kept", detail=str(error)) from error


async def _record(host: Host, live: LiveRun, event: RunEvent, ending: Ending) -> Run:
    """Write down how a run ended. A ledger that is out of reach is asked again: the ending happens once."""
    kept = live.transcript.kept
    ending = replace(ending, stdout=kept("stdout"), stderr=kept("stderr"))
    at = time.time()
    for pause_s in _RECORD_AGAIN_S:
        try:
            return await host.ledger.advance_run(live.run, event, at=at, ending=ending)
        except HostError as error:
            _log.warning("the end of run %s is not on record yet: %s", live.run.id, error.message)
            await asyncio.sleep(pause_s)
    return await host.ledger.advance_run(live.run, event, at=at, ending=ending)


def _settle(live: LiveRun, end: Run | PetriError) -> None:
    if isinstance(end, Run):
        live.ended.set_result(end)
    else:
        live.ended.set_exception(end)
