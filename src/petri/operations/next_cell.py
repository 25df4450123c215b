"""Have the next cell of a sandbox stand ready: after a run for one like it, with an upload for its first."""

from petri.engine import Ahead, Engine, Place
from petri.environment.building import Outfit
from petri.errors import PetriError
from petri.model import Command, Sandbox, State
from petri.operations import Host
from petri.operations.coming import Next
from petri.operations.command import Decided


def after_run(host: Host, sandbox: Sandbox, engine: Engine, place: Place, ahead: Ahead | None) -> None:
    """Have a cell stand ready for another run like the one in `place`; an ephemeral sandbox has no other."""
    if sandbox.lifetime != "ephemeral" and not host.draining:
        host.coming.add(Next(sandbox, engine, place, ahead))


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
    host.coming.add_first(Next(sandbox, engine, place, ahead))
