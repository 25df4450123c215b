"""Runs that may be thrown away, and those who write meanwhile: one or the other, and nothing in between."""

import asyncio
from pathlib import Path

import pytest

from petri.errors import Conflict
from petri.model import Run
from petri.operations import Host
from petri.operations.command import Ask
from petri.operations.exec import begin, outcome_of
from petri.operations.trials import Trials
from tests.hosts import CALLER, new_sandbox, open_host
from tests.test_becoming import held, kinds, now, put, run


async def tried(host: Host, sandbox_id: str, *words: str, keep: str = "never") -> Run:
    """Run something whose changes may be thrown away."""
    ask = Ask(command=["fake", *words], keep=keep)  # type: ignore[arg-type]
    return await outcome_of(await begin(host, CALLER, sandbox_id, ask))


async def test_a_trial_begins_when_whoever_writes_is_done_and_lets_nobody_else_begin() -> None:
    trials = Trials()
    order: list[str] = []

    async def attempt() -> None:
        async with trials.under_way("sb-a"):
            order.append("trial")

    async with asyncio.TaskGroup() as tasks:
        with trials.writing("sb-a"), trials.writing("sb-a"):
            tasks.create_task(attempt())
            await asyncio.sleep(0)
            with pytest.raises(Conflict, match="keep"):
                trials.refuse("sb-a")
            with pytest.raises(Conflict), trials.writing("sb-a"):
                pass
            trials.refuse("sb-b")
            await asyncio.sleep(0.05)
            order.append("written")

    assert order == ["written", "trial"]
    with trials.writing("sb-a"):
        order.append("again")


async def test_a_trial_that_is_given_up_while_it_waits_keeps_nobody_out() -> None:
    trials = Trials()

    async def attempt() -> None:
        async with trials.under_way("sb-a"):
            raise AssertionError("somebody is still writing")

    with trials.writing("sb-a"):
        waiting = asyncio.ensure_future(attempt())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        trials.refuse("sb-a")


async def test_what_is_thrown_away_and_what_is_kept(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        await put(host, sandbox, "a", b"old")

        thrown = await tried(host, sandbox.id, "write", "/workspace/a", "new")
        assert held(host, sandbox) == {"a": b"old"}
        assert (thrown.kept, (await now(host, sandbox)).becoming) == (False, None)
        kept = await tried(host, sandbox.id, "write", "/workspace/a", "new", keep="on_success")
        assert held(host, sandbox) == {"a": b"new"}
        assert (kept.kept, (await now(host, sandbox)).tree) == (True, kept.tree_after)
        assert (await kinds(host, sandbox)).count("files.settled") == 1


async def test_an_engine_that_fails_leaves_the_files_as_they_were(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        await put(host, sandbox, "a", b"old")
        with pytest.raises(Exception, match="told to fail"):
            await tried(host, sandbox.id, "break", keep="on_success")

        assert held(host, sandbox) == {"a": b"old"}
        again = await tried(host, sandbox.id, "exit", "0")
        assert (again.kept, (await now(host, sandbox)).becoming) == (False, None)


async def test_what_a_run_left_is_kept_before_somebody_changes_it(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        ended = await run(host, sandbox, "write", "/workspace/a", "made by a run")
        assert isinstance(ended, Run)
        # At once: what is kept soon has not been yet.
        await put(host, sandbox, "a", b"uploaded")

        assert ended.tree_after is not None
        assert host.store.missing(sandbox.tenant, [bytes.fromhex(ended.tree_after)]) == []
