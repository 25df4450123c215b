"""How many sandboxes and runs there are. A job in somebody else's transaction."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from petri.ledger import runs, sandboxes
from petri.model import RunState, State


@dataclass(frozen=True, slots=True)
class Counts:
    """How many there are in each state, those with none included."""

    sandboxes: Mapping[State, int]
    runs: Mapping[RunState, int]


def counts(connection: Connection, tenant: str | None) -> Counts:
    """Return how many sandboxes and runs are in each state: a tenant's, or everybody's."""
    return Counts(sandboxes.count(connection, tenant), runs.count(connection, tenant))
