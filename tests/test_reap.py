"""The reaper: whatever could not be finished is finished later, and nobody waits for it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from petri.errors import StorageFull
from petri.model import Event, RunState, Sandbox, State
from petri.operations import Host, once, reap
from petri.operations.command import Ask
from petri.operations.create import Wish
from petri.operations.destroy import destroy, give_up
from petri.operations.exec import begin, outcome_of
from petri.operations.reap import Reaper, recover
from petri.workspace import Bounds, Workspaces
from tests.hosts import CALLER, new_sandbox, open_host, state_of, until


class FaultyWorkspaces(Workspaces):
    """Workspaces on a disk that can be told to fail, or to take its time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Bounds(2**30, 1000))
        self.is_failing = False
        self.attempts = 0
        self.slow = threading.Event()
        """What is called `slow` is removed only once this is set."""
        self.slow_id = ""

    def remove(self, sandbox_id: str) -> None:
        self.attempts += 1
        if self.is_failing:
            raise StorageFull("no space is left, and renaming takes some")
        if sandbox_id == self.slow_id:
            assert self.slow.wait(20)
        super().remove(sandbox_id)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the reaper look very often."""
    monkeypatch.setattr(reap, "_LOOK_S", 0.01)
    monkeypatch.setattr(reap, "_TIDY_S", 0.01)
    monkeypatch.setattr(reap, "_FIRST_AGAIN_S", dict.fromkeys(reap._FIRST_AGAIN_S, 0.01))


@pytest.fixture
def workspaces(tmp_path: Path) -> Iterator[FaultyWorkspaces]:
    made = FaultyWorkspaces(tmp_path / "workspaces")
    yield made
    made.slow.set()


@asynccontextmanager
async def at_work(reaper: Reaper) -> AsyncIterator[None]:
    """Have a reaper at work meanwhile."""
    work = asyncio.ensure_future(reaper.run())
    try:
        yield
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def reaping(host: Host, holds: Callable[[], Awaitable[bool]], reaper: Reaper | None = None) -> None:
    """Have a reaper at work until something holds; fail if it never does."""
    async with at_work(reaper or Reaper(host)):
        await until(holds)


def is_deleted(host: Host, sandbox: Sandbox) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return await state_of(host, sandbox) == "deleted"

    return holds


@pytest.mark.long
async def test_a_removal_that_failed_is_tried_again_ever_more_seldom_until_it_succeeds(
    tmp_path: Path, workspaces: FaultyWorkspaces
) -> None:
    async with open_host(tmp_path, workspaces=workspaces) as host:
        sandbox = await new_sandbox(host)
        workspaces.is_failing = True
        with pytest.raises(StorageFull):
            await destroy(host, CALLER, sandbox.id)
        assert await state_of(host, sandbox) == "deleting"
        workspaces.attempts = 0

        async def has_tried_often() -> bool:
            return workspaces.attempts >= 5

        begun = time.monotonic()
        await reaping(host, has_tried_often)
        waited_s = time.monotonic() - begun
        workspaces.is_failing = False
        await reaping(host, is_deleted(host, sandbox))

        assert waited_s > 0.01 + 0.02 + 0.04 + 0.08 + 0.16, "each pause is twice the one before"
        assert not workspaces.folder(sandbox.id).exists()


async def test_what_an_earlier_life_left_is_finished_at_once(
    tmp_path: Path, workspaces: FaultyWorkspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reap, "_FIRST_AGAIN_S", dict.fromkeys(reap._FIRST_AGAIN_S, 1000.0))
    async with open_host(tmp_path, workspaces=workspaces) as host:
        deleting, creating = await new_sandbox(host), await new_sandbox(host)
        await host.ledger.advance(deleting, Event.DELETE)
        half_made = await host.ledger.add_sandbox(creating_like(creating))
    workspaces.attempts = 0
    async with open_host(tmp_path, workspaces=workspaces) as host:
        left_over = await recover(host)

        assert left_over == {deleting.id, half_made.id}
        assert await state_of(host, half_made) == "deleting", "its name is free before the first request"
        assert workspaces.attempts == 0, "nothing is removed before the first request"
        async with at_work(Reaper(host, left_over)):
            await until(is_deleted(host, deleting))
            await until(is_deleted(host, half_made))


async def test_an_empty_folder_that_nobody_knows_goes_and_one_with_something_in_it_stays(
    tmp_path: Path, workspaces: FaultyWorkspaces
) -> None:
    async with open_host(tmp_path, workspaces=workspaces) as host:
        known = await new_sandbox(host)
        cut_off, strange = workspaces.folder("sb-" + "b" * 20), workspaces.folder("sb-" + "c" * 20)
        cut_off.mkdir()
        strange.mkdir()
        (strange / "kept.txt").write_text("from before somebody put an old ledger back")
        of_the_server = workspaces.folder("languages")
        of_the_server.mkdir(exist_ok=True)

        await recover(host)

        there = [each.exists() for each in (workspaces.folder(known.id), cut_off, of_the_server)]
        assert there == [True, False, True]
        assert (strange / "kept.txt").exists()


async def test_a_sandbox_that_nobody_waited_for_is_gone_whether_or_not_it_is_on_record(
    tmp_path: Path, workspaces: FaultyWorkspaces
) -> None:
    async with open_host(tmp_path, workspaces=workspaces) as host:
        on_record = await new_sandbox(host)
        as_it_was_asked_for = replace(on_record, state=State.CREATING, generation=0)
        not_on_record = replace(as_it_was_asked_for, id="sb-" + "d" * 20, number=on_record.number + 1)
        workspaces.create(not_on_record.id, None)

        await give_up(host, as_it_was_asked_for)
        await give_up(host, not_on_record)

        assert await state_of(host, on_record) == "deleted"
        assert [workspaces.folder(each.id).exists() for each in (on_record, not_on_record)] == [False, False]


def creating_like(sandbox: Sandbox) -> Sandbox:
    return replace(sandbox, id="sb-" + "a" * 20, state=State.CREATING, generation=0)


@pytest.mark.long
async def test_a_removal_that_takes_long_keeps_no_other_sandbox_from_its_end(
    tmp_path: Path, workspaces: FaultyWorkspaces
) -> None:
    async with open_host(tmp_path, workspaces=workspaces) as host:
        slow, quick = await new_sandbox(host, ttl_s=0.001), await new_sandbox(host, ttl_s=0.3)
        workspaces.slow_id = slow.id

        async with at_work(Reaper(host)):
            await until(is_deleted(host, quick))
            assert await state_of(host, slow) == "deleting"
            workspaces.slow.set()


async def test_a_run_whose_end_could_not_be_recorded_is_closed(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        live = await begin(host, CALLER, sandbox.id, Ask(command=["fake", "sleep", "60"]))
        record = await outcome_of_lost(host, sandbox)

        async def is_closed() -> bool:
            found = await host.ledger.run(record, "default")
            return found.state is RunState.INTERRUPTED

        await reaping(host, is_closed)
        assert (await host.ledger.run(live.run.id, "default")).state is RunState.RUNNING, "that one is alive"
        live.leash.cancelled.set_result(None)
        await outcome_of(live)


async def outcome_of_lost(host: Host, sandbox: Sandbox) -> str:
    """Put a run on record that nobody is carrying out."""
    [template] = host.live.values()
    lost = replace(template.run, id="run-" + "b" * 20, state=RunState.QUEUED, started_at=None)
    return (await host.ledger.add_run(lost, start=True)).id


@pytest.mark.long
async def test_an_ephemeral_sandbox_that_could_not_be_ended_after_its_run_is_ended_later(
    tmp_path: Path, workspaces: FaultyWorkspaces
) -> None:
    async with open_host(tmp_path, workspaces=workspaces) as host:
        running, over = (
            await new_sandbox(host, lifetime="ephemeral"),
            await new_sandbox(host, lifetime="ephemeral"),
        )
        live = await begin(host, CALLER, running.id, Ask(command=["fake", "sleep", "60"]))
        had = replace(
            live.run, id="run-" + "c" * 20, sandbox_id=over.id, state=RunState.QUEUED, started_at=None
        )
        await host.ledger.add_run(had, start=True)

        await reaping(host, is_deleted(host, over))

        ended = await host.ledger.sandbox(over.id, "default")
        assert ended.ended_because == "ephemeral"
        assert await state_of(host, running) == "ready", "its run goes on"
        live.leash.cancelled.set_result(None)
        await outcome_of(live)


@pytest.mark.long
async def test_a_sandbox_for_one_call_does_not_outlive_a_crash_before_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "_FORGOTTEN_S", 0.2)
    async with open_host(tmp_path) as crashed:
        await crashed.languages.all()
        async with crashed.languages._asking:  # from here on, nobody learns how to run code
            call = asyncio.ensure_future(
                once.exec_once(crashed, CALLER, Wish(lifetime="ephemeral"), {"a": b""}, Ask(code="1"))
            )
            monkeypatch.setattr(crashed.languages, "check", no_check)
            crashed.store.close()  # the kernel does that for whoever crashes
            async with open_host(tmp_path) as host:

                async def is_made() -> bool:
                    return await host.ledger.expired(time.time() + 3600) != []

                await until(is_made)
                [orphan] = await host.ledger.expired(time.time() + 3600)
                await reaping(host, is_deleted(host, orphan))

                ended = await host.ledger.sandbox(orphan.id, "default")
                assert ended.ended_because == "idle"
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call


async def no_check(_: str) -> None:
    """Any language will do."""


@pytest.mark.long
async def test_a_clock_set_forward_ends_nobody_s_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_host(tmp_path) as host:
        patient, due = await new_sandbox(host, ttl_s=3600), await new_sandbox(host, ttl_s=0.5)
        reaper = Reaper(host)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 86_400)

        await reaping(host, is_deleted(host, due), reaper)

        assert await state_of(host, patient) == "ready"
