"""The nouns: sandbox, run, command, outcome, tenant, key, and the lifecycle tables. Pure.

Imported by: every server room. Imports: `petri.errors`.
"""

from petri.model.ids import ID_PATTERN, new_id
from petri.model.keys import ENVIRONMENT, LOCAL, RESERVED, Key, Scope, digest, id_in, new_key_text
from petri.model.lifecycle import (
    ENDED_BECAUSE,
    LIFECYCLE,
    LIVE,
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
from petri.model.peer import Peer, SeenPeer
from petri.model.run import Changes, Command, Form, Keep, Kept, Missing, Outcome, Packages, Run, Stream, Usage
from petri.model.sandbox import Addition, Asker, Lifetime, Limits, Sandbox, last_words
from petri.model.snapshot import Snapshot
from petri.model.tenant import DEFAULT_TENANT, Quotas, Tenant

__all__ = [
    "DEFAULT_TENANT",
    "ENDED_BECAUSE",
    "ENVIRONMENT",
    "ID_PATTERN",
    "LIFECYCLE",
    "LIVE",
    "LOCAL",
    "RESERVED",
    "RUN_LIFECYCLE",
    "RUN_UNFINISHED",
    "UNFINISHED",
    "Addition",
    "Asker",
    "Changes",
    "Command",
    "Event",
    "Form",
    "Keep",
    "Kept",
    "Key",
    "Lifetime",
    "Limits",
    "Missing",
    "Outcome",
    "Packages",
    "Peer",
    "Quotas",
    "Run",
    "RunEvent",
    "RunState",
    "Sandbox",
    "Scope",
    "SeenPeer",
    "Snapshot",
    "State",
    "Stream",
    "Tenant",
    "Usage",
    "after",
    "digest",
    "id_in",
    "last_words",
    "new_id",
    "new_key_text",
    "run_after",
]
