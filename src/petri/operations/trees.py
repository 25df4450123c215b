"""A workspace's tree before and after: what a run did to the files, on record."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from petri.errors import PetriError
from petri.model import Changes, Run, Sandbox
from petri.operations import Host
from petri.operations.becoming import settled_files
from petri.operations.keeping import kept_tree_at_work
from petri.operations.looking import Glimpse, tree_of
from petri.trees import Change

_log = logging.getLogger("petri.trees")
_NAMED = 1_000
"""Paths of changes in a run's row; a run that unpacks a million files says how many they were."""


async def before(host: Host, sandbox: Sandbox, run: Run, seen: Glimpse | None = None) -> Run:
    """Return `run` with the tree it starts from, which is kept; what changes from now on is its doing.

    `seen`: the files as the run found them a moment ago; while that is fresh, from then on.
    """
    while True:
        await settled_files(host, sandbox)
        async with host.keeper.at_work(sandbox.id):
            if sandbox.id in host.becomings.due:
                continue  # since a moment ago
            if seen is not None and _is_still(host, sandbox, seen):
                return replace(run, tree_before=seen.tree)
            if sandbox.lifetime == "ephemeral":
                tree = await tree_of(host, sandbox.id)
            else:
                tree = await kept_tree_at_work(host, sandbox)
            host.workspaces.mark(sandbox.id)
            return replace(run, tree_before=tree)


def _is_still(host: Host, sandbox: Sandbox, seen: Glimpse) -> bool:
    """Say whether `seen` will do, having begun to note what changes from then on.

    Not if somebody else has looked since: what they found different would be nobody's doing.
    """
    is_kept = sandbox.lifetime == "ephemeral" or host.keeper.kept.get(sandbox.id) == seen.tree
    return is_kept and seen.is_fresh and host.workspaces.mark(sandbox.id, bytes.fromhex(seen.tree))


async def after(host: Host, sandbox: Sandbox) -> tuple[str | None, Changes | None]:
    """Return the tree a run ended with, and what it changed; nothing if the files cannot be read.

    A look that fails must not cost the run its ending: how it ended is known, and goes on record.
    """
    try:
        async with host.keeper.at_work(sandbox.id):
            tree = await tree_of(host, sandbox.id)
            changes = changes_of(host, sandbox.id)
            if sandbox.lifetime != "ephemeral" and tree != host.keeper.kept.get(sandbox.id):
                host.keeper.owed.add(sandbox.id)
    except PetriError as error:
        _log.warning("the files of sandbox %s could not be looked at: %s", sandbox.id, error.message)
        return None, None
    return tree, changes


def changes_of(host: Host, sandbox_id: str) -> Changes:
    """Return what is different since the run began, as of the last look, the first thousand paths by name."""
    return named_changes(host.workspaces.changes(sandbox_id))


def named_changes(found: Sequence[Change]) -> Changes:
    """Return changes as the record has them: the first thousand by name, the rest counted."""
    named = [(change.path.decode(errors="replace"), change) for change in found[:_NAMED]]
    return Changes(
        added=tuple(path for path, change in named if change.old is None),
        modified=tuple(path for path, change in named if change.old is not None and change.new is not None),
        deleted=tuple(path for path, change in named if change.new is None),
        left_out=len(found) - len(named),
    )
