"""The v1 HTTP contract: what travels between a caller and Petri, as types.

Shared by `api` and `sdk`; imports neither. Requests are strict: an unknown field, a string where a
number belongs, or a field this release does not build yet is refused by name, never ignored.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.config import JsonDict

MAX_ARGUMENT_BYTES = 131_071
"""Linux refuses a single argument or variable of 128 KiB or more (MAX_ARG_STRLEN)."""
MAX_ENV_BYTES = 262_144
"""All variables of one request together. Linux takes 2 MiB of variables and arguments, and has no more to
give when a sandbox's, a run's and its arguments meet."""
MAX_METADATA_BYTES = 65_536
MAX_STDIN_BYTES = 8 * 2**20
"""It is held in memory until the run has its turn."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which no program argument can hold")
    if len(text.encode()) > MAX_ARGUMENT_BYTES:
        raise ValueError(
            f"is {len(text.encode())} bytes; one argument holds {MAX_ARGUMENT_BYTES} at most: "
            "upload it as a file and run that by `filename`"
        )
    return text


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("contains half a surrogate pair, which is no text") from None
    return text


def _unbuilt(instead: str, *only: object) -> BeforeValidator:
    """Refuse by name what the contract has and this release has not, but for the values in `only`."""

    def refuse(given: object) -> object:
        if given is None or any(given is each or given == each for each in only):
            return given
        raise ValueError(f"this is not built yet: {instead}")

    return BeforeValidator(refuse)


def _stdin(text: str) -> str:
    # Counted in characters first: what is too long need not be encoded to be known as such.
    size = len(text) if len(text) > MAX_STDIN_BYTES else len(_unicode(text).encode())
    if size > MAX_STDIN_BYTES:
        raise ValueError(
            f"is more than {MAX_STDIN_BYTES} bytes, which is all that is taken here: upload it as a file "
            "and read that"
        )
    return text


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("contains a control character; use printable text")
    return text


def _environment(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(
                f"{name[:80]!r} is not a variable name: letters, digits and _, not first a digit"
            )
        _argument(f"{name}={value}")
    return _within(variables, MAX_ENV_BYTES, "variables", "put what is long into a file")


def _metadata(labels: dict[str, str]) -> dict[str, str]:
    return _within(labels, MAX_METADATA_BYTES, "labels", "keep what is long elsewhere, and here where it is")


def _within(pairs: dict[str, str], most: int, what: str, instead: str) -> dict[str, str]:
    size = sum(len(_unicode(name).encode()) + len(_unicode(value).encode()) for name, value in pairs.items())
    if size > most:
        raise ValueError(f"these {what} are {size} bytes in all, and {most} may be: {instead}")
    return pairs


Text = Annotated[str, AfterValidator(_unicode)]
Argument = Annotated[str, AfterValidator(_argument)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_printable)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Environment = Annotated[dict[str, str], Field(max_length=512), AfterValidator(_environment)]
Metadata = Annotated[
    dict[Label, Annotated[str, StringConstraints(max_length=4096)]],
    Field(max_length=64),
    AfterValidator(_metadata),
]
TenantName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Quota = Annotated[int, Field(ge=0, le=2**53)]
ScopeName = Literal["read", "run", "admin"]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400, allow_inf_nan=False)]


class Request(BaseModel):
    """What a caller sends."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Answer(BaseModel):
    """What Petri sends back. Fields may be added; clients ignore those they do not know."""

    model_config = ConfigDict(use_attribute_docstrings=True)


# ------------------------------------------------------------------------------------------- requests


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

    mode: Annotated[Literal["none"], _unbuilt("this release gives no network", "none")] = "none"
    allow: Annotated[list[str], Field(max_length=0)] = []


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
    created_by: Label | None = None
    agent: Label | None = None
    image: Annotated[None, _unbuilt("this release runs every sandbox on the host's own /usr")] = None
    """Not built yet: leave it out."""
    from_snapshot: Annotated[None, _unbuilt("create an empty sandbox and upload files")] = None
    """Not built yet: leave it out."""


class PatchSandbox(Request):
    """Body of `PATCH /v1/sandboxes/{id}`: what is given changes; `null` takes it back to what it is unset."""

    name: Name | None = None
    ttl_s: Seconds | None = None
    idle_s: Seconds | None = None
    limits: LimitsRequest | None = None
    """Those given change; `null`, for one or for all, is the server's default again."""
    network: NetworkRequest | None = None
    metadata: Metadata | None = None


_ONE_FORM: JsonDict = {
    "oneOf": [
        {"required": ["filename"], "properties": {"filename": {"type": "string"}}},
        {"required": ["command"], "properties": {"command": {"type": ["string", "array"]}}},
        {"required": ["code"], "properties": {"code": {"type": "string"}}},
    ]
}


