"""Cells that stand ready: for whom, how many, for how long, and who does not get one."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from petri.engine import Ahead, Leash, Link, Mount, Place
from petri.engine.fake import FakeCell, FakeEngine
from petri.model import Command, Limits, Outcome
from petri.operations import parking
from petri.operations.parking import CELL_BYTES, Parking, Task
from tests.hosts import until

LIMITS = Limits(cpus=1, memory_bytes=2**28, processes=64, timeout_s=10)
PYTHON = Ahead("/usr/bin/python3", "file")
CODE = Ahead("/usr/bin/python3", "code")
ROOM_FOR = 4
OURS, THEIRS = "ours", "theirs"


@dataclass
class Lot:
    """A place where cells stand, and whose they are."""

    home: Path
    engine: FakeEngine
    parking: Parking
    tasks: asyncio.TaskGroup
    said: list[bytes] = field(default_factory=list)

    def place(self, sandbox_id: str = "sb-a", **others: Any) -> Place:
        folder = self.home / sandbox_id
        folder.mkdir(exist_ok=True)
        return replace(Place(sandbox_id, folder, None, LIMITS), **others)

    async def have_one_stand(self, place: Place, tenant: str = OURS) -> FakeCell:
        await self.parking.prepare(self.engine, place, PYTHON, tenant)
        return self.engine.standing[-1]

    async def begin(self, place: Place, ahead: Ahead = PYTHON) -> None:
        """Have a cell made, and go on while that is under way."""
        self.tasks.create_task(self.parking.prepare(self.engine, place, ahead, OURS))
        await asyncio.sleep(0)

    async def have_two_stand(self, place: Place, tenant: str = OURS) -> None:
        for _ in range(2):
            await self.run(place)
        await self.have_one_stand(place, tenant)
        assert [cell.place.sandbox_id for cell in self.engine.standing] == [place.sandbox_id] * 2

    async def stand_in(self, *sandboxes: str) -> bool:
        """Wait until cells stand in these, whoever is on the way out gone."""

        async def so_it_is() -> bool:
            return [cell.place.sandbox_id for cell in self.engine.standing] == list(sandboxes)

        await until(so_it_is)
        return True

    async def settled(self) -> None:
        async def is_settled() -> bool:
            return not self.parking._making

        await until(is_settled)

    async def run(self, place: Place, ahead: Ahead | None = PYTHON) -> Outcome:
        task = Task(place, Command(("fake", "print", "hello"), "/workspace", 10), ahead)
        return await self.parking.exec(
            self.engine, task, lambda _, chunk: self.said.append(chunk), Leash.loose()
        )


@pytest.fixture
async def lot(tmp_path: Path) -> AsyncIterator[Lot]:
    async with asyncio.TaskGroup() as tasks:
        lot = Lot(tmp_path, FakeEngine(), Parking(ROOM_FOR * CELL_BYTES, tasks.create_task), tasks)
        yield lot
        await lot.parking.close()
    assert lot.engine.standing == []


async def test_a_run_has_the_cell_that_stands_for_it_and_a_cell_has_one_run(lot: Lot) -> None:
    await lot.have_one_stand(lot.place())

    first, second = await lot.run(lot.place()), await lot.run(lot.place())

    assert (first.exit_code, second.exit_code, lot.said) == (0, 0, [b"hello", b"hello"])
    assert (lot.parking.used, len(lot.parking)) == (1, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"limits": replace(LIMITS, cpus=2)},
        {"limits": replace(LIMITS, memory_bytes=2**27)},
        {"limits": replace(LIMITS, processes=9)},
        {"limits": replace(LIMITS, tmp_bytes=2**20)},
        {"limits": replace(LIMITS, open_files=64)},
        {"limits": replace(LIMITS, disk_bytes=2**20)},
        {"owner": 1234},
        {"mounts": (Mount(Path("/usr"), "/environment/python"),)},
        {"links": (Link("/workspace/src", "/environment/links/src"),)},
    ],
    ids=str,
)
async def test_a_run_that_would_have_another_cell_does_not_have_this_one(
    lot: Lot, other: dict[str, Any]
) -> None:
    await lot.have_one_stand(lot.place())

    await lot.run(lot.place(**other))

    assert lot.parking.used == 0
    await lot.settled()
    assert lot.engine.standing == []


async def test_what_is_set_for_each_run_does_not_make_another_cell(lot: Lot) -> None:
    await lot.have_one_stand(lot.place(file_bytes=5))

    await lot.run(lot.place(limits=replace(LIMITS, timeout_s=3, output_bytes=7), file_bytes=9))

    assert lot.parking.used == 1


async def test_a_folder_that_is_another_one_by_now_has_another_cell(lot: Lot) -> None:
    place = lot.place()
    await lot.have_one_stand(place)
    place.folder.rename(lot.home / "former")  # kept, so that its number is not used again
    place.folder.mkdir()

    await lot.run(place)

    assert lot.parking.used == 0


async def test_a_run_whose_folder_is_gone_is_left_to_who_makes_cells(lot: Lot) -> None:
    place = lot.place()
    await lot.have_one_stand(place)
    place.folder.rmdir()

    await lot.run(place)

    assert (lot.parking.used, lot.said) == (0, [b"hello"])


async def test_nothing_is_kept_of_a_cell_that_has_served(lot: Lot) -> None:
    served = weakref.ref(await lot.have_one_stand(lot.place()))

    await lot.run(lot.place())

    gc.collect()
    assert (lot.parking.used, served()) == (1, None)


@pytest.mark.parametrize("how", ["stands", "falls"])
async def test_a_cell_that_fell_costs_nobody_a_run(lot: Lot, how: str) -> None:
    cell = await lot.have_one_stand(lot.place())
    setattr(cell, how, how == "falls")  # it is seen to be gone, or turns out to be

    outcome = await lot.run(lot.place())

    assert (outcome.exit_code, lot.said, lot.parking.used) == (0, [b"hello"], 0)


async def test_sandboxes_that_run_one_after_the_other_have_one_more(lot: Lot) -> None:
    await lot.have_one_stand(lot.place())
    await lot.run(lot.place())
    await lot.have_one_stand(lot.place())
    assert len(lot.parking) == 1  # one run follows none

    await lot.run(lot.place())
    await lot.have_one_stand(lot.place())

    assert len(lot.parking) == 2


async def test_sandboxes_that_take_their_time_have_one(lot: Lot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "_BUSY_S", 0.01)
    for _ in range(3):
        await lot.have_one_stand(lot.place())
        await asyncio.sleep(0.02)
        await lot.run(lot.place())

    await lot.have_one_stand(lot.place())

    assert (lot.parking.used, len(lot.parking)) == (3, 1)


async def test_no_sandbox_has_two_while_another_of_its_tenant_has_none(lot: Lot) -> None:
    await lot.have_two_stand(lot.place("sb-hasty"))
    for number in range(ROOM_FOR):
        await lot.have_one_stand(lot.place(f"sb-{number}"))

    assert await lot.stand_in("sb-hasty", "sb-0", "sb-1", "sb-2")


async def test_but_it_keeps_both_where_the_other_is_somebody_else_s(lot: Lot) -> None:
    await lot.have_two_stand(lot.place("sb-hasty"), THEIRS)
    for number in range(ROOM_FOR):
        await lot.have_one_stand(lot.place(f"sb-{number}"))

    assert [cell.place.sandbox_id for cell in lot.engine.standing] == ["sb-hasty", "sb-hasty", "sb-0", "sb-1"]


async def test_a_run_of_another_kind_has_its_own_kind_stand_next(lot: Lot) -> None:
    await lot.have_one_stand(lot.place())
    await lot.run(lot.place())
    await lot.have_one_stand(lot.place())

    await lot.run(lot.place(), CODE)
    await lot.parking.prepare(lot.engine, lot.place(), CODE, OURS)
    assert [cell.ahead for cell in lot.engine.standing][-1] == CODE
    await lot.run(lot.place(), CODE)

    assert (lot.parking.used, lot.parking.fitted) == (3, 2)
    assert len(lot.parking) <= 2


async def test_there_are_never_more_than_there_is_room_for(lot: Lot, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(ROOM_FOR + 2):
        await lot.parking.prepare(lot.engine, lot.place(f"sb-{number}"), PYTHON, OURS)
    assert [cell.place.sandbox_id for cell in lot.engine.standing] == [f"sb-{n}" for n in range(ROOM_FOR)]

    monkeypatch.setattr(parking, "_SETTLED_S", 0.0)
    await lot.have_one_stand(lot.place("sb-new"))

    assert await lot.stand_in("sb-1", "sb-2", "sb-3", "sb-new")


async def test_nobody_has_one_where_there_is_no_room_at_all(lot: Lot) -> None:
    none = Parking(0, lot.tasks.create_task)

    await none.prepare(lot.engine, lot.place(), PYTHON, OURS)

    assert (none.is_open, len(none), lot.engine.standing) == (False, 0, [])


async def test_a_cell_does_not_stand_for_ever(lot: Lot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "_IDLE_S", 0.01)
    await lot.parking.prepare(lot.engine, lot.place(), PYTHON, OURS)

    async def is_gone() -> bool:
        return lot.engine.standing == []

    await until(is_gone)


async def test_a_sandbox_that_goes_takes_its_cells_along_even_one_that_is_being_made(lot: Lot) -> None:
    await lot.have_one_stand(lot.place())
    await lot.run(lot.place())
    await lot.begin(lot.place())

    await lot.parking.clear("sb-a")
    await lot.parking.prepare(lot.engine, lot.place(), PYTHON, OURS)  # by somebody who does not know yet

    assert (len(lot.parking), lot.engine.standing) == (0, [])


async def test_a_sandbox_is_not_gone_before_a_cell_that_nobody_wanted(lot: Lot) -> None:
    cell = await lot.have_one_stand(lot.place())
    cell.may_go.clear()
    await lot.run(lot.place(owner=1234))

    going = lot.tasks.create_task(lot.parking.clear("sb-a"))
    await asyncio.sleep(0)
    was_done = going.done()
    cell.may_go.set()
    await going

    assert (was_done, lot.engine.standing) == (False, [])


async def test_a_sandbox_goes_though_its_cells_are_let_go_meanwhile(lot: Lot) -> None:
    await lot.have_two_stand(lot.place())
    first, _ = lot.engine.standing
    first.may_go.clear()

    going = lot.tasks.create_task(lot.parking.clear("sb-a"))
    await asyncio.sleep(0)
    await lot.run(lot.place(owner=1234))
    first.may_go.set()
    await going

    assert (len(lot.parking), lot.engine.standing) == (0, [])


async def test_a_cell_that_falls_makes_room_at_once(lot: Lot) -> None:
    cells = [await lot.have_one_stand(lot.place(f"sb-{number}")) for number in range(ROOM_FOR)]

    cells[1].fall()
    await lot.have_one_stand(lot.place("sb-new"))

    assert len(lot.parking) == ROOM_FOR
    assert [cell.place.sandbox_id for cell in lot.engine.standing] == ["sb-0", "sb-2", "sb-3", "sb-new"]


async def test_a_cell_that_ends_after_it_was_taken_is_nobody_s_concern(lot: Lot) -> None:
    cell = await lot.have_one_stand(lot.place())
    for _ in range(2):
        await lot.run(lot.place())

    cell.fall()
    await lot.have_one_stand(lot.place())

    assert len(lot.parking) == 2  # one more, since one run followed another a moment ago


async def test_what_is_discarded_is_gone_and_another_may_stand(lot: Lot) -> None:
    await lot.have_one_stand(lot.place())
    for _ in range(2):
        await lot.run(lot.place())
    await lot.begin(lot.place())  # and two are being made

    await lot.parking.discard("sb-a")
    assert (len(lot.parking), lot.engine.standing) == (0, [])
    await lot.have_one_stand(lot.place())

    assert len(lot.parking) == 1


async def test_a_tenant_that_is_ever_so_busy_leaves_others_their_share(lot: Lot) -> None:
    for number in range(ROOM_FOR):
        await lot.have_one_stand(lot.place(f"sb-{number}"), THEIRS)

    for number in range(ROOM_FOR):
        await lot.have_one_stand(lot.place(f"sb-ours-{number}"))
        await lot.have_one_stand(lot.place(f"sb-more-{number}"), THEIRS)

    assert await lot.stand_in("sb-2", "sb-3", "sb-ours-0", "sb-ours-1")


async def test_nor_do_those_that_it_has_made_all_at_once_drive_out_others(lot: Lot) -> None:
    theirs = await lot.have_one_stand(lot.place("sb-theirs"), THEIRS)

    for number in range(ROOM_FOR * 2):
        await lot.begin(lot.place(f"sb-{number}"))
    await lot.settled()

    assert theirs.stands
    assert len(lot.parking) == ROOM_FOR


async def test_who_has_one_less_than_another_takes_none_from_them(lot: Lot) -> None:
    await lot.have_one_stand(lot.place("sb-ours"))
    for number in range(ROOM_FOR):
        await lot.have_one_stand(lot.place(f"sb-{number}"), f"tenant {number % 2}")

    assert [cell.place.sandbox_id for cell in lot.engine.standing] == ["sb-ours", "sb-0", "sb-1", "sb-2"]
