"""Look at a workspace: which tree its files are now."""

from petri.errors import PetriError
from petri.operations import Host
from petri.threads import in_thread
from petri.workspace import TooMuch


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
