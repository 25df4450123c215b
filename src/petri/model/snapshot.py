"""A snapshot: a name for a tree, kept for as long as somebody wants it."""

from dataclasses import dataclass

from petri.model.sandbox import NOBODY, Addition, Asker


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One row of the ledger. Times are seconds since the epoch. It outlives the sandbox it was taken of."""

    id: str
    tenant: str
    tree: str
    sandbox_id: str
    created_at: float
    name: str | None = None
    asker: Asker = NOBODY
    added: tuple[Addition, ...] = ()
    """Packages that runs of the sandbox had asked for: whoever begins with these files has them, too."""
