"""Sweep the store: of each tenant's trees those that somebody may still go back to stay, within a budget.

What must stay: the trees that live sandboxes are, are to be, or started a run from, and all snapshots. What
stays as far as it fits into the budget: the trees of the last runs of each live sandbox, newest first, and
those that somebody went back from. All else goes, once nobody has put or asked for it in the grace period.
"""

import logging
import time
from dataclasses import dataclass, field, replace

from petri.errors import PetriError
from petri.operations import Host
from petri.store import Spare, Swept
from petri.threads import in_own_thread

_log = logging.getLogger("petri.sweeping")
_FORGET_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Stand:
    """What a tenant had when it was looked at, since when, and whether nothing is left to be done."""

    what: object
    since: float
    is_done: bool = False


@dataclass(slots=True)
class Sweeper:
    """Sweeps one tenant after the other, and leaves alone those with whom nothing has changed."""

    host: Host
    _stands: dict[str, _Stand] = field(default_factory=dict)

    async def sweep_all(self) -> None:
        """Sweep the store of everybody who may have something that goes."""
        for tenant in await self.host.ledger.every_tenant():
            try:
                await self._sweep_if_needed(tenant)
            except PetriError as error:
                _log.warning("what tenant %s needs no more could not be swept: %s", tenant, error.message)
        grace_s = self.host.policy.remembering.grace_s
        await in_own_thread(self.host.store.release, 2 * max(_FORGET_S, grace_s))

    async def _sweep_if_needed(self, tenant: str) -> None:
        stand = await self._stand(tenant)
        if stand.is_done:
            return
        swept = await sweep(self.host, tenant)
        if swept.dropped:
            _log.info(
                "tenant %s: %d objects swept, %d bytes freed, %d trees let go for want of room",
                *(tenant, swept.dropped, swept.freed_bytes, len(swept.let_go)),
            )
        # What is young goes only at a later look: this was the last one if nothing can be young any more.
        is_old = time.monotonic() - stand.since > self.host.policy.remembering.grace_s
        self._stands[tenant] = replace(await self._stand(tenant), since=stand.since, is_done=is_old)

    async def _stand(self, tenant: str) -> _Stand:
        needed, history = await trees_of(self.host, tenant)
        what = (await in_own_thread(self.host.store.disk_bytes, tenant), needed, tuple(history))
        last = self._stands.get(tenant)
        return last if last is not None and last.what == what else _Stand(what, time.monotonic())


async def sweep(host: Host, tenant: str) -> Swept:
    """Drop what a tenant needs no more."""
    needed, history = await trees_of(host, tenant)
    remembering = host.policy.remembering
    spare = Spare([bytes.fromhex(tree) for tree in history], remembering.undo_bytes)
    roots = [bytes.fromhex(tree) for tree in needed]
    return await in_own_thread(host.store.gc, tenant, roots, remembering.grace_s, spare)


async def trees_of(host: Host, tenant: str) -> tuple[frozenset[str], list[str]]:
    """Return the trees of a tenant that must stay, and those that may, newest first."""
    named = await host.ledger.named_trees(tenant, host.policy.remembering.undo_runs)
    live = await host.ledger.live(tenant)
    kept = {tree for sandbox_id, tree in host.keeper.kept.items() if sandbox_id in live}
    return named.needed | kept, named.history
