"""An end to runs that fill the disk: looked at twenty times a second, counted only when in doubt.

A run that ends within the first twentieth of a second is looked at once, when it ends.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from petri.errors import PetriError
from petri.model import Limits, Outcome
from petri.operations.shares import Measured, Shares, share_of
from petri.workspace import Weight

_log = logging.getLogger("petri.watch")
_LOOK_S = 0.05
_OLD_S = 10.0
"""A count older than this is made again, in case somebody's freeing has hidden somebody else's growing."""
_IDLE_FOR_BUSY = 100
"""But not so often that counting takes more than one part in so many of a processor."""
_SHORT_S = 0.5
"""How often a run is counted while the disk is short."""
_SCRAPS = Weight(1 << 20, 64)
"""What a run may add to a workspace that was over its limits before it began: a log, a few locks."""
_NEARLY = Weight(1 << 16, 0)
"""Where a quota refuses one more block, so much may be left: a file system gives out several at a time."""


_NEARLY_EMPTY = 16
"""Of a workspace that holds less than one part in so many of its share, no file can be large."""


class Watch:
    """Looks after the disk of one run while it lives, and says in the end whether it was full."""

    def __init__(self, shares: Shares, sandbox_id: str, owner: int | None, limits: Limits) -> None:
        self._shares = shares
        self._sandbox_id = sandbox_id
        self._owner = owner
        self._share = share_of(limits)
        known = shares.known(sandbox_id, owner)
        self._began_with = known.used if known else None
        self._began_on = shares.begin(sandbox_id)
        self._doubt = known.since if known else Weight(0, 0)
        self.file_bytes = self._largest_file(known)
        """How large a file may become in this run, if that is less than its whole share of the disk."""
        self._when_short: Weight | None = None
        """What the workspace held when this run was first counted on a disk that is short."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._has_ended_it = False
        self._says: str | None = None

    def begin(self, tasks: asyncio.TaskGroup, end: Callable[[], None]) -> None:
        """Look after the run until `stop`; `end` it if it must end. Costs next to nothing for a short one."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_LOOK_S, lambda: tasks.create_task(self._keep(end)))

    def stop(self) -> None:
        """Look no longer: the run is over. A count under way comes to its end by itself."""
        self._is_over = True
        self._shares.end(self._sandbox_id)
        if self._timer is not None:
            self._timer.cancel()

    async def conclude(self, outcome: Outcome) -> Outcome:
        """Return how the run ended, with what there is to say of its disk."""
        if outcome.cancelled and not self._has_ended_it:
            return outcome
        try:
            if self._has_ended_it:
                await self._weigh()  # it wrote on until it was dead; the next run is judged by what it left
            elif self._says is None and self._may_be_over():
                await self._measure()
            said = self._says or self._said_by_quota() or await self._said_by_limit()
        except PetriError as error:  # how the run ended is known, whatever became of its disk
            _log.warning("the disk of sandbox %s could not be read: %s", self._sandbox_id, error.message)
            said = self._says
        return outcome if said is None else replace(outcome, cancelled=False, disk_full=True, remark=said)

    async def _keep(self, end: Callable[[], None]) -> None:
        """Look again and again. Never raises: it shares a task group with every run."""
        while not self._is_over:
            try:
                await asyncio.sleep(await self._look())
            except PetriError as error:
                _log.warning("the disk of sandbox %s could not be read: %s", self._sandbox_id, error.message)
                await asyncio.sleep(_OLD_S)
            if self._says is not None and not self._is_over:
                self._has_ended_it = True
                end()
                return

    async def _look(self) -> float:
        """Count if that is worth it; return how long to wait before the next look."""
        if not self._may_be_over() and not self._is_worth_a_count():
            return _LOOK_S
        begun = time.monotonic()
        await self._measure()
        if self._says is not None:
            return 0
        pause_s = _SHORT_S if self._shares.is_short() else _LOOK_S
        return max(pause_s, time.monotonic() - begun)

    def _may_be_over(self) -> bool:
        """Say whether the workspace may hold more than it may, as far as one can tell without a count."""
        known = self._shares.known(self._sandbox_id, self._owner)
        return known is not None and not known.at_most.fits(self._ceiling())

    def _is_worth_a_count(self) -> bool:
        """Say whether nobody has counted for long, or the disk is short and still filling."""
        known = self._shares.known(self._sandbox_id, self._owner)
        if known is None or (self._shares.is_short() and not known.since.fits(_SCRAPS)):
            return True
        return time.time() - known.at > max(_OLD_S, known.took_s * _IDLE_FOR_BUSY)

    async def _measure(self) -> None:
        """Count, and judge."""
        measured = await self._weigh()
        if self._began_with is None:
            self._began_with = measured.used
        self._says = self._judge(measured)

    async def _weigh(self) -> Measured:
        measured = await self._shares.quick(self._sandbox_id, self._owner)
        if measured is None or not (self._is_over or self._explains(measured)):
            measured = await self._shares.measure(self._sandbox_id, self._owner, self._share)
        return measured

    def _explains(self, measured: Measured) -> bool:
        """Say whether a count of what has a name leaves no room for much that has none.

        A cell may hold files that it has deleted. They are somewhere in what the disk has grown by since the
        run began: if the rest of that would not matter, nobody need look for them.
        """
        if self._began_with is None:
            return False
        if not measured.used.fits(self._ceiling()):
            return True
        return (measured.used + self._unexplained(measured)).fits(self._ceiling())

    def _unexplained(self, measured: Measured) -> Weight:
        """Return what the disk holds more than when the run began, and that has no name in the workspace."""
        assert self._began_with is not None
        space, named = self._shares.look(), measured.used - self._began_with
        grown_bytes = space.used_bytes - self._began_on.used_bytes - named.disk_bytes
        grown_inodes = space.used_inodes - self._began_on.used_inodes - named.inodes
        return Weight(grown_bytes, grown_inodes).or_more(Weight(0, 0))

    def _judge(self, measured: Measured) -> str | None:
        """Return why the run must end, if it must."""
        used = measured.used
        if measured.hidden:  # files that nobody can count are taken for what nobody can explain
            used += self._unexplained(measured)
        if not used.fits(self._ceiling()):
            return f"the workspace holds more than it may: {used.of(self._share)}"
        if not self._shares.is_short():
            return None
        if self._when_short is None:
            self._when_short = used
        if used.fits(self._when_short + _SCRAPS):
            return None
        return "the disk that holds the workspaces is nearly full (PETRI_DISK_RESERVE_BYTES)"

    def _ceiling(self) -> Weight:
        """Return what the workspace may come to: what it may hold, or hardly more than it held before."""
        if self._began_with is None or self._began_with.fits(self._share):
            return self._share
        return self._share.or_more(self._began_with + _SCRAPS)

    def _largest_file(self, known: Measured | None) -> int | None:
        """Return how large a file may become for all of it to fit, where the kernel does not see to that.

        Then whoever writes one file until there is no room is told so by an error and need not be ended. Only
        in a workspace that is nearly empty: a large file that is there already could not be written to.
        """
        if known is None or self._shares.has_quota(self._owner):
            return None
        share, taken = self._share.disk_bytes, known.at_most.disk_bytes
        return share - taken - _NEARLY.disk_bytes if taken < share // _NEARLY_EMPTY else None

    async def _said_by_limit(self) -> str | None:
        """Say so if one file became as large as it could."""
        known = self._shares.known(self._sandbox_id, self._owner)
        if known is None or self.file_bytes is None:
            return None
        slack = _NEARLY + _NEARLY + self._doubt
        if (known.at_most + slack).disk_bytes <= self._share.disk_bytes:
            return None
        measured = await self._shares.measure(self._sandbox_id, self._owner, self._share)
        is_full = (measured.used + slack).disk_bytes > self._share.disk_bytes
        return f"the workspace is full: {measured.used.of(self._share)}" if is_full else None

    def _said_by_quota(self) -> str | None:
        if not self._shares.has_quota(self._owner):
            return None
        known = self._shares.known(self._sandbox_id, self._owner)
        if known is None:
            return None
        is_full = not (known.used + _NEARLY).fits(self._share) or known.used.inodes >= self._share.inodes
        return f"the workspace is full: {known.used.of(self._share)}" if is_full else None
