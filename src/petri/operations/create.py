"""Create a sandbox: on record first, then its folder, then ready."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from petri.errors import InvalidField
from petri.model import Asker, Event, Lifetime, Limits, Sandbox, new_id
from petri.operations import Caller, Host
from petri.operations.destroy import give_up
from petri.threads import in_own_thread

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
    asker: Asker = field(default_factory=Asker)


async def create(host: Host, caller: Caller, wish: Wish) -> tuple[Sandbox, bool]:
    """Return a ready sandbox, and whether it is new: a name in use gives back the sandbox that has it."""
    await host.languages.check(wish.language)
    engine = host.engine_for(wish.engine).name
    limits = _decide_limits(host, wish.limits)
    new = _new_sandbox(caller, wish, engine, limits)
    if new.name is None:
        return await _make(host, new), True
    # Whoever asks for the same name meanwhile is given the sandbox when it is ready, not while it is made.
    async with host.naming.setdefault((new.tenant, new.name), asyncio.Lock()):
        if held := await host.ledger.sandbox_named(new.name, new.tenant):
            return held, False
        return await _make(host, new), True


async def _make(host: Host, new: Sandbox) -> Sandbox:
    quotas = host.access.quotas(new.tenant)
    await host.tenant_disk.refuse_full(new.tenant, quotas.disk_bytes)
    sandbox = await host.ledger.add_sandbox(new, most=quotas.sandboxes)
    try:
        await in_own_thread(host.shares.open, sandbox.id, host.owner_of(sandbox), sandbox.limits)
        return await host.ledger.advance(sandbox, Event.CREATED)
    except BaseException:
        await asyncio.shield(give_up(host, sandbox))
        raise


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


def _new_sandbox(caller: Caller, wish: Wish, engine: str, limits: Limits) -> Sandbox:
    now = time.time()
    return Sandbox(
        id=new_id("sb"),
        tenant=caller.tenant,
        language=wish.language,
        engine=engine,
        lifetime=wish.lifetime,
        limits=limits,
        created_at=now,
        last_active_at=now,
        name=wish.name,
        ttl_s=wish.ttl_s,
        idle_s=wish.idle_s,
        env=wish.env,
        metadata=wish.metadata,
        asker=wish.asker,
    )
