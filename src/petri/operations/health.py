"""Say whether code can be run here, what protects the host from it, and how much is going on."""

import time
from dataclasses import dataclass

from petri.engine import Layer
from petri.ledger import Counts
from petri.operations import Host


@dataclass(frozen=True, slots=True)
class Activity:
    """What is going on, and what the ledger counts."""

    counts: Counts
    running: int
    waiting: int
    uptime_s: float


async def layers(host: Host) -> list[Layer]:
    """Return every protective layer of every engine."""
    return [layer for engine in host.engines.values() for layer in await engine.layers()]


async def activity(host: Host) -> Activity:
    """Return the counts behind the metrics."""
    uptime_s = time.monotonic() - host.begun
    return Activity(await host.ledger.counts(), host.desk.running, host.desk.waiting, uptime_s)
