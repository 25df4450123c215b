"""What the ledger promises to operations, held against real SQLite files."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from petri.errors import Conflict, NotFound, Unavailable
from petri.ledger import Ending, HistoryRow, Ledger, SandboxQuery
from petri.model import (
    Addition,
    Asker,
    Changes,
    Event,
    Kept,
    Limits,
    Missing,
    Outcome,
    Packages,
    Peer,
    Run,
    RunEvent,
    RunState,
    Sandbox,
    SeenPeer,
    State,
    Usage,
    new_id,
)
from tests.ledgers import put_ledger

NOW = 1_700_000_000.0
LIMITS = Limits(cpus=1.0, memory_bytes=2**28, processes=64, timeout_s=60.0)


def a_sandbox(**changes: Any) -> Sandbox:
    plain = Sandbox(
        id=new_id("sb"),
        tenant="acme",
        language="python",
        engine="fake",
        lifetime="persistent",
        limits=LIMITS,
        created_at=NOW,
        last_active_at=NOW,
    )
    return replace(plain, **changes)


def a_run(sandbox: Sandbox, **changes: Any) -> Run:
    plain = Run(
        id=new_id("run"),
        sandbox_id=sandbox.id,
        tenant=sandbox.tenant,
        form="filename",
        said="main.py",
        argv=("python3", "main.py"),
        cwd="/workspace",
        timeout_s=60.0,
        engine="fake",
        asked_at=NOW,
    )
    return replace(plain, **changes)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return put_ledger(tmp_path)


@pytest.fixture
async def ledger(url: str) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(url)
    yield ledger
    await ledger.close()


@pytest.fixture
async def sandbox(ledger: Ledger) -> Sandbox:
    return await ledger.advance(await ledger.add_sandbox(a_sandbox()), Event.CREATED)


async def history(ledger: Ledger, sandbox_id: str) -> list[HistoryRow]:
    return (await ledger.events(sandbox_id, limit=1000, cursor=None)).items


async def kinds(ledger: Ledger, sandbox_id: str) -> list[str]:
    return [row.kind for row in await history(ledger, sandbox_id)]


def assert_nothing_is_left_at_its_default(thing: Any) -> None:
    for part in fields(thing):
        default = part.default if part.default_factory is MISSING else part.default_factory()
        assert getattr(thing, part.name) != default, f"this test proves nothing about {part.name}"


async def test_of_an_ended_sandbox_s_variables_only_the_names_stay(ledger: Ledger) -> None:
    ready = await ledger.advance(await ledger.add_sandbox(a_sandbox(env={"TOKEN": "secret"})), Event.CREATED)
    assert (await ledger.sandbox(ready.id, ready.tenant)).env == {"TOKEN": "secret"}

    await ledger.advance(ready, Event.DELETE)

    assert (await ledger.sandbox(ready.id, ready.tenant)).env == {"TOKEN": ""}


async def test_everything_a_sandbox_holds_comes_back(ledger: Ledger) -> None:
    full = a_sandbox(
        name="β-1",
        state=State.DELETING,
        generation=3,
        number=7,
        ttl_s=3600.5,
        idle_s=60.25,
        env={"PATH": "/bin", "EMPTY": "", "Δ": "\U0001f9ea"},
        metadata={"team": "a", 'quo"te': "o'clock; DROP TABLE"},
        asker=Asker(created_by="ann", agent="claude", key_name="ci"),
        lifetime="ephemeral",
        ended_at=NOW + 9,
        ended_because="ttl",
        tree="12" * 32,
        becoming="78" * 32,
        forked_from="sb-parent",
        from_snapshot="snap-origin",
        first_tree="9a" * 32,
        peers=(Peer("sb-writer", "/peers/writer"), Peer("sb-x", "/peers/x", "bc" * 32, "snap-x")),
        environment="de" * 32,
        added=(Addition("python", "six", "six>=1", "run-x pip install six", is_loose=True),),
    )
    assert_nothing_is_left_at_its_default(full)
    await ledger.add_sandbox(a_sandbox(id="sb-parent"))

    added = await ledger.add_sandbox(full)

    assert added == replace(full, number=2)
    assert await ledger.sandbox(full.id, "acme") == added


async def test_everything_a_run_holds_comes_back(ledger: Ledger, sandbox: Sandbox) -> None:
    asked = a_run(
        sandbox,
        form="code",
        said="print('\u00fc\U0001f9ea\n')",
        argv=("python3", "-c", "print('ü')"),
        asker=Asker(created_by="ann", agent="claude", key_name="ci"),
        language="python",
        env_names=("TOKEN", "HOME"),
        stdin_bytes=2**40,
        tree_before="34" * 32,
        undone_at=NOW + 3,
        keep="on_success",
        peers=(SeenPeer("sb-writer", "/peers/writer", "de" * 32),),
        environment="bc" * 32,
        packages=Packages(
            ("six==1.17.0",),
            (Missing("sklern", "misspelt", "sklearn"),),
            "imports",
            "so",
            {"six": ("a.py:1",)},
        ),
        limits=replace(LIMITS, open_files=33, disk_bytes=2**41, inodes=2**33, tmp_bytes=1, output_bytes=2),
    )
    outcome = Outcome(12.5, Usage(9.25, 2**33), None, 9, timed_out=True, oom_killed=True, cancelled=True)
    outcome = replace(outcome, disk_full=True, remark="the workspace holds more than it may")
    stdout, stderr = Kept(2**35, 10, "ab" * 32), Kept(1, 1, "cd" * 32)

    started = await ledger.add_run(asked, start=True)
    changes = Changes(added=("a", "ü"), modified=("m",), deleted=("d",), left_out=7)
    ending = Ending(outcome, stdout, stderr, "the launcher died", tree="56" * 32, changes=changes, kept=True)
    ended = await ledger.advance_run(started, RunEvent.ENDED, at=NOW + 2, ending=ending)

    assert started == replace(asked, state=RunState.RUNNING, started_at=NOW)
    assert ended == replace(
        started,
        state=RunState.DONE,
        ended_at=NOW + 2,
        outcome=outcome,
        stdout=stdout,
        stderr=stderr,
        failure="the launcher died",
        tree_after="56" * 32,
        changes=changes,
        kept=True,
    )
    assert_nothing_is_left_at_its_default(ended)
    assert await ledger.run(asked.id, "acme") == ended
    assert (await ledger.sandbox(sandbox.id, "acme")).tree == "56" * 32


async def test_a_run_that_may_be_thrown_away_says_from_its_start_on_what_the_files_will_be(
    ledger: Ledger, sandbox: Sandbox
) -> None:
    before, after = "12" * 32, "34" * 32

    async def becoming() -> str | None:
        return (await ledger.sandbox(sandbox.id, "acme")).becoming

    async def ended(*, kept: bool, tree: str) -> Sandbox:
        run = await ledger.add_run(a_run(sandbox, keep="on_success", tree_before=before), start=True)
        assert await becoming() == before
        await ledger.advance_run(run, RunEvent.ENDED, at=NOW, ending=Ending(tree=tree, kept=kept))
        return await ledger.sandbox(sandbox.id, "acme")

    kept = await ended(kept=True, tree=after)
    assert (kept.becoming, kept.tree) == (None, after)
    thrown_away = await ended(kept=False, tree=after)
    assert (thrown_away.becoming, thrown_away.tree) == (before, after)
    nothing_done = await ended(kept=False, tree=before)
    assert nothing_done.becoming is None

    queued = await ledger.add_run(a_run(sandbox, keep="never"), start=False)
    assert await becoming() is None
    started = await ledger.advance_run(replace(queued, tree_before=before), RunEvent.START, at=NOW)
    assert await becoming() == before
    assert await ledger.interrupt_unfinished_runs(NOW) == 1
    assert (await ledger.run(started.id, "acme")).kept is False
    assert await becoming() == before


async def test_a_run_that_never_started_leaves_what_the_files_are_to_be(
    ledger: Ledger, sandbox: Sandbox
) -> None:
    queued = await ledger.add_run(a_run(sandbox, keep="never"), start=False)
    ready = await ledger.advance(sandbox, Event.CREATED) if sandbox.state is State.CREATING else sandbox
    await ledger.begin_becoming(ready.id, "56" * 32, "restore")
    await ledger.advance_run(queued, RunEvent.CANCELLED, at=NOW)

    assert (await ledger.sandbox(sandbox.id, "acme")).becoming == "56" * 32


async def test_every_environment_that_a_run_had_is_known(ledger: Ledger, sandbox: Sandbox) -> None:
    for environment in ("aa", "bb+cc", "aa", None):
        await ledger.add_run(a_run(sandbox, environment=environment), start=True)

    assert await ledger.environments() == {"aa", "bb", "cc"}


async def test_what_a_run_wrote_is_on_record_with_its_end_or_not_at_all(
    ledger: Ledger, sandbox: Sandbox
) -> None:
    run = await ledger.add_run(a_run(sandbox), start=True)
    silent = await ledger.add_run(replace(a_run(sandbox), id="run-silent"), start=True)
    output = bytes(range(256))

    ended = await ledger.advance_run(run, RunEvent.ENDED, at=NOW, ending=Ending(output=output))
    with pytest.raises(Conflict):
        await ledger.advance_run(run, RunEvent.CANCELLED, at=NOW, ending=Ending(output=b"another"))
    await ledger.advance_run(silent, RunEvent.ENDED, at=NOW, ending=Ending(output=b""))

    assert await ledger.output(ended.id) == output
    assert await ledger.output(silent.id) is None


async def test_an_exit_code_of_zero_is_not_mistaken_for_none(ledger: Ledger, sandbox: Sandbox) -> None:
    run = await ledger.add_run(a_run(sandbox), start=True)
    outcome = Outcome(duration_ms=0.0, usage=Usage(0.0, 0), exit_code=0)

    await ledger.advance_run(run, RunEvent.ENDED, at=NOW, ending=Ending(outcome))

    assert (await ledger.run(run.id, "acme")).outcome == outcome


async def test_a_lone_surrogate_is_replaced_wherever_it_comes_from(ledger: Ledger) -> None:
    odd = "x\ud800y"
    sandbox = await ledger.add_sandbox(a_sandbox(env={odd: odd}, metadata={"k": odd}))
    run = await ledger.add_run(a_run(sandbox, said=odd, argv=(odd, "\ud83e\uddea")), start=False)
    await ledger.advance_run(run, RunEvent.BROKE, at=NOW, ending=Ending(failure=odd))
    await ledger.note(sandbox.id, "files.written", {"paths": [odd]}, at=NOW)

    assert sandbox.env == {"x\ufffdy": "x\ufffdy"}
    kept = await ledger.run(run.id, "acme")
    assert (kept.said, kept.argv, kept.failure) == ("x\ufffdy", ("x\ufffdy", "\U0001f9ea"), "x\ufffdy")
    assert (await history(ledger, sandbox.id))[-1].detail == {"paths": ["x\ufffdy"]}
    assert len((await ledger.sandboxes("acme", SandboxQuery(metadata={"k": odd}))).items) == 1
    with pytest.raises(NotFound):
        await ledger.sandbox(odd, "acme")


# ---------------------------------------------------------------------------------------------- lifetimes


async def test_what_a_cancelled_caller_asked_for_still_happens_whole(ledger: Ledger) -> None:
    tasks = [asyncio.ensure_future(ledger.add_sandbox(a_sandbox(metadata={"a": "b"}))) for _ in range(40)]
    await asyncio.sleep(0)  # each has asked, none has its answer
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await ledger.add_sandbox(a_sandbox(tenant="other"))

    assert sum(task.cancelled() for task in tasks) == 20
    added = (await ledger.sandboxes("acme", SandboxQuery(limit=100, metadata={"a": "b"}))).items
    assert len(added) == 40
    for sandbox in added:
        assert await kinds(ledger, sandbox.id) == ["create"]


async def test_one_job_that_cannot_be_stored_does_not_spoil_the_others(
    ledger: Ledger, sandbox: Sandbox
) -> None:
    good = [ledger.note(sandbox.id, "good", {"n": n}, at=NOW) for n in range(10)]
    bad = [ledger.note(sandbox.id, "bad", {"n": object()}, at=NOW) for _ in range(2)]

    answers = await asyncio.gather(*good[:5], *bad, *good[5:], return_exceptions=True)

    assert [answer is None for answer in answers] == [True] * 5 + [False] * 2 + [True] * 5
    rows = (await history(ledger, sandbox.id))[2:]
    assert [row.detail["n"] for row in rows] == list(range(10))


async def test_a_closed_ledger_says_so_and_can_be_closed_again(url: str) -> None:
    ledger = Ledger.open(url)
    asked = asyncio.ensure_future(ledger.add_sandbox(a_sandbox()))
    await asyncio.sleep(0)

    await asyncio.gather(ledger.close(), ledger.close())
    await ledger.close()

    assert (await asked).number == 1
    with pytest.raises(Unavailable, match="closed"):
        await ledger.add_sandbox(a_sandbox())
    with pytest.raises(Unavailable, match="closed"):
        await ledger.counts()


async def test_closing_waits_for_everyone_in_line(ledger: Ledger, sandbox: Sandbox) -> None:
    gate = threading.Event()
    held = asyncio.ensure_future(ledger._writer.do(lambda _: gate.wait()))
    notes = [asyncio.ensure_future(ledger.note(sandbox.id, "n", {}, at=NOW)) for _ in range(5)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(ledger.close())
    while ledger._writer._queue.qsize() < 6:  # noqa: ASYNC110  the notes and the end, put by a thread
        await asyncio.sleep(0.001)

    gate.set()

    async with asyncio.timeout(10):
        assert await asyncio.gather(held, *notes, closing) == [True, *[None] * 6]


async def test_the_ledger_in_memory_behaves_as_the_one_on_disk() -> None:
    ledger = Ledger.open("sqlite://")
    sandbox = await ledger.advance(await ledger.add_sandbox(a_sandbox(name="x")), Event.CREATED)
    run = await ledger.add_run(a_run(sandbox), start=True)

    assert await ledger.sandbox_named("x", "acme") == sandbox
    assert await ledger.run(run.id, "acme") == run
    with pytest.raises(Conflict):
        await ledger.add_sandbox(a_sandbox(name="x"))
    assert (await ledger.counts()).runs[RunState.RUNNING] == 1
    await ledger.close()
