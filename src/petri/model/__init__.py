"""The nouns: sandbox, run, command, outcome, tenant, key, and the lifecycle tables. Pure.

Imported by: every server room. Imports: `petri.errors`.
"""

from petri.model.ids import ID_PATTERN, new_id
from petri.model.keys import ENVIRONMENT, LOCAL, RESERVED, Key, Scope, digest, id_in, new_key_text
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
from petri.model.run import Changes, Command, Form, Kept, Outcome, Run, Stream, Usage
from petri.model.sandbox import Asker, Lifetime, Limits, Sandbox
from petri.model.tenant import DEFAULT_TENANT, Quotas, Tenant

__all__ = [
    "DEFAULT_TENANT",
    "ENDED_BECAUSE",
    "ENVIRONMENT",
    "ID_PATTERN",
    "LIFECYCLE",
    "LOCAL",
    "RESERVED",
    "RUN_LIFECYCLE",
    "RUN_UNFINISHED",
    "UNFINISHED",
    "Asker",
    "Changes",
    "Command",
    "Event",
    "Form",
    "Kept",
    "Key",
    "Lifetime",
    "Limits",
    "Outcome",
    "Quotas",
    "Run",
    "RunEvent",
    "RunState",
    "Sandbox",
    "Scope",
    "State",
    "Stream",
    "Tenant",
    "Usage",
    "after",
    "digest",
    "id_in",
    "new_id",
    "new_key_text",
    "run_after",
]