class ExecFields(Request):
    """What every way of running something has in common."""

    model_config = ConfigDict(json_schema_extra=_ONE_FORM)

    filename: Argument | None = None
    """A file of the workspace; its ending says the language, else the sandbox's is used."""
    command: Argument | Annotated[list[Argument], Field(min_length=1, max_length=8_000)] | None = None
    """A string is run by `sh -c`; a list is run as it is."""
    code: Argument | None = None
    """Source text in `language`."""
    language: Label | None = None
    args: Annotated[list[Argument], Field(max_length=8_000)] = []
    stdin: Annotated[str, AfterValidator(_stdin)] | None = None
    env: Environment = {}
    cwd: Argument | None = None
    """A folder of the workspace; default: its top."""
    timeout_s: Seconds | None = None
    timeout: Seconds | None = None
    """Another name for `timeout_s`."""
    engine: Label | None = None
    network: NetworkRequest | None = None
    keep: Annotated[Literal["always"], _unbuilt("this release keeps what runs write", "always")] = "always"
    """What becomes of the files it wrote. This release builds `always` only."""
    detach: Annotated[Literal[False], _unbuilt("stream with `Accept: text/event-stream`", False)] = False
    """Not built yet: leave it out, or stream with `Accept: text/event-stream`."""
    created_by: Label | None = None
    agent: Label | None = None

    @model_validator(mode="after")
    def _one_form(self) -> "ExecFields":
        forms = [name for name in ("filename", "command", "code") if getattr(self, name) is not None]
        if len(forms) != 1:
            given = " and ".join(forms) if forms else "none of them"
            raise ValueError(
                f"give exactly one of `filename`, `command` and `code`; this request has {given}"
            )
        if self.timeout_s is not None and self.timeout is not None:
            raise ValueError("`timeout` is another name for `timeout_s`: give one of them")
        return self


class ExecRequest(ExecFields):
    """Body of `POST /v1/sandboxes/{id}/exec`."""

    limits: RunLimits = RunLimits()
    """Tighter limits, for this run alone; its time is `timeout_s`."""


class Base64(Request):
    """Bytes that are not text."""

    base64: Text


class ExecOnce(ExecFields):
    """Body of `POST /v1/exec`: files and command in, outcome out, nothing left."""

    files: Annotated[dict[Text, Text | Base64], Field(max_length=10_000)] = {}
    """Path → text, or → `{"base64": …}`."""
    limits: LimitsRequest = LimitsRequest()


class CreateKey(Request):
    """Body of `POST /v1/keys`."""

    name: Name
    """Who holds it. Unique among the keys of a tenant that are not revoked; shown with every run."""
    tenant: TenantName | None = None
    """Whose sandboxes it opens; made if it is new. Default: the caller's own."""
    scope: ScopeName = "run"
    """`read`: look and download. `run`: that, and create, upload, run, change, delete. `admin`: that, and
    keys, tenants and quotas."""
    expires_in_s: Seconds | None = None
    """It opens nothing any more this long after now."""


class PatchTenant(Request):
    """Body of `PATCH /v1/tenants/{tenant}`: what is given changes, `null` is back to the server's default."""

    sandboxes: Quota | None = None
    """Live sandboxes; 0 is as many as it likes."""
    runs: Quota | None = None
    """Runs, running and waiting; 0 is as many as it likes."""
    disk_bytes: Quota | None = None
    """What its live sandboxes' files take on disk; 0 is as much as it likes."""


FIELDS = sorted(
    {
        name
        for request in (CreateSandbox, PatchSandbox, ExecOnce, LimitsRequest, CreateKey, PatchTenant)
        for name in request.model_fields
    }
)
"""Every field a request may have; a misspelt one is told which is near."""


# -------------------------------------------------------------------------------------------- answers


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
    created_by: str | None
    agent: str | None
    key_name: str | None
    """The key that asked for it."""
    tree: str | None
    """Address of its files as of the last run, upload or deletion; null if nobody has looked since."""
    environment: str | None
    """Address of its installed packages; null until environments are built."""


class SandboxList(Answer):
    """A page of sandboxes, newest first."""

    sandboxes: list[SandboxAnswer]
    next_cursor: str | None
    """Pass as `cursor` for the next page; null on the last."""


class FileAnswer(Answer):
    """A file that was written."""

    path: str
    size: int
    digest: str
    """BLAKE3 of the content, in hex; also its ETag, and always a name for this version."""


class FilesWritten(Answer):
    """What an upload wrote."""

    files: list[FileAnswer]
    filename: str | None = None
    """The path, when there was one file."""


class EntryAnswer(Answer):
    """One entry of a workspace."""

    path: str
    kind: str
    """`file`, `folder`, `link` or `other`."""
    size: int
    mode: str
    """Permission bits in octal, such as `0644`."""
    modified_at: str
    target: str | None = None
    """Where a link points."""
    path_base64: str | None = None
    """The exact bytes of a path that is not UTF-8; `path` then shows `�` in their place."""


class Listing(Answer):
    """What is in a folder of the workspace."""

    path: str
    entries: list[EntryAnswer]
    truncated: bool
    """True when there is more than one answer holds; list a folder further down."""


class UsageAnswer(Answer):
    """What a run cost."""

    cpu_ms: float
    peak_memory_bytes: int


