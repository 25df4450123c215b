"""A run whose changes are thrown away, or kept only if it succeeds (`keep`): a transaction by going back.

The run works on the real files. That they are to be as before is on record from before its command starts,
so a crash anywhere ends there too. When it has ended, its changes are looked at and kept in the store, where
they can be compared; then they stay, or the files become the tree from before.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from petri.errors import PetriError, StorageFull, counted
from petri.model import Outcome, Run, Sandbox
from petri.operations import Host, LiveRun
from petri.operations.becoming import settled_files
from petri.operations.keeping import keep
from petri.operations.shares import hopeless, share_of
from petri.threads import in_thread

_log = logging.getLogger("petri.trial")


def may_go_back(sandbox: Sandbox, run: Run, *, may_repeat: bool) -> bool:
    """Say whether the files may have to be as before a run; an ephemeral sandbox has none in the end."""
    return sandbox.lifetime != "ephemeral" and (run.keep != "always" or may_repeat)


@asynccontextmanager
async def trial(host: Host, sandbox: Sandbox, live: LiveRun) -> AsyncIterator[None]:
    """Have the files as they were before the run, in the end, if its changes are not to be kept.

    Meanwhile nobody else writes to them; nor if it may be repeated, for which they go back as well.
    """
    async with host.trials.under_way(sandbox.id):
        try:
            yield
        finally:
            if live.run.keep != "always" and not live.run.kept:
                await _go_back(host, sandbox, live.run)


async def refuse_large(host: Host, sandbox: Sandbox, live: LiveRun) -> None:
    """Refuse a run after which more might have to be written than the sandbox may hold, and then some.

    One content under a thousand names takes the disk once, until all but one of them are to be put back.
    """
    size, most = await in_thread(host.workspaces.size, sandbox.id), hopeless(share_of(sandbox.limits))
    if size > most.disk_bytes:
        raise StorageFull(
            f"to have the files as before this run could take {counted(size, 'byte')}, holes and those with "
            f"several names in full, and {most.disk_bytes} is too much for limits.disk_bytes: raise that, or "
            "run it with `keep` and `missing` as they are by themselves",
            field="limits.disk_bytes",
        )


async def verdict(host: Host, sandbox: Sandbox, run: Run, outcome: Outcome, tree: str | None) -> bool:
    """Say whether what a run did to the files, which are `tree` now, is to stay."""
    if sandbox.lifetime == "ephemeral":
        return False
    if run.keep == "always" or (run.keep == "on_success" and outcome.is_success):
        return True
    if tree not in (None, run.tree_before):
        await _remember(host, sandbox)
    return False


async def _remember(host: Host, sandbox: Sandbox) -> None:
    """Have what is about to be thrown away in the store, to be compared; a full disk does without."""
    try:
        await keep(host, sandbox)
    except PetriError as error:
        _log.warning("what a run did in sandbox %s cannot be shown: %s", sandbox.id, error.message)


async def _go_back(host: Host, sandbox: Sandbox, run: Run) -> None:
    """Have the files as before `run`. What fails is still on record: whoever uses them next tries again."""
    if run.tree_before in (None, run.tree_after):
        return
    host.becomings.due[sandbox.id] = run.tree_before
    try:
        await settled_files(host, sandbox)
    except PetriError as error:
        _log.warning("sandbox %s is not yet as before %s: %s", sandbox.id, run.id, error.message)
