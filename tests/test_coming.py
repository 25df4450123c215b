"""Who has the next cell made, and when: one after the other, in pauses, and whoever has waited for long."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import uvloop

from petri.engine import Ahead, Place
from petri.engine.fake import FakeCell, FakeEngine
from petri.model import Limits, Sandbox
from petri.operations import Host, coming, next_cell, parking
from petri.operations.amend import amend
from petri.operations.coming import Coming, Next
from petri.operations.desk import Share, Turn
from petri.operations.parking import CELL_BYTES, Parking
from tests.hosts import CALLER, PlayedEngine, new_sandbox, open_host, until

LIMITS = Limits(cpus=1, memory_bytes=2**28, processes=64, timeout_s=10)
PYTHON, CODE = Ahead("/usr/bin/python3", "file"), Ahead("/usr/bin/python3", "code")
ROOM_FOR = 8
LONG_S = 60.0


class SlowEngine(PlayedEngine):
    """Its cells are not made before somebody says so."""

    async def park(self, place: Place, ahead: Ahead | None) -> FakeCell:
        cell = await super().park(place, ahead)
        cell.is_made.clear()
        return cell


@dataclass
class Wharf:
    """A host on which cells are made at our word, and the sandboxes that want some."""

    host: Host
    engine: FakeEngine
    sandboxes: list[Sandbox] = field(default_factory=list)

    async def new(self, count: int) -> None:
        self.sandboxes += [await new_sandbox(self.host) for _ in range(count)]

    def after_run(self, number: int, ahead: Ahead = PYTHON) -> None:
        """Have the next cell of a sandbox made as after a run."""
        sandbox = self.sandboxes[number]
        place = self.host.place_of(sandbox, LIMITS)
        next_cell.after_run(self.host, sandbox, self.engine, place, ahead)

    def at_once(self, number: int, ahead: Ahead = PYTHON) -> None:
        sandbox = self.sandboxes[number]
        self.host.coming.add_first(Next(sandbox, self.engine, self.host.place_of(sandbox, LIMITS), ahead))

    def somebody_runs(self) -> Turn:
        return self.host.desk.take("sb-of-somebody", Share("ours"))

    @property
    def begun(self) -> list[int]:
        """Whose cells were begun, in order."""
        known = [sandbox.id for sandbox in self.sandboxes]
        return [known.index(cell.place.sandbox_id) for cell in self.engine.standing]

    async def has_begun(self, *numbers: int) -> None:
        async def so_it_is() -> bool:
            return self.begun == list(numbers)

        await until(so_it_is)

    def is_made(self, place: int) -> None:
        self.engine.standing[place].is_made.set()


@asynccontextmanager
async def a_wharf(home: Path, processors: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wharf]:
    monkeypatch.setattr(coming, "_PROCESSORS", processors)
    engine = SlowEngine()
    async with open_host(home, engine=engine) as opened:
        host = replace(opened, parking=Parking(ROOM_FOR * CELL_BYTES, opened.tasks.create_task))
        yield Wharf(host, engine)
        for cell in engine.standing:
            cell.is_made.set()
        await host.parking.close()


@pytest.fixture
async def wharf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wharf]:
    """One on two processors, where nobody loses patience."""
    monkeypatch.setattr(coming, "_PATIENCE_S", LONG_S)
    async with a_wharf(tmp_path, 2, monkeypatch) as wharf:
        yield wharf


async def a_while() -> None:
    """Let pass what would have been enough for a mistake."""
    await asyncio.sleep(0.1)


async def test_they_are_made_one_after_the_other(wharf: Wharf) -> None:
    await wharf.new(3)
    for number in (2, 0, 1):
        wharf.after_run(number)

    await wharf.has_begun(2)
    await a_while()
    assert wharf.begun == [2]
    wharf.is_made(0)
    await wharf.has_begun(2, 0)
    wharf.is_made(1)
    await wharf.has_begun(2, 0, 1)


@pytest.mark.parametrize(("processors", "at_once"), [(1, 1), (2, 1), (4, 3)])
async def test_one_processor_is_left_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: int, at_once: int
) -> None:
    monkeypatch.setattr(coming, "_PATIENCE_S", LONG_S)
    async with a_wharf(tmp_path, processors, monkeypatch) as wharf:
        await wharf.new(4)
        for number in range(4):
            wharf.after_run(number)

        await a_while()

        assert wharf.begun == list(range(at_once))


async def test_none_is_begun_while_something_runs_and_one_as_soon_as_nothing_does(wharf: Wharf) -> None:
    await wharf.new(1)

    with wharf.somebody_runs():
        wharf.after_run(0)
        await a_while()
        meanwhile = wharf.begun

    await wharf.has_begun(0)
    assert meanwhile == []


async def test_whoever_has_waited_for_long_comes_though_something_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coming, "_PATIENCE_S", 0.05)
    async with a_wharf(tmp_path, 2, monkeypatch) as wharf:
        await wharf.new(3)
        with wharf.somebody_runs():
            for number in range(3):
                wharf.after_run(number)
            assert wharf.begun == []
            await wharf.has_begun(0, 1)  # each processor has one

            await a_while()
            assert wharf.begun == [0, 1]
            wharf.is_made(1)
            await wharf.has_begun(0, 1, 2)


async def test_one_that_runs_again_and_again_waits_no_longer_for_it_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coming, "_BEHIND_THE_ANSWER_S", 0.05)  # longer than it is between its runs
    monkeypatch.setattr(coming, "_PATIENCE_S", 0.1)
    async with a_wharf(tmp_path, 2, monkeypatch) as wharf:
        await wharf.new(2)
        with wharf.somebody_runs():
            wharf.after_run(0)
            wharf.after_run(1)
            async with asyncio.timeout(5):
                while wharf.begun != [0, 1]:
                    await asyncio.sleep(0.01)
                    if 0 not in wharf.begun:
                        wharf.after_run(0)


async def test_who_is_about_to_run_something_does_not_wait_in_line(wharf: Wharf) -> None:
    await wharf.new(4)
    wharf.after_run(0)
    await wharf.has_begun(0)
    wharf.after_run(1)

    with wharf.somebody_runs():
        wharf.at_once(2)
        await wharf.has_begun(0, 2)
        wharf.at_once(3)
        await a_while()
        assert wharf.begun == [0, 2]

    wharf.is_made(0)
    await wharf.has_begun(0, 2, 3)


async def test_those_who_are_about_to_run_something_come_in_turn(wharf: Wharf) -> None:
    await wharf.new(5)
    for number in (3, 0, 2, 4, 0):
        wharf.at_once(number)

    await wharf.has_begun(3, 0)
    for place, number in enumerate((2, 4)):
        wharf.is_made(place)
        await wharf.has_begun(*(3, 0, 2, 4)[: place + 3])
        assert wharf.begun[-1] == number


async def test_wishes_of_two_kinds_for_one_sandbox_come_to_an_end(
    wharf: Wharf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made for one drives out what was made for the other, which must not be made again for that."""
    monkeypatch.setattr(parking, "_BUSY_S", LONG_S)
    await wharf.new(1)
    park, cells = wharf.engine.park, list[FakeCell]()

    async def noted(place: Place, ahead: Ahead | None) -> FakeCell:
        cells.append(await park(place, ahead))
        if len(cells) > 4:
            cells[-1].is_made.set()
        return cells[-1]

    async def four_were_begun() -> bool:
        return len(cells) == 4

    wharf.engine.park = noted  # type: ignore[method-assign]
    for _ in range(2):  # one run right after the other, so that two are to stand
        wharf.host.parking._note_run(wharf.sandboxes[0].id)
    wharf.at_once(0)
    await wharf.has_begun(0, 0)
    wharf.at_once(0, CODE)
    await until(four_were_begun)
    for cell in cells:
        cell.is_made.set()
    await a_while()

    assert [cell.ahead for cell in cells] == [PYTHON, PYTHON, CODE, CODE]


