"""Sandboxes that were read and have not changed since: each exec begins with one, most with the same few.

What a transaction changes is forgotten before it is committed, and not remembered anew until it is over: so
nobody who was told of a change, or saw it, is ever shown what was before.
"""

import threading
from collections.abc import Awaitable, Callable

from petri.model import Sandbox

_MOST = 256
_MOST_CHARS = 4_096
"""Of what callers put into a sandbox; one with more is read each time, lest a few fill the memory."""


class Remembered:
    """What was read of sandboxes. Those who read share it with the one who writes, in another thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sandboxes: dict[tuple[str, str], Sandbox] = {}
        self._changing: set[tuple[str, str]] = set()
        """Changed by the transaction under way: whoever reads them now is shown what was before."""
        self._moment = 0
        """Another one after each transaction that changed something."""

    async def or_read(
        self, sandbox_id: str, tenant: str, read: Callable[[str, str], Awaitable[Sandbox]]
    ) -> Sandbox:
        """Return a tenant's sandbox as it is remembered, or as it is `read`, and remember that.

        Another tenant's is as good as none.
        """
        found = self._sandboxes.get((sandbox_id, tenant))
        if found is None:
            moment = self._moment
            found = await read(sandbox_id, tenant)
            self._remember(found, moment)
        return found

    def _remember(self, sandbox: Sandbox, moment: int) -> None:
        """Remember what was read from `moment` on, unless it may have changed meanwhile."""
        this = (sandbox.id, sandbox.tenant)
        with self._guard:
            if moment == self._moment and this not in self._changing and _is_small(sandbox):
                self._sandboxes[this] = sandbox
                if len(self._sandboxes) > _MOST:
                    del self._sandboxes[next(iter(self._sandboxes))]

    def change(self, sandbox_id: str, tenant: str) -> None:
        """Forget a sandbox that the transaction under way changes."""
        with self._guard:
            self._changing.add((sandbox_id, tenant))
            self._sandboxes.pop((sandbox_id, tenant), None)

    def settle(self) -> None:
        """Have what was changed be remembered again, as it is now: the transaction is over."""
        if self._changing:
            with self._guard:
                self._changing.clear()
                self._moment += 1

    def forget(self) -> None:
        """Forget everything."""
        with self._guard:
            self._sandboxes.clear()


def _is_small(sandbox: Sandbox) -> bool:
    asked = ((each.text, each.said) for each in sandbox.added)
    words = (*sandbox.env.items(), *sandbox.metadata.items(), *asked)
    return sum(len(name) + len(value) for name, value in words) <= _MOST_CHARS
