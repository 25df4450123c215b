"""Run a command in a sandbox and keep what it leaves in the workspace.

`begin` answers as soon as the run is on record; what follows belongs to the host, so that a client who goes
away takes nothing with it. A failing command is a normal ending; a failing engine is not. Either way the
ledger knew of the run before it began, and knows how it ended.
"""

import asyncio
import logging
import time

from petri.errors import Conflict, EngineFailed, PetriError, Unavailable
from petri.ledger import Ending
from petri.model import Outcome, Run, RunEvent, Sandbox, State, new_id
from petri.operations import Caller, Host, LiveRun
from petri.operations.command import Ask, Decided, decide
from petri.operations.desk import Turn
from petri.operations.destroy import use_up

_log = logging.getLogger("petri.exec")


async def begin(host: Host, caller: Caller, sandbox_id: str, ask: Ask) -> LiveRun:
    """Put a run on record and have it begin, now or when it is its turn."""
    if host.draining:
        raise Unavailable("the server is stopping; nothing new is started")
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    _refuse_unless_ready(host, sandbox)
    engine = host.engine_for(ask.engine or sandbox.engine)
    decided = await decide(host, sandbox, ask)
    turn = host.desk.take(sandbox.id)
    try:
        run = await host.ledger.add_run(_new_run(sandbox, ask, decided, engine.name), start=turn.is_now)
        live = _register(host, run)
        host.tasks.create_task(_see_through(host, sandbox, live, decided, turn))
    except BaseException:
        with turn:  # nobody else will pass it on
            raise
    return live


async def outcome_of(live: LiveRun) -> Run:
    """Wait for the end of a run. Giving up the wait does not end the run."""
    return await asyncio.shield(live.ended)


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
        engine=engine,
        asked_at=time.time(),
        asker=ask.asker,
        language=decided.language,
        env_names=tuple(sorted({*sandbox.env, *ask.env})),
        stdin_bytes=len(ask.stdin),
    )


def _register(host: Host, run: Run) -> LiveRun:
    loop = asyncio.get_running_loop()
    live = LiveRun(run, host.transcripts.begin(run.id), loop.create_future(), loop.create_future())
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
        outcome = await _take_turn_and_run(host, sandbox, live, decided, turn)
        await asyncio.to_thread(live.transcript.make_durable)
    except PetriError as error:
        await _record(host, live, RunEvent.BROKE, failure=error.message)
        raise
    except OSError as error:
        await _record(host, live, RunEvent.BROKE, failure="its output could not be kept")
        raise EngineFailed("the run's output could not be kept", detail=str(error)) from error
    ended = outcome is not None and not outcome.cancelled
    return await _record(host, live, RunEvent.ENDED if ended else live.cut_by, outcome)


async def _take_turn_and_run(
    host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn
) -> Outcome | None:
    """Return the outcome, or None for a run that was cancelled while it waited."""
    if not turn.is_now:
        await turn.come(unless=live.cancelled)
        if live.cancelled.done():
            return None
        live.run = await host.ledger.advance_run(live.run, RunEvent.START, at=time.time())
    engine = host.engine_for(live.run.engine)
    return await engine.exec(host.place_of(sandbox), decided.command, live.transcript, live.cancelled)


async def _record(
    host: Host, live: LiveRun, event: RunEvent, outcome: Outcome | None = None, failure: str | None = None
) -> Run:
    ending = Ending(outcome, live.transcript.kept("stdout"), live.transcript.kept("stderr"), failure)
    return await host.ledger.advance_run(live.run, event, at=time.time(), ending=ending)


def _settle(live: LiveRun, end: Run | PetriError) -> None:
    if isinstance(end, Run):
        live.ended.set_result(end)
    else:
        live.ended.set_exception(end)