async def test_a_sandbox_stands_in_line_once_for_what_it_ran_last(wharf: Wharf) -> None:
    await wharf.new(2)
    with wharf.somebody_runs():
        wharf.after_run(0)
        wharf.after_run(1)
        wharf.after_run(0, CODE)
        wharf.at_once(0)  # an upload tells less of what comes than a run does

    await wharf.has_begun(0)
    assert [cell.ahead for cell in wharf.engine.standing] == [CODE]
    wharf.is_made(0)
    await wharf.has_begun(0, 1)


async def test_one_that_is_never_made_holds_up_the_others_for_a_while_only(
    wharf: Wharf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_MAKING_S", 0.05)
    await wharf.new(2)
    wharf.after_run(0)
    wharf.after_run(1)

    await wharf.has_begun(0, 1)


async def test_nobody_stands_in_line_where_no_cell_may_stand(wharf: Wharf) -> None:
    await wharf.new(1)
    await wharf.host.parking.close()

    wharf.after_run(0)
    wharf.at_once(0)
    await a_while()

    assert (wharf.begun, wharf.host.coming._line) == ([], {})


async def test_no_cell_is_made_for_limits_that_changed_since_the_run_before_was_asked_for(
    wharf: Wharf,
) -> None:
    await wharf.new(1)
    amended = await amend(wharf.host, CALLER, wharf.sandboxes[0].id, {"limits": {"memory_bytes": 2**26}})

    wharf.after_run(0)
    await a_while()
    before = wharf.begun
    wharf.sandboxes[0] = amended
    wharf.after_run(0)

    await wharf.has_begun(0)
    assert before == []


async def test_nor_for_limits_that_change_in_the_moment_in_which_it_is_begun(wharf: Wharf) -> None:
    await wharf.new(1)
    [sandbox] = wharf.sandboxes

    wharf.at_once(0)
    await wharf.host.parking.change(replace(sandbox, limits=replace(sandbox.limits, memory_bytes=2**26)))
    await a_while()

    assert wharf.begun == []


def test_nobody_looks_again_and_again_where_timers_count_milliseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a server do. One that came before its time would have to come again, and do so at once."""
    looks = 0
    look = Coming._look

    def look_counted(self: Coming) -> None:
        nonlocal looks
        looks += 1
        look(self)

    async def something_happens_all_the_time() -> None:
        while True:  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(0)

    async def one_is_wanted_after_the_other() -> None:
        async with a_wharf(tmp_path, 2, monkeypatch) as wharf:
            happening = wharf.host.tasks.create_task(something_happens_all_the_time())
            await wharf.new(ROOM_FOR)
            for number in range(ROOM_FOR):
                time.sleep(number / ROOM_FOR / 1e3)  # noqa: ASYNC251 - each at another part of a millisecond
                wharf.after_run(number)
                await wharf.has_begun(*range(number + 1))
                wharf.is_made(number)
            happening.cancel()

    monkeypatch.setattr(Coming, "_look", look_counted)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(one_is_wanted_after_the_other())
    assert looks <= 4 * ROOM_FOR
