"""A workspace's tree before and after: what a run did to the files, on record."""

import logging
from dataclasses import replace

from petri.errors import PetriError
from petri.model import Changes, Run, Sandbox
from petri.operations import Host
from petri.threads import in_thread
from petri.workspace import TooMuch

_log = logging.getLogger("petri.trees")
_NAMED = 1_000
"""Paths of changes in a run's row; a run that unpacks a million files says how many they were."""


async def tree_of(host: Host, sandbox_id: str, *, restless: bool = False) -> str:
    """Return the address of the tree that a workspace is now. `restless`: something may run in it."""
    try:
        # Next to nothing has changed, most of the time: a thread would cost more than the look.
        tree = host.workspaces.look(sandbox_id, quick=True, restless=restless)
    except TooMuch:
        tree = await in_thread(host.workspaces.look, sandbox_id, restless=restless)
    return tree.hex()


def tree_if_quick(host: Host, sandbox_id: str) -> str | None:
    """Return the address of the tree that a workspace is now, if that takes next to no reading."""
    try:
        is_busy = host.desk.is_busy(sandbox_id)
        return host.workspaces.look(sandbox_id, quick=True, restless=is_busy).hex()
    except (TooMuch, PetriError):
        return None


async def before(host: Host, run: Run) -> Run:
    """Return `run` with the tree it starts from; what changes from now on is its doing."""
    tree = await tree_of(host, run.sandbox_id)
    host.workspaces.mark(run.sandbox_id)
    return replace(run, tree_before=tree)


async def after(host: Host, sandbox: Sandbox) -> tuple[str | None, Changes | None]:
    """Return the tree a run ended with, and what it changed; nothing if the files cannot be read.

    A look that fails must not cost the run its ending: how it ended is known, and goes on record.
    """
    try:
        tree = await tree_of(host, sandbox.id)
    except PetriError as error:
        _log.warning("the files of sandbox %s could not be looked at: %s", sandbox.id, error.message)
        return None, None
    return tree, changes_of(host, sandbox.id)


def changes_of(host: Host, sandbox_id: str) -> Changes:
    """Return what is different since the run began, as of the last look, the first thousand paths by name."""
    found = host.workspaces.changes(sandbox_id)
    named = [(change.path.decode(errors="replace"), change) for change in found[:_NAMED]]
    return Changes(
        added=tuple(path for path, change in named if change.old is None),
        modified=tuple(path for path, change in named if change.old is not None and change.new is not None),
        deleted=tuple(path for path, change in named if change.new is None),
        left_out=len(found) - len(named),
    )
