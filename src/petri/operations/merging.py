"""Bring what happened elsewhere into a sandbox: three trees, and what both sides changed is a conflict.

The base is the tree both come from; of a fork it is on record, and so is what was merged from it last.
Nothing is applied as long as there is a conflict, unless the caller says whose side wins. The result goes in
like any other tree (`becoming`), while nothing runs in the sandbox and nobody else writes to it.
"""

import os
from dataclasses import dataclass
from typing import Literal

from petri import trees
from petri.errors import InvalidField, NotFound, PathsConflict, StorageFull, counted
from petri.ledger import Back
from petri.model import Changes, Sandbox
from petri.operations import Caller, Host
from petri.operations.alone import alone
from petri.operations.becoming import become
from petri.operations.files import live_sandbox
from petri.operations.moments import is_sandbox, tree_meant, tree_now
from petri.operations.shares import excess_of
from petri.operations.trees import named_changes
from petri.store import Store, Writing
from petri.threads import in_thread
from petri.trees import EMPTY, PathConflict

Side = Literal["ours", "theirs"]
_NAMED = 100
_LOOKED_BACK = 2_000


@dataclass(frozen=True, slots=True)
class Merging:
    """What is to be merged."""

    theirs: str
    """A sandbox, a snapshot or a tree."""
    base: str | None = None
    prefer: Side | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it. All trees but `tree` are those that went in."""

    base: str
    ours: str
    theirs: str
    tree: str
    changes: Changes
    conflicts: list[tuple[str, str]]
    """Paths that both sides changed, and why; decided as the caller prefers."""


async def merge(host: Host, caller: Caller, sandbox_id: str, merging: Merging) -> Merged:
    """Bring the changes that lead from the base to theirs into a sandbox, all of them or none."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    async with alone(host, sandbox):
        ours = await tree_now(host, sandbox)
        theirs = await tree_meant(host, caller, sandbox, merging.theirs, "from")
        base = await _base(host, caller, sandbox, merging)
        between = _Three(bytes.fromhex(base), bytes.fromhex(ours), bytes.fromhex(theirs))
        tree, changes, conflicts = await in_thread(_merged, host.store, sandbox, between, merging.prefer)
        if tree != ours:
            detail = {"from": merging.theirs, "theirs": theirs, "base": base, "conflicts": len(conflicts)}
            await become(host, sandbox, tree, "files.merge", detail, Back(ours))
    decided = [(os.fsdecode(each.path), each.reason) for each in conflicts[:_NAMED]]
    return Merged(base, ours, theirs, tree, changes, decided)


async def _base(host: Host, caller: Caller, sandbox: Sandbox, merging: Merging) -> str:
    if merging.base is not None:
        return await tree_meant(host, caller, sandbox, merging.base, "base")
    if is_sandbox(merging.theirs):
        other = await host.ledger.sandbox(merging.theirs, caller.tenant)
        if (known := await _merged_last(host, sandbox, other) or _common(sandbox, other)) is not None:
            return known
    raise InvalidField(
        "base",
        f"nobody knows what {sandbox.id} and {merging.theirs[:_NAMED]} come from; name it by a run, a "
        "snapshot or a tree",
    )


async def _merged_last(host: Host, sandbox: Sandbox, other: Sandbox) -> str | None:
    """Return the tree of `other` that was merged into `sandbox` last: it is what they have in common."""
    for row in await host.ledger.file_history(sandbox.id, _LOOKED_BACK):
        if row.kind == "files.merge" and row.detail.get("from") == other.id:
            tree: str = row.detail["theirs"]
            return tree
    return None


def _common(sandbox: Sandbox, other: Sandbox) -> str | None:
    """Return the tree that one of the two, or both, began with."""
    if other.forked_from == sandbox.id:
        return other.first_tree or EMPTY.hex()
    if sandbox.forked_from == other.id:
        return sandbox.first_tree or EMPTY.hex()
    if sandbox.forked_from is not None and sandbox.forked_from == other.forked_from:
        return sandbox.first_tree if sandbox.first_tree == other.first_tree else None
    return None


@dataclass(frozen=True, slots=True)
class _Three:
    base: bytes
    ours: bytes
    theirs: bytes


def _merged(
    store: Store, sandbox: Sandbox, three: _Three, prefer: Side | None
) -> tuple[str, Changes, list[PathConflict]]:
    """Return the merged tree, which is kept, and how it differs from ours."""
    fetch = store.fetch(sandbox.tenant)
    with store.write(sandbox.tenant) as writing:
        try:
            tree, conflicts = _brought_together(store, sandbox, writing, three, prefer)
            if (excess := excess_of(trees.measure(fetch, tree), sandbox.limits)) is not None:
                raise StorageFull(f"merged, the files {excess}; nothing was done")
            changes = list(trees.flatten(fetch, trees.diff(fetch, three.ours, tree)))
        except NotFound as error:
            raise NotFound("one of the trees is not kept any more, or not whole") from error
        return tree.hex(), named_changes(changes), conflicts


def _brought_together(
    store: Store, sandbox: Sandbox, writing: Writing, three: _Three, prefer: Side | None
) -> tuple[bytes, list[PathConflict]]:
    fetch = store.fetch(sandbox.tenant)
    found = trees.merge(fetch, three.base, three.ours, three.theirs)
    if found.conflicts and prefer is None:
        raise _conflict(found.conflicts)
    if prefer == "theirs":
        # The other way round: what is in conflict stays as the side has it that is merged into.
        swapped = trees.merge(fetch, three.base, three.theirs, three.ours)
        tree = trees.apply(fetch, writing.put_folder, three.theirs, swapped.changes)
    else:
        tree = trees.apply(fetch, writing.put_folder, three.ours, found.changes)
    writing.commit()
    return tree, found.conflicts


def _conflict(conflicts: list[PathConflict]) -> PathsConflict:
    return PathsConflict(
        f"both sides changed {counted(len(conflicts), 'path')}, each in its own way, and nothing was done: "
        'say whose side wins by `prefer`, "ours" or "theirs", or make them agree first',
        conflicts=[(each.path, each.reason) for each in conflicts[:_NAMED]],
    )
