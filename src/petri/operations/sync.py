"""Bring a folder of a client and a sandbox together: push, pull, or both, from the tree last agreed on.

The request is taken into the tenant's store first, however long its client needs for it. Then, with nobody
else at work on the files, they are looked at, kept, and brought together with the folder's, and the sandbox
is made what comes of that: whole, on record, and only then answered.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from petri import trees
from petri.errors import BaseUnknown, Conflict, Invalid, NotFound
from petri.model import Sandbox
from petri.operations import Caller, Host
from petri.operations.becoming import Kept, settled_files, settling
from petri.operations.files import live_sandbox
from petri.operations.keeping import keep_soon
from petri.operations.looking import tree_of
from petri.operations.sync_answer import Answer, Telling, at_hand
from petri.operations.sync_drafts import Drafts
from petri.operations.sync_objects import Objects
from petri.operations.sync_request import Asked, Bounds, Taking
from petri.operations.sync_weight import NOTHING, Brought, brought
from petri.syncing import (
    LONGEST_RULES,
    Ignoring,
    Incoming,
    Meeting,
    Mode,
    Prefer,
    Settled,
    Source,
    settle,
)
from petri.threads import in_thread
from petri.trees import EMPTY, File

_TRIES = 5
_NAMED = 20
"""Paths a history row names."""
_WORTH_PUTTING_OFF = 64
"""Files. So many are put into an empty workspace behind the answer: it is on record that they are there, and
whoever uses them first waits."""
_AT_REST_S = 0.1
"""What was written so long ago is looked at once more and then known; the next who asks need not read it."""
_AGREED_AGAIN_S = 86_400.0
"""An agreement that both sides come back to is written down anew this often."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for."""

    mode: Mode
    prefer: Prefer | None = None
    dry_run: bool = False
    whole: bool = False
    """Large files are wanted as they are, not as what changed in them."""

    @property
    def changes_sandbox(self) -> bool:
        """Whether the sandbox's files may become others by it."""
        return self.mode != "pull" and not self.dry_run


@asynccontextmanager
async def begin(host: Host, caller: Caller, sandbox_id: str, wish: Wish) -> AsyncIterator["Syncing"]:
    """Hold what one sync needs: a place to work at, and the sandbox from expiring meanwhile."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    host.ledger.require_room()
    if wish.changes_sandbox:
        host.trials.refuse(sandbox.id)
        await host.tenant_disk.refuse_full(sandbox.tenant, host.access.quotas(sandbox.tenant).disk_bytes)
        await host.shares.hold(sandbox, host.owner_of(sandbox))
    async with host.benches.bench(sandbox.id, "syncing"):
        host.uploads[sandbox.id] += 1
        syncing = Syncing(host, sandbox, wish)
        try:
            yield syncing
        finally:
            syncing.drafts.end()
            host.uploads[sandbox.id] -= 1
            if host.uploads[sandbox.id] == 0:
                del host.uploads[sandbox.id]


async def held(host: Host, caller: Caller, sandbox_id: str, question: bytes) -> bytes:
    """Answer which contents the caller's tenant has, of those in question."""
    sandbox = await live_sandbox(host, caller, sandbox_id)
    return await in_thread(host.begun_contents.held, sandbox.tenant, question)


