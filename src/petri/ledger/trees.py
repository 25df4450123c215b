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


def named_trees(connection: Connection, tenant: str, last_runs: int, at: float) -> NamedTrees:
    """Return the trees of a tenant: those that must stay, and those of its last runs in each sandbox.

    With the latter come those that clients agreed on not too long before `at`.
    """
    promised = {tree for tree in _promised(connection, rows.text(tenant)) if tree}
    needed = promised | {tree for tree in _files(connection, rows.text(tenant)) if tree}
    dated = [*_of_runs(connection, tenant, last_runs), *_gone_back_from(connection, tenant, last_runs)]
    dated += agreements.dated(connection, tenant, at - agreements.KEPT_S)
    history = dict.fromkeys(tree for _, tree in sorted(dated, reverse=True) if tree not in needed)
    return NamedTrees(frozenset(needed), frozenset(promised), list(history))


def every_tenant(connection: Connection) -> list[str]:
    """Return the name of everybody who ever had a sandbox."""
    return list(connection.execute(select(sandboxes.c.tenant).distinct()).scalars())


def _files(connection: Connection, tenant: str) -> list[str | None]:
    live = select(sandboxes.c.tree).where((sandboxes.c.tenant == tenant) & IS_LIVE)
    return list(connection.execute(live).scalars())


def _promised(connection: Connection, tenant: str) -> list[str | None]:
    here = (sandboxes.c.tenant == tenant) & IS_LIVE
    # What a fork began with is what it can be merged by.
    live = select(sandboxes.c.becoming, sandboxes.c.first_tree).where(here)
    found = [tree for row in connection.execute(live) for tree in row]
    seen = connection.execute(select(sandboxes.c.peers).where(here, sandboxes.c.peers.is_not(None))).scalars()
    found += [peer["tree"] for peers in seen for peer in peers]
    there = (snapshots.c.tenant == tenant) & snapshots.c.deleted_at.is_(None)
    found += connection.execute(select(snapshots.c.tree).where(there)).scalars()
    going_on = runs.c.state.in_(sorted(state.value for state in RUN_UNFINISHED))
    found += connection.execute(select(runs.c.tree_before).where(runs.c.tenant == tenant, going_on)).scalars()
    return found


def _of_runs(connection: Connection, tenant: str, last_runs: int) -> list[tuple[float, str]]:
    place = func.row_number().over(partition_by=runs.c.sandbox_id, order_by=runs.c.number.desc())
    ranked = (
        select(runs.c.asked_at, runs.c.tree_before, runs.c.tree_after, place.label("place"))
        .join(sandboxes, sandboxes.c.id == runs.c.sandbox_id)
        .where(sandboxes.c.tenant == tenant, IS_LIVE)
        .subquery()
    )
    found = connection.execute(select(ranked).where(ranked.c.place <= last_runs))
    return [(at, tree) for at, before, after, _ in found for tree in (before, after) if tree]


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
