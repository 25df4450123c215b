"""Run a command in a sandbox and keep what it leaves in the workspace.

`begin` answers as soon as the run is on record; what follows belongs to the host, so that a client who goes
away takes nothing with it. A failing command is a normal ending; a failing engine is not. Either way the
ledger knew of the run before it began, and knows how it ended: the cell is made while the row is written,
but its leash holds the command until the row is there.
"""

import asyncio
import logging
import time
from contextlib import AsyncExitStack

from petri.engine import Leash
from petri.errors import Conflict, EngineFailed, PetriError, Unavailable
from petri.ledger import Ending
from petri.model import Run, RunEvent, Sandbox, State, new_id
from petri.operations import Caller, Host, LiveRun, outfits, peers
from petri.operations.adding import with_added
from petri.operations.becoming import settled_files
from petri.operations.command import Ask, Decided, decide
from petri.operations.desk import Turn
from petri.operations.destroy import use_up
from petri.operations.ending import record
from petri.operations.keeping import keep_soon
from petri.operations.looking import glimpse
from petri.operations.running import queue, run
from petri.operations.trial import may_go_back, trial
from petri.operations.wearing import Wearing, open_window
from petri.operations.wearing import held as holding
from petri.threads import first_of

_log = logging.getLogger("petri.exec")


async def begin(host: Host, caller: Caller, sandbox_id: str, ask: Ask) -> LiveRun:
    """Put a run on record and have it begin, now or when it is its turn."""
    sandbox = await host.ledger.sandbox_in_use(sandbox_id, caller.tenant)
    _refuse_unless_ready(host, sandbox)
    engine = host.engine_for(ask.engine or sandbox.engine)
    await settled_files(host, sandbox)
    await host.tenant_disk.refuse_full(sandbox.tenant, host.access.quotas(sandbox.tenant).disk_bytes)
    decided = await decide(host, sandbox, ask)
    await host.shares.refuse_if_hopeless(sandbox, host.owner_of(sandbox))
    _refuse_while_draining(host)  # only now: much may have happened meanwhile
    _refuse_unless_ready(host, sandbox)
    turn = host.desk.take(sandbox.id, host.access.share(sandbox.tenant))
    live = _register(
        host, _new_run(sandbox, ask, decided, engine.name), may_repeat=decided.missing == "repeat"
    )
    host.tasks.create_task(_see_through(host, sandbox, live, decided, turn))
    await first_of(live.recorded, live.ended)
    if not live.recorded.done():
        await live.ended  # it could not be put on record, and this raises why
    return live


async def outcome_of(live: LiveRun) -> Run:
    """Wait for the end of a run. Giving up the wait does not end the run."""
    return await asyncio.shield(live.ended)


async def end_on_record(live: LiveRun) -> Run:
    """Return how a run ended as soon as that is on record. It is over only when `outcome_of` says so."""
    await first_of(live.concluded, live.ended)
    return live.concluded.result() if live.concluded.done() else await outcome_of(live)


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
        asker=ask.asker.or_else(sandbox.asker),
        language=decided.language,
        env_names=tuple(sorted({*sandbox.env, *ask.env})),
        stdin_bytes=len(ask.stdin),
        keep=ask.keep,
    )


def _register(host: Host, run: Run, *, may_repeat: bool) -> LiveRun:
    loop = asyncio.get_running_loop()
    # One that may be repeated is not over when its command is.
    quiet = None if may_repeat else loop.create_future()
    leash = Leash(go=loop.create_future(), cancelled=loop.create_future(), quiet=quiet)
    transcript = host.transcripts.begin(run.id, run.limits.output_bytes if run.limits else None)
    recorded, ended, concluded = loop.create_future(), loop.create_future(), loop.create_future()
    live = LiveRun(run, transcript, leash, recorded=recorded, ended=ended, concluded=concluded)
    # Nobody may be waiting when it fails; that is no fault of this future's.
    live.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    host.live[run.id] = live
    return live


async def _see_through(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn) -> None:
    """Carry a run to its end, whatever that is. Never raises: it shares a task group with all others."""
    with turn:
        try:
            ended = await _perform(host, sandbox, live, decided, turn)
        except PetriError as error:
            _log.warning("run %s failed: %s (%s)", live.run.id, error.message, error.detail)
            _settle(live, error)
        except Exception:  # noqa: BLE001 - one run's fault must not cancel every other in the task group
            _log.exception("run %s failed", live.run.id)
            _settle(live, EngineFailed("the run failed for a reason only the server's log tells"))
        else:
            _settle(live, ended)
        finally:
            if not live.ended.done():
                live.ended.set_exception(Unavailable("the server stopped while the command ran"))
            live.steps.end()
            live.transcript.close()
            host.live.pop(live.run.id, None)
            if _may_have_left_something(host, live):
                keep_soon(host, sandbox)


def _may_have_left_something(host: Host, live: LiveRun) -> bool:
    """Say whether a run that is over may have left files that are not kept: most leave what they found."""
    if live.run.tree_before is None:
        return False
    tree = None if live.ended.exception() else live.ended.result().tree_after
    return tree is None or tree != host.keeper.kept.get(live.run.sandbox_id)


async def _perform(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn) -> Run:
    try:
        return await _run_and_record(host, sandbox, live, decided, turn)
    finally:
        if sandbox.lifetime == "ephemeral":
            await use_up(host, sandbox)


async def _run_and_record(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, turn: Turn) -> Run:
    async with AsyncExitStack() as held:
        try:
            if not await _is_our_turn(host, live, turn):
                return await record(host, live, live.cut_by, Ending())
            held.enter_context(holding(host, wearing := Wearing()))
            if not await _equip(host, sandbox, live, decided, wearing):
                return await record(host, live, live.cut_by, Ending())
            if may_go_back(sandbox, live.run, may_repeat=decided.missing == "repeat"):
                await held.enter_async_context(trial(host, sandbox, live))
            sight = peers.NOTHING
            if sandbox.peers:
                sight = await held.enter_async_context(peers.seen(host, sandbox))
            return await run(host, sandbox, live, decided, sight, wearing)
        except PetriError as error:
            if live.recorded.done() and not live.is_concluding:
                await record(host, live, RunEvent.BROKE, Ending(failure=error.message))
            raise


async def _is_our_turn(host: Host, live: LiveRun, turn: Turn) -> bool:
    """Say whether the run may start: now, or once it is its turn; not if it is cancelled while it waits."""
    if turn.is_now:
        return True
    await queue(host, live)
    await turn.come(unless=live.leash.cancelled)
    return not live.leash.cancelled.done()


async def _equip(host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, wearing: Wearing) -> bool:
    """Have the packages that a run gets; False if it is cancelled before they are here.

    Only one that must wait for them is put on record before: it is queued for as long.
    """
    try:
        await settled_files(host, sandbox)  # much may have happened to them while it waited for its turn
        wearing.seen = glimpse(host, sandbox.id)
        wearing.found = await outfits.find_out(host, sandbox, decided, wearing.seen)
        wanted = with_added(host, sandbox, decided, wearing)
        outfit = outfits.at_hand(host, wanted)
        if outfit is None:
            await queue(host, live)
            outfit = await outfits.outfitted(host, live, wanted)
        if outfit is None:
            return False
        wearing.outfit = outfit
        await open_window(host, sandbox, live, decided, wearing)
        return True
    finally:
        live.steps.end()


def _settle(live: LiveRun, end: Run | PetriError) -> None:
    if isinstance(end, Run):
        live.ended.set_result(end)
    else:
        live.ended.set_exception(end)
