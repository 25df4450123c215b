"""Questions to the tables: has every state a row, can it be reached, can it end?"""

from collections.abc import Mapping
from enum import StrEnum

import pytest

from petri.errors import Conflict
from petri.model import (
    ENDED_BECAUSE,
    LIFECYCLE,
    RUN_LIFECYCLE,
    RUN_UNFINISHED,
    UNFINISHED,
    Event,
    RunEvent,
    RunState,
    State,
    after,
    run_after,
)
from petri.model.lifecycle import diagram

Table = Mapping[StrEnum, Mapping[StrEnum, StrEnum]]
TABLES: dict[str, tuple[Table, type[StrEnum], type[StrEnum], StrEnum, set[StrEnum]]] = {
    "sandbox": (LIFECYCLE, State, Event, State.CREATING, {State.DELETED}),  # type: ignore[dict-item]
    "run": (
        RUN_LIFECYCLE,  # type: ignore[dict-item]
        RunState,
        RunEvent,
        RunState.QUEUED,
        {RunState.DONE, RunState.CANCELLED, RunState.FAILED, RunState.INTERRUPTED},
    ),
}


def reachable(table: Table, first: StrEnum) -> set[StrEnum]:
    seen, look_at = {first}, [first]
    while look_at:
        for then in table[look_at.pop()].values():
            if then not in seen:
                seen.add(then)
                look_at.append(then)
    return seen


@pytest.mark.parametrize("name", TABLES)
def test_every_state_has_a_row_and_every_event_a_use(name: str) -> None:
    table, states, events, _, _ = TABLES[name]

    assert set(table) == set(states)
    assert {event for exits in table.values() for event in exits} == set(events)


@pytest.mark.parametrize("name", TABLES)
def test_every_state_can_be_reached(name: str) -> None:
    table, states, _, first, _ = TABLES[name]

    assert reachable(table, first) == set(states)


@pytest.mark.parametrize("name", TABLES)
def test_every_state_can_end_and_an_end_is_for_ever(name: str) -> None:
    table, states, _, _, ends = TABLES[name]

    for state in states:
        assert reachable(table, state) & ends, f"nothing leads from {state} to an end"
        assert (not table[state]) == (state in ends)


def test_every_unfinished_state_can_be_finished_by_the_reaper_alone() -> None:
    assert {State.CREATING, State.DELETING} == UNFINISHED
    assert after(after(State.CREATING, Event.BROKE), Event.REMOVED) is State.DELETED
    assert after(State.DELETING, Event.REMOVED) is State.DELETED


def test_every_unfinished_run_can_be_interrupted_and_no_other() -> None:
    for state in RunState:
        if state in RUN_UNFINISHED:
            assert run_after(state, RunEvent.INTERRUPTED) is RunState.INTERRUPTED
        else:
            with pytest.raises(Conflict):
                run_after(state, RunEvent.INTERRUPTED)


def test_a_run_is_done_only_if_it_ran() -> None:
    into_done = {state for state, exits in RUN_LIFECYCLE.items() if RunState.DONE in exits.values()}

    assert into_done == {RunState.RUNNING}


def test_every_way_into_deleting_has_a_reason_to_show() -> None:
    ways = {event for exits in LIFECYCLE.values() for event, then in exits.items() if then is State.DELETING}

    assert ways == set(ENDED_BECAUSE)
    assert len(set(ENDED_BECAUSE.values())) == len(ENDED_BECAUSE)


def test_what_may_not_happen_is_a_conflict_that_says_both() -> None:
    with pytest.raises(Conflict, match=r"deleted.*created"):
        after(State.DELETED, Event.CREATED)


def test_the_diagram_has_every_arrow() -> None:
    drawn = diagram()

    for table in (LIFECYCLE, RUN_LIFECYCLE):
        for state, exits in table.items():
            for event, then in exits.items():
                assert f"{state} --> {then}: {event}" in drawn
