"""Go back: the files of a sandbox become what they were before a run, after it, in a snapshot, or at a tree.

What they were is kept first, and told: whoever went back can come back.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from petri.errors import Conflict, InvalidField, NotFound, PetriError, StorageFull
from petri.ledger import Back, Rewind, Side
from petri.model import Addition, Run, Sandbox, last_words
from petri.operations import Caller, Host
from petri.operations.alone import alone
from petri.operations.becoming import become, settled_files
from petri.operations.files import live_sandbox
from petri.operations.keeping import kept_tree
from petri.operations.shares import excess_of
from petri.operations.snapshots import refuse_busy
from petri.threads import in_thread
from petri.trees import EMPTY, measure


@dataclass(frozen=True, slots=True)
class Wish:
    """Where to go: exactly one of them is given."""

    snapshot: str | None = None
    run: str | None = None
    side: Side = "before"
    tree: str | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """Where the files of a sandbox came from, and what they are."""

    sandbox_id: str
    tree: str
    was: str
    run: str | None = None
    """The run that was gone back to, or behind."""
    snapshot: str | None = None
    packages_gone: tuple[str, ...] = ()
    """What runs had asked for since: later ones do not have it any more."""
    packages_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Goal:
    tree: str
    why: Mapping[str, Any] = field(default_factory=dict)
    rewind: Rewind | None = None
    added: tuple[Addition, ...] | None = None


async def restore(host: Host, caller: Caller, sandbox_id: str, wish: Wish) -> Restored:
    """Have the files of a sandbox be what `wish` names, and return what they were."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    return await _go(host, sandbox, await _goal(host, caller, sandbox, wish), "files.restore")


async def undo(host: Host, caller: Caller, sandbox_id: str) -> Restored:
    """Have the files of a sandbox be what they were before the last run that changed them and is not undone.

    Uploads since that run are undone with it, and packages that it asked for. One that asked for packages
    changed something, too.
    """
    sandbox = await live_sandbox(host, caller, sandbox_id)
    refuse_busy(host, sandbox)
    run = await host.ledger.last_to_undo(sandbox)
    if run is None:
        raise Conflict(
            f"no run of sandbox {sandbox.id} is left that changed its files or added packages, and is not "
            "undone"
        )
    return await _go(host, sandbox, _goal_of_run(run, "before"), "files.undo")


async def _goal(host: Host, caller: Caller, sandbox: Sandbox, wish: Wish) -> _Goal:
    """Return what `wish` names; `InvalidField` if that is nothing: the sandbox itself is there."""
    if wish.snapshot is not None:
        with _naming("snapshot"):
            found = await host.ledger.snapshot(wish.snapshot, caller.tenant)
        return _Goal(found.tree, {"snapshot": found.id}, added=found.added)
    if wish.run is not None:
        with _naming("run"):
            run = await host.ledger.run(wish.run, caller.tenant)
        if run.sandbox_id != sandbox.id:
            raise InvalidField("run", f"{run.id} ran in sandbox {run.sandbox_id}, not in this one")
        return _goal_of_run(run, wish.side)
    assert wish.tree is not None
    if not await host.ledger.has_been(sandbox, wish.tree):
        raise InvalidField("tree", f"the files of sandbox {sandbox.id} have never been the tree {wish.tree}")
    return _Goal(wish.tree)


@contextmanager
def _naming(field: str) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise InvalidField(field, error.message) from error


def _goal_of_run(run: Run, side: Side) -> _Goal:
    tree = run.tree_before if side == "before" else run.tree_after
    if tree is None:
        raise Conflict(f"the files {side} {run.id} are not known; it is {run.state}")
    return _Goal(tree, {"run": run.id, "side": side}, Rewind(run.id, side))


async def _go(host: Host, sandbox: Sandbox, goal: _Goal, kind: str) -> Restored:
    await refuse_unkept(host, sandbox.tenant, goal.tree)
    await _refuse_too_large(host, sandbox, goal.tree)
    with suppress(PetriError):  # what cannot be is given up for this: it is the way out
        await settled_files(host, sandbox)
    async with alone(host, sandbox):  # an upload in between would be neither in what was nor in what is
        was = await kept_tree(host, sandbox)
        back = Back(was, goal.rewind, goal.added)
        try:
            await become(host, sandbox, goal.tree, kind, {**goal.why, "was": was}, back)
        finally:
            if host.outfitter is not None:
                host.outfitter.added.pop(sandbox.id, None)  # what is on record counts again
    gone, came = await _packages_moved(host, sandbox)
    return Restored(sandbox.id, goal.tree, was, goal.why.get("run"), goal.why.get("snapshot"), gone, came)


async def _packages_moved(host: Host, sandbox: Sandbox) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which packages runs had asked for before, and do not have now, and the other way round."""
    now = await host.ledger.sandbox(sandbox.id, sandbox.tenant)
    before, after = ({each.text for each in last_words(one.added)} for one in (sandbox, now))
    return tuple(sorted(before - after)), tuple(sorted(after - before))


async def _refuse_too_large(host: Host, sandbox: Sandbox, tree: str) -> None:
    holds = await in_thread(measure, host.store.fetch(sandbox.tenant), bytes.fromhex(tree))
    if (excess := excess_of(holds, sandbox.limits)) is not None:
        raise StorageFull(f"the files {excess}; nothing was done")


async def refuse_unkept(host: Host, tenant: str, tree: str) -> None:
    """Raise `NotFound` if a tree is kept no more."""
    root = bytes.fromhex(tree)
    if root != EMPTY and not await in_thread(host.store.has, tenant, [root]):
        raise NotFound(
            f"the tree {tree} is not kept any more: of each sandbox the trees of its last runs are, as many "
            "as PETRI_UNDO_RUNS says, and all snapshots"
        )
