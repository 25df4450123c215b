"""Turns: one run at a time in a sandbox, so many sandboxes at a time, the others in line, and nobody unseen.

Whoever finds no place waits for one, and so does a sandbox with more to run when one of its runs has ended:
at the end of its tenant's line. A place that is free goes to the tenant that holds the fewest.

Where several tenants share the host, none can take every place: beyond its first, a tenant gets one more
only while more are free than it holds. A single busy tenant so leaves half of them free, two leave a third,
and whoever comes with nothing running finds a place. With room to wait it is the same.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from petri.errors import Busy, counted
from petri.threads import first_of


@dataclass(frozen=True, slots=True)
class Share:
    """What one tenant may have of the turns."""

    tenant: str
    most_runs: int = 0
    """Its quota of runs, running and waiting; 0 is as many as it likes."""
    is_alone: bool = True
    """Whether there is no other tenant to leave places for."""


class Desk:
    """Hands out turns. A sandbox is active as long as somebody in it runs or waits."""

    def __init__(self, max_active: int, max_waiting: int) -> None:
        self._max_active = max_active
        self._max_waiting = max_waiting
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits in each active sandbox; an empty line means that one runs and nobody waits."""
        self._running: set[str] = set()
        """Those that have a place."""
        self._queues: dict[str, deque[str]] = {}
        """Those that wait for one, by tenant; first the tenant that was not given any for longest."""
        self._places: Counter[str] = Counter()
        """How many sandboxes of each tenant have a place."""
        self._runs: Counter[str] = Counter()
        """How many runs of each tenant run or wait."""
        self._shares: dict[str, Share] = {}
        """What each tenant may have, as it came last: lines that never end outlive a tenant's being alone."""
        self._on_quiet: Callable[[], None] | None = None

    def when_quiet(self, tell: Callable[[], None]) -> None:
        """Have `tell` called each time that nothing runs any more."""
        self._on_quiet = tell

    def running(self, tenant: str | None = None) -> int:
        """Return how many sandboxes run something now: a tenant's, or everybody's."""
        return len(self._running) if tenant is None else self._places[tenant]

    def waiting(self, tenant: str | None = None) -> int:
        """Return how many runs wait for their turn: a tenant's, or everybody's."""
        return (self._runs.total() if tenant is None else self._runs[tenant]) - self.running(tenant)

    def runs(self, tenant: str) -> int:
        """Return how many of a tenant's runs run or wait."""
        return self._runs[tenant]

    def is_busy(self, sandbox_id: str) -> bool:
        """Say whether something runs in that sandbox, or waits to."""
        return sandbox_id in self._lines

    def may_work_ahead(self, sandbox_id: str, processors: int) -> bool:
        """Say whether something may be done now for a later run in that sandbox.

        Where every processor has its work already, a line of runs that each have their cell made while the
        one before runs would get twice what the others get, and nobody would be served any sooner.
        """
        line = self._lines.get(sandbox_id)
        return self.running() <= processors or not line

    def take(self, sandbox_id: str, share: Share) -> "Turn":
        """Return a turn, which may have to be waited for, or raise `Busy` at once."""
        self._shares[share.tenant] = share
        self._refuse_over_quota(share)
        line = self._lines.get(sandbox_id)
        ticket = None
        if line is None and self._has_place_for(share.tenant):
            self._lines[sandbox_id] = deque()
            self._give_place(sandbox_id, share.tenant)
        else:
            self._refuse_to_wait(sandbox_id, share)
            if line is None:
                line = self._lines[sandbox_id] = deque()
                self._enqueue(sandbox_id, share.tenant)
            ticket = asyncio.get_running_loop().create_future()
            line.append(ticket)
        self._runs[share.tenant] += 1
        return Turn(self, sandbox_id, share.tenant, ticket)

    def pass_on(self, sandbox_id: str, tenant: str, ticket: asyncio.Future[None] | None) -> None:
        """End a turn, or give up waiting for it; whoever has a place now is called."""
        line = self._lines[sandbox_id]
        self._runs[tenant] -= 1
        if ticket is not None and ticket in line:
            line.remove(ticket)
        else:
            self._running.remove(sandbox_id)
            self._places[tenant] -= 1
            if line:
                self._enqueue(sandbox_id, tenant)
        if not line and sandbox_id not in self._running:
            self._forget(sandbox_id, tenant)
        self._fill_places()
        if not self._running and self._on_quiet is not None:
            self._on_quiet()

    def _fill_places(self) -> None:
        while (tenant := self._next()) is not None:
            queue = self._queues.pop(tenant)  # and from now on it stands behind the others
            sandbox_id = queue.popleft()
            if queue:
                self._queues[tenant] = queue
            self._give_place(sandbox_id, tenant)
            self._lines[sandbox_id].popleft().set_result(None)

    def _next(self) -> str | None:
        """Return which of the tenants that wait has a place now, if any has."""
        may = (tenant for tenant in self._queues if self._has_place_for(tenant))
        return min(may, key=self._places.__getitem__, default=None)

    def _give_place(self, sandbox_id: str, tenant: str) -> None:
        self._running.add(sandbox_id)
        self._places[tenant] += 1

    def _enqueue(self, sandbox_id: str, tenant: str) -> None:
        self._queues.setdefault(tenant, deque()).append(sandbox_id)

    def _forget(self, sandbox_id: str, tenant: str) -> None:
        del self._lines[sandbox_id]
        queue = self._queues.get(tenant)
        if queue is not None and sandbox_id in queue:
            queue.remove(sandbox_id)
            if not queue:
                del self._queues[tenant]

    def _has_place_for(self, tenant: str) -> bool:
        return _may_have(self._shares[tenant], self._places[tenant], self._max_active - len(self._running))

    def _refuse_over_quota(self, share: Share) -> None:
        have = self._runs[share.tenant]
        if share.most_runs and have >= share.most_runs:
            raise Busy(
                f"tenant {share.tenant} has {counted(have, 'run')} running or waiting, and its quota "
                f"`runs` is {share.most_runs}; try again when one has ended"
            )

    def _refuse_to_wait(self, sandbox_id: str, share: Share) -> None:
        """Refuse whoever would have to wait, and cannot."""
        waiting = self.waiting()
        if waiting >= self._max_waiting:
            raise Busy(
                f"{self._why_to_wait(sandbox_id, share)}, and {counted(self._max_waiting, 'run')} may wait "
                "for a turn at one time here, as many as do (PETRI_MAX_QUEUED_RUNS); try again shortly"
            )
        if not _may_have(share, self.waiting(share.tenant), self._max_waiting - waiting):
            raise Busy(
                # Not how many: what is missing of PETRI_MAX_QUEUED_RUNS then would be what others have.
                f"{self._why_to_wait(sandbox_id, share)}; tenant {share.tenant} has "
                f"{counted(self.waiting(share.tenant), 'run')} waiting, and the room there is besides "
                "(PETRI_MAX_QUEUED_RUNS) is kept for others; try again when one of its own has ended"
            )

    def _why_to_wait(self, sandbox_id: str, share: Share) -> str:
        if sandbox_id in self._lines:
            return f"something runs or waits in sandbox {sandbox_id}"
        if len(self._running) >= self._max_active:
            return (
                f"{counted(self._max_active, 'sandbox')} may run something at one time here, and as many do "
                "(PETRI_MAX_RUNS)"
            )
        return (
            f"tenant {share.tenant} runs something in {counted(self._places[share.tenant], 'sandbox')}, and "
            "the places there are besides (PETRI_MAX_RUNS) are kept for others"
        )


def _may_have(share: Share, held: int, free: int) -> bool:
    """Say whether one who holds so many of something may have one more of those that are free."""
    return free > 0 and (held == 0 or share.is_alone or free > held)


class Turn:
    """One's turn in a sandbox. Leaving the block, by whatever way, passes it on."""

    def __init__(self, desk: Desk, sandbox_id: str, tenant: str, ticket: asyncio.Future[None] | None) -> None:
        self._desk = desk
        self._sandbox_id = sandbox_id
        self._tenant = tenant
        self._ticket = ticket

    @property
    def is_now(self) -> bool:
        """Whether there is nobody to wait for."""
        return self._ticket is None or self._ticket.done()

    async def come(self, unless: asyncio.Future[None]) -> None:
        """Wait until it is our turn, or until `unless` is done."""
        if self._ticket is not None:
            await first_of(self._ticket, unless)

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.pass_on(self._sandbox_id, self._tenant, self._ticket)
