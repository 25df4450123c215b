"""A run: one exec, from what was asked to how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from petri.model.lifecycle import RunState
from petri.model.peer import SeenPeer
from petri.model.sandbox import NOBODY, Asker, Limits

Stream = Literal["stdout", "stderr"]
Form = Literal["filename", "command", "code"]
Keep = Literal["always", "on_success", "never"]
"""What becomes of what a run did to the files."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, fully decided: nothing in here needs another look at the request."""

    argv: tuple[str, ...]
    cwd: str
    """An absolute path inside the cell."""
    timeout_s: float
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run cost."""

    cpu_ms: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the command did. Exactly one of `exit_code` and `signal` is set, unless we ended it."""

    duration_ms: float
    usage: Usage
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    oom_killed: bool = False
    cancelled: bool = False
    disk_full: bool = False
    """The workspace held more than it may: the run was ended for it, or ended with it."""
    remark: str | None = None
    """What limit was reached, in words, where the facts above do not tell."""

    @property
    def is_success(self) -> bool:
        """Whether the command did what it was to do, and came to its end by itself."""
        cut_short = self.timed_out or self.oom_killed or self.cancelled or self.disk_full
        return self.exit_code == 0 and not cut_short


@dataclass(frozen=True, slots=True)
class Kept:
    """What was kept of one output stream."""

    total_bytes: int = 0
    """What the command wrote."""
    kept_bytes: int = 0
    """What is on disk: less than `total_bytes` only past the limit on kept output."""
    digest: str = ""
    """BLAKE3 of the kept bytes."""


NOTHING_KEPT = Kept()


@dataclass(frozen=True, slots=True)
class Changes:
    """What a run did to the files, by path. A folder is named only if it came or went."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left_out: int = 0
    """Changes that are not named here, since there were too many."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A package that a run seems to want and did not get. It started all the same."""

    name: str
    why: str
    """In words that whoever wrote the code can act on."""
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Packages:
    """What a run had beyond its own files and the host's, what it had not, and who decided that."""

    installed: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    source: str = "none"
    """Who had the first word: `pep723`, `lock`, `manifest` or `imports`."""
    why: str = ""
    """The decision as one sentence."""
    because: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each package that was asked for: by which lines of which files."""
    repeated: bool = False
    """Whether it was run once more, with a package that the first attempt missed."""


@dataclass(frozen=True, slots=True)
class Run:
    """One row of the ledger. Times are seconds since the epoch."""

    id: str
    sandbox_id: str
    tenant: str
    form: Form
    said: str
    """The filename, command line or code as the caller gave it."""
    argv: tuple[str, ...]
    cwd: str
    timeout_s: float
    engine: str
    asked_at: float
    limits: Limits | None = None
    """What it may use; None on record only for runs older than this column."""
    asker: Asker = NOBODY
    language: str | None = None
    env_names: tuple[str, ...] = ()
    """Names only: values may be secrets, and the ledger is for ever."""
    stdin_bytes: int = 0
    state: RunState = RunState.QUEUED
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    stdout: Kept = NOTHING_KEPT
    stderr: Kept = NOTHING_KEPT
    failure: str | None = None
    """Why the engine, not the command, failed."""
    tree_before: str | None = None
    tree_after: str | None = None
    """Addresses of the workspace's trees; None where nobody looked, or nobody could."""
    changes: Changes | None = None
    undone_at: float | None = None
    """When its sandbox went back to a tree from before it."""
    keep: Keep = "always"
    kept: bool | None = None
    """Whether what it did to the files stayed; None as long as that is not decided."""
    peers: tuple[SeenPeer, ...] = ()
    """What it saw of other sandboxes."""
    environment: str | None = None
    """The address of the packages it had; two, joined by `+`, where a command runs two languages."""
    packages: Packages | None = None
    """None where nothing was wanted, or nobody asked."""
