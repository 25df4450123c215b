"""Snapshots: give the files of a sandbox a name that outlives them.

A snapshot is a row: the files are kept anyhow. What it costs is that they stay kept.
"""

import time

from petri.errors import Conflict, OverQuota
from petri.ledger import Page
from petri.model import Asker, Sandbox, Snapshot, new_id
from petri.operations import Caller, Host
from petri.operations.becoming import settled_files
from petri.operations.files import live_sandbox
from petri.operations.keeping import kept_tree
from petri.threads import in_thread


async def take(host: Host, caller: Caller, sandbox_id: str, name: str | None, asker: Asker) -> Snapshot:
    """Return a new snapshot of a sandbox's files as they are."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    await refuse_full_store(host, sandbox.tenant)
    tree = await tree_at_rest(host, sandbox)
    snapshot = Snapshot(
        new_id("snap"), sandbox.tenant, tree, sandbox.id, time.time(), name, asker, sandbox.added
    )
    return await host.ledger.add_snapshot(snapshot)


async def tree_at_rest(host: Host, sandbox: Sandbox) -> str:
    """Return the tree that a sandbox's files are, which is kept; `Conflict` while something runs."""
    await settled_files(host, sandbox)
    refuse_busy(host, sandbox)
    return await kept_tree(host, sandbox)


def refuse_busy(host: Host, sandbox: Sandbox) -> None:
    """Raise `Conflict` while something runs in a sandbox: its files are not at rest."""
    if host.desk.is_busy(sandbox.id):
        raise Conflict(f"something runs in sandbox {sandbox.id}; try again when it has ended, or cancel it")


async def refuse_full_store(host: Host, tenant: str) -> None:
    """Raise `OverQuota` if a tenant's files and all that is kept for it take as much as it may have."""
    most = host.access.quotas(tenant).disk_bytes
    if not most:
        return
    files = await host.tenant_disk.used(tenant)
    kept = await in_thread(host.store.disk_bytes, tenant)
    if files + kept >= most:
        raise OverQuota(
            f"tenant {tenant} uses {files} bytes on disk and {kept} for what is kept of its history, and its "
            f"quota `disk_bytes` is {most}: delete snapshots, files or sandboxes first"
        )


async def show(host: Host, caller: Caller, snapshot: str) -> Snapshot:
    """Return one snapshot, by its id or its name."""
    return await host.ledger.snapshot(snapshot, caller.tenant)


async def listing(
    host: Host, caller: Caller, sandbox_id: str | None, limit: int, cursor: str | None
) -> Page[Snapshot]:
    """Return a page of snapshots, of one sandbox or of all, newest first."""
    if sandbox_id is not None:
        sandbox_id = (await host.ledger.sandbox(sandbox_id, caller.tenant)).id
    return await host.ledger.snapshots(caller.tenant, sandbox_id, limit=limit, cursor=cursor)


async def delete(host: Host, caller: Caller, snapshot: str) -> None:
    """Forget a snapshot. What only it needed is swept later."""
    await host.ledger.delete_snapshot(await host.ledger.snapshot(snapshot, caller.tenant))
