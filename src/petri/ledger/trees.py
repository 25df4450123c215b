"""Which trees the ledger names, and how dear they are: what garbage collection asks."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from petri.ledger import agreements, rows
from petri.ledger.tables import IS_LIVE, restores, runs, sandboxes, snapshots
from petri.model import RUN_UNFINISHED


@dataclass(frozen=True, slots=True)
class NamedTrees:
    """The trees of one tenant's that are on record, as addresses."""

    needed: frozenset[str]
    """What live sandboxes are, are to be and started their runs from, and all snapshots."""
    promised: frozenset[str]
    """Those of them that must be there. What the files of a sandbox are is kept a little later than it is on
    record, and until then the files themselves are all there is of it."""
    history: list[str]
    """What the last runs of live sandboxes began and ended with, what was gone back from, and what clients
    agreed on; newest first."""
    whose: tuple[tuple[str, str], ...]
    """Who has each of these trees for what, in words: the trees of runs last."""


def named_trees(connection: Connection, tenant: str, last_runs: int, at: float) -> NamedTrees:
    """Return the trees of a tenant: those that must stay, and those of its last runs in each sandbox.

    With the latter come those that clients agreed on not too long before `at`.
    """
    promised = [(tree, who) for tree, who in _promised(connection, rows.text(tenant)) if tree]
    files = [(tree, who) for tree, who in _files(connection, rows.text(tenant)) if tree]
    needed = {tree for tree, _ in (*promised, *files)}
    of_runs = _of_runs(connection, tenant, last_runs)
    dated = [*((at, tree) for at, tree, _ in of_runs), *_gone_back_from(connection, tenant, last_runs)]
    dated += agreements.dated(connection, tenant, at - agreements.KEPT_S)
    history = dict.fromkeys(tree for _, tree in sorted(dated, reverse=True) if tree not in needed)
    whose = (*promised, *files, *((tree, who) for _, tree, who in of_runs))
    return NamedTrees(frozenset(needed), frozenset(tree for tree, _ in promised), list(history), whose)


def every_tenant(connection: Connection) -> list[str]:
    """Return the name of everybody who ever had a sandbox."""
    return list(connection.execute(select(sandboxes.c.tenant).distinct()).scalars())


_Named = list[tuple[str | None, str]]
"""Trees, and who has them for what."""


def _files(connection: Connection, tenant: str) -> _Named:
    live = select(sandboxes.c.tree, sandboxes.c.id).where((sandboxes.c.tenant == tenant) & IS_LIVE)
    return [(tree, f"sandbox {box}, as its files are now") for tree, box in connection.execute(live)]


def _promised(connection: Connection, tenant: str) -> _Named:
    here = (sandboxes.c.tenant == tenant) & IS_LIVE
    this = sandboxes.c
    found: _Named = []
    # What a fork began with is what it can be merged by.
    live = select(this.id, this.becoming, this.first_tree, this.peers).where(here)
    for box, becoming, first, peers in connection.execute(live):
        found += [
            (becoming, f"sandbox {box}, as its files are to be"),
            (first, f"sandbox {box}, as it began"),
        ]
        found += [(peer["tree"], f"sandbox {box}, as a peer") for peer in peers or ()]
    there = (snapshots.c.tenant == tenant) & snapshots.c.deleted_at.is_(None)
    taken = connection.execute(select(snapshots.c.tree, snapshots.c.id, snapshots.c.sandbox_id).where(there))
    found += [(tree, f"snapshot {snapshot} of sandbox {box}") for tree, snapshot, box in taken]
    going_on = runs.c.state.in_(sorted(state.value for state in RUN_UNFINISHED))
    begun = select(runs.c.tree_before, runs.c.id).where(runs.c.tenant == tenant, going_on)
    found += [(tree, f"run {run}, which goes on") for tree, run in connection.execute(begun)]
    return found


def _of_runs(connection: Connection, tenant: str, last_runs: int) -> list[tuple[float, str, str]]:
    place = func.row_number().over(partition_by=runs.c.sandbox_id, order_by=runs.c.number.desc())
    ranked = (
        select(runs.c.asked_at, runs.c.tree_before, runs.c.tree_after, runs.c.id, place.label("place"))
        .join(sandboxes, sandboxes.c.id == runs.c.sandbox_id)
        .where(sandboxes.c.tenant == tenant, IS_LIVE)
        .subquery()
    )
    found = connection.execute(select(ranked).where(ranked.c.place <= last_runs))
    return [
        (at, tree, f"run {run}, {side} it")
        for at, before, after, run, _ in found
        for tree, side in ((before, "before"), (after, "after"))
        if tree
    ]


def _gone_back_from(connection: Connection, tenant: str, last: int) -> list[tuple[float, str]]:
    place = func.row_number().over(partition_by=restores.c.sandbox_id, order_by=restores.c.number.desc())
    ranked = (
        select(restores.c.at, restores.c.was, place.label("place"))
        .join(sandboxes, sandboxes.c.id == restores.c.sandbox_id)
        .where(sandboxes.c.tenant == tenant, IS_LIVE)
        .subquery()
    )
    found = connection.execute(select(ranked.c.at, ranked.c.was).where(ranked.c.place <= last))
    return [(at, was) for at, was in found]
