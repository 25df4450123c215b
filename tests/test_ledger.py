"""What the ledger promises to operations, held against real SQLite files."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from petri.errors import Conflict, InvalidField, NotFound, Unavailable
from petri.ledger import Ending, HistoryRow, Ledger, SandboxQuery
from petri.ledger.pages import PAGE_BYTES, cursor_of
from petri.model import (
    ENDED_BECAUSE,
    LIFECYCLE,
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


# ------------------------------------------------------------------------------------------- round trips


def soonest_end(url: str) -> float | None:
    """Return when the first sandbox ends by itself, as the next life would find it."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw:
        found: float | None = raw.execute("SELECT min(expires_at) FROM sandboxes").fetchone()[0]
        return found


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


# --------------------------------------------------------------------------------------------- sandboxes


async def test_every_step_of_a_life_is_in_the_history(ledger: Ledger) -> None:
    sandbox = await ledger.add_sandbox(a_sandbox())
    for event in (Event.CREATED, Event.DELETE, Event.REMOVED):
        sandbox = await ledger.advance(sandbox, event, {"why": "a test"})

    rows = await history(ledger, sandbox.id)
    assert [(row.kind, row.detail["state"]) for row in rows] == [
        ("create", "creating"),
        ("created", "ready"),
        ("delete", "deleting"),
        ("removed", "deleted"),
    ]
    assert rows[1].detail["why"] == "a test"
    assert sandbox.generation == 3
    assert await ledger.sandbox(sandbox.id, "acme") == sandbox


@pytest.mark.parametrize("event", sorted(ENDED_BECAUSE))
async def test_an_ending_says_when_and_why(ledger: Ledger, event: Event, url: str) -> None:
    state = next(state for state, exits in LIFECYCLE.items() if event in exits)
    sandbox = await ledger.add_sandbox(a_sandbox(state=state, ttl_s=1.0))
    before = time.time()

    ending = await ledger.advance(sandbox, event)
    ended = await ledger.advance(ending, Event.REMOVED)

    assert before <= (ending.ended_at or 0) <= time.time()
    assert ending.ended_because == ENDED_BECAUSE[event]
    assert (ended.ended_at, ended.ended_because) == (ending.ended_at, ending.ended_because)
    assert soonest_end(url) is None


async def test_the_lifecycle_table_is_asked(ledger: Ledger, sandbox: Sandbox) -> None:
    with pytest.raises(Conflict, match="the sandbox is ready"):
        await ledger.advance(sandbox, Event.REMOVED)

    assert await kinds(ledger, sandbox.id) == ["create", "created"]


async def test_of_many_who_advance_one_sandbox_one_wins(ledger: Ledger, sandbox: Sandbox) -> None:
    events = [Event.DELETE, Event.EXPIRE_IDLE, Event.EXPIRE_TTL, Event.USED_UP] * 4

    answers = await asyncio.gather(
        *(ledger.advance(sandbox, event) for event in events), return_exceptions=True
    )

    won = [answer for answer in answers if isinstance(answer, Sandbox)]
    assert len(won) == 1
    assert {type(answer) for answer in answers} == {Sandbox, Conflict}
    assert await ledger.sandbox(sandbox.id, "acme") == won[0]
    assert len(await kinds(ledger, sandbox.id)) == 3


async def test_another_tenants_sandbox_is_not_found(ledger: Ledger, sandbox: Sandbox) -> None:
    with pytest.raises(NotFound):
        await ledger.sandbox(sandbox.id, "other")
    with pytest.raises(NotFound):
        await ledger.sandbox("sb-none", "acme")


async def test_a_name_is_held_by_one_live_sandbox_of_a_tenant(ledger: Ledger) -> None:
    first = await ledger.add_sandbox(a_sandbox(name="x"))
    with pytest.raises(Conflict, match="the name x is in use"):
        await ledger.add_sandbox(a_sandbox(name="x"))
    await ledger.add_sandbox(a_sandbox(name="x", tenant="other"))

    assert await ledger.sandbox_named("x", "acme") == first
    await ledger.advance(first, Event.DELETE)
    assert await ledger.sandbox_named("x", "acme") is None
    second = await ledger.add_sandbox(a_sandbox(name="x"))
    assert await ledger.sandbox_named("x", "acme") == second


