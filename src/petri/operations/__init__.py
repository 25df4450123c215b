"""One file for each thing a caller may ask, its steps in reading order; `reap.py` finishes what a crash left.

Imported by: `api`, `app`. Imports: the front doors of `workspace`, `store`, `engine`, `ledger` and
`transcript`, `petri.model`, `petri.errors`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from petri.engine import Engine, Leash, Place
from petri.errors import InvalidField
from petri.ledger import Ledger
from petri.model import Limits, Run, RunEvent, Sandbox
from petri.operations.access import ANYBODY, AT_HOME, STRANGER, Access, Caller
from petri.operations.benches import Benches
from petri.operations.coming import Coming
from petri.operations.desk import Desk
from petri.operations.keeper import Becomings, Keeper
from petri.operations.languages import Languages
from petri.operations.outfitter import Outfitter
from petri.operations.parking import Parking
from petri.operations.shares import Shares
from petri.operations.steps import Steps
from petri.operations.sync_request import Begun
from petri.operations.tenant_disk import TenantDisk
from petri.operations.trials import Trials
from petri.store import Store
from petri.transcript import Transcript, Transcripts
from petri.workspace import Checkouts, Workspaces

__all__ = ["ANYBODY", "AT_HOME", "STRANGER", "Access", "Caller", "Host", "LiveRun", "Policy", "Remembering"]


@dataclass(frozen=True, slots=True)
class Remembering:
    """How much is kept of what files were."""

    undo_runs: int = 20
    """Runs of each sandbox whose trees stay."""
    undo_bytes: int = 16 << 30
    """What those may take for each tenant."""
    sweep_s: float = 600
    """How often is swept."""
    grace_s: float = 3600
    """How long nothing is swept that somebody put or asked for."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator decided."""

    limits: Limits
    """What a run may use when nobody says otherwise."""
    most: Limits
    """The largest limits anybody may ask for."""
    uid_base: int | None
    """As root: sandbox N belongs to this host uid + N. None: everything belongs to the server's own uid."""
    answer_output_bytes: int
    remembering: Remembering = Remembering()


@dataclass(slots=True)
class LiveRun:
    """A run that has not ended: what it writes, and how to end it early."""

    run: Run
    transcript: Transcript
    leash: Leash
    """Holds the command until the run is on record, and ends it early when asked."""
    recorded: asyncio.Future[None]
    """Resolved once the ledger knows of the run."""
    ended: asyncio.Future[Run]
    """Resolved once nothing of its cell is left, and all that is to be done for it is done."""
    concluded: asyncio.Future[Run]
    """Resolved before that, if its end is on record while its cell is still on its way out."""
    steps: Steps = field(default_factory=Steps)
    """What happens before the command starts."""
    is_concluding: bool = False
    """Its command has ended; only the record of that is due."""
    cut_by: RunEvent = RunEvent.CANCELLED
    """What the ledger will say should it be ended early."""

    def cut(self, event: RunEvent) -> None:
        """Ask for the end, because of `event`. Asking twice is fine."""
        if not self.leash.cancelled.done():
            self.cut_by = event
            self.leash.cancelled.set_result(None)


@dataclass(slots=True)
class Host:
    """Everything an operation may touch."""

    ledger: Ledger
    access: Access
    workspaces: Workspaces
    store: Store
    """The contents of kept trees, each tenant's apart."""
    engines: Mapping[str, Engine]
    """By name; the first is the default."""
    transcripts: Transcripts
    desk: Desk
    tenant_disk: TenantDisk
    shares: Shares
    """What each workspace may take of the disk, and does."""
    checkouts: Checkouts
    """Trees that runs see as peers."""
    languages: Languages
    policy: Policy
    parking: Parking
    """Cells that stand ready."""
    tasks: asyncio.TaskGroup
    """Owns what outlives a request: a client that goes away does not end its run."""
    live: dict[str, LiveRun] = field(default_factory=dict)
    """Runs that have not ended, by id."""
    used: dict[str, float] = field(default_factory=dict)
    """When a sandbox was last used, for uses not yet worth a row in the ledger."""
    uploads: Counter[str] = field(default_factory=Counter)
    """How many uploads are under way, by sandbox: a slow one is use, too."""
    outfitter: Outfitter | None = None
    """Who has packages installed; None where nobody does."""
    benches: Benches = field(default_factory=Benches)
    """Where long work on files is done."""
    keeper: Keeper = field(default_factory=Keeper)
    """Whose trees are kept."""
    becomings: Becomings = field(default_factory=Becomings)
    """Whose files are to be another tree."""
    trials: Trials = field(default_factory=Trials)
    """Where a run is under way whose changes may be thrown away."""
    agreed: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    """The tree each sandbox last agreed on with a folder, and when that was last written down."""
    naming: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Who is making a sandbox of a name, by tenant and name."""
    draining: bool = False
    """Set once the server has been asked to stop: nothing new is started."""
    begun: float = field(default_factory=time.monotonic)
    begun_contents: Begun = field(init=False)
    """Of which contents a sync that broke off brought the beginning."""
    coming: Coming = field(init=False)
    """Cells that are to stand ready."""

    def __post_init__(self) -> None:
        self.begun_contents = Begun(self.store)
        self.coming = Coming(self.desk, self.parking, self.tasks.create_task)

    def is_in_use(self, sandbox_id: str) -> bool:
        """Say whether something runs in a sandbox, or is on its way into it."""
        return self.desk.is_busy(sandbox_id) or self.uploads[sandbox_id] > 0

    def engine_for(self, name: str | None) -> Engine:
        """Return the engine of that name, or the default one."""
        if name is None:
            return next(iter(self.engines.values()))
        try:
            return self.engines[name]
        except KeyError:
            known = ", ".join(self.engines)
            raise InvalidField(
                "engine", f"there is no engine {name!r} here; this host has: {known}"
            ) from None

    def owner_of(self, sandbox: Sandbox) -> int | None:
        """Return the host uid a sandbox's files belong to, if it has one of its own."""
        return None if self.policy.uid_base is None else self.policy.uid_base + sandbox.number

    def place_of(self, sandbox: Sandbox, limits: Limits) -> Place:
        """Return where a sandbox's commands run, within `limits`."""
        folder = self.workspaces.folder(sandbox.id)
        return Place(sandbox.id, folder, self.owner_of(sandbox), limits)
