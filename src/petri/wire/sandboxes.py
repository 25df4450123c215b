"""Sandboxes on the wire: what they are created with, what is told of them, and their history."""

from typing import Annotated, Any, Literal

from pydantic import Field

from petri.wire.peers import PeerAnswer, Peers
from petri.wire.values import Answer, Environment, Label, Metadata, Name, Request, Seconds, unbuilt


class RunLimits(Request):
    """What one run may use at most; no more than its sandbox's. What is left out stays at the sandbox's."""

    cpus: Annotated[float, Field(gt=0, le=1024, allow_inf_nan=False)] | None = None
    """Processor time as a number of processors; 0.5 is half of one."""
    memory_bytes: Annotated[int, Field(ge=16 * 2**20, le=2**50)] | None = None
    """Memory and swap together, at least 16 MiB."""
    processes: Annotated[int, Field(ge=4, le=1_000_000)] | None = None
    """Processes and threads at one time."""
    open_files: Annotated[int, Field(ge=32, le=2**30)] | None = None
    """Files one process may have open."""
    disk_bytes: Annotated[int, Field(ge=2**20, le=2**60)] | None = None
    """Disk space of the whole workspace, at least 1 MiB."""
    inodes: Annotated[int, Field(ge=16, le=2**60)] | None = None
    """Files, folders and links in the whole workspace."""
    tmp_bytes: Annotated[int, Field(ge=2**16, le=2**50)] | None = None
    """Size of `/tmp`, and once more of `/dev/shm`; both are memory, and never get more than half of it."""
    output_bytes: Annotated[int, Field(ge=1024, le=2**50)] | None = None
    """What is kept of each output stream; the rest is counted and thrown away."""


class LimitsRequest(RunLimits):
    """What each run may use at most. What is left out stays at the server's default."""

    timeout_s: Seconds | None = None
    """Wall time of a run that names no limit of its own."""


class NetworkRequest(Request):
    """What the code may reach. This release builds `none` only."""

    mode: Annotated[Literal["none"], unbuilt("this release gives no network", "none")] = "none"
    allow: Annotated[list[str], unbuilt("this release gives no network", [])] = []


class CreateSandbox(Request):
    """Body of `POST /v1/sandboxes`; everything is optional."""

    language: Label = "python"
    name: Name | None = None
    """Unique among the live sandboxes of a tenant; creating with a name in use returns that sandbox."""
    engine: Label | None = None
    lifetime: Literal["persistent", "ephemeral"] = "persistent"
    """`ephemeral`: the sandbox is gone, with everything, after its first exec."""
    ttl_s: Seconds | None = None
    """Ends the sandbox this long after it was created."""
    idle_s: Seconds | None = None
    """Ends the sandbox this long after it was last used."""
    limits: LimitsRequest = LimitsRequest()
    network: NetworkRequest = NetworkRequest()
    env: Environment = {}
    metadata: Metadata = {}
    peers: Peers = []
    """Other sandboxes whose files its runs may read, below `/peers/`."""
    created_by: Label | None = None
    agent: Label | None = None
    image: Annotated[None, unbuilt("this release runs every sandbox on the host's own /usr")] = None
    """Not built yet: leave it out."""
    from_snapshot: Label | None = None
    """A snapshot, by its id or its name: the files to begin with."""


class PatchSandbox(Request):
    """Body of `PATCH /v1/sandboxes/{id}`: what is given changes; `null` takes it back to what it is unset."""

    name: Name | None = None
    ttl_s: Seconds | None = None
    idle_s: Seconds | None = None
    limits: LimitsRequest | None = None
    """Those given change; `null`, for one or for all, is the server's default again."""
    network: NetworkRequest | None = None
    metadata: Metadata | None = None
    peers: Peers | None = None
    """All of them: those that are not named are peers no longer."""


class LimitsAnswer(Answer):
    """What each run may use at most."""

    cpus: float
    memory_bytes: int
    processes: int
    timeout_s: float
    open_files: int
    disk_bytes: int
    inodes: int
    tmp_bytes: int
    output_bytes: int


class DiskUsage(Answer):
    """What a workspace takes of `limits.disk_bytes` and `limits.inodes`."""

    disk_bytes: int
    inodes: int
    measured_at: str
    """When it was so: measuring a large workspace takes time, and is not done for every answer."""


class NetworkAnswer(Answer):
    """What the code may reach."""

    mode: str = "none"
    allow: list[str] = []


class SandboxAnswer(Answer):
    """A sandbox."""

    id: str
    name: str | None
    language: str
    state: str
    engine: str
    image: str | None
    lifetime: str
    created_at: str
    last_active_at: str
    expires_at: str | None
    """When it ends by itself, if it does; `expires_because` says which limit comes first."""
    expires_because: str | None
    """`ttl` or `idle`."""
    ended_at: str | None
    ended_because: str | None
    """`deleted`, `ttl`, `idle`, `ephemeral` or `broken`."""
    ttl_s: float | None
    idle_s: float | None
    limits: LimitsAnswer
    usage: DiskUsage | None = None
    """Null where nobody has measured it yet, and for a sandbox that has ended."""
    network: NetworkAnswer
    env_names: list[str]
    """Names only: values may be secrets."""
    metadata: dict[str, str]
    peers: list[PeerAnswer] = []
    created_by: str | None
    agent: str | None
    key_name: str | None
    """The key that asked for it."""
    tree: str | None
    """Address of its files as of the last change Petri made or saw; null if nobody has looked since."""
    first_tree: str | None = None
    """Address of the files it began with; null where it began empty."""
    forked_from: str | None = None
    """The sandbox that it is a fork of."""
    from_snapshot: str | None = None
    """The snapshot that it was made from."""
    environment: str | None
    """Address of the packages that something was last run with; null if nothing needed any."""


class SandboxList(Answer):
    """A page of sandboxes, newest first."""

    sandboxes: list[SandboxAnswer]
    next_cursor: str | None
    """Pass as `cursor` for the next page; null on the last."""


class EventAnswer(Answer):
    """One row of a sandbox's history."""

    number: int
    """Counts up from 1 over this history."""
    at: str
    kind: str
    run_id: str | None
    detail: dict[str, Any]


class EventList(Answer):
    """A page of a sandbox's history, oldest first."""

    events: list[EventAnswer]
    next_cursor: str | None
