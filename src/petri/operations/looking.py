"""Look at a workspace: which tree its files are now."""

import time
from dataclasses import dataclass

from petri.errors import PetriError
from petri.operations import Host
from petri.threads import in_thread
from petri.workspace import TooMuch

_FRESH_S = 0.005


@dataclass(frozen=True, slots=True)
class Glimpse:
    """The tree that a workspace was a moment ago.

    Whoever needs it as it is now may take it for that while it `is_fresh`. It would be wrong where nobody may
    have written since: what an upload brings within that moment is not in it.
    """

    tree: str
    at: float

    @property
    def is_fresh(self) -> bool:
        """Whether that was just now."""
        return time.monotonic() - self.at < _FRESH_S


def glimpse(host: Host, sandbox_id: str) -> Glimpse | None:
    """Return the tree that a workspace is now, if that takes next to no reading."""
    at = time.monotonic()
    tree = tree_if_quick(host, sandbox_id)
    return None if tree is None else Glimpse(tree, at)


async def tree_of(host: Host, sandbox_id: str, *, restless: bool = False) -> str:
    """Return the address of the tree that a workspace is now. `restless`: something may run in it."""
    try:
        # Next to nothing has changed, most of the time: a thread would cost more than the look.
        tree = host.workspaces.look(sandbox_id, quick=True, restless=restless)
    except TooMuch:
        tree = await in_thread(host.workspaces.look, sandbox_id, restless=restless)
    return tree.hex()


def tree_if_quick(host: Host, sandbox_id: str) -> str | None:
    """Return the address of the tree that a workspace is now, if that takes next to no reading."""
    try:
        is_busy = host.desk.is_busy(sandbox_id)
        return host.workspaces.look(sandbox_id, quick=True, restless=is_busy).hex()
    except (TooMuch, PetriError):
        return None
