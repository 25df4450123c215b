"""A command in its cell: on record before it starts, watched while it runs, its end written down as it goes.

Once nobody is left in a cell nothing can change any more. From then on the run's end is written down while
the cell is taken apart: both take a millisecond or two, and neither needs the other. Only one that may be
repeated waits for the last of its cell.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, replace

from petri.engine import Engine, Place
from petri.model import Outcome, Run, RunEvent, Sandbox
from petri.operations import Host, LiveRun, outfits, trees
from petri.operations.adding import Adding, attended
from petri.operations.command import Decided
from petri.operations.ending import conclude
from petri.operations.next_cell import after_run, ahead_of
from petri.operations.parking import Task
from petri.operations.peers import Sight
from petri.operations.second_line import LastWords, Missed, missed, ready_to_repeat, told
from petri.operations.trial import may_go_back, refuse_large
from petri.operations.watch import Watch
from petri.operations.wearing import Wearing, worn
from petri.threads import first_of, settled

_log = logging.getLogger("petri.exec")


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be run, where, and with what."""

    host: Host
    sandbox: Sandbox
    live: LiveRun
    decided: Decided
    wearing: Wearing
    place: Place
    """As it is without packages."""

    def adding(self) -> Adding | None:
        """Return who has packages added to it; None where nobody does."""
        outfitter = self.host.outfitter
        if outfitter is None or self.wearing.found is None:
            return None
        return Adding(self.host, outfitter, self.sandbox, self.live, self.decided, self.wearing)


async def run(
    host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, sight: Sight, wearing: Wearing
) -> Run:
    """Run a command, and have it on record how it ended; returns when nothing of its cell is left."""
    if sight.peers:
        live.run = replace(live.run, peers=sight.peers)
    live.run = outfits.on_record(live.run, wearing.outfit)
    host.workspaces.unlock(sandbox.id)  # as a run that was cut off may have left it
    place = host.place_of(sandbox, decided.limits)
    if sight.mounts:
        place = replace(place, mounts=sight.mounts)
    job = _Job(host, sandbox, live, decided, wearing, place)
    adding = job.adding()
    if adding is None:
        return await _run_plainly(job)
    if wearing.window is None:  # nor a door at which it could ask
        return await _run_equipped(job, adding)
    async with attended(adding, wearing.window):
        return await _run_equipped(job, adding)


async def queue(host: Host, live: LiveRun) -> None:
    """Have a run that must wait on record, once."""
    if not live.recorded.done():
        live.run = await host.ledger.add_run(live.run, start=False)
        live.recorded.set_result(None)


async def _run_plainly(job: _Job) -> Run:
    attempt = _Attempt(job)
    outcome = await attempt.see_through()
    return outcome if isinstance(outcome, Run) else await attempt.conclude(outcome)


async def _run_equipped(job: _Job, adding: Adding) -> Run:
    """Run the command with its packages: once, or once more if it missed one and may be repeated."""
    attempt = _Attempt(job, adding)
    outcome = await attempt.see_through()
    if isinstance(outcome, Run):
        return outcome
    missing = attempt.missed(outcome)
    if missing and job.decided.missing == "repeat" and await ready_to_repeat(adding, missing):
        attempt = _Attempt(job, adding)
        outcome = await attempt.in_cell()
    return await attempt.conclude(outcome)


