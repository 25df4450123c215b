"""A sandbox: a tenant's workspace, its policy, and where it is in its life."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from petri.model.lifecycle import State
from petri.model.peer import Peer

Lifetime = Literal["persistent", "ephemeral"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use at most. The defaults are those of sandboxes older than the limit."""

    cpus: float
    memory_bytes: int
    processes: int
    timeout_s: float
    open_files: int = 1024
    disk_bytes: int = 4 * 2**30
    """What the workspace may hold, whoever put it there."""
    inodes: int = 200_000
    """Files, folders and links in the workspace."""
    tmp_bytes: int = 256 * 2**20
    """Size of `/tmp`, and once more of `/dev/shm`."""
    output_bytes: int = 256 * 2**20
    """What is kept of each output stream."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asked: what the caller says of itself, and the key that vouches for the request."""

    created_by: str | None = None
    agent: str | None = None
    key_name: str | None = None

    def or_else(self, other: "Asker") -> "Asker":
        """Return this one, with what `other` says of itself where it says nothing. A key is nobody else's."""
        return Asker(self.created_by or other.created_by, self.agent or other.agent, self.key_name)


NOBODY = Asker()


@dataclass(frozen=True, slots=True)
class Addition:
    """A package that a run asked for: every later run of its sandbox has it, too."""

    language: str
    """`python` or `javascript`."""
    name: str
    text: str
    """What the installer is told."""
    said: str
    """Which run asked, and how: `run-… pip install x`."""
    is_loose: bool = False
    """It could only be had with other versions of what was there than those that were."""

    @property
    def run_id(self) -> str:
        """The run that asked."""
        return self.said.partition(" ")[0]


def last_words(added: Iterable[Addition]) -> tuple[Addition, ...]:
    """Return of everything that was asked for the last of each name: later runs have that."""
    return tuple({(each.language, each.name): each for each in added}.values())


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One row of the ledger. Times are seconds since the epoch."""

    id: str
    tenant: str
    language: str
    engine: str
    lifetime: Lifetime
    limits: Limits
    created_at: float
    last_active_at: float
    name: str | None = None
    state: State = State.CREATING
    generation: int = 0
    """Rises with every change of state; a change names the one it expects."""
    number: int = 0
    """Counts up and is never used twice. As root, the sandbox's host uid follows from it."""
    ttl_s: float | None = None
    idle_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()
    """Other sandboxes whose files its runs may read."""
    asker: Asker = NOBODY
    ended_at: float | None = None
    ended_because: str | None = None
    tree: str | None = None
    """Address of its files as of the last run, upload or deletion; None if nobody has looked since."""

    becoming: str | None = None
    """Address of the tree that its files are to be, and may not be yet: whoever uses them waits for that."""
    forked_from: str | None = None
    """The sandbox it was forked from."""
    from_snapshot: str | None = None
    """The snapshot it was made from."""
    first_tree: str | None = None
    """Address of the tree that it began with, where that was not empty."""
    environment: str | None = None
    """Address of the packages that something was last run with."""
    added: tuple[Addition, ...] = ()
    """Packages that its runs asked for while they ran."""

    def used_at(self, at: float) -> "Sandbox":
        """Return this sandbox as it would be had it last been used at `at`."""
        return replace(self, last_active_at=at)

    def expiry(self) -> tuple[float, str] | None:
        """Return when this sandbox ends by itself and why (`ttl` or `idle`), or None if never."""
        ends = []
        if self.ttl_s is not None:
            ends.append((self.created_at + self.ttl_s, "ttl"))
        if self.idle_s is not None:
            ends.append((self.last_active_at + self.idle_s, "idle"))
        return min(ends, default=None)
