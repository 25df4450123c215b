"""Fork a sandbox: others like it, with the same files, there at once.

A fork is a row that names a tree. Its files fill in behind, and whoever uses them first waits for that.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from petri.errors import PetriError, StorageFull, counted
from petri.model import Asker, Event, Sandbox
from petri.operations import Caller, Host
from petri.operations.create import Origin, make_new
from petri.operations.create import Wish as NewWish
from petri.operations.destroy import end
from petri.operations.files import live_sandbox
from petri.operations.snapshots import refuse_full_store, tree_at_rest
from petri.threads import in_thread


@dataclass(frozen=True, slots=True)
class Wish:
    """How many, and how they differ from what they come from."""

    n: int = 1
    name: str | None = None
    """Of one; of several, they are called `name-1` and so on."""
    metadata: Mapping[str, str] | None = None
    idle_s: float | None = None
    asker: Asker = field(default_factory=Asker)


async def fork(host: Host, caller: Caller, sandbox_id: str, wish: Wish) -> list[Sandbox]:
    """Return `n` new sandboxes with the language, limits, variables, metadata and files of one that is there.

    All of them are made, or none.
    """
    parent = await live_sandbox(host, caller, sandbox_id)
    await refuse_full_store(host, parent.tenant)
    tree = await tree_at_rest(host, parent)
    await _refuse_large(host, parent)
    most = host.access.quotas(parent.tenant).disk_bytes
    async with host.tenant_disk.room_for(await _weight(host, parent, wish.n, most), parent.tenant, most):
        return await _make_all(host, caller, [_wish(parent, tree, wish, each) for each in range(wish.n)])


async def _refuse_large(host: Host, parent: Sandbox) -> None:
    """Refuse forks that could not hold their files: with a thousand names one is a thousand."""
    size, most = await in_thread(host.workspaces.size, parent.id), parent.limits.disk_bytes
    if size > most:
        raise StorageFull(
            f"in a fork the files of sandbox {parent.id} would take {counted(size, 'byte')}, holes and those "
            f"with several names in full, and it may hold {most}: raise limits.disk_bytes; nothing was made",
            field="limits.disk_bytes",
        )


async def _weight(host: Host, parent: Sandbox, n: int, most: int) -> int:
    """Return what the files of all forks will take, where somebody wants to know."""
    measured = await host.shares.show(parent.id, host.owner_of(parent)) if most else None
    return n * measured.used.disk_bytes if measured is not None else 0


def _wish(parent: Sandbox, tree: str, wish: Wish, each: int) -> NewWish:
    name = wish.name if wish.name is None or wish.n == 1 else f"{wish.name}-{each + 1}"
    return NewWish(
        language=parent.language,
        name=name,
        engine=parent.engine,
        limits=asdict(parent.limits),
        env=dict(parent.env),
        peers=parent.peers,
        idle_s=wish.idle_s,
        metadata=dict(parent.metadata if wish.metadata is None else wish.metadata),
        asker=wish.asker,
        origin=Origin(tree, sandbox=parent.id, added=parent.added),
    )


async def _make_all(host: Host, caller: Caller, wishes: list[NewWish]) -> list[Sandbox]:
    made = await asyncio.gather(*(make_new(host, caller, wish) for wish in wishes), return_exceptions=True)
    children = [each for each in made if isinstance(each, Sandbox)]
    if failures := [each for each in made if isinstance(each, BaseException)]:
        await asyncio.gather(*(end(host, child, Event.DELETE) for child in children), return_exceptions=True)
        raise next((each for each in failures if isinstance(each, PetriError)), failures[0])
    return children
