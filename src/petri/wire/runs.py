"""Runs on the wire: what may be asked to run, how it ended, and what is on record of it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from petri.wire.peers import SeenPeerAnswer
from petri.wire.sandboxes import LimitsAnswer, LimitsRequest, NetworkRequest, RunLimits
from petri.wire.values import Answer, Argument, Environment, Label, Request, Seconds, Stdin, Text, unbuilt

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
    stdin: Stdin | None = None
    env: Environment = {}
    cwd: Argument | None = None
    """A folder of the workspace; default: its top."""
    timeout_s: Seconds | None = None
    timeout: Seconds | None = None
    """Another name for `timeout_s`."""
    engine: Label | None = None
    network: NetworkRequest | None = None
    dependencies: Literal["auto", "manifest-only", "off"] | None = None
    """Which packages are installed for it: those it imports, those in a manifest, or none. Where the server's
    own setting allows less, that counts."""
    missing: Literal["report", "repeat", "continue"] = "report"
    """What becomes of it when a module turns out to be missing that a package brings: that is told in the
    answer; or the package is installed, the files are as before, and it is run once more; or the package is
    installed while it runs and goes on (Python only, for what the program itself imports)."""
    keep: Literal["always", "on_success", "never"] = "always"
    """What becomes of what it did to the files: it stays, it stays if the command exits with 0, or the files
    are as before when the run has ended. Either way the answer tells what it did."""
    detach: Annotated[Literal[False], unbuilt("stream with `Accept: text/event-stream`", False)] = False
    """Not built yet: leave it out, or stream with `Accept: text/event-stream`."""
    created_by: Label | None = None
    """Who asks, by their own word. Default: what the sandbox was created with."""
    agent: Label | None = None
    """The program that asks, by its own word. Default: what the sandbox was created with."""

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


class NotInstalled(Answer):
    """A package that a run seemed to want and did not get."""

    name: str
    why: str
    """And what would be right, in words."""
    suggestion: str | None
    """The package that may have been meant."""


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
    keep: str = "always"
    kept: bool | None = None
    """Whether the files are now as `tree_after` has them; false: they are as in `tree_before` again."""
    peers: list[SeenPeerAnswer] = []
    environment: str | None
    """Address of the packages it had."""
    installed: list[str]
    """Those packages, as in `numpy==2.3.1`."""
    not_installed: list[NotInstalled] = []
    """What it seemed to want and did not get; it was started all the same."""
    repeated: bool = False
    """It was run once more, with a package that the first attempt missed; the output is that of both."""


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
    undone_at: str | None = None
    """When the files of its sandbox went back to what they were before it, if they did."""
    keep: str = "always"
    kept: bool | None = None
    """Whether what it did to the files was kept; null where that is not decided, or nothing was done."""
    peers: list[SeenPeerAnswer] = []
    """What it saw of other sandboxes."""
    environment: str | None
    """Address of the packages it had."""
    installed: list[str] = []
    not_installed: list[NotInstalled] = []
    repeated: bool = False


class RunList(Answer):
    """A page of runs, newest first."""

    runs: list[RunAnswer]
    next_cursor: str | None
