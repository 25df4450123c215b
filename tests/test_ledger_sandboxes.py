"""Sandboxes on record: their lives, names, numbers, amendments and expiry."""

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from petri.errors import Conflict, InvalidField, NotFound
from petri.ledger import Ledger, SandboxQuery
from petri.model import (
    ENDED_BECAUSE,
    LIFECYCLE,
    Event,
    Sandbox,
    State,
)
from tests.test_ledger import LIMITS, NOW, a_sandbox, history, kinds, ledger, sandbox, url

__all__ = ["ledger", "sandbox", "url"]


# ------------------------------------------------------------------------------------------- round trips


def soonest_end(url: str) -> float | None:
    """Return when the first sandbox ends by itself, as the next life would find it."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw:
        found: float | None = raw.execute("SELECT min(expires_at) FROM sandboxes").fetchone()[0]
        return found


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