class _Attempt:
    """One cell, and the command in it."""

    def __init__(self, job: _Job, adding: Adding | None = None) -> None:
        self._job = job
        self._adding = adding
        self._words = LastWords(job.live.transcript)
        place, command = worn(job.host, job.place, job.decided, job.wearing)
        self._watch = Watch(job.host.shares, place.sandbox_id, place.owner, place.limits)
        place = replace(place, file_bytes=self._watch.file_bytes)
        self._task = Task(place, command, ahead_of(job.decided, command, job.wearing.outfit))

    async def in_cell(self) -> Outcome:
        """Run the command; end it if its workspace comes to hold more than it may."""
        host, live = self._job.host, self._job.live
        self._watch.begin(host.tasks, lambda: live.cut(RunEvent.CANCELLED))
        engine = host.engine_for(live.run.engine)
        output = live.transcript if self._adding is None else self._words
        try:
            return await host.parking.exec(engine, self._task, output, live.leash)
        finally:
            self._watch.stop()
            self._have_the_next_stand(engine)

    def _have_the_next_stand(self, engine: Engine) -> None:
        """Have a cell made for the next run like this one, unless this one sees what the next must not."""
        job = self._job
        if not (job.place.mounts or job.wearing.window or job.live.leash.cancelled.done()):
            after_run(job.host, job.sandbox, engine, self._task.place, self._task.ahead)

    async def see_through(self) -> Outcome | Run:
        """Have the cell made and the run put on record at the same time; a run not on record never starts.

        Return how the command ended, or the run with its end on record if that was done meanwhile.
        """
        quiet, ended = self._job.live.leash.quiet, None
        cell, recording = self._begin_both()
        try:
            await recording
            if quiet is not None:
                await first_of(quiet, cell)
                if quiet.done():
                    ended = await self.conclude(quiet.result())
                    self._job.live.concluded.set_result(ended)
        except asyncio.CancelledError:
            cell.cancel()
            raise
        finally:
            await settled(cell)
            failure = None if cell.cancelled() else cell.exception()
        if ended is None:
            return cell.result()
        if failure is not None:  # what is left of the cell is the engine's to see to
            _log.warning("run %s has ended, its cell could not: %s", ended.id, failure)
        return ended

    def _begin_both(self) -> tuple[asyncio.Task[Outcome], asyncio.Task[None]]:
        """Have the cell made and the run put on record.

        Where nothing else runs the disk is asked first: the cell is told of its command while that takes its
        time. Beside the ledger's thread each step of ours takes more of a processor, though, and where others
        run there is none to spare: there the cell is told first.
        """
        if self._job.host.desk.running() > 1:
            cell = asyncio.ensure_future(self.in_cell())
            return cell, asyncio.ensure_future(_put_on_record(self._job))
        recording = asyncio.ensure_future(_put_on_record(self._job))
        return asyncio.ensure_future(self.in_cell()), recording

    async def conclude(self, outcome: Outcome) -> Run:
        """Have on record how the command ended, and what it missed."""
        job = self._job
        self._watch.stop()
        outcome = await self._watch.conclude(outcome)
        job.live.run = told(job.live.run, self.missed(outcome))
        return await conclude(job.host, job.sandbox, job.live, outcome, job.wearing)

    def missed(self, outcome: Outcome) -> Missed | None:
        """Return the package that the command failed for, if it is known."""
        return None if self._adding is None else missed(self._adding, outcome, self._words.text)


async def _put_on_record(job: _Job) -> None:
    """Let the command start once the run is on record; have its cell gone if it cannot be."""
    live = job.live
    try:
        may_repeat = job.decided.missing == "repeat"
        # What will go back must know what it goes back to: nobody else writes since the trial began.
        seen = None if may_repeat or live.run.keep != "always" else job.wearing.seen
        live.run = await trees.before(job.host, job.sandbox, live.run, seen)
        if may_go_back(job.sandbox, live.run, may_repeat=may_repeat):
            await refuse_large(job.host, job.sandbox, live)
        live.run = await _started(job.host, live)
    except BaseException:
        live.cut(RunEvent.BROKE)
        raise
    live.leash.go.set_result(None)


async def _started(host: Host, live: LiveRun) -> Run:
    if live.recorded.done():
        return await host.ledger.advance_run(live.run, RunEvent.START, at=time.time())
    run = await host.ledger.add_run(live.run, start=True)
    live.recorded.set_result(None)
    return run
