"""Put files into a sandbox, and look at them, take them out and delete them.

The steps are the workspace's; here they meet the lifecycle and the ledger. Files are read and written in
threads: a slow disk must not hold up everybody else.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass

from petri.errors import Conflict, StorageFull
from petri.model import Sandbox, State
from petri.operations import Caller, Host
from petri.operations.becoming import settled_files
from petri.operations.keeping import keep_owed, keep_soon
from petri.operations.looking import tree_if_quick
from petri.operations.next_cell import at_upload
from petri.threads import in_thread
from petri.workspace import ArchiveKind, Errand, Intake, Listing, OpenFile, Written, names_a_digest

_LISTED = 10_000
_NAMED = 20
"""Paths a history row names; a row about ten thousand files says how many they were."""
_NOTED_S = 30
"""Reading is noted in the ledger this often at most."""


async def live_sandbox(host: Host, caller: Caller, sandbox_id: str) -> Sandbox:
    """Return a sandbox whose files can be used now."""
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    if sandbox.state is not State.READY:
        raise Conflict(f"sandbox {sandbox.id} is {sandbox.state}; its files are gone or not there yet")
    return sandbox


@asynccontextmanager
async def receive(host: Host, sandbox: Sandbox) -> AsyncIterator[Intake]:
    """Hold open where an upload is staged; nothing of it is seen in the workspace before `commit`."""
    host.ledger.require_room()
    host.trials.refuse(sandbox.id)
    await settled_files(host, sandbox)
    await host.tenant_disk.refuse_full(sandbox.tenant, host.access.quotas(sandbox.tenant).disk_bytes)
    await host.shares.hold(sandbox, host.owner_of(sandbox))
    at_upload(host, sandbox)
    host.uploads[sandbox.id] += 1
    intake = host.workspaces.receive(sandbox.id, host.owner_of(sandbox), sandbox.limits.disk_bytes)
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


@asynccontextmanager
async def receive_to_unpack(host: Host, sandbox: Sandbox) -> AsyncIterator[Intake]:
    """Hold open where an upload of archives is staged; `Busy` if too many are being unpacked here."""
    async with host.benches.bench(sandbox.id, "unpacking"), receive(host, sandbox) as intake:
        yield intake


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
    async with (
        host.tenant_disk.room_for(intake.size, sandbox.tenant, most),
        host.shares.taking_in(sandbox, host.owner_of(sandbox), intake),
        _bench_to_judge(host, sandbox, if_match, if_none_match),
    ):
        await settled_files(host, sandbox)
        await keep_owed(host, sandbox)
        with host.trials.writing(sandbox.id):
            written = await in_thread(intake.commit, if_match=if_match, if_none_match=if_none_match)
        detail = {
            "count": len(written),
            "bytes": sum(file.size for file in written),
            "paths": [file.path for file in written[:_NAMED]],
            "tree": tree_if_quick(host, sandbox.id),
        }
        await host.ledger.note(sandbox.id, "files.written", detail, at=time.time())
    keep_soon(host, sandbox)
    return written


async def look(
    host: Host, caller: Caller, sandbox_id: str, path: str, errand: Errand, *, recursive: bool
) -> Listing:
    """Return what is in a folder."""
    sandbox = await _used(host, caller, sandbox_id)
    listing = host.workspaces.list
    return await in_thread(listing, sandbox.id, path, recursive=recursive, limit=_LISTED, errand=errand)


async def open_file(
    host: Host, caller: Caller, sandbox_id: str, path: str, errand: Errand, *conditions: str | None
) -> OpenFile:
    """Return a file opened for reading, its version told as `conditions` need it; the caller closes it."""
    sandbox = await _used(host, caller, sandbox_id)
    file = await in_thread(host.workspaces.open, sandbox.id, path)
    try:
        if file.wants_hashing(*conditions):
            async with host.benches.bench(sandbox.id, "hashing"):
                await in_thread(file.hash, errand)
    except BaseException:
        file.close()
        raise
    return file


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder as an archive, made while it is read."""

    pieces: Iterator[bytes]
    close: Callable[[], Awaitable[None]]
    """To be called when no more pieces are wanted, or when there are none."""


async def archive(
    host: Host, caller: Caller, sandbox_id: str, path: str, kind: ArchiveKind, errand: Errand
) -> Archive:
    """Return a folder as an archive; the caller closes it."""
    sandbox = await _used(host, caller, sandbox_id)
    async with AsyncExitStack() as held:
        await held.enter_async_context(host.benches.bench(sandbox.id, "archiving"))
        pieces = await in_thread(host.workspaces.archive, sandbox.id, path, kind, errand)
        return Archive(pieces, held.pop_all().aclose)


async def delete(
    host: Host, caller: Caller, sandbox_id: str, path: str, if_match: str | None, errand: Errand
) -> None:
    """Delete a file, a link, or a folder with everything in it."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    await settled_files(host, sandbox)
    await keep_owed(host, sandbox)
    async with _bench_to_judge(host, sandbox, if_match):
        with host.trials.writing(sandbox.id):
            await in_thread(host.workspaces.delete, sandbox.id, path, if_match=if_match, errand=errand)
    detail = {"path": path, "tree": tree_if_quick(host, sandbox.id)}
    await host.ledger.note(sandbox.id, "files.deleted", detail, at=time.time())
    keep_soon(host, sandbox)


def _bench_to_judge(
    host: Host, sandbox: Sandbox, *conditions: str | None
) -> AbstractAsyncContextManager[None]:
    """Return a bench if `conditions` may have to be judged by hashing what is there."""
    return host.benches.bench(sandbox.id, "hashing") if names_a_digest(*conditions) else nullcontext()


async def _used(host: Host, caller: Caller, sandbox_id: str) -> Sandbox:
    """Return a sandbox whose files can be used now, and have it noted that they are."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    await _note_use(host, sandbox)
    await settled_files(host, sandbox)
    return sandbox


async def _note_use(host: Host, sandbox: Sandbox) -> None:
    """Remember that a sandbox is in use; on disk only now and then, since reading should stay cheap."""
    now = time.time()
    host.used[sandbox.id] = now
    pause_s = min(_NOTED_S, (sandbox.idle_s or _NOTED_S) / 10)
    if now - sandbox.last_active_at > pause_s:
        with suppress(StorageFull):  # a full disk is no reason not to read from it
            await host.ledger.touch(sandbox.id, now)
