"""Have the files of a sandbox become another tree: what restore, undo, fork and snapshots come down to.

It is on record before a file is touched, and stays there until the files are that tree. Meanwhile whoever
uses the files waits (`settled_files`). After a crash, or an error, it is still on record: the next one who
uses the files, or the reaper, does it then.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from petri.errors import Conflict, Invalid, NotFound, PetriError, Unavailable
from petri.ledger import Back
from petri.model import Sandbox
from petri.operations import Host
from petri.operations.looking import tree_of
from petri.store import Run, Store
from petri.threads import in_thread
from petri.trees import Entry, address
from petri.workspace import Errand

_log = logging.getLogger("petri.becoming")


async def settled_files(host: Host, sandbox: Sandbox) -> None:
    """Return once the files of a sandbox are what they are to be; raises why they cannot be.

    `Conflict`, with the way out, if trying again would not help: not `NotFound`, for the sandbox is there.
    """
    while sandbox.id in host.becomings.due:
        try:
            await asyncio.shield(settling(host, sandbox))
        except (Invalid, NotFound) as error:
            raise Conflict(
                f"the files of sandbox {sandbox.id} cannot become the tree they are to be: {error.message}; "
                "restore them to a snapshot, a run or another tree, or delete the sandbox"
            ) from error


def settling(host: Host, sandbox: Sandbox) -> asyncio.Future[None]:
    """Have somebody at work on the files of a sandbox that are to become another tree, if nobody is yet."""
    if (at_work := host.becomings.at_work.get(sandbox.id)) is not None:
        return at_work[0]
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # Nobody may be waiting when it fails; that is no fault of this future's.
    settled.add_done_callback(lambda done: done.cancelled() or done.exception())
    errand = host.workspaces.errand()
    host.becomings.failed.discard(sandbox.id)
    host.becomings.at_work[sandbox.id] = settled, errand
    host.tasks.create_task(_settle(host, sandbox, settled, errand))
    return settled


async def become(
    host: Host, sandbox: Sandbox, tree: str, kind: str, detail: Mapping[str, Any], back: Back
) -> None:
    """Have the files of a sandbox be `tree`, on record as `kind`; or raise.

    The caller has made sure, in the same breath, that nothing runs in it. What they were to be, and could
    not become, they need not be any more.
    """
    instead_of = host.becomings.due.get(sandbox.id)
    if instead_of is not None and sandbox.id not in host.becomings.failed:
        raise Conflict(f"the files of sandbox {sandbox.id} are becoming another tree already; try again")
    host.becomings.put(sandbox.id, tree)
    try:
        await host.ledger.begin_becoming(sandbox.id, tree, kind, detail, back)
    except BaseException:
        host.becomings.put(sandbox.id, instead_of)
        raise
    try:
        await asyncio.shield(settling(host, sandbox))
    except PetriError as error:
        if instead_of is None:  # else they are not to be as they were, either
            await _give_up_if_unchanged(host, sandbox, back.was, error)
        raise


async def _give_up_if_unchanged(host: Host, sandbox: Sandbox, was: str, error: PetriError) -> None:
    """Have nothing left to be done, if nothing was. What cannot be looked at is left to the reaper."""
    with suppress(PetriError):
        async with host.keeper.at_work(sandbox.id):
            tree = host.becomings.due.get(sandbox.id)
            if tree is not None and await tree_of(host, sandbox.id) == was:
                await host.ledger.give_up_becoming(sandbox.id, tree, was, error.message)
                del host.becomings.due[sandbox.id]


async def call_off(host: Host, sandbox: Sandbox) -> None:
    """Have nobody at work on files that are about to be removed."""
    host.becomings.put(sandbox.id, None)
    if (at_work := host.becomings.at_work.get(sandbox.id)) is not None:
        settled, errand = at_work
        errand.call_off()
        await asyncio.wait((settled,))


async def _settle(host: Host, sandbox: Sandbox, settled: asyncio.Future[None], errand: Errand) -> None:
    """Never raises: it shares a task group with everybody's runs."""
    try:
        async with host.becomings.turns, host.keeper.at_work(sandbox.id):
            await _become_due(host, sandbox, errand)
    except PetriError as error:
        _log.info("the files of sandbox %s are not settled: %s", sandbox.id, error.message)
        settled.set_exception(error)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("the files of sandbox %s are not settled", sandbox.id)
        settled.set_exception(Unavailable("the files could not be settled; the server's log says why"))
    else:
        settled.set_result(None)
    finally:
        host.becomings.at_work.pop(sandbox.id, None)
        if sandbox.id in host.becomings.due:
            host.becomings.failed.add(sandbox.id)
        if not settled.done():
            settled.set_exception(Unavailable("the server is stopping"))


async def _become_due(host: Host, sandbox: Sandbox, errand: Errand) -> None:
    tree = host.becomings.due.get(sandbox.id)
    if tree is None:
        return
    source = Kept(host.store, sandbox.tenant)
    owner, like = host.owner_of(sandbox), sandbox.forked_from
    try:
        await in_thread(host.workspaces.become, sandbox.id, bytes.fromhex(tree), owner, source, errand, like)
    finally:
        host.shares.forget(sandbox.id)  # what it took says nothing of what it takes
    host.keeper.kept[sandbox.id] = tree
    await host.ledger.end_becoming(sandbox.id, tree)
    if host.becomings.due.get(sandbox.id) == tree:
        del host.becomings.due[sandbox.id]


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store has of one tenant's, for a workspace to become."""

    store: Store
    tenant: str

    def folder(self, address: bytes) -> Mapping[bytes, Entry]:
        """Return a folder object, verified."""
        try:
            return self.store.get_folder(self.tenant, address)
        except NotFound as error:
            raise _not_kept(address) from error

    def content(self, digest: bytes) -> Iterator[bytes]:
        """Yield a content, verified."""
        try:
            yield from self.store.open_blob(self.tenant, digest, verify=True)
        except NotFound as error:
            raise _not_kept(digest) from error

    def changed(self, old: bytes, new: bytes) -> Iterator[tuple[int, int, int | bytes]]:
        """Yield what makes one content of the other, verified; if the old one is not kept, all of the new."""
        try:
            after = self.store.open_at(self.tenant, new)
        except NotFound as error:
            raise _not_kept(new) from error
        runs = iter([Run(0, after.size, None)])
        with suppress(NotFound):
            runs = self.store.open_at(self.tenant, old).alike(after)
        for offset, length, source in runs:
            if source is not None:
                yield offset, length, source
                continue
            for piece, part in after.parts(offset, offset + length):
                if piece is None or address(part) != piece.digest:
                    raise Unavailable(f"object {new.hex()} is damaged at {offset}")
                yield offset, len(part), part
                offset += len(part)


def _not_kept(digest: bytes) -> NotFound:
    return NotFound(
        f"object {digest.hex()} of that tree is not kept: the history of a sandbox is kept for so many runs "
        "and bytes (PETRI_UNDO_RUNS, PETRI_UNDO_BYTES), and no single file larger than 16 GiB"
    )
