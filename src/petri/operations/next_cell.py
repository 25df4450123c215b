"""Have the next cell of a sandbox stand ready: after a run for one like it, with an upload for its first."""

import asyncio
import os
import time
from dataclasses import dataclass

from petri.engine import Ahead, Engine, Place
from petri.environment.building import Outfit
from petri.errors import PetriError
from petri.model import Command, Sandbox, State
from petri.operations import Host
from petri.operations.command import Decided

_BEHIND_THE_ANSWER_S = 0.003
"""A cell is gone before its run's answer is on its way; what is done for the next must not come between."""
_A_MOMENT_S, _PATIENCE_S = 0.004, 0.03
"""To make a cell takes longer than a short run does: made beside one it would cost whoever waits for that as
much as it saves the next. A pause comes soon, and where none does it is made all the same."""
_PROCESSORS = len(os.sched_getaffinity(0))


def after_run(host: Host, sandbox: Sandbox, engine: Engine, place: Place, ahead: Ahead | None) -> None:
    """Have a cell stand ready for another run like the one in `place`; an ephemeral sandbox has no other."""
    if sandbox.lifetime != "ephemeral" and not host.draining:
        following = _Next(host, sandbox, engine, place, ahead, time.monotonic() + _PATIENCE_S)
        asyncio.get_running_loop().call_later(_BEHIND_THE_ANSWER_S, following.prepare)


@dataclass(frozen=True, slots=True)
class _Next:
    """A cell for a run that nobody has asked for yet."""

    host: Host
    sandbox: Sandbox
    engine: Engine
    place: Place
    ahead: Ahead | None
    until: float
    """How long those who run something come first."""

    def prepare(self) -> None:
        """Have it made once nothing runs, or soon."""
        desk = self.host.desk
        if self.host.parking.is_outdated(self.sandbox):
            return  # whoever runs something next has other limits than the run that this one comes after
        if desk.running() > 0 and time.monotonic() < self.until:
            asyncio.get_running_loop().call_later(_A_MOMENT_S, self.prepare)
        elif desk.may_work_ahead(self.sandbox.id, _PROCESSORS):
            self.host.parking.prepare(self.engine, self.place, self.ahead, self.sandbox.tenant)


def ahead_of(decided: Decided, command: Command, outfit: Outfit) -> Ahead | None:
    """Return what to start before another command like this one is known; None if nothing can be.

    Packages may bring code that every start of Python runs: that is for runs, which are on record.
    """
    if decided.language != "python" or decided.form == "command" or outfit.runs_code_at_start:
        return None
    return Ahead(command.argv[0], "code" if decided.form == "code" else "file")


def at_upload(host: Host, sandbox: Sandbox) -> None:
    """Have a cell stand ready for the first run in a sandbox, while it is being given files.

    Where one stands, it is for a run like the last: nobody can know better.
    """
    is_expected = sandbox.language == "python" and sandbox.state is State.READY
    if is_expected and not (
        host.draining or host.desk.is_busy(sandbox.id) or host.parking.has_one(sandbox.id)
    ):
        host.tasks.create_task(_expect(host, sandbox))


async def _expect(host: Host, sandbox: Sandbox) -> None:
    try:
        python = await host.languages.named("python")
    except PetriError:
        return  # nothing can be run here now
    place = host.place_of(sandbox, sandbox.limits)
    engine, ahead = host.engine_for(sandbox.engine), Ahead(python.by_file[0], "file")
    host.parking.prepare(engine, place, ahead, sandbox.tenant)
