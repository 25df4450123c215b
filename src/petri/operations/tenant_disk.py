"""What each tenant's files take, measured, and the room that is left.

Measuring walks a workspace, so a figure is kept until the sandbox is used again, and while something runs
in it for some seconds. An exec looks at the last sum alone. What runs write between two looks is bounded
by their sandboxes' own limits, not by this quota: it says who may go on, not how far one step may go.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from petri.errors import NotFound, OverQuota
from petri.ledger import Ledger
from petri.operations.access import Access
from petri.threads import in_thread

_log = logging.getLogger("petri.tenant_disk")
_LOOK_S = 5.0
"""A run that fills the disk is noticed after this long at most, and the time the walk takes."""


@dataclass(frozen=True, slots=True)
class _Figure:
    size: int
    at: float
    """When it began to be measured: what was written since may be missing."""


class TenantDisk:
    """Knows what tenants use."""

    def __init__(self, ledger: Ledger, measure: Callable[[str], int], is_busy: Callable[[str], bool]) -> None:
        self._ledger = ledger
        self._measure = measure
        self._is_busy = is_busy
        self._figures: dict[str, dict[str, _Figure]] = {}
        self._sums: dict[str, int] = {}
        self._promised: Counter[str] = Counter()
        """Bytes of uploads that were let in and are not in place yet, by tenant."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def used(self, tenant: str) -> int:
        """Return the bytes on disk of a tenant's live sandboxes, as far as they are not too old."""
        known = self._figures.get(tenant, {})
        live = await self._ledger.live(tenant)
        self._figures[tenant] = {
            sandbox_id: await self._figure(sandbox_id, used_at, known.get(sandbox_id))
            for sandbox_id, used_at in live.items()
        }
        self._sums[tenant] = sum(figure.size for figure in self._figures[tenant].values())
        return self._sums[tenant]

    async def refuse_full(self, tenant: str, most: int) -> None:
        """Raise `OverQuota` if a tenant uses `most` already; 0 is as much as it likes.

        While it does not, as far as the last look says, this is a look into memory.
        """
        if most and self._sums.get(tenant, most) >= most and (used := await self.used(tenant)) >= most:
            raise _full(tenant, used, most)

    @asynccontextmanager
    async def room_for(self, size: int, tenant: str, most: int) -> AsyncIterator[None]:
        """Hold room for `size` bytes more while they are put in place, or raise `OverQuota`.

        Of several at once that together are too many, the later ones are refused.
        """
        if not most:
            yield
            return
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            promised = self._promised[tenant]  # before measuring: what is put in place meanwhile counts
            used = await self.used(tenant) + promised
            if used + size > most:
                raise _full(tenant, used, most, size)
            self._promised[tenant] += size
        try:
            yield
        finally:
            self._promised[tenant] -= size

    async def _figure(self, sandbox_id: str, used_at: float, known: _Figure | None) -> _Figure:
        at = time.time()
        if known is not None and self._is_fresh(sandbox_id, used_at, known, at):
            return known
        try:
            return _Figure(await in_thread(self._measure, sandbox_id), at)
        except NotFound:
            return _Figure(0, at)  # not made yet, or gone just now

    def _is_fresh(self, sandbox_id: str, used_at: float, known: _Figure, now: float) -> bool:
        if self._is_busy(sandbox_id):
            return now - known.at < _LOOK_S
        return known.at > used_at


def _full(tenant: str, used: int, most: int, more: int = 0) -> OverQuota:
    wanted = f", {more} more would be too many" if more else ""
    return OverQuota(
        f"tenant {tenant} uses {used} bytes on disk, and its quota `disk_bytes` is {most}{wanted}: delete "
        "files or sandboxes first, or ask an administrator for more"
    )


async def measure_forever(disk: TenantDisk, access: Access) -> None:
    """Keep an eye on what bounded tenants use. Runs until cancelled."""
    while True:
        for tenant, _ in access.bound_on_disk():
            try:
                await disk.used(tenant)
            except Exception:  # noqa: BLE001 - the next look may succeed; the server must not end over this one
                _log.exception("what tenant %s uses on disk could not be measured", tenant)
        await asyncio.sleep(_LOOK_S)
