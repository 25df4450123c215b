"""Put files into a sandbox, and look at them, take them out and delete them.

The steps are the workspace's; here they meet the lifecycle and the ledger. Files are read and written in
threads: a slow disk must not hold up everybody else.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

from petri.errors import Conflict
from petri.model import Sandbox, State
from petri.operations import Caller, Host
from petri.threads import in_thread
from petri.workspace import ArchiveKind, Entry, Intake, Listing, OpenFile, Written

_LISTED = 10_000
_NAMED = 20
"""Paths a history row names; a row about ten thousand files says how many they were."""
_NOTED_S = 30
"""Reading is noted in the ledger this often at most."""

T = TypeVar("T")


async def live_sandbox(host: Host, caller: Caller, sandbox_id: str) -> Sandbox:
    """Return a sandbox whose files can be used now."""
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    if sandbox.state is not State.READY:
        raise Conflict(f"sandbox {sandbox.id} is {sandbox.state}; its files are gone or not there yet")
    return sandbox


@asynccontextmanager
async def receive(host: Host, sandbox: Sandbox) -> AsyncIterator[Intake]:
    """Hold open where an upload is staged; nothing of it is seen in the workspace before `commit`."""
    await host.disk.refuse_full(sandbox.tenant, host.access.quotas(sandbox.tenant).disk_bytes)
    host.uploads[sandbox.id] += 1
    intake = host.workspaces.receive(sandbox.id, host.owner_of(sandbox))
    try:
        await in_thread(intake.__enter__)
        try:
            yield intake
        finally:
            await in_thread(intake.__exit__)
    finally:
        host.uploads[sandbox.id] -= 1
        if host.uploads[sandbox.id] == 0:
            del host.uploads[sandbox.id]


async def commit(
    host: Host,
    sandbox: Sandbox,
    intake: Intake,
    *,
    if_match: str | None = None,
    if_none_match: str | None = None,
) -> list[Written]:
    """Make everything in `intake` appear in the workspace, whole, durable and on record."""
    most = host.access.quotas(sandbox.tenant).disk_bytes
    async with host.disk.room_for(intake.size, sandbox.tenant, most):
        written = await in_thread(intake.commit, if_match=if_match, if_none_match=if_none_match)
        detail = {
            "count": len(written),
            "bytes": sum(file.size for file in written),
            "paths": [file.path for file in written[:_NAMED]],
        }
        await host.ledger.note(sandbox.id, "files.written", detail, at=time.time())
    return written


async def look(host: Host, caller: Caller, sandbox_id: str, path: str, *, recursive: bool) -> Listing:
    """Return what is in a folder."""
    return await _read(
        host,
        caller,
        sandbox_id,
        lambda: host.workspaces.list(sandbox_id, path, recursive=recursive, limit=_LISTED),
    )


async def entry(host: Host, caller: Caller, sandbox_id: str, path: str) -> Entry:
    """Return what is at `path`, without following a link there."""
    return await _read(host, caller, sandbox_id, lambda: host.workspaces.entry(sandbox_id, path))


async def open_file(host: Host, caller: Caller, sandbox_id: str, path: str) -> OpenFile:
    """Return a file opened for reading; the caller closes it."""
    return await _read(host, caller, sandbox_id, lambda: host.workspaces.open(sandbox_id, path))


async def archive(
    host: Host, caller: Caller, sandbox_id: str, path: str, kind: ArchiveKind
) -> Iterator[bytes]:
    """Return a folder as an archive, made while it is read."""
    return await _read(host, caller, sandbox_id, lambda: host.workspaces.archive(sandbox_id, path, kind))


async def delete(host: Host, caller: Caller, sandbox_id: str, path: str, if_match: str | None) -> None:
    """Delete a file, a link, or a folder with everything in it."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    await in_thread(host.workspaces.delete, sandbox.id, path, if_match=if_match)
    await host.ledger.note(sandbox.id, "files.deleted", {"path": path}, at=time.time())


async def _read(host: Host, caller: Caller, sandbox_id: str, ask: Callable[[], T]) -> T:
    sandbox = await live_sandbox(host, caller, sandbox_id)
    await _note_use(host, sandbox)
    return await in_thread(ask)


async def _note_use(host: Host, sandbox: Sandbox) -> None:
    """Remember that a sandbox is in use; on disk only now and then, since reading should stay cheap."""
    now = time.time()
    host.used[sandbox.id] = now
    pause_s = min(_NOTED_S, (sandbox.idle_s or _NOTED_S) / 10)
    if now - sandbox.last_active_at > pause_s:
        await host.ledger.touch(sandbox.id, now)
