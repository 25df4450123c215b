"""What a run may read of other sandboxes: decided when asked for, looked up when the run starts.

A peer is seen as one tree from the beginning of a run to its end, on record with the run. It is made a
folder from the store (`workspace.checkouts`), so nothing of the peer's own workspace is within reach.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from petri.engine import Mount
from petri.errors import Conflict, InvalidField, NotFound
from petri.model import Peer, Sandbox, SeenPeer, State
from petri.operations import Caller, Host
from petri.operations.becoming import Kept
from petri.operations.moments import require_kept, tree_now
from petri.threads import in_thread
from petri.workspace import Checkout


@dataclass(frozen=True, slots=True)
class Sight:
    """What a run is to see of its peers."""

    mounts: tuple[Mount, ...] = ()
    peers: tuple[SeenPeer, ...] = ()


NOTHING = Sight()


async def decided(
    host: Host, caller: Caller, wanted: Sequence[Peer], own: str | None = None
) -> tuple[Peer, ...]:
    """Return `wanted`, each another sandbox that is there, at a tree that is kept; or say which cannot be."""
    for at, peer in enumerate(wanted):
        if peer.sandbox_id == own:
            raise InvalidField(
                f"peers.{at}.sandbox", "a sandbox is no peer of its own: its files are at /workspace"
            )
    return tuple([await _decided(host, caller, peer, f"peers.{at}") for at, peer in enumerate(wanted)])


async def _decided(host: Host, caller: Caller, peer: Peer, field: str) -> Peer:
    try:
        sandbox = await host.ledger.sandbox(peer.sandbox_id, caller.tenant)
    except NotFound as error:
        raise InvalidField(f"{field}.sandbox", f"{error.message}; name one by its id") from None
    try:
        if peer.snapshot is not None:
            snapshot = await host.ledger.snapshot(peer.snapshot, caller.tenant)
            return replace(peer, tree=snapshot.tree, snapshot=snapshot.id)
        if peer.tree is not None:
            await require_kept(host, sandbox, peer.tree)
            return peer
    except NotFound as error:
        what = "snapshot" if peer.snapshot is not None else "tree"
        raise InvalidField(f"{field}.{what}", error.message) from None
    if sandbox.state is not State.READY:
        raise InvalidField(f"{field}.sandbox", f"sandbox {sandbox.id} is {sandbox.state}; its files are gone")
    return peer


@asynccontextmanager
async def seen(host: Host, sandbox: Sandbox) -> AsyncIterator[Sight]:
    """Hold what a run in `sandbox` that starts now is to see of its peers."""
    async with AsyncExitStack() as held:
        mounts, peers = [], []
        for peer in sandbox.peers:
            tree = await _tree_of(host, sandbox, peer)
            checkout = await _borrowed(host, sandbox.tenant, peer, tree)
            held.callback(host.checkouts.give_back, checkout)
            mounts.append(Mount(checkout.folder, peer.at))
            peers.append(SeenPeer(peer.sandbox_id, peer.at, tree))
        yield Sight(tuple(mounts), tuple(peers))


async def _borrowed(host: Host, tenant: str, peer: Peer, tree: str) -> Checkout:
    source = Kept(host.store, tenant)
    borrow = partial(host.checkouts.borrow, tenant, source, peer.sandbox_id, bytes.fromhex(tree))
    return await in_thread(borrow)


async def _tree_of(host: Host, sandbox: Sandbox, peer: Peer) -> str:
    if peer.tree is not None:
        return peer.tree
    try:
        return await tree_now(host, await host.ledger.sandbox(peer.sandbox_id, sandbox.tenant))
    except Conflict as error:
        raise Conflict(f"the peer at {peer.at} cannot be seen: {error.message}; PATCH `peers`") from error