async def test_of_many_who_want_a_name_at_once_one_gets_it(ledger: Ledger, url: str) -> None:
    other = Ledger.open(url)
    wanting = [book.add_sandbox(a_sandbox(name="x")) for book in (ledger, other) for _ in range(12)]
    unnamed = [ledger.add_sandbox(a_sandbox()) for _ in range(12)]

    answers = await asyncio.gather(*wanting, *unnamed, return_exceptions=True)
    await other.close()

    assert sum(isinstance(answer, Sandbox) for answer in answers[:24]) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers[:24]) == 23
    assert all(isinstance(answer, Sandbox) for answer in answers[24:])
    assert (await ledger.counts()).sandboxes[State.CREATING] == 13


async def test_a_number_is_never_used_twice(ledger: Ledger, url: str, tmp_path: Path) -> None:
    numbers = [(await ledger.add_sandbox(a_sandbox())).number for _ in range(3)]
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.executescript("DELETE FROM events; DELETE FROM sandboxes;")
    raw.close()
    again = Ledger.open(url)

    numbers.append((await again.add_sandbox(a_sandbox())).number)
    await again.close()

    assert numbers == [1, 2, 3, 4]


async def test_numbers_are_handed_out_before_their_sandboxes_are_on_record(ledger: Ledger, url: str) -> None:
    numbers = await asyncio.gather(*(ledger.next_number() for _ in range(3)))
    added = await ledger.add_sandbox(a_sandbox(number=numbers[2]), is_made=True)
    again = Ledger.open(url)

    numbers.append(await again.next_number())
    await again.close()

    assert (numbers, added.number, added.state) == ([1, 2, 3, 4], 3, State.READY)
    history = await ledger.events(added.id, limit=10, cursor=None)
    assert [(row.kind, row.detail["state"]) for row in history.items] == [
        ("create", "creating"),
        ("created", "ready"),
    ]


async def test_an_amendment_changes_what_it_names(ledger: Ledger, sandbox: Sandbox, url: str) -> None:
    changes: dict[str, Any] = {"name": "n", "ttl_s": 10.0, "idle_s": 5.0, "metadata": {"a": "b"}}

    amended = await ledger.amend(sandbox, {**changes, "limits": {"cpus": 0.5}})

    assert amended == replace(sandbox, **changes, limits=replace(LIMITS, cpus=0.5))
    assert await ledger.sandbox(sandbox.id, "acme") == amended
    assert soonest_end(url) == NOW + 5
    last = (await history(ledger, sandbox.id))[-1]
    assert (last.kind, last.detail) == ("amend", {"changed": sorted([*changes, "limits"])})


async def test_of_the_limits_only_those_named_change_however_old_the_sandbox_in_hand_is(
    ledger: Ledger, sandbox: Sandbox
) -> None:
    await asyncio.gather(
        ledger.amend(sandbox, {"limits": {"cpus": 0.5}}),
        ledger.amend(sandbox, {"limits": {"processes": 7}}),
        ledger.amend(sandbox, {"limits": {}}),
    )

    assert (await ledger.sandbox(sandbox.id, "acme")).limits == replace(LIMITS, cpus=0.5, processes=7)


async def test_an_amendment_may_clear_and_one_that_changes_nothing_leaves_no_trace(
    ledger: Ledger, sandbox: Sandbox, url: str
) -> None:
    await ledger.amend(sandbox, {"name": "n", "ttl_s": 10.0, "metadata": {"a": "b"}})
    cleared = await ledger.amend(sandbox, {"name": None, "ttl_s": None, "metadata": {}})
    same = await ledger.amend(sandbox, {"name": None})

    assert (cleared.name, cleared.ttl_s, cleared.metadata) == (None, None, {})
    assert same == cleared
    assert soonest_end(url) is None
    assert (await ledger.sandboxes("acme", SandboxQuery(metadata={"a": "b"}))).items == []
    assert (await kinds(ledger, sandbox.id)).count("amend") == 2