class ChangesAnswer(Answer):
    """What a run did to the files, by path. A folder is named only if it came or went."""

    added: list[str]
    modified: list[str]
    deleted: list[str]
    left_out: int
    """Changes that are not named here, since there were too many."""


class ExecAnswer(Answer):
    """How a run ended; 200 whatever the exit code."""

    run_id: str
    sandbox_id: str
    state: str
    exit_code: int | None
    """Null when a signal, the timeout or a cancellation ended it."""
    signal: int | None
    signal_name: str | None
    timed_out: bool
    oom_killed: bool
    disk_full: bool = False
    """The workspace held more than it may: the run was ended for it, or ended with it."""
    cancelled: bool
    remark: str | None = None
    """Which limit was reached, in a sentence."""
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    stdout_bytes: int
    stderr_bytes: int
    duration_ms: float
    usage: UsageAnswer
    tree_before: str | None
    tree_after: str | None
    changes: ChangesAnswer | None
    environment: str | None
    installed: list[str]


class KeptAnswer(Answer):
    """What is kept of an output stream."""

    bytes: int
    """What the command wrote."""
    kept_bytes: int
    """What is on disk, at `/v1/runs/{id}/stdout` or `/stderr`."""
    digest: str
    """BLAKE3 of the kept bytes."""


class RunAnswer(Answer):
    """A run on record: who, what, when, and how it ended."""

    run_id: str
    sandbox_id: str
    state: str
    """`queued`, `running`, `done`, `cancelled`, `failed` (by the engine) or `interrupted` (by a crash)."""
    form: str
    """`filename`, `command` or `code`."""
    said: str
    """The filename, command or code as it was given."""
    argv: list[str]
    cwd: str
    language: str | None
    engine: str
    env_names: list[str]
    stdin_bytes: int
    timeout_s: float
    created_by: str | None
    agent: str | None
    key_name: str | None
    asked_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    signal: int | None
    signal_name: str | None
    limits: LimitsAnswer | None = None
    """What it might use; null for runs of an older Petri."""
    timed_out: bool
    oom_killed: bool
    disk_full: bool = False
    cancelled: bool
    remark: str | None = None
    duration_ms: float | None
    usage: UsageAnswer | None
    stdout: KeptAnswer
    stderr: KeptAnswer
    failure: str | None
    tree_before: str | None
    tree_after: str | None
    changes: ChangesAnswer | None
    environment: str | None


class RunList(Answer):
    """A page of runs, newest first."""

    runs: list[RunAnswer]
    next_cursor: str | None


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


class KeyAnswer(Answer):
    """A key on record; its text is not."""

    id: str
    """Eight letters, which also stand in its text."""
    name: str
    tenant: str
    scope: str
    state: str
    """`live`, `expired` or `revoked`."""
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    """Give or take a minute."""
    revoked_at: str | None


class NewKey(KeyAnswer):
    """A key that was just made."""

    key: str
    """Its text, shown this once: send it as `Authorization: Bearer KEY`."""


class KeyList(Answer):
    """A page of keys, newest first."""

    keys: list[KeyAnswer]
    next_cursor: str | None


class QuotasAnswer(Answer):
    """What a tenant may have at one time. 0 is as much as it likes."""

    sandboxes: int
    runs: int
    disk_bytes: int


class TenantUsage(Answer):
    """What a tenant has now."""

    sandboxes: int
    """Live ones."""
    runs: int
    """Running and waiting."""
    disk_bytes: int | None
    """What its live sandboxes' files take; null where nobody measures."""


class TenantAnswer(Answer):
    """A tenant: whose sandboxes and keys they are."""

    name: str
    created_at: str
    quotas: QuotasAnswer
    own_quotas: list[str]
    """Which of them are its own; the others are the server's defaults."""
    usage: TenantUsage


class TenantList(Answer):
    """A page of tenants, oldest first."""

    tenants: list[TenantAnswer]
    next_cursor: str | None


class LanguageAnswer(Answer):
    """A language, and whether this host can run it."""

    name: str
    available: bool
    version: str | None
    endings: list[str]
    needs: str | None
    """What is missing, when it is not available."""


class Languages(Answer):
    """What this host can run."""

    languages: list[LanguageAnswer]


class LayerAnswer(Answer):
    """One protective layer."""

    name: str
    on: bool
    says: str
    """What it does, or why it is off."""
    remedy: str | None
    """The command that would switch it on or, where it is on, make it stronger."""


class Health(Answer):
    """Whether Petri can run code, and what protects the host from it."""

    status: str
    """`ok`, or `refusing` when code cannot be run safely here."""
    version: str
    layers: list[LayerAnswer]


class Metrics(Answer):
    """Counts since the ledger began, and what is going on now."""

    sandboxes: dict[str, int]
    """By state."""
    runs: dict[str, int]
    """By state."""
    running: int
    waiting: int
    uptime_s: float


class Problem(Answer):
    """An error, as RFC 9457 has it (`application/problem+json`)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Petri's own stable name for it."""
    field: str | None = None
    """The part of the request that was wrong."""
