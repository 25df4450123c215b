"""Turns: one run at a time in a sandbox, a bounded number of sandboxes at a time, nobody waits unseen."""

import asyncio
from collections import deque
from types import TracebackType

from petri.errors import Busy


class Desk:
    """Hands out turns. A sandbox holds its place for as long as somebody in it runs or waits."""

    def __init__(self, max_active: int, max_waiting: int) -> None:
        self._max_active = max_active
        self._max_waiting = max_waiting
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits in each active sandbox; an empty line means that one runs and nobody waits."""

    @property
    def running(self) -> int:
        """How many sandboxes run something now."""
        return len(self._lines)

    @property
    def waiting(self) -> int:
        """How many runs wait for their turn."""
        return sum(len(line) for line in self._lines.values())

    def is_busy(self, sandbox_id: str) -> bool:
        """Say whether something runs in that sandbox."""
        return sandbox_id in self._lines

    def take(self, sandbox_id: str) -> "Turn":
        """Return a turn, which may have to be waited for, or raise `Busy` at once."""
        line = self._lines.get(sandbox_id)
        if line is None:
            if len(self._lines) >= self._max_active:
                raise Busy(
                    f"{self._max_active} sandboxes are running something, which is as many as may here "
                    "(PETRI_MAX_RUNS); try again shortly"
                )
            self._lines[sandbox_id] = deque()
            return Turn(self, sandbox_id, None)
        if len(line) >= self._max_waiting:
            raise Busy(
                f"{len(line)} runs wait in this sandbox already, which is as many as may "
                "(PETRI_MAX_QUEUED_RUNS); try again shortly"
            )
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(ticket)
        return Turn(self, sandbox_id, ticket)

    def pass_on(self, sandbox_id: str, ticket: asyncio.Future[None] | None) -> None:
        """End a turn, or give up waiting for it; the next in line is called."""
        line = self._lines[sandbox_id]
        if ticket is not None and ticket in line:
            line.remove(ticket)
        elif line:
            line.popleft().set_result(None)
        else:
            del self._lines[sandbox_id]


class Turn:
    """One's turn in a sandbox. Leaving the block, by whatever way, passes it on."""

    def __init__(self, desk: Desk, sandbox_id: str, ticket: asyncio.Future[None] | None) -> None:
        self._desk = desk
        self._sandbox_id = sandbox_id
        self._ticket = ticket

    @property
    def is_now(self) -> bool:
        """Whether there is nobody to wait for."""
        return self._ticket is None or self._ticket.done()

    async def come(self, unless: asyncio.Future[None]) -> None:
        """Wait until it is our turn, or until `unless` is done."""
        if self._ticket is not None:
            await asyncio.wait((self._ticket, unless), return_when=asyncio.FIRST_COMPLETED)

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.pass_on(self._sandbox_id, self._ticket)
