"""What is known of a workspace's disk without a count, when it is counted, and what follows from it."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from petri.engine.process import count
from petri.model import Limits, Outcome, Usage
from petri.operations.command import Ask
from petri.operations.exec import begin, outcome_of
from petri.operations.shares import Shares, hopeless, share_of
from petri.operations.watch import Watch
from petri.tally import Tally, tally
from petri.workspace import Bounds, Space, Weight, Workspaces
from tests.hosts import CALLER, new_sandbox, open_host

pytestmark = pytest.mark.long

SANDBOX, OTHER = "sb-one", "sb-two"
MIB = 1 << 20
LIMITS = Limits(1, 1 << 28, 64, 10, disk_bytes=16 * MIB, inodes=100)
WELL = Outcome(1.0, Usage(1, 1), exit_code=0)


class Alone(Workspaces):
    """Workspaces on a disk that nobody else writes to, or deletes from: it holds them and nothing more."""

    def space(self) -> Space:
        all_of_it = tally(str(self.folder(SANDBOX).parent), 1 << 62, 1 << 62)
        return replace(super().space(), used_bytes=all_of_it.disk_bytes, used_inodes=all_of_it.inodes)


@dataclass
class Scene:
    """Two workspaces, and a record of who was counted by a process."""

    workspaces: Workspaces
    counted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shares = Shares(self.workspaces, self.count)
        for sandbox in (SANDBOX, OTHER):
            self.shares.open(sandbox, None, LIMITS)

    def count(self, folder: str, most_bytes: int, most_inodes: int) -> Tally:
        self.counted.append(Path(folder).name)
        return count(folder, most_bytes, most_inodes)

    def watch(self, sandbox: str = SANDBOX) -> Watch:
        return Watch(self.shares, sandbox, None, LIMITS)

    def write(self, name: str, size: int, sandbox: str = SANDBOX) -> None:
        (self.workspaces.folder(sandbox) / name).write_bytes(bytes(size))

    def make(self, names: range, sandbox: str = SANDBOX) -> None:
        for name in names:
            (self.workspaces.folder(sandbox) / str(name)).touch()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(Alone(tmp_path / "root", Bounds(1 << 30, 10_000)))


async def concluded(watch: Watch) -> Outcome:
    watch.stop()
    return await watch.conclude(WELL)


async def test_a_run_that_ended_before_anybody_looked_is_judged_at_its_end(scene: Scene) -> None:
    watch = scene.watch()
    scene.write("big", 17 * MIB)

    outcome = await concluded(watch)

    assert (outcome.exit_code, outcome.disk_full) == (0, True)
    assert outcome.remark is not None
    assert str(16 * MIB) in outcome.remark


async def test_runs_that_each_add_a_little_are_not_forgotten(scene: Scene) -> None:
    facts = []
    for number in range(6):
        watch = scene.watch()
        scene.write(str(number), 3 * MIB)
        facts.append((await concluded(watch)).disk_full)

    assert facts == [False] * 5 + [True]


async def test_what_others_write_is_held_against_nobody_without_a_run(scene: Scene) -> None:
    bully = scene.watch(OTHER)
    scene.write("big", 40 * MIB, OTHER)
    assert (await concluded(bully)).disk_full

    known = scene.shares.known(SANDBOX, None)

    assert known is not None
    assert known.at_most == known.used
    assert not (await concluded(scene.watch())).disk_full


async def test_what_others_write_meanwhile_is_cleared_up_by_a_count(scene: Scene) -> None:
    watch = scene.watch()
    scene.write("big", 40 * MIB, OTHER)
    scene.write("small", MIB)

    assert not (await concluded(watch)).disk_full
    known = scene.shares.known(SANDBOX, None)
    assert known is not None
    assert MIB <= known.used.disk_bytes < 2 * MIB


async def test_a_small_workspace_is_counted_without_a_process(scene: Scene) -> None:
    watch = scene.watch()
    scene.make(range(90))
    scene.write("big", 17 * MIB)

    assert (await concluded(watch)).disk_full
    assert scene.counted == []


async def test_a_large_one_is_counted_by_a_process(scene: Scene) -> None:
    watch = scene.watch()
    scene.make(range(1100))

    assert (await concluded(watch)).disk_full
    assert scene.counted == [SANDBOX]


async def test_what_frees_space_hides_nothing_that_came_before(scene: Scene) -> None:
    """The disk is no fuller at the end than at the beginning; but somebody looked in between."""
    scene.write("freed", 40 * MIB, OTHER)
    watch = scene.watch()
    scene.write("big", 17 * MIB)
    scene.shares.look()
    (scene.workspaces.folder(OTHER) / "freed").unlink()

    assert (await concluded(watch)).disk_full


async def test_writing_the_same_again_and_again_is_no_growth_for_long(scene: Scene) -> None:
    watch = scene.watch()
    for _ in range(10):
        scene.write("again", 10 * MIB)
        scene.shares.look()
        (scene.workspaces.folder(SANDBOX) / "again").unlink()
        scene.shares.look()

    assert not (await concluded(watch)).disk_full


async def test_a_run_is_ended_while_it_lives(scene: Scene) -> None:
    ended = asyncio.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        watch = scene.watch()
        watch.begin(tasks, ended.set)
        scene.write("big", 17 * MIB)
        await ended.wait()
        cut = Outcome(1.0, Usage(1, 1), signal=9, cancelled=True)
        watch.stop()
        outcome = await watch.conclude(cut)

    assert (outcome.signal, outcome.cancelled, outcome.disk_full) == (9, False, True)


async def test_who_cancels_a_run_is_told_that_it_was_cancelled(scene: Scene) -> None:
    watch = scene.watch()
    scene.write("big", 17 * MIB)
    watch.stop()

    outcome = await watch.conclude(Outcome(1.0, Usage(1, 1), signal=9, cancelled=True))

    assert (outcome.cancelled, outcome.disk_full) == (True, False)


async def test_over_its_share_a_workspace_may_not_grow(scene: Scene) -> None:
    scene.write("big", 20 * MIB)
    await scene.shares.quick(SANDBOX, None)

    unchanged = scene.watch()
    scene.write("log", 1 << 16)
    assert not (await concluded(unchanged)).disk_full
    growing = scene.watch()
    scene.write("more", 2 * MIB)
    assert (await concluded(growing)).disk_full
    shrinking = scene.watch()
    scene.write("big", 10 * MIB)
    assert not (await concluded(shrinking)).disk_full


async def test_what_came_while_it_was_counted_is_not_lost(scene: Scene) -> None:
    """A count takes a while, and the run goes on where the count has been already."""
    watch = scene.watch()
    await scene.shares.quick(SANDBOX, None)
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(scene.shares.measure(SANDBOX, None, share_of(LIMITS)))
        await asyncio.sleep(0)
        scene.write("big", 17 * MIB)
        scene.shares.known(SANDBOX, None)

    assert not counting.result().at_most.fits(share_of(LIMITS))
    assert (await concluded(watch)).disk_full


async def test_in_a_workspace_that_is_nearly_empty_no_file_outgrows_what_is_left(scene: Scene) -> None:
    scene.write("some", LIMITS.disk_bytes // 32)
    await scene.shares.quick(SANDBOX, None)
    assert scene.watch().file_bytes == pytest.approx(LIMITS.disk_bytes * 31 // 32, abs=1 << 17)

    scene.write("more", LIMITS.disk_bytes // 4)
    await scene.shares.quick(SANDBOX, None)
    assert scene.watch().file_bytes is None, "and that one may be written to as before"


async def test_a_run_whose_one_file_filled_the_workspace_is_told_so_at_its_end(scene: Scene) -> None:
    watch = scene.watch()
    assert watch.file_bytes is not None
    scene.write("one", watch.file_bytes)
    watch.stop()

    outcome = await watch.conclude(Outcome(1.0, Usage(1.0, 1), exit_code=1))

    assert (outcome.exit_code, outcome.disk_full) == (1, True)
    assert outcome.remark is not None
    assert "the workspace is full" in outcome.remark


async def test_a_run_that_leaves_some_room_is_told_nothing(scene: Scene) -> None:
    watch = scene.watch()
    assert watch.file_bytes is not None
    scene.write("one", watch.file_bytes - (1 << 19))
    watch.stop()

    assert (await watch.conclude(Outcome(1.0, Usage(1.0, 1), exit_code=0))).disk_full is False


async def test_far_over_is_its_share_twice_and_never_less_than_a_gibibyte_more() -> None:
    assert hopeless(Weight(16 * MIB, 100)) == Weight(16 * MIB + (1 << 30), 20_100)
    assert hopeless(Weight(4 << 30, 200_000)) == Weight(8 << 30, 400_000)


async def test_whatever_the_engine_a_run_that_fills_its_disk_is_ended_and_on_record(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host, asyncio.timeout(30):
        sandbox = await new_sandbox(host, limits={"disk_bytes": MIB})
        live = await begin(host, CALLER, sandbox.id, Ask(command=["fake", "sleep", "60"]))
        for number in range(40):
            (host.workspaces.folder(sandbox.id) / str(number)).write_bytes(bytes(MIB))
        run = await outcome_of(live)

        assert run.state == "done"
        assert run.outcome is not None
        assert (run.outcome.signal, run.outcome.disk_full, run.outcome.cancelled) == (9, True, False)
        assert (await host.ledger.run(run.id, run.tenant)).outcome == run.outcome
