"""Tell which packages a sandbox's runs have, who needs each, and how to have them elsewhere."""

from dataclasses import dataclass

from petri.environment.building import Record
from petri.errors import NotFound
from petri.model import Packages, Run
from petri.operations import Caller, Host


@dataclass(frozen=True, slots=True)
class Part:
    """The packages of one ecosystem."""

    record: Record
    used_at: float | None
    """None where it is not on disk now."""


@dataclass(frozen=True, slots=True)
class Equipped:
    """What there is to tell of a run's packages; of no run, where none ever wanted any."""

    sandbox_id: str
    run: Run | None
    packages: Packages
    parts: tuple[Part, ...]


async def equipped(host: Host, caller: Caller, sandbox_id: str, run_id: str | None) -> Equipped:
    """Return the packages of a sandbox's last run that wanted some, or of the run that is asked for."""
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    if run_id is None:
        run = await host.ledger.last_equipped_run(sandbox.id)
    else:
        run = await host.ledger.run(run_id, caller.tenant)
        if run.sandbox_id != sandbox.id:
            raise NotFound(f"there is no run {run_id} in sandbox {sandbox.id}")
    packages = run.packages if run is not None and run.packages is not None else Packages()
    return Equipped(sandbox.id, run, packages, _parts(host, run))


def _parts(host: Host, run: Run | None) -> tuple[Part, ...]:
    if run is None or run.environment is None or host.outfitter is None:
        return ()
    shelf = host.outfitter.environments.shelf
    found = []
    for address in run.environment.split("+"):
        record = shelf.record(address)
        if record is not None:
            here = shelf.find(address)
            found.append(Part(record, here.used_at if here is not None else None))
    return tuple(found)