async def test_an_amendment_does_not_undo_what_happened_since(
    ledger: Ledger, sandbox: Sandbox, url: str
) -> None:
    await ledger.touch(sandbox.id, NOW + 50)

    amended = await ledger.amend(sandbox, {"idle_s": 10.0})

    assert amended.last_active_at == NOW + 50
    assert soonest_end(url) == NOW + 60


async def test_an_amendment_is_refused_where_it_cannot_be(ledger: Ledger, sandbox: Sandbox) -> None:
    await ledger.add_sandbox(a_sandbox(name="taken"))

    with pytest.raises(Conflict, match="taken"):
        await ledger.amend(sandbox, {"name": "taken", "ttl_s": 1.0})
    with pytest.raises(InvalidField) as refused:
        await ledger.amend(sandbox, {"tenant": "other"})
    with pytest.raises(NotFound):
        await ledger.amend(a_sandbox(), {"name": "y"})
    assert refused.value.field == "tenant"
    assert await ledger.sandbox(sandbox.id, "acme") == sandbox

    await ledger.advance(sandbox, Event.DELETE)
    with pytest.raises(Conflict, match="the sandbox is deleting"):
        await ledger.amend(sandbox, {"name": "y"})


# ---------------------------------------------------------------------------------------------- expiring


async def test_who_has_expired_is_what_the_model_says(ledger: Ledger, url: str) -> None:
    lives = [(None, None), (10.0, None), (None, 10.0), (10.0, 3.0), (3.0, 10.0), (5.0, 5.0)]
    for touched in (None, NOW - 100, NOW + 4, NOW + 20):
        for ttl_s, idle_s in lives:
            added = await ledger.add_sandbox(a_sandbox(ttl_s=ttl_s, idle_s=idle_s))
            if touched is not None:
                await ledger.touch(added.id, touched)
    everyone = (await ledger.sandboxes("acme", SandboxQuery(limit=100))).items

    ends = {one.id: end[0] for one in everyone if (end := one.expiry()) is not None}
    assert len(ends) == 20
    assert soonest_end(url) == min(ends.values())
    for at in sorted({*ends.values(), NOW, NOW + 1000}):
        found = await ledger.expired(at)
        assert {one.id for one in found} == {one for one, end in ends.items() if end <= at}
        assert [ends[one.id] for one in found] == sorted(ends[one.id] for one in found)


async def test_touching_never_turns_back_and_leaves_no_history(ledger: Ledger, sandbox: Sandbox) -> None:
    await ledger.touch(sandbox.id, NOW + 10)
    await ledger.touch(sandbox.id, NOW + 5)
    await ledger.touch("sb-none", NOW)

    assert (await ledger.sandbox(sandbox.id, "acme")).last_active_at == NOW + 10
    assert await kinds(ledger, sandbox.id) == ["create", "created"]


async def test_a_sandbox_that_is_ending_does_not_expire_again(ledger: Ledger) -> None:
    sandbox = await ledger.add_sandbox(a_sandbox(ttl_s=1.0, idle_s=1.0))
    await ledger.advance(sandbox, Event.DELETE)
    await ledger.touch(sandbox.id, NOW + 100)

    assert await ledger.expired(NOW + 1000) == []
    assert [one.id for one in await ledger.unfinished()] == [sandbox.id]


# --------------------------------------------------------------------------------------------------- runs


async def test_a_run_and_its_sandbox_move_together(ledger: Ledger, sandbox: Sandbox) -> None:
    run = await ledger.add_run(a_run(sandbox, asked_at=NOW + 1), start=False)
    run = await ledger.advance_run(run, RunEvent.START, at=NOW + 2)
    run = await ledger.advance_run(run, RunEvent.ENDED, at=NOW + 3)

    assert (run.state, run.started_at, run.ended_at) == (RunState.DONE, NOW + 2, NOW + 3)
    assert (await ledger.sandbox(sandbox.id, "acme")).last_active_at == NOW + 3
    rows = (await history(ledger, sandbox.id))[2:]
    assert [(row.kind, row.detail["state"], row.at, row.run_id) for row in rows] == [
        ("run.queue", "queued", NOW + 1, run.id),
        ("run.start", "running", NOW + 2, run.id),
        ("run.ended", "done", NOW + 3, run.id),
    ]


