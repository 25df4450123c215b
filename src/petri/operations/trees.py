"""A workspace's tree before and after: what a run did to the files, on record."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from petri.errors import PetriError
from petri.model import Changes, Run, Sandbox
from petri.operations import Host
from petri.operations.becoming import settled_files
from petri.operations.keeping import kept_tree_at_work
from petri.operations.looking import tree_of
from petri.trees import Change

_log = logging.getLogger("petri.trees")
_NAMED = 1_000
"""Paths of changes in a run's row; a run that unpacks a million files says how many they were."""


async def before(host: Host, sandbox: Sandbox, run: Run) -> Run:
    """Return `run` with the tree it starts from, which is kept; what changes from now on is its doing."""
    while True:
        await settled_files(host, sandbox)
        async with host.keeper.at_work(sandbox.id):
            if sandbox.id in host.becomings.due:
                continue  # since a moment ago
            if sandbox.lifetime == "ephemeral":
                tree = await tree_of(host, sandbox.id)
            else:
                tree = await kept_tree_at_work(host, sandbox)
            host.workspaces.mark(sandbox.id)
            return replace(run, tree_before=tree)


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
