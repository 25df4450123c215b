"""Create a sandbox: on record first, then its folder, then ready."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from petri.errors import InvalidField, NotFound
from petri.model import Addition, Asker, Lifetime, Limits, Peer, Sandbox, new_id
from petri.operations import Caller, Host
from petri.operations.becoming import settling
from petri.operations.destroy import give_up
from petri.operations.peers import decided
from petri.operations.shares import excess_of
from petri.threads import in_own_thread, in_thread
from petri.trees import measure

WHY_AT_MOST = {
    "cpus": "so many processors has this host",
    "memory_bytes": "the least of this host's memory, PETRI_MEMORY_MAX_BYTES and PETRI_TOTAL_MEMORY_BYTES",
    "processes": "PETRI_TOTAL_PROCESSES",
    "timeout_s": "PETRI_TIMEOUT_MAX_S",
    "open_files": "so many may the server itself have open: ulimit -Hn",
    "disk_bytes": "so large is the disk that holds the workspaces",
    "inodes": "so many files may be on the disk that holds the workspaces",
    "tmp_bytes": "it is memory: no more than memory_bytes may be",
    "output_bytes": "PETRI_KEPT_OUTPUT_BYTES",
}
"""What sets the ceiling of each limit."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller wants the sandbox to be. What is None is the server's to decide."""

    language: str = "python"
    name: str | None = None
    engine: str | None = None
    lifetime: Lifetime = "persistent"
    ttl_s: float | None = None
    idle_s: float | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()
    asker: Asker = field(default_factory=Asker)
    from_snapshot: str | None = None
    """The snapshot whose files it begins with, by its id or its name."""
    origin: "Origin | None" = None
    """The same, for those who know the tree."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The tree that a sandbox begins with, and whose it was."""

    tree: str
    snapshot: str | None = None
    sandbox: str | None = None
    added: tuple[Addition, ...] = ()
    """Packages that runs had asked for there."""


async def create(host: Host, caller: Caller, wish: Wish) -> tuple[Sandbox, bool]:
    """Return a ready sandbox, and whether it is new: a name in use gives back the sandbox that has it."""
    await host.languages.check(wish.language)
    wish = await _with_origin(host, caller, wish)
    wish = replace(wish, peers=await decided(host, caller, wish.peers))
    new = _new_sandbox(host, caller, wish)
    await _refuse_large_tree(host, new)
    if new.name is None:
        return await _make(host, new), True
    # Whoever asks for the same name meanwhile is given the sandbox when it is ready, not while it is made.
    async with host.naming.setdefault((new.tenant, new.name), asyncio.Lock()):
        if held := await host.ledger.sandbox_named(new.name, new.tenant):
            return held, False
        return await _make(host, new), True


async def _with_origin(host: Host, caller: Caller, wish: Wish) -> Wish:
    if wish.from_snapshot is None:
        return wish
    try:
        snapshot = await host.ledger.snapshot(wish.from_snapshot, caller.tenant)
    except NotFound as error:
        raise InvalidField("from_snapshot", error.message) from error
    return replace(wish, origin=Origin(snapshot.tree, snapshot=snapshot.id, added=snapshot.added))


async def make_new(host: Host, caller: Caller, wish: Wish) -> Sandbox:
    """Return a new sandbox; `Conflict` if its name is in use."""
    return await _make(host, _new_sandbox(host, caller, wish))


async def _refuse_large_tree(host: Host, new: Sandbox) -> None:
    """Refuse a sandbox that may not hold the files it is to begin with."""
    if new.becoming is None:
        return
    tree = bytes.fromhex(new.becoming)
    holds = await in_thread(measure, host.store.fetch(new.tenant), tree)
    if (excess := excess_of(holds, new.limits)) is not None:
        raise InvalidField("limits", f"the files of the snapshot {excess}")


async def _make(host: Host, new: Sandbox) -> Sandbox:
    """Make a sandbox: its folder first, and then one row that says that it is ready.

    A server that is killed in between leaves an empty folder, which the next one removes.
    """
    quotas = host.access.quotas(new.tenant)
    await host.tenant_disk.refuse_full(new.tenant, quotas.disk_bytes)
    sandbox = replace(new, number=await host.ledger.next_number())
    try:
        await in_own_thread(host.shares.open, sandbox.id, host.owner_of(sandbox), sandbox.limits)
        sandbox = await host.ledger.add_sandbox(sandbox, most=quotas.sandboxes, is_made=True)
    except BaseException:
        await asyncio.shield(give_up(host, sandbox))
        raise
    if sandbox.becoming is not None:
        # Whoever asked need not wait for the files, only whoever uses them.
        host.becomings.due[sandbox.id] = sandbox.becoming
        settling(host, sandbox)
    return sandbox


def _decide_limits(host: Host, asked: dict[str, Any]) -> Limits:
    """Return what was asked for, and the server's own limits where nothing was."""
    refuse_too_large(host, asked)
    return replace(host.policy.limits, **asked)


def refuse_too_large(host: Host, asked: Mapping[str, float]) -> None:
    """Say which limit is larger than the host has or the operator allows, if one is."""
    most = host.policy.most
    for name, value in asked.items():
        ceiling = getattr(most, name)
        if value > ceiling:
            why = f" ({WHY_AT_MOST[name]})"
            raise InvalidField(f"limits.{name}", f"{name} may be {ceiling} at most here{why}, not {value}")


def _new_sandbox(host: Host, caller: Caller, wish: Wish) -> Sandbox:
    now = time.time()
    origin = wish.origin or Origin(tree="")
    return Sandbox(
        id=new_id("sb"),
        tenant=caller.tenant,
        language=wish.language,
        engine=host.engine_for(wish.engine).name,
        lifetime=wish.lifetime,
        limits=_decide_limits(host, wish.limits),
        created_at=now,
        last_active_at=now,
        name=wish.name,
        ttl_s=wish.ttl_s,
        idle_s=wish.idle_s,
        env=wish.env,
        metadata=wish.metadata,
        peers=wish.peers,
        asker=wish.asker,
        tree=origin.tree or None,
        becoming=origin.tree or None,
        first_tree=origin.tree or None,
        forked_from=origin.sandbox,
        from_snapshot=origin.snapshot,
        added=origin.added,
    )
