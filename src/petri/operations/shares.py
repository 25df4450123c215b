"""Each sandbox's share of the disk: what it takes of it, and whether there is room for more.

Where the file system has project quotas the kernel holds the limits, and one call tells the use. Everywhere
else a count of the files is the truth, and takes up to a second; how full the whole disk is can be known in a
microsecond. So the disk is looked at often: what a workspace held when it was counted, and all by which the
disk grew while a run of it lived, are the most it can hold. Only when that is too much, it is counted again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakValueDictionary

from petri.errors import NotFound, StorageFull, counted
from petri.model import Limits, Sandbox
from petri.tally import Tally
from petri.threads import in_own_thread, in_thread
from petri.trees import Totals
from petri.workspace import Space, Weight, Workspaces

_QUICK = 1_000
"""Names that are counted here and now, in a few milliseconds."""
_LEAST_GRACE = Weight(1 << 30, 20_000)
_COUNTS_AT_ONCE = 4
_MOST_KNOWN = 256
_NOTHING = Weight(0, 0)

Count = Callable[[str, int, int], Tally]
"""Counts a folder, and what a cell has deleted and still holds, until it is more bytes or names. Blocks."""


class Incoming(Protocol):
    """What is about to be put into a workspace."""

    def weight(self) -> Weight:
        """Return what it brings at most."""
        ...

    def replaces(self) -> Weight:
        """Return what goes for it. Blocks."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """What a workspace held at one moment."""

    used: Weight
    at: float
    """Seconds since the epoch."""
    since: Weight = _NOTHING
    """By how much the disk has grown since then while runs of it lived: at most that came to it."""
    took_s: float = 0.0
    hidden: bool = False
    """Whether a cell held files that could not be counted."""

    @property
    def at_most(self) -> Weight:
        """What it may hold by now."""
        return self.used + self.since


class Shares:
    """What every sandbox takes of the disk, as far as it was measured."""

    def __init__(self, workspaces: Workspaces, count: Count) -> None:
        self._workspaces = workspaces
        self._count = count
        self._counting = asyncio.Semaphore(_COUNTS_AT_ONCE)
        self._measured: dict[str, Measured] = {}
        self._living: dict[str, Weight] = {}
        """Sandboxes with a run, and how far the disk had grown when that was last added to what is known."""
        self._seen = workspaces.space()
        self._grown = _NOTHING
        self._taking_in: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._held: set[str] = set()
        """Whom the kernel holds to its share since this server began."""

    # ------------------------------------------------------------------------------- the disk as a whole

    def look(self) -> Space:
        """Return how full the disk is now, and remember by how much it has grown."""
        space = self._workspaces.space()
        grown_bytes = max(0, space.used_bytes - self._seen.used_bytes)
        grown_inodes = max(0, space.used_inodes - self._seen.used_inodes)
        if grown_bytes or grown_inodes:
            self._grown += Weight(grown_bytes, grown_inodes)
        self._seen = space
        return space

    def is_short(self) -> bool:
        """Say whether the host needs for itself what is left."""
        return self.look().is_short(self._workspaces.reserve_bytes)

    def has_quota(self, owner: int | None) -> bool:
        """Say whether the kernel holds the limits of what belongs to `owner`."""
        return self._workspaces.holding.quota is not None and owner is not None

    # ---------------------------------------------------------------------------------- one workspace's life

    def open(self, sandbox_id: str, owner: int | None, limits: Limits) -> None:
        """Make a workspace, held to its share, and know what it takes. Blocks."""
        self._workspaces.create(sandbox_id, owner)
        self._workspaces.hold(sandbox_id, owner, share_of(limits))
        self._keep(sandbox_id, self._workspaces.tally(sandbox_id, _QUICK), self._grown)

    async def hold(self, sandbox: Sandbox, owner: int | None) -> None:
        """Have the kernel hold a workspace to its share, where it can: one from before it could, too."""
        if self.has_quota(owner) and sandbox.id not in self._held:
            share = share_of(sandbox.limits)
            await in_own_thread(self._workspaces.hold, sandbox.id, owner, share)
            self._held.add(sandbox.id)

    def begin(self, sandbox_id: str) -> Space:
        """Hold what the disk grows by, from now on, against a sandbox: a run of it begins."""
        space = self.look()
        self._living[sandbox_id] = self._grown
        return space

    def end(self, sandbox_id: str) -> None:
        """The run has ended, and what the disk grows by is no more of its doing."""
        self._catch_up(sandbox_id)
        self._living.pop(sandbox_id, None)

    def close(self, sandbox_id: str, owner: int | None) -> None:
        """Have no such workspace any more, and nothing known of it. Blocks."""
        self._workspaces.remove(sandbox_id)
        self._workspaces.release(owner)
        self._measured.pop(sandbox_id, None)
        self._held.discard(sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Know no more what a workspace takes: it is another by now."""
        self._measured.pop(sandbox_id, None)

    def _catch_up(self, sandbox_id: str) -> None:
        """Add to what is known of a sandbox with a run what the disk grew by since the last time."""
        last = self._living.get(sandbox_id)
        if last is None:
            return
        self.look()
        self._living[sandbox_id] = self._grown
        known = self._measured.get(sandbox_id)
        if known is not None and last != self._grown:
            self._measured[sandbox_id] = replace(known, since=known.since + (self._grown - last))

    # ----------------------------------------------------------------------------------- what it takes

    def known(self, sandbox_id: str, owner: int | None) -> Measured | None:
        """Return the last measure, brought up to now; where there are quotas, a new one."""
        if owner is not None and self.has_quota(owner):
            measured = Measured(self._workspaces.used(owner), time.time())
            self._measured[sandbox_id] = measured
            return measured
        self._catch_up(sandbox_id)
        return self._measured.get(sandbox_id)

    def remembered(self, sandbox_id: str) -> Measured | None:
        """Return the last measure as it was. For lists: costs nothing."""
        return self._measured.get(sandbox_id)

    async def show(self, sandbox_id: str, owner: int | None) -> Measured | None:
        """Return what a workspace takes now if that is quick to tell, else what it took at last."""
        try:
            return await self.quick(sandbox_id, owner) or self.known(sandbox_id, owner)
        except NotFound:
            return None

    async def quick(self, sandbox_id: str, owner: int | None) -> Measured | None:
        """Return what a workspace takes now, deleted files left out, or None if it is too large for that."""
        if self.has_quota(owner):
            return self.known(sandbox_id, owner)
        self.look()
        before = self._grown
        counted = await in_thread(self._workspaces.tally, sandbox_id, _QUICK)
        return self._keep(sandbox_id, counted, before) if counted.whole else None

    async def measure(self, sandbox_id: str, owner: int | None, share: Weight) -> Measured:
        """Return what a workspace takes now; of what is far more than `share`, only that it is more."""
        if owner is not None and self.has_quota(owner):
            return Measured(self._workspaces.used(owner), time.time())
        async with self._counting:
            self.look()
            before, begun = self._grown, time.monotonic()
            folder = str(self._workspaces.folder(sandbox_id))
            most = hopeless(share)
            counted = await in_own_thread(self._count, folder, most.disk_bytes, most.inodes)
            return self._keep(sandbox_id, counted, before, time.monotonic() - begun)

    def _keep(self, sandbox_id: str, counted: Tally, before: Weight, took_s: float = 0.0) -> Measured:
        """Remember a count. What the disk grew by since `before` it began may not be in it."""
        used = Weight(counted.disk_bytes, counted.inodes)
        measured = Measured(used, time.time(), self._grown - before, took_s, counted.hidden)
        self._measured.pop(sandbox_id, None)
        self._measured[sandbox_id] = measured  # behind all others
        if sandbox_id in self._living:
            self._living[sandbox_id] = self._grown
        self._forget_the_oldest()
        return measured

    def _forget_the_oldest(self) -> None:
        """Keep in mind those that are in use: a thousand that do nothing must cost nothing."""
        if len(self._measured) > _MOST_KNOWN:
            oldest = next((each for each in self._measured if each not in self._living), None)
            if oldest is not None:
                del self._measured[oldest]

    # ------------------------------------------------------------------------------------------ refusals

    async def refuse_if_hopeless(self, sandbox: Sandbox, owner: int | None) -> None:
        """Refuse a run in a workspace that is far over its limits: runs have only made it worse.

        Over them by less, a run may begin: it may be the one that deletes.
        """
        await self.hold(sandbox, owner)
        share = share_of(sandbox.limits)
        known = self.known(sandbox.id, owner) or await self.show(sandbox.id, owner)
        if known is None or known.at_most.fits(hopeless(share)):
            return
        measured = await self._measure_at_rest(sandbox.id, owner, share)
        if not measured.used.fits(hopeless(share)):
            then = "nothing is run in it any more until you delete files"
            raise _full(sandbox, measured.used, measured.used, then)

    @asynccontextmanager
    async def taking_in(self, sandbox: Sandbox, owner: int | None, intake: Incoming) -> AsyncIterator[None]:
        """Put an upload into its workspace in here; refused if it does not fit beside what is there."""
        # One at a time: two that fit, but not both, would otherwise both find room.
        async with self._taking_in.setdefault(sandbox.id, asyncio.Lock()):
            brings = intake.weight()
            await self._refuse_without_room(sandbox, owner, intake, brings)
            yield
            if known := self._measured.get(sandbox.id):
                self._measured[sandbox.id] = replace(known, since=known.since + brings)

    async def _refuse_without_room(
        self, sandbox: Sandbox, owner: int | None, intake: Incoming, brings: Weight
    ) -> None:
        share, known = share_of(sandbox.limits), self.known(sandbox.id, owner)
        # Where the kernel counts, it has counted already what is staged.
        counted = brings if self.has_quota(owner) else _NOTHING
        if known is not None and (known.at_most - counted + brings).fits(share):
            return
        used = (await self._measure_at_rest(sandbox.id, owner, share)).used - counted
        net = brings - await in_thread(intake.replaces)
        # What makes a workspace smaller is welcome, however full it is.
        if not (used + net).fits(share) and not net.fits(_NOTHING):
            raise _full(sandbox, used, used + net, _what_fits(share, used, brings))

    async def _measure_at_rest(self, sandbox_id: str, owner: int | None, share: Weight) -> Measured:
        return await self.quick(sandbox_id, owner) or await self.measure(sandbox_id, owner, share)