async def test_a_run_that_starts_at_once_has_both_its_history_rows(ledger: Ledger, sandbox: Sandbox) -> None:
    await ledger.add_run(a_run(sandbox), start=True)

    assert (await kinds(ledger, sandbox.id))[2:] == ["run.queue", "run.start"]


async def test_of_many_who_end_a_run_one_wins(ledger: Ledger, sandbox: Sandbox) -> None:
    run = await ledger.add_run(a_run(sandbox), start=True)
    events = [RunEvent.ENDED, RunEvent.CANCELLED, RunEvent.BROKE] * 4

    answers = await asyncio.gather(
        *(ledger.advance_run(run, event, at=NOW) for event in events), return_exceptions=True
    )

    assert [type(answer) for answer in answers].count(Run) == 1
    assert {type(answer) for answer in answers} == {Run, Conflict}
    assert len(await kinds(ledger, sandbox.id)) == 2 + 3


async def test_nothing_can_be_run_in_a_sandbox_that_has_ended(ledger: Ledger, sandbox: Sandbox) -> None:
    await ledger.advance(sandbox, Event.DELETE)

    with pytest.raises(Conflict, match="the sandbox is deleting"):
        await ledger.add_run(a_run(sandbox), start=True)
    with pytest.raises(NotFound):
        await ledger.add_run(a_run(a_sandbox()), start=True)
    assert await ledger.unfinished_runs() == []


async def test_a_run_can_still_end_when_its_sandbox_has(ledger: Ledger, sandbox: Sandbox) -> None:
    run = await ledger.add_run(a_run(sandbox), start=True)
    await ledger.advance(sandbox, Event.DELETE)

    ended = await ledger.advance_run(run, RunEvent.CANCELLED, at=NOW + 1)

    assert ended.state is RunState.CANCELLED
    assert (await kinds(ledger, sandbox.id))[-1] == "run.cancelled"


async def test_another_tenants_run_is_not_found(ledger: Ledger, sandbox: Sandbox) -> None:
    run = await ledger.add_run(a_run(sandbox), start=True)

    with pytest.raises(NotFound):
        await ledger.run(run.id, "other")
    with pytest.raises(Conflict):
        await ledger.add_run(run, start=False)


async def test_what_a_crash_cut_off_is_written_down_as_interrupted(ledger: Ledger, sandbox: Sandbox) -> None:
    done = await ledger.add_run(a_run(sandbox), start=True)
    await ledger.advance_run(done, RunEvent.ENDED, at=NOW)
    cut = [await ledger.add_run(a_run(sandbox), start=start) for start in (True, False, True)]
    assert await ledger.unfinished_runs() == cut

    assert await ledger.interrupt_unfinished_runs(NOW + 7) == 3
    assert await ledger.interrupt_unfinished_runs(NOW + 8) == 0

    assert await ledger.unfinished_runs() == []
    for run in cut:
        now = await ledger.run(run.id, "acme")
        assert now == replace(run, state=RunState.INTERRUPTED, ended_at=NOW + 7)
    assert (await kinds(ledger, sandbox.id))[-3:] == ["run.interrupted"] * 3
    assert (await ledger.run(done.id, "acme")).state is RunState.DONE
    assert (await ledger.sandbox(sandbox.id, "acme")).last_active_at == NOW + 7


# -------------------------------------------------------------------------------------------------- pages


@pytest.mark.long
async def test_pages_do_not_shift_while_sandboxes_are_added(ledger: Ledger) -> None:
    first = [await ledger.add_sandbox(a_sandbox()) for _ in range(10)]
    seen: list[str] = []
    cursor, pages = None, 0
    while True:
        page = await ledger.sandboxes("acme", SandboxQuery(limit=3, cursor=cursor))
        seen += [one.id for one in page.items]
        cursor, pages = page.next_cursor, pages + 1
        await ledger.add_sandbox(a_sandbox())
        if cursor is None:
            break

    assert seen == [one.id for one in reversed(first)]
    assert pages == 4


