"""Say whether code can be run here, what protects the host from it, and how much is going on."""

import time
from dataclasses import dataclass

from petri.engine import Layer
from petri.ledger import Counts
from petri.model import Scope
from petri.operations import Caller, Host
from petri.threads import in_thread
from petri.workspace import Holding


@dataclass(frozen=True, slots=True)
class Activity:
    """What is going on, and what the ledger counts."""

    counts: Counts
    running: int
    waiting: int
    uptime_s: float
    parked: int
    """Cells that stand ready."""
    parked_used: int
    parked_fitted: int
    """Runs that had such a cell, since the server began."""
    store_bytes: int
    """What is kept of trees takes so much of the disk."""


async def layers(host: Host) -> list[Layer]:
    """Return every protective layer of every engine, and the one that all share."""
    engines = [layer for engine in host.engines.values() for layer in await engine.layers()]
    return [*engines, disk_layer(host.workspaces.holding)]


def disk_layer(holding: Holding) -> Layer:
    """Say who holds workspaces to their share of the disk. Somebody always does."""
    return Layer("disk", True, holding.says, required=False, remedy=holding.remedy)


async def activity(host: Host, caller: Caller) -> Activity:
    """Return the counts behind the metrics: a tenant's own, or everybody's for an administrator."""
    tenant = None if caller.scope is Scope.ADMIN else caller.tenant
    uptime_s = time.monotonic() - host.begun
    counts = await host.ledger.counts(tenant)
    store_bytes = await in_thread(host.store.disk_bytes, tenant)
    return Activity(
        counts=counts,
        running=host.desk.running(tenant),
        waiting=host.desk.waiting(tenant),
        uptime_s=uptime_s,
        parked=len(host.parking) if tenant is None else 0,
        parked_used=host.parking.used if tenant is None else 0,
        parked_fitted=host.parking.fitted if tenant is None else 0,
        store_bytes=store_bytes,
    )
