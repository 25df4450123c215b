"""How a run ends that its command does not end: the host stops, its record fails, its engine does."""

import asyncio
from pathlib import Path

import pytest

from petri.app import drain
from petri.errors import EngineFailed, StorageFull, Unavailable
from petri.ledger import Ending, Ledger
from petri.ledger.runs import NO_ENDING
from petri.model import Run, RunEvent, RunState
from petri.operations.command import Ask
from petri.operations.exec import begin, outcome_of
from petri.operations.history import before, follow, output
from tests.hosts import CALLER, PlayedEngine, new_sandbox, open_host, state_of, until

SLEEP = Ask(command=["fake", "sleep", "60"])


@pytest.mark.long
async def test_a_host_that_drains_starts_nothing_new(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        running = await begin(host, CALLER, sandbox.id, SLEEP)
        stopping = asyncio.ensure_future(drain(host, 0.3))
        await asyncio.sleep(0)

        with pytest.raises(Unavailable, match="stopping"):
            await begin(host, CALLER, sandbox.id, SLEEP)

        await stopping
        assert (await outcome_of(running)).state is RunState.INTERRUPTED
        assert len((await host.ledger.runs(sandbox.id, limit=10, cursor=None)).items) == 1


async def test_a_host_that_begins_to_drain_while_a_run_is_decided_on_does_not_start_it(
    tmp_path: Path,
) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        async with host.languages._asking:  # so long, nobody knows how to run code
            asked = asyncio.ensure_future(begin(host, CALLER, sandbox.id, Ask(code="1")))
            while not host.languages._asking._waiters:  # noqa: ASYNC110 - it comes there in a few turns
                await asyncio.sleep(0)
            host.draining = True

        with pytest.raises(Unavailable, match="stopping"):
            await asked
        assert (host.live, host.desk.is_busy(sandbox.id)) == ({}, False)


class FullLedger(Ledger):
    """A ledger with no room for one more run."""

    async def add_run(self, run: Run, *, start: bool) -> Run:
        raise StorageFull("no space left")


async def test_a_run_that_cannot_be_recorded_never_starts_and_leaves_nothing(tmp_path: Path) -> None:
    engine = PlayedEngine()
    async with open_host(tmp_path, ledgers=FullLedger, engine=engine) as host:
        sandbox = await new_sandbox(host)

        with pytest.raises(StorageFull):
            async with asyncio.timeout(5):
                await begin(host, CALLER, sandbox.id, Ask(command=["fake", "print", "it ran"]))

        async def is_over() -> bool:
            return host.live == {}

        await until(is_over)
        assert (engine.running, host.desk.is_busy(sandbox.id)) == (0, False)
        assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == [], "it wrote something"


class DeafLedger(Ledger):
    """A ledger that takes beginnings and no endings."""

    async def advance_run(self, run: Run, event: RunEvent, *, at: float, ending: Ending = NO_ENDING) -> Run:
        raise StorageFull("no space left")


async def test_what_a_run_wrote_is_kept_though_its_end_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.operations.ending._RECORD_AGAIN_S", ())
    async with open_host(tmp_path, ledgers=DeafLedger) as host:
        sandbox = await new_sandbox(host)
        live = await begin(host, CALLER, sandbox.id, Ask(command=["fake", "print", "precious"]))
        with pytest.raises(StorageFull):
            await outcome_of(live)

    async with open_host(tmp_path) as host:
        await host.ledger.interrupt_unfinished_runs(at=1.0)
        assert b"".join(await output(host, CALLER, live.run.id, "stdout")) == b"precious"


async def test_a_run_that_ends_with_little_output_leaves_no_file_though_somebody_watched(
    tmp_path: Path,
) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        live = await begin(host, CALLER, sandbox.id, Ask(command=["fake", "print", "precious"]))
        shown = [chunk async for chunk in follow(host, live, live.run.id, 0, 10) if chunk is not None]
        await outcome_of(live)

        async def is_over() -> bool:
            return host.live == {}

        await until(is_over)
        assert [chunk async for chunk in follow(host, None, live.run.id, 0, 10)] == shown
        assert await before(host, live.run.id, shown[-1].position) == {"stdout": b"ous", "stderr": b""}
        assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []


async def test_an_ephemeral_sandbox_is_used_up_by_a_run_whose_engine_failed(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host, lifetime="ephemeral")
        live = await begin(host, CALLER, sandbox.id, Ask(command=["fake", "break"]))

        with pytest.raises(EngineFailed):
            await outcome_of(live)

        assert await state_of(host, sandbox) == "deleted"
        assert (await host.ledger.run(live.run.id, "default")).state is RunState.FAILED
        assert not host.workspaces.folder(sandbox.id).exists()


@pytest.mark.parametrize(
    ("command", "is_due"), [(["fake", "print", "x"], False), (["fake", "write", "/workspace/f", "x"], True)]
)
async def test_only_a_run_that_changed_something_has_its_files_kept_anew(
    tmp_path: Path, command: list[str], *, is_due: bool
) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        live = await begin(host, CALLER, sandbox.id, Ask(command=command))
        await outcome_of(live)

        assert (sandbox.id in host.keeper.due) is is_due