def share_of(limits: Limits) -> Weight:
    """Return what a workspace may take."""
    return Weight(limits.disk_bytes, limits.inodes)


def excess_of(holds: Totals, limits: Limits) -> str | None:
    """Return by what a tree is more than a sandbox may hold, in words; None if it fits."""
    names = holds.files + holds.links + holds.folders
    if holds.size <= limits.disk_bytes and names <= limits.inodes:
        return None
    return (
        f"are {counted(holds.size, 'byte')} in {names} files, links and folders, and this sandbox may hold "
        f"{limits.disk_bytes} in {limits.inodes}: raise limits.disk_bytes and limits.inodes"
    )


def hopeless(share: Weight) -> Weight:
    """Return how far over its share a workspace may be and still be run in."""
    return share + share.or_more(_LEAST_GRACE)


def _what_fits(share: Weight, used: Weight, brings: Weight) -> str:
    left = (share - used).or_more(_NOTHING)
    return (
        f"the upload brings {_said(brings)}, and {_said(left)} would fit: delete some, or raise the limit; "
        "nothing was written"
    )


def _said(weight: Weight) -> str:
    return f"{counted(weight.disk_bytes, 'byte')} and {counted(weight.inodes, 'file')}"


def _full(sandbox: Sandbox, used: Weight, would_use: Weight, then: str) -> StorageFull:
    share = share_of(sandbox.limits)
    field = "limits.disk_bytes" if would_use.disk_bytes > share.disk_bytes else "limits.inodes"
    return StorageFull(f"the workspace of {sandbox.id} holds {used.of(share)}; {then}", field=field)
