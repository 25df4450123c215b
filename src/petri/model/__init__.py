"""The nouns: sandbox, run, command, outcome, and the lifecycle tables. Pure.

Imported by: every server room. Imports: `petri.errors`.
"""

from petri.model.ids import ID_PATTERN, new_id
from petri.model.lifecycle import (
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
from petri.model.run import Command, Form, Kept, Outcome, Run, Stream, Usage
from petri.model.sandbox import Asker, Lifetime, Limits, Sandbox

__all__ = [
    "ENDED_BECAUSE",
    "ID_PATTERN",
    "LIFECYCLE",
    "RUN_LIFECYCLE",
    "RUN_UNFINISHED",
    "UNFINISHED",
    "Asker",
    "Command",
    "Event",
    "Form",
    "Kept",
    "Lifetime",
    "Limits",
    "Outcome",
    "Run",
    "RunEvent",
    "RunState",
    "Sandbox",
    "State",
    "Stream",
    "Usage",
    "after",
    "new_id",
    "run_after",
]
