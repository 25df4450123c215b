"""Runs on record: how they move with their sandboxes, pages of them, and the history."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from petri.errors import Conflict, InvalidField, NotFound
from petri.ledger import Ledger, SandboxQuery
from petri.ledger.pages import PAGE_BYTES, cursor_of
from petri.model import (
    Event,
    Run,
    RunEvent,
    RunState,
    Sandbox,
    State,
)
from tests.test_ledger import NOW, a_run, a_sandbox, history, kinds, ledger, sandbox, url

__all__ = ["ledger", "sandbox", "url"]


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
