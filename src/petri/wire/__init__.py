"""The v1 HTTP contract: what travels between a caller and Petri, as types.

Requests are strict: an unknown field, a string where a number belongs, or a field this release does not
build yet is refused by name, never ignored. Answers may grow; clients ignore what they do not know.

    sandboxes, peers, files, runs
                              what is asked and told of each, requests before answers
    snapshots                 snapshots, forks and going back
    trees                     what differs between two, who wrote what, merging
    environments              the packages that runs have
    access                    keys, tenants and quotas
    service                   health, languages, metrics, and an error as `Problem`
    values                    what fields hold, and how they are checked

Imported by: `api`, `sdk`, `cli`, `home`, `app`. Imports: nothing of ours.
"""

from petri.wire.access import (
    CreateKey,
    KeyAnswer,
    KeyList,
    NewKey,
    PatchTenant,
    QuotasAnswer,
    TenantAnswer,
    TenantList,
    TenantUsage,
)
from petri.wire.environments import EnvironmentAnswer, PackageAnswer
from petri.wire.files import EntryAnswer, FileAnswer, FilesWritten, Listing
from petri.wire.peers import PeerAnswer, PeerRequest, SeenPeerAnswer
from petri.wire.runs import (
    Base64,
    ChangesAnswer,
    ExecAnswer,
    ExecFields,
    ExecOnce,
    ExecRequest,
    KeptAnswer,
    NotInstalled,
    RunAnswer,
    RunList,
    UsageAnswer,
)
from petri.wire.sandboxes import (
    CreateSandbox,
    DiskUsage,
    EventAnswer,
    EventList,
    LimitsAnswer,
    LimitsRequest,
    NetworkAnswer,
    NetworkRequest,
    PatchSandbox,
    RunLimits,
    SandboxAnswer,
    SandboxList,
)
from petri.wire.service import Health, LanguageAnswer, Languages, LayerAnswer, Metrics, PathConflict, Problem
from petri.wire.snapshots import (
    ForkAnswer,
    ForkRequest,
    RestoreAnswer,
    RestoreRequest,
    SnapshotAnswer,
    SnapshotList,
    SnapshotRequest,
)
from petri.wire.trees import (
    BlameAnswer,
    DiffAnswer,
    FileDiff,
    MergeAnswer,
    MergeRequest,
    PassageAnswer,
)
from petri.wire.values import MEANT, Answer, Request, TenantName

__all__ = [
    "FIELDS",
    "MEANT",
    "Answer",
    "Base64",
    "BlameAnswer",
    "ChangesAnswer",
    "CreateKey",
    "CreateSandbox",
    "DiffAnswer",
    "DiskUsage",
    "EntryAnswer",
    "EnvironmentAnswer",
    "EventAnswer",
    "EventList",
    "ExecAnswer",
    "ExecFields",
    "ExecOnce",
    "ExecRequest",
    "FileAnswer",
    "FileDiff",
    "FilesWritten",
    "ForkAnswer",
    "ForkRequest",
    "Health",
    "KeptAnswer",
    "KeyAnswer",
    "KeyList",
    "LanguageAnswer",
    "Languages",
    "LayerAnswer",
    "LimitsAnswer",
    "LimitsRequest",
    "Listing",
    "MergeAnswer",
    "MergeRequest",
    "Metrics",
    "NetworkAnswer",
    "NetworkRequest",
    "NewKey",
    "NotInstalled",
    "PackageAnswer",
    "PassageAnswer",
    "PatchSandbox",
    "PatchTenant",
    "PathConflict",
    "PeerAnswer",
    "PeerRequest",
    "Problem",
    "QuotasAnswer",
    "Request",
    "RestoreAnswer",
    "RestoreRequest",
    "RunAnswer",
    "RunLimits",
    "RunList",
    "SandboxAnswer",
    "SandboxList",
    "SeenPeerAnswer",
    "SnapshotAnswer",
    "SnapshotList",
    "SnapshotRequest",
    "TenantAnswer",
    "TenantList",
    "TenantName",
    "TenantUsage",
    "UsageAnswer",
]

FIELDS = sorted(
    {
        name
        for request in (
            *(CreateSandbox, PatchSandbox, ExecOnce, LimitsRequest, PeerRequest, CreateKey, PatchTenant),
            *(SnapshotRequest, RestoreRequest, ForkRequest, MergeRequest),
        )
        for name in request.model_fields
    }
)
"""Every field a request may have; a misspelt one is told which is near."""