@pytest.mark.long
async def test_a_page_is_full_by_its_bytes_too_and_the_next_goes_on(ledger: Ledger, sandbox: Sandbox) -> None:
    sizes = [PAGE_BYTES // 3] * 5 + [PAGE_BYTES + 1] + [10] * 4
    added = [await ledger.add_run(a_run(sandbox, argv=("x" * size,)), start=True) for size in sizes]

    pages, cursor = [], None
    while True:
        page = await ledger.runs(sandbox.id, limit=200, cursor=cursor)
        pages.append([len(run.argv[0]) for run in page.items])
        cursor = page.next_cursor
        if cursor is None:
            break

    assert [size for page_sizes in pages for size in page_sizes] == sizes[::-1]
    assert [len(page_sizes) for page_sizes in pages] == [4, 1, 2, 2, 1]
    assert len(added) == len(sizes)


@pytest.mark.long
async def test_a_page_of_the_history_is_full_by_its_bytes_too(ledger: Ledger, sandbox: Sandbox) -> None:
    for _ in range(5):
        await ledger.note(sandbox.id, "noted", {"said": "x" * (PAGE_BYTES // 3)}, at=NOW)

    first = await ledger.events(sandbox.id, limit=200, cursor=None)
    second = await ledger.events(sandbox.id, limit=200, cursor=first.next_cursor)
    third = await ledger.events(sandbox.id, limit=200, cursor=second.next_cursor)

    seen = [event.number for page in (first, second, third) for event in page.items]
    assert seen == list(range(1, len(seen) + 1))
    assert third.next_cursor is None
    assert len(second.items) == 2


async def test_a_full_last_page_promises_no_other(ledger: Ledger, sandbox: Sandbox) -> None:
    for _ in range(2):
        await ledger.add_run(a_run(sandbox), start=True)

    assert (await ledger.runs(sandbox.id, limit=2, cursor=None)).next_cursor is None
    assert (await ledger.runs(sandbox.id, limit=1, cursor=None)).next_cursor is not None


async def test_runs_come_newest_first_and_history_oldest_first(ledger: Ledger, sandbox: Sandbox) -> None:
    added = [(await ledger.add_run(a_run(sandbox), start=False)).id for _ in range(5)]

    runs = await ledger.runs(sandbox.id, limit=3, cursor=None)
    more = await ledger.runs(sandbox.id, limit=3, cursor=runs.next_cursor)
    early = await ledger.events(sandbox.id, limit=4, cursor=None)
    late = await ledger.events(sandbox.id, limit=4, cursor=early.next_cursor)

    assert [run.id for run in [*runs.items, *more.items]] == added[::-1]
    assert [row.kind for row in early.items] == ["create", "created", "run.queue", "run.queue"]
    assert [row.run_id for row in late.items] == added[2:]
    assert (more.next_cursor, late.next_cursor) == (None, None)


async def test_sandboxes_are_listed_by_tenant_state_and_metadata(ledger: Ledger) -> None:
    red = await ledger.add_sandbox(a_sandbox(metadata={"colour": "red", 'si"ze': "1"}))
    both = await ledger.add_sandbox(a_sandbox(metadata={"colour": "red", 'si"ze': "2"}))
    await ledger.add_sandbox(a_sandbox(metadata={"colour": "blue"}))
    await ledger.add_sandbox(a_sandbox(tenant="other", metadata={"colour": "red"}))
    gone = await ledger.advance(red, Event.DELETE)

    async def listed(**query: Any) -> list[Sandbox]:
        return (await ledger.sandboxes("acme", SandboxQuery(**query))).items

    assert len(await listed()) == 3
    assert await listed(states={State.DELETING}) == [gone]
    assert await listed(metadata={"colour": "red"}) == [both, gone]
    assert await listed(metadata={"colour": "red", 'si"ze': "2"}) == [both]
    assert await listed(metadata={"colour": "red"}, states={State.CREATING}) == [both]
    assert await listed(metadata={"colour": "re"}) == []


@pytest.mark.parametrize(
    "cursor", ["", "x", "ü", "!!!!", "cnVuczox", "c2FuZGJveGVzOjE=", "c2FuZGJveGVzOg==", "c2FuZGJveGVzOjE=\n"]
)
async def test_a_cursor_that_is_not_ours_is_refused(ledger: Ledger, cursor: str) -> None:
    with pytest.raises(InvalidField) as refused:
        await ledger.sandboxes("acme", SandboxQuery(cursor=cursor))

    assert refused.value.field == "cursor"


@pytest.mark.parametrize("mark", ["-1", "+1", "01", "1.0", "٣", str(2**63), "x"])
async def test_a_cursor_of_the_history_that_is_not_ours_is_refused(
    ledger: Ledger, sandbox: Sandbox, mark: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        await ledger.events(sandbox.id, limit=1, cursor=cursor_of("events", mark))

    assert refused.value.field == "cursor"


async def test_a_cursor_leads_to_nobody_else_s_rows(ledger: Ledger, sandbox: Sandbox) -> None:
    theirs = [await ledger.add_sandbox(a_sandbox(tenant="other")) for _ in range(3)]
    run = await ledger.add_run(a_run(theirs[0]), start=True)

    for cursor in (cursor_of("sandboxes", theirs[1].id), cursor_of("sandboxes", "sb-none")):
        with pytest.raises(InvalidField, match="not a cursor"):
            await ledger.sandboxes("acme", SandboxQuery(cursor=cursor))
    with pytest.raises(InvalidField, match="not a cursor"):
        await ledger.runs(sandbox.id, limit=1, cursor=cursor_of("runs", run.id))
    assert (await ledger.events(sandbox.id, limit=9, cursor=cursor_of("events", 2**40))).items == []


async def test_neither_cursors_nor_history_count_what_others_do(ledger: Ledger) -> None:
    async def seen() -> list[Any]:
        mine = [await ledger.add_sandbox(a_sandbox(tenant="mine")) for _ in range(2)]
        page = await ledger.sandboxes("mine", SandboxQuery(limit=1))
        early = await ledger.events(mine[0].id, limit=1, cursor=None)
        cursor = str(page.next_cursor).replace(cursor_of("sandboxes", mine[1].id), "MINE")
        return [cursor, [row.number for row in await history(ledger, mine[0].id)], early.next_cursor]

    before = await seen()
    for _ in range(20):
        await ledger.add_sandbox(a_sandbox(tenant="other"))

    assert await seen() == before == ["MINE", [1], None]


async def test_a_page_of_nothing_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidField) as refused:
        await ledger.sandboxes("acme", SandboxQuery(limit=0))

    assert refused.value.field == "limit"


# ------------------------------------------------------------------------------------- history and counts


async def test_a_note_is_history_and_shows_use(ledger: Ledger, sandbox: Sandbox) -> None:
    await ledger.note(sandbox.id, "files.written", {"count": 2}, at=NOW + 4)

    last = (await history(ledger, sandbox.id))[-1]
    assert (last.kind, last.detail, last.at, last.run_id) == ("files.written", {"count": 2}, NOW + 4, None)
    assert (await ledger.sandbox(sandbox.id, "acme")).last_active_at == NOW + 4
    with pytest.raises(NotFound):
        await ledger.note("sb-none", "files.written", {}, at=NOW)


async def test_the_counts_name_every_state(ledger: Ledger, sandbox: Sandbox) -> None:
    await ledger.add_sandbox(a_sandbox())
    await ledger.add_run(a_run(sandbox), start=True)

    counts = await ledger.counts()

    assert counts.sandboxes == {**dict.fromkeys(State, 0), State.CREATING: 1, State.READY: 1}
    assert counts.runs == {**dict.fromkeys(RunState, 0), RunState.RUNNING: 1}


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
