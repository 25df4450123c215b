"""The life of a sandbox and the life of a run, as tables.

Rule 1: whatever decides a state change is in this file.
Rule 2: every `…ING` state of a sandbox names work that must be finished after a crash.
"""

from collections.abc import Mapping
from enum import StrEnum

from petri.errors import Conflict


class State(StrEnum):
    """Where a sandbox is in its life."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"
    DELETED = "deleted"


class Event(StrEnum):
    """What may happen to a sandbox. Asked-for events are imperative, observed ones past tense."""

    CREATED = "created"
    DELETE = "delete"
    EXPIRE_TTL = "expire_ttl"
    EXPIRE_IDLE = "expire_idle"
    USED_UP = "used_up"
    BROKE = "broke"
    REMOVED = "removed"


_ENDING: Mapping[Event, State] = {
    Event.DELETE: State.DELETING,
    Event.EXPIRE_TTL: State.DELETING,
    Event.EXPIRE_IDLE: State.DELETING,
    Event.USED_UP: State.DELETING,
}

LIFECYCLE: Mapping[State, Mapping[Event, State]] = {
    State.CREATING: {Event.CREATED: State.READY, Event.BROKE: State.DELETING, **_ENDING},
    State.READY: _ENDING,
    State.DELETING: {Event.REMOVED: State.DELETED},
    State.DELETED: {},
}
LIVE = (State.CREATING, State.READY)
"""States in which a sandbox can be used, holds its name and may expire."""
UNFINISHED = frozenset(state for state in State if state.endswith("ing"))

ENDED_BECAUSE: Mapping[Event, str] = {
    Event.DELETE: "deleted",
    Event.EXPIRE_TTL: "ttl",
    Event.EXPIRE_IDLE: "idle",
    Event.USED_UP: "ephemeral",
    Event.BROKE: "broken",
}
"""Why a sandbox ended, as the API says it."""


class RunState(StrEnum):
    """Where a run is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class RunEvent(StrEnum):
    """What may happen to a run."""

    START = "start"
    ENDED = "ended"
    CANCELLED = "cancelled"
    BROKE = "broke"
    INTERRUPTED = "interrupted"


RUN_LIFECYCLE: Mapping[RunState, Mapping[RunEvent, RunState]] = {
    RunState.QUEUED: {
        RunEvent.START: RunState.RUNNING,
        RunEvent.CANCELLED: RunState.CANCELLED,
        RunEvent.BROKE: RunState.FAILED,
        RunEvent.INTERRUPTED: RunState.INTERRUPTED,
    },
    RunState.RUNNING: {
        RunEvent.ENDED: RunState.DONE,
        RunEvent.CANCELLED: RunState.CANCELLED,
        RunEvent.BROKE: RunState.FAILED,
        RunEvent.INTERRUPTED: RunState.INTERRUPTED,
    },
    RunState.DONE: {},
    RunState.CANCELLED: {},
    RunState.FAILED: {},
    RunState.INTERRUPTED: {},
}
RUN_UNFINISHED = frozenset({RunState.QUEUED, RunState.RUNNING})


def after(state: State, event: Event) -> State:
    """Return the state `event` leads to, or raise `Conflict` if it may not happen now."""
    try:
        return LIFECYCLE[state][event]
    except KeyError:
        raise Conflict(f"the sandbox is {state}: {event} cannot happen now") from None


def run_after(state: RunState, event: RunEvent) -> RunState:
    """Return the state `event` leads a run to, or raise `Conflict` if it may not happen now."""
    try:
        return RUN_LIFECYCLE[state][event]
    except KeyError:
        raise Conflict(f"the run is {state}: {event} cannot happen now") from None


def diagram() -> str:
    """Return both tables as a Mermaid diagram; ARCHITECTURE.md holds what this prints."""
    lines = ["stateDiagram-v2"]
    lines += ["    state sandbox {", *_arrows(LIFECYCLE, State.CREATING), "    }"]
    lines += ["    state run {", *_arrows(RUN_LIFECYCLE, RunState.QUEUED), "    }"]
    return "\n".join(lines)


def _arrows(
    table: Mapping[State, Mapping[Event, State]] | Mapping[RunState, Mapping[RunEvent, RunState]],
    first: State | RunState,
) -> list[str]:
    rows = [f"        [*] --> {first}"]
    for state, exits in table.items():
        rows += [f"        {state} --> {then}: {event}" for event, then in exits.items()]
        if not exits:
            rows.append(f"        {state} --> [*]")
    return rows
