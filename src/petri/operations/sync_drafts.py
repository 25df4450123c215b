"""Large files that a sync changes, made ahead of time.

While the store checks what came, the disk of the workspaces has nothing to do. So the new file is made then,
from the one that is there; should the sync come to nothing, it is thrown away.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future

from petri.model import Sandbox
from petri.operations import Host
from petri.operations.becoming import Kept
from petri.threads import in_thread, settled, submitted
from petri.workspace import Draft, Wanted

WORTH_DRAFTING = 16 << 20
"""Bytes. Less is made in a moment, when it is needed."""
_MOST = 4
"""For one sync: they all share one disk."""
_SWEEP_S = 5.0

_log = logging.getLogger("petri.sync")


class Drafts:
    """What is made ahead of time for one sync: begun in the thread that takes it, had by the loop."""

    def __init__(self, host: Host, sandbox: Sandbox) -> None:
        self._host = host
        self._sandbox = sandbox
        self._errand = host.workspaces.errand()
        self._begun: list[Future[Draft | None]] = []

    def begin(self, wanted: Wanted) -> None:
        """Begin to make a file that will be wanted, if it is worth it."""
        if wanted.new.size >= WORTH_DRAFTING and len(self._begun) < _MOST:
            source = Kept(self._host.store, self._sandbox.tenant)
            owner = self._host.owner_of(self._sandbox)
            draft = self._host.workspaces.draft
            self._begun.append(submitted(draft, self._sandbox.id, owner, source, wanted, self._errand))

    async def made(self) -> Sequence[Draft]:
        """Return what was made; what nobody has begun with is not waited for."""
        found = []
        for each in self._begun:
            if not each.cancel():
                await settled(asyncio.wrap_future(each))
                if each.exception() is None and (draft := each.result()) is not None:
                    found.append(draft)
        return found

    def end(self) -> None:
        """Have everything removed that is left, behind whatever is answered."""
        if self._begun:
            self._errand.call_off()
            self._host.tasks.create_task(self._remove())

    async def _remove(self) -> None:
        """Never raises: it shares a task group with everybody's runs."""
        try:
            for draft in await self.made():
                await in_thread(draft.discard)
            # What they replaced lies there, too.
            await in_thread(self._host.workspaces.empty_trash, within_s=_SWEEP_S)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("what was made for a sync of sandbox %s is not removed yet", self._sandbox.id)
