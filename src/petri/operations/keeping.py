"""Keep the tree of a workspace in the store, so that it can be had again.

A run's command does not start before the tree it starts from is kept. What a change leaves is kept soon, in
the background, so that the next run finds nothing to do: then keeping costs a look and a comparison. Runs in
ephemeral sandboxes are the exception: nobody can go back to what is gone after its first run.
"""

import asyncio
import logging
from contextlib import suppress

from petri.errors import NotFound, PetriError
from petri.model import Sandbox
from petri.operations import Host
from petri.operations.looking import tree_of
from petri.threads import in_thread

_log = logging.getLogger("petri.keeping")
_SOON_S = 0.02
"""Several uploads in a row are kept once."""


async def keep(host: Host, sandbox: Sandbox) -> str:
    """Have the tree that a workspace is now in the store, durably, and return it. Nothing may run in it."""
    async with host.keeper.at_work(sandbox.id):
        return await keep_at_work(host, sandbox)


async def keep_at_work(host: Host, sandbox: Sandbox) -> str:
    """Do what `keep` does, for those who are at work on the workspace already."""
    tree = (await in_thread(_keep, host, sandbox)).hex()
    host.keeper.kept[sandbox.id] = tree
    host.keeper.owed.discard(sandbox.id)
    return tree


async def keep_owed(host: Host, sandbox: Sandbox) -> None:
    """Have what the last run of a sandbox left kept before somebody changes it; a full disk does without."""
    if sandbox.id in host.keeper.owed and not host.desk.is_busy(sandbox.id):
        with suppress(PetriError):
            await keep(host, sandbox)


async def kept_tree(host: Host, sandbox: Sandbox) -> str:
    """Return the tree that a workspace is now, which is kept. Nothing may run in it."""
    async with host.keeper.at_work(sandbox.id):
        return await kept_tree_at_work(host, sandbox)


async def kept_tree_at_work(host: Host, sandbox: Sandbox) -> str:
    """Do what `kept_tree` does, for those who are at work on the workspace already."""
    tree = await tree_of(host, sandbox.id)
    return tree if host.keeper.kept.get(sandbox.id) == tree else await keep_at_work(host, sandbox)


def _keep(host: Host, sandbox: Sandbox) -> bytes:
    with host.store.write(sandbox.tenant) as writing:
        tree = host.workspaces.keep(sandbox.id, writing)
        writing.commit()
        return tree


def keep_soon(host: Host, sandbox: Sandbox, *, after_s: float = _SOON_S) -> None:
    """Have the files of a sandbox kept in the background: they have just changed."""
    if sandbox.lifetime == "ephemeral" or sandbox.id in host.keeper.due or host.draining:
        return
    host.keeper.due.add(sandbox.id)
    host.tasks.create_task(_keep_soon(host, sandbox, after_s))


async def _keep_soon(host: Host, sandbox: Sandbox, after_s: float) -> None:
    """Never raises: it shares a task group with all runs, and the next of them keeps what this could not."""
    try:
        await asyncio.sleep(after_s)
        host.keeper.due.discard(sandbox.id)
        async with host.keeper.at_work(sandbox.id):
            # What runs keeps nothing still, and has its files kept when it has ended.
            if not host.desk.is_busy(sandbox.id) and sandbox.id not in host.becomings.due:
                await host.ledger.set_tree(sandbox.id, await keep_at_work(host, sandbox))
    except NotFound:
        pass  # deleted since
    except PetriError as error:
        _log.info("the files of sandbox %s are not kept yet: %s", sandbox.id, error.message)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("the files of sandbox %s are not kept yet", sandbox.id)
    finally:
        host.keeper.due.discard(sandbox.id)
