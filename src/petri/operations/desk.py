"""Turns: one run at a time in a sandbox, a bounded number of sandboxes at a time, nobody waits unseen.

Where several tenants share the host, none can take every place: beyond its first, a tenant gets one more
only while more are free than it holds. A single busy tenant so leaves half of them free, two leave a third,
and whoever comes with nothing running finds a place.
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
    """Hands out turns. A sandbox holds its place for as long as somebody in it runs or waits."""

    def __init__(self, max_active: int, max_waiting: int) -> None:
        self._max_active = max_active
        self._max_waiting = max_waiting
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits in each active sandbox; an empty line means that one runs and nobody waits."""
        self._places: Counter[str] = Counter()
        """How many sandboxes each tenant has active."""
        self._runs: Counter[str] = Counter()
        """How many runs of each tenant run or wait."""
        self._on_quiet: Callable[[], None] | None = None

    def when_quiet(self, tell: Callable[[], None]) -> None:
        """Have `tell` called each time that nothing runs any more."""
        self._on_quiet = tell

    def running(self, tenant: str | None = None) -> int:
        """Return how many sandboxes run something now: a tenant's, or everybody's."""
        return len(self._lines) if tenant is None else self._places[tenant]

    def waiting(self, tenant: str | None = None) -> int:
        """Return how many runs wait for their turn: a tenant's, or everybody's."""
        return (self._runs.total() if tenant is None else self._runs[tenant]) - self.running(tenant)

    def runs(self, tenant: str) -> int:
        """Return how many of a tenant's runs run or wait."""
        return self._runs[tenant]

    def is_busy(self, sandbox_id: str) -> bool:
        """Say whether something runs in that sandbox."""
        return sandbox_id in self._lines

    def may_work_ahead(self, sandbox_id: str, processors: int) -> bool:
        """Say whether something may be done now for a later run in that sandbox.

        Where every processor has its work already, a line of runs that each have their cell made while the
        one before runs would get twice what the others get, and nobody would be served any sooner.
        """
        return self.running() <= processors or not self._lines.get(sandbox_id)

    def take(self, sandbox_id: str, share: Share) -> "Turn":
        """Return a turn, which may have to be waited for, or raise `Busy` at once."""
        line = self._lines.get(sandbox_id)
        self._refuse_over_quota(share)
        if line is None:
            self._refuse_without_place(share)
            self._lines[sandbox_id] = deque()
            self._places[share.tenant] += 1
            ticket = None
        else:
            self._refuse_long_line(line)
            ticket = asyncio.get_running_loop().create_future()
            line.append(ticket)
        self._runs[share.tenant] += 1
        return Turn(self, sandbox_id, share.tenant, ticket)

    def _refuse_over_quota(self, share: Share) -> None:
        have = self._runs[share.tenant]
        if share.most_runs and have >= share.most_runs:
            raise Busy(
                f"tenant {share.tenant} has {counted(have, 'run')} running or waiting, and its quota "
                f"`runs` is {share.most_runs}; try again when one has ended"
            )

    def _refuse_without_place(self, share: Share) -> None:
        free, held = self._max_active - len(self._lines), self._places[share.tenant]
        if free < 1:
            raise Busy(
                f"{counted(self._max_active, 'sandbox')} may run something at one time here, and as many do "
                "(PETRI_MAX_RUNS); try again shortly"
            )
        if held and not share.is_alone and held >= free:
            raise Busy(
                # Not how many: what is missing of PETRI_MAX_RUNS then would be what others run.
                f"tenant {share.tenant} runs something in {counted(held, 'sandbox')}, and those that may be "
                "active besides (PETRI_MAX_RUNS) are kept for others; try again when one of them has ended"
            )

    def _refuse_long_line(self, line: deque[asyncio.Future[None]]) -> None:
        if len(line) >= self._max_waiting:
            raise Busy(
                f"{counted(len(line), 'run')} may wait in this sandbox at one time, and as many do "
                "(PETRI_MAX_QUEUED_RUNS); try again shortly"
            )

    def pass_on(self, sandbox_id: str, tenant: str, ticket: asyncio.Future[None] | None) -> None:
        """End a turn, or give up waiting for it; the next in line is called."""
        line = self._lines[sandbox_id]
        self._runs[tenant] -= 1
        if ticket is not None and ticket in line:
            line.remove(ticket)
        elif line:
            line.popleft().set_result(None)
        else:
            del self._lines[sandbox_id]
            self._places[tenant] -= 1
            if not self._lines and self._on_quiet is not None:
                self._on_quiet()


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
