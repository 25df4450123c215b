"""Have a sandbox to oneself: nothing runs in it, and nobody writes to its files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from petri.errors import Conflict
from petri.model import Sandbox
from petri.operations import Host


@asynccontextmanager
async def alone(host: Host, sandbox: Sandbox) -> AsyncIterator[None]:
    """Have nothing run in a sandbox and nobody write to it in here; `Conflict` if something runs now.

    Whoever is writing already is waited for: what they were told is there must be there to be told of.
    """
    with host.desk.take(sandbox.id, host.access.share(sandbox.tenant)) as turn:
        if not turn.is_now:
            raise Conflict(
                f"something runs in sandbox {sandbox.id}; try again when it has ended, or cancel it"
            )
        async with host.trials.under_way(sandbox.id):
            yield
