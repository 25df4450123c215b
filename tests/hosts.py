"""A whole host in this process: every room is the real one, but for an engine that plays what it is told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from petri.engine import Leash, Output, Place
from petri.engine.fake import FakeEngine
from petri.engine.process import count
from petri.ledger import Ledger
from petri.model import Command, Limits, Outcome, Quotas, Sandbox
from petri.operations import ANYBODY, Access, Host, Policy
from petri.operations.create import Wish, create
from petri.operations.desk import Desk
from petri.operations.languages import Languages
from petri.operations.parking import Parking
from petri.operations.shares import Shares
from petri.operations.tenant_disk import TenantDisk
from petri.store import Store
from petri.transcript import Transcripts
from petri.workspace import Bounds, Checkouts, Workspaces
from tests.ledgers import put_ledger

CALLER = ANYBODY
LIMITS = Limits(cpus=1, memory_bytes=2**28, processes=64, timeout_s=60)


class PlayedEngine(FakeEngine):
    """Understands `FakeEngine`'s words behind the shell that starts every command, and has a Python."""

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        words = command.argv[4:]
        if not words:  # which languages are there?
            output("stdout", b"python3\t/usr/bin/python3\tPython 3\n")
            words = ("fake", "exit", "0")
        return await super().exec(place, replace(command, argv=words), output, leash)


@asynccontextmanager
async def open_host(
    home: Path,
    *,
    workspaces: Workspaces | None = None,
    engine: FakeEngine | None = None,
    ledgers: type[Ledger] = Ledger,
) -> AsyncIterator[Host]:
    """Hold open a host whose state lies under `home`; what it began is cancelled in the end."""
    workspaces = workspaces or Workspaces(home / "workspaces", Bounds(2**30, 1000))
    engine = engine or PlayedEngine()
    store = Store(home / "store")
    ledger = ledgers.open(put_ledger(home))
    try:
        async with asyncio.TaskGroup() as tasks:
            desk = Desk(8, 8)
            yield Host(
                ledger=ledger,
                access=Access(None, Quotas()),
                workspaces=workspaces,
                store=store,
                engines={"fake": engine},
                transcripts=Transcripts(home / "runs", 2**20),
                desk=desk,
                tenant_disk=TenantDisk(ledger, workspaces.measure, desk.is_busy),
                shares=Shares(workspaces, count),
                checkouts=Checkouts(home / "checkouts", 2**30, 0),
                languages=Languages(engine, workspaces, None, LIMITS),
                policy=Policy(LIMITS, LIMITS, None, 2**20),
                parking=Parking(0, tasks.create_task),
                tasks=tasks,
            )
    finally:
        await ledger.close()
        store.close()


async def new_sandbox(host: Host, **wish: object) -> Sandbox:
    """Return a new sandbox."""
    sandbox, _ = await create(host, CALLER, replace(Wish(), **wish))  # type: ignore[arg-type]
    return sandbox


async def state_of(host: Host, sandbox: Sandbox) -> str:
    """Return the state a sandbox is in now."""
    return str((await host.ledger.sandbox(sandbox.id, sandbox.tenant)).state)


async def until(holds: Callable[[], Awaitable[bool]], within_s: float = 10) -> None:
    """Wait until something holds; fail if it never does."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - what is waited for happens in another room, or thread
            await asyncio.sleep(0.01)
