"""What may be asked for, as typed keyword arguments. `petri.wire` says what each one means."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

Lifetime = Literal["persistent", "ephemeral"]
Dependencies = Literal["auto", "manifest-only", "off"]
Missing = Literal["report", "repeat", "continue"]
ScopeName = Literal["read", "run", "admin"]


class Limits(TypedDict, total=False):
    """What each run may use at most; what is left out stays at the server's default."""

    cpus: float
    memory_bytes: int
    processes: int
    timeout_s: float
    open_files: int
    disk_bytes: int
    inodes: int
    tmp_bytes: int
    output_bytes: int


class Network(TypedDict, total=False):
    """What the code may reach."""

    mode: str
    allow: Sequence[str]


class Peer(TypedDict, total=False):
    """Another sandbox whose files runs may read at `at`; as in `tree` for good, or as at each run's start."""

    sandbox: Required[str]
    at: Required[str]
    tree: str
    snapshot: str
    follow: Literal[True]


class Change(TypedDict, total=False):
    """What `update` may change; None clears `name`, `ttl_s` and `idle_s`."""

    name: str | None
    ttl_s: float | None
    idle_s: float | None
    limits: Limits
    network: Network
    metadata: Mapping[str, str]
    peers: Sequence[Peer]


class Quotas(TypedDict, total=False):
    """What `admin.set_quotas` may set; 0 is as much as the tenant likes, None the server's default."""

    sandboxes: int | None
    runs: int | None
    disk_bytes: int | None


class Command(TypedDict, total=False):
    """What to run: exactly one of `filename`, `command` and `code`, and how."""

    filename: str
    """A file of the workspace; its ending says the language, else the sandbox's is used."""
    command: str | Sequence[str]
    """A string is run by `sh -c`; a list is run as it is."""
    code: str
    """Source text in `language`."""
    language: str | None
    args: Sequence[str]
    stdin: str | None
    env: Mapping[str, str]
    cwd: str | None
    """A folder of the workspace; default: its top."""
    timeout_s: float | None
    limits: Limits | None
    """For this run alone, tighter than its sandbox's; its time is `timeout_s`."""
    engine: str | None
    dependencies: Dependencies | None
    """Which packages are installed for it: those it imports, those in a manifest, or none."""
    missing: Missing | None
    """What becomes of it when a module turns out to be missing that a package brings; default: it is told."""
    network: Network
    keep: Literal["always", "on_success", "never"]
    """What becomes of what it does to the files; default: it stays."""
    created_by: str | None
    agent: str | None


def given(fields: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields that say something, ready for JSON."""
    return {name: value for name, value in fields.items() if value is not None}
