"""Change what may change about a sandbox."""

from typing import Any

from petri.model import Sandbox
from petri.operations import Caller, Host
from petri.operations.create import refuse_too_large
from petri.operations.peers import decided
from petri.operations.shares import share_of
from petri.threads import in_own_thread


async def amend(host: Host, caller: Caller, sandbox_id: str, changes: dict[str, Any]) -> Sandbox:
    """Return the sandbox with `changes` (`name`, `ttl_s`, `limits`, `peers` and the like) made."""
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    refuse_too_large(host, changes.get("limits", {}))
    if changes.get("peers"):
        changes = {**changes, "peers": await decided(host, caller, changes["peers"], own=sandbox_id)}
    amended = await host.ledger.amend(sandbox, changes) if changes else sandbox
    if changes.get("limits"):
        share = share_of(amended.limits)
        await in_own_thread(host.workspaces.hold, amended.id, host.owner_of(amended), share)
        await host.parking.change(amended)  # those that stand have the former ones
    return amended
