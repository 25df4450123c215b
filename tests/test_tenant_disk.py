"""What tenants use on disk: measured when it may have changed, promised once, never out by a hard link."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from petri.errors import NotFound, OverQuota
from petri.ledger import Ledger
from petri.model import Event, Sandbox
from petri.operations.tenant_disk import TenantDisk
from petri.workspace import Bounds, Workspaces
from tests.ledgers import put_ledger
from tests.test_ledger import a_sandbox

KIB = 1024


class Ground:
    """Sandboxes of one tenant, whose sizes a test sets and whose measuring it can count and hold up."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.sizes: dict[str, int] = {}
        self.measured: Counter[str] = Counter()
        self.busy: set[str] = set()
        self.disk = TenantDisk(ledger, self.measure, self.busy.__contains__)

    def measure(self, sandbox_id: str) -> int:
        self.measured[sandbox_id] += 1
        if sandbox_id not in self.sizes:
            raise NotFound("gone")
        return self.sizes[sandbox_id]

    async def sandbox(self, size: int) -> Sandbox:
        made = await self.ledger.add_sandbox(a_sandbox(last_active_at=time.time() - 60))
        self.sizes[made.id] = size
        return await self.ledger.advance(made, Event.CREATED)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    ledger = Ledger.open(put_ledger(tmp_path))
    yield Ground(ledger)
    await ledger.close()


async def test_a_tenant_uses_what_its_live_sandboxes_take(ground: Ground) -> None:
    first, second = await ground.sandbox(100), await ground.sandbox(20)
    await ground.ledger.add_sandbox(a_sandbox(tenant="other"))

    assert await ground.disk.used("acme") == 120
    await ground.ledger.advance(first, Event.DELETE)
    assert await ground.disk.used("acme") == 20
    del ground.sizes[second.id]
    await ground.ledger.touch(second.id, time.time())
    assert await ground.disk.used("acme") == 0, "a workspace that is gone takes nothing"


async def test_a_figure_is_kept_until_the_sandbox_is_used_again(ground: Ground) -> None:
    first, second = await ground.sandbox(100), await ground.sandbox(20)
    for _ in range(5):
        await ground.disk.used("acme")
    assert set(ground.measured.values()) == {1}

    ground.sizes[first.id] = 300
    await ground.ledger.touch(first.id, time.time() + 60)

    assert await ground.disk.used("acme") == 320
    assert ground.measured[second.id] == 1


async def test_a_busy_sandbox_is_measured_now_and_then_and_an_idle_one_again_at_once(ground: Ground) -> None:
    sandbox = await ground.sandbox(100)
    ground.busy.add(sandbox.id)
    for _ in range(5):
        await ground.disk.used("acme")
    assert ground.measured[sandbox.id] == 1

    await ground.ledger.touch(sandbox.id, time.time())
    ground.busy.clear()
    ground.sizes[sandbox.id] = 7

    assert await ground.disk.used("acme") == 7


async def test_whoever_is_within_its_quota_costs_no_look(ground: Ground) -> None:
    sandbox = await ground.sandbox(100)
    await ground.disk.used("acme")
    await ground.ledger.touch(sandbox.id, time.time())

    for _ in range(5):
        await ground.disk.refuse_full("acme", 101)
        await ground.disk.refuse_full("acme", 0)
    assert ground.measured[sandbox.id] == 1

    with pytest.raises(OverQuota, match="acme uses 100 bytes on disk, and its quota `disk_bytes` is 100"):
        await ground.disk.refuse_full("acme", 100)
    ground.sizes[sandbox.id] = 99
    await ground.ledger.touch(sandbox.id, time.time() + 60)
    await ground.disk.refuse_full("acme", 100)  # looked again, since it seemed full


async def test_nobody_is_let_in_unmeasured(ground: Ground) -> None:
    await ground.sandbox(100)

    with pytest.raises(OverQuota):
        await ground.disk.refuse_full("acme", 50)


async def test_of_uploads_at_once_that_together_are_too_many_the_later_are_refused(ground: Ground) -> None:
    sandbox = await ground.sandbox(100)
    put_in_place = asyncio.Event()
    answers: asyncio.Queue[bool] = asyncio.Queue()

    async def upload(size: int) -> bool:
        try:
            async with ground.disk.room_for(size, "acme", 200):
                answers.put_nowait(True)
                await put_in_place.wait()
                ground.sizes[sandbox.id] += size
                await ground.ledger.note(sandbox.id, "files.written", {}, at=time.time())
        except OverQuota:
            answers.put_nowait(False)
            return False
        return True

    under_way = [asyncio.ensure_future(upload(40)) for _ in range(6)]
    assert [await answers.get() for _ in range(6)] == [True, True, False, False, False, False]
    put_in_place.set()

    assert sum(await asyncio.gather(*under_way)) == 2
    assert await ground.disk.used("acme") == 180
    assert await upload(20)
    assert not await upload(1)
    assert await asyncio.gather(*(upload(0) for _ in range(3))) == [True] * 3


async def test_room_that_was_held_for_nothing_is_given_back(ground: Ground) -> None:
    await ground.sandbox(0)

    for _ in range(3):
        with pytest.raises(RuntimeError):
            async with ground.disk.room_for(100, "acme", 100):
                raise RuntimeError
    async with ground.disk.room_for(100, "acme", 100):
        with pytest.raises(OverQuota, match="1 more would be too many"):
            async with ground.disk.room_for(1, "acme", 100):
                pass
        async with ground.disk.room_for(10**9, "acme", 0):
            pass


# ---------------------------------------------------------------------------------------------- measuring


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    found = Workspaces(tmp_path / "workspaces", Bounds(2**30, 1000))
    found.create("sb-a", None)
    return found


def test_an_empty_workspace_takes_nothing(workspaces: Workspaces) -> None:
    assert workspaces.measure("sb-a") == 0
    with pytest.raises(NotFound):
        workspaces.measure("sb-none")


def test_what_is_measured_is_what_the_disk_gives(workspaces: Workspaces) -> None:
    folder = workspaces.folder("sb-a")
    (folder / "a" / "b").mkdir(parents=True)
    for path, size in (("x", 100 * KIB), ("a/y", 200 * KIB), ("a/b/z", 300 * KIB)):
        (folder / path).write_bytes(os.urandom(size))
    os.sync()

    assert 600 * KIB <= workspaces.measure("sb-a") <= 700 * KIB


def test_a_hole_costs_nothing_and_a_second_name_no_more(workspaces: Workspaces) -> None:
    folder = workspaces.folder("sb-a")
    (folder / "real").write_bytes(os.urandom(256 * KIB))
    with (folder / "sparse").open("wb") as file:
        file.truncate(2**40)
    for number in range(9):
        (folder / f"name-{number}").hardlink_to(folder / "real")
    (folder / "link").symlink_to("real")
    os.sync()

    assert 250 * KIB <= workspaces.measure("sb-a") <= 300 * KIB


def test_nothing_outside_is_counted(workspaces: Workspaces, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "big").write_bytes(os.urandom(2**20))
    (workspaces.folder("sb-a") / "door").symlink_to(outside)

    assert workspaces.measure("sb-a") < 16 * KIB