class Syncing:
    """One sync of one sandbox."""

    def __init__(self, host: Host, sandbox: Sandbox, wish: Wish) -> None:
        self._host = host
        self._sandbox = sandbox
        self._wish = wish
        self._objects = Objects(host.store, sandbox.tenant)
        self._asked = Asked(EMPTY, EMPTY)
        self._brings = NOTHING
        self._at_hand: frozenset[bytes] = frozenset()
        self.drafts = Drafts(host, sandbox)

    def take(self, source: Source, grow: Callable[[int], None]) -> None:
        """Take the request, in a thread. What came before `source` raised `BrokenOff` is in the store.

        `grow` is told now and then how much memory its records take; it raises `Busy` if that is too much.
        """
        limits = self._sandbox.limits
        records = 4 * limits.inodes + 1000
        bounds = Bounds(records, limits.disk_bytes, self._host.workspaces.refuse_without, grow)
        if self._wish.changes_sandbox:
            bounds = replace(bounds, foresee=self.drafts.begin)
        taking = Taking(
            self._host.store, self._sandbox.tenant, self._host.begun_contents, self._objects, bounds
        )
        # Paths and such, beside the contents: 4 KiB a record would be as long as they can be.
        self._asked = taking.run(Incoming(source, most_bytes=limits.disk_bytes + 512 * records))

    async def settle(self) -> Answer:
        """Make the sandbox what comes of the sync, and return the answer."""
        host, sandbox = self._host, self._sandbox
        writing = host.trials.writing(sandbox.id) if self._wish.changes_sandbox else nullcontext()
        with writing:
            settled = await self._when_at_rest()
        telling = Telling(not self._wish.dry_run, not self._wish.whole, self._at_hand)
        answer = (host.store, sandbox.tenant, self._objects, self._asked.folder, settled, telling)
        return await in_thread(Answer, *answer)

    async def _when_at_rest(self) -> Settled:
        """Settle once the files are what they are to be, with nobody else at work on them."""
        host, sandbox = self._host, self._sandbox
        while True:
            await settled_files(host, sandbox)
            async with host.keeper.at_work(sandbox.id):
                if sandbox.id not in host.becomings.due:
                    return await self._settled()

    async def _settled(self) -> Settled:
        failed = Conflict(f"the files of sandbox {self._sandbox.id} do not come to rest; try again")
        for _ in range(_TRIES):
            is_restless = self._host.desk.is_busy(self._sandbox.id)
            current = await self._current(is_restless=is_restless)
            settled = await in_thread(self._bring_together, current)
            if self._wish.dry_run:
                return settled
            if settled.sandbox == current:
                await self._agree(settled)
                return settled
            try:
                if await self._change(current, settled, is_restless=is_restless):
                    return settled
            except Conflict as error:  # something wrote to a path that was to change
                failed = error
        raise failed

    # ---------------------------------------------------------------------------------- what there is

    async def _current(self, *, is_restless: bool) -> bytes:
        """Return the tree that the sandbox is now, which is in the store."""
        host, sandbox = self._host, self._sandbox
        tree = await tree_of(host, sandbox.id, restless=is_restless)
        if host.keeper.kept.get(sandbox.id) != tree:
            tree = (await in_thread(self._keep, is_restless=is_restless)).hex()
            if not is_restless:
                host.keeper.kept[sandbox.id] = tree
        return bytes.fromhex(tree)

    def _keep(self, *, is_restless: bool) -> bytes:
        with self._host.store.write(self._sandbox.tenant) as writing:
            tree = self._host.workspaces.keep(self._sandbox.id, writing, restless=is_restless)
            writing.commit()
            return tree

    def _bring_together(self, current: bytes) -> Settled:
        """Return what becomes of everybody. In a thread."""
        agreed, folder, _ = self._asked
        fetch, put = self._objects.fetch, self._objects.put
        met = Meeting(fetch, put, agreed, folder, current, Ignoring(self._rules))
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime()).encode()
        settled = settle(met, self._wish.mode, self._wish.prefer, stamp)
        if not self._wish.dry_run:
            self._brings = brought(fetch, current, settled.sandbox)
            self._require_contents(self._brings)
            self._at_hand = at_hand(self._objects.fetch, folder, settled.folder, self._has)
            with self._host.store.write(self._sandbox.tenant) as writing:
                self._objects.keep(writing, settled.sandbox, settled.agreed)
                writing.commit()
        return settled

    def _require_contents(self, brings: Brought) -> None:
        """Refuse if the store lacks what comes to the sandbox."""
        there = self._has(set(brings.files))
        for digest, (path, file) in brings.files.items():
            if digest not in there:
                raise BaseUnknown(f"the content {digest.hex()} is not known here, or no more")
            self._check_claim(path, file)

    def _has(self, digests: set[bytes]) -> set[bytes]:
        return self._host.store.has(self._sandbox.tenant, digests)

    def _check_claim(self, path: bytes, file: File) -> None:
        if file.digest in self._asked.claims:
            size = self._host.store.size(self._sandbox.tenant, file.digest)
            if size != file.size:
                raise Invalid(f"{path!r} has {size} bytes, not {file.size} as the sync says")

    def _rules(self, path: bytes) -> bytes | None:
        """Return what the folder's ignore file at `path` says; if its content did not come, as agreed on."""
        for tree in (self._asked.folder, self._asked.agreed):
            entry = trees.find(self._objects.fetch, tree, path)
            if isinstance(entry, File) and entry.size <= LONGEST_RULES:
                try:
                    return self._host.store.get(self._sandbox.tenant, entry.digest)
                except NotFound:
                    continue
        return None

    # ----------------------------------------------------------------------------- what comes of it

    async def _change(self, current: bytes, settled: Settled, *, is_restless: bool) -> bool:
        """Have the sandbox be what was settled; say whether it still was what it had been."""
        host, sandbox = self._host, self._sandbox
        brings = self._brings
        most = host.access.quotas(sandbox.tenant).disk_bytes
        async with (
            host.tenant_disk.room_for(brings.growth_bytes, sandbox.tenant, most),
            host.shares.taking_in(sandbox, host.owner_of(sandbox), brings),
        ):
            detail = self._told(brings, settled)
            if current == EMPTY and not is_restless and brings.count >= _WORTH_PUTTING_OFF:
                await self._put_off(settled, detail)
                return True
            turn = (current, settled.sandbox)
            source = Kept(host.store, sandbox.tenant)
            owner = host.owner_of(sandbox)
            drafts = await self.drafts.made()
            if not await in_thread(
                host.workspaces.step, sandbox.id, turn, owner, source, restless=is_restless, drafts=drafts
            ):
                return False
            if not is_restless:
                host.keeper.kept[sandbox.id] = settled.sandbox.hex()
            await self._record(settled, detail)
        keep_soon(host, sandbox, after_s=_AT_REST_S)
        return True

    async def _put_off(self, settled: Settled, detail: dict[str, object]) -> None:
        """Have it on record that the sandbox is to be what was settled, and somebody at work on it."""
        host, sandbox, tree = self._host, self._sandbox, settled.sandbox.hex()
        agreed = settled.agreed.hex()
        host.becomings.due[sandbox.id] = tree
        try:
            await host.ledger.begin_becoming(sandbox.id, tree, "files.synced", detail, agreed=agreed)
        except BaseException:
            host.becomings.due.pop(sandbox.id, None)
            raise
        host.agreed[sandbox.id] = settled.agreed, time.time()
        settling(host, sandbox)

    async def _record(self, settled: Settled, detail: dict[str, object]) -> None:
        now = time.time()
        agreed = settled.agreed.hex()
        await self._host.ledger.agree(self._sandbox.id, agreed, now, kind="files.synced", detail=detail)
        self._host.agreed[self._sandbox.id] = settled.agreed, now

    async def _agree(self, settled: Settled) -> None:
        """Have the agreement on record, unless it is."""
        now = time.time()
        self._host.used[self._sandbox.id] = now
        known, at = self._host.agreed.get(self._sandbox.id, (b"", 0.0))
        if known != settled.agreed or now - at > _AGREED_AGAIN_S:
            await self._host.ledger.agree(self._sandbox.id, settled.agreed.hex(), now)
            self._host.agreed[self._sandbox.id] = settled.agreed, now

    def _told(self, brings: Brought, settled: Settled) -> dict[str, object]:
        return {
            "mode": self._wish.mode,
            "count": brings.count,
            "bytes": brings.size,
            "paths": [path.decode(errors="replace") for path in brings.paths[:_NAMED]],
            "conflicts": len(settled.conflicts),
            "tree": settled.sandbox.hex(),
        }
