"""Ledger: what is and what happened. A state and its history row are one transaction, or neither is.

Imported by: `operations`, `api`, `app`. Imports: `petri.model`, `petri.errors`.

Whatever is written is on the disk when the `await` returns. A caller who is cancelled meanwhile gives up
the answer, never half a transaction. Rows are never removed: deleting a sandbox is a state.

    tables.py, migrations/            what is kept, and how a file on disk comes to hold it
    sandboxes.py, becoming.py, agreements.py, snapshots.py, trees.py, expiry.py, runs.py, events.py,
    tenants.py, keys.py               the questions and changes, by noun
    rows.py, pages.py, prepared.py    what those have in common
    opening.py, writer.py, readers.py how it is opened, and the threads they happen in
    remembered.py                     sandboxes that were read and have not changed since
    ballast.py                        space kept for the day the disk is full
    sqlite.py                         all that is particular to SQLite
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection

from petri.ledger import (
    agreements,
    becoming,
    events,
    expiry,
    keys,
    runs,
    sandboxes,
    snapshots,
    tenants,
    trees,
)
from petri.ledger.becoming import Back, Rewind, Side
from petri.ledger.counting import Counts, counts
from petri.ledger.events import UNCHANGED, Deed, Happening, HistoryRow
from petri.ledger.keys import KeyQuery
from petri.ledger.opening import opened
from petri.ledger.pages import Page
from petri.ledger.readers import Readers
from petri.ledger.remembered import Remembered
from petri.ledger.runs import NO_ENDING, Ending
from petri.ledger.sandboxes import SandboxQuery
from petri.ledger.trees import NamedTrees
from petri.ledger.writer import Writer
from petri.model import Addition, Event, Key, Run, RunEvent, Sandbox, Snapshot, Tenant, last_words

__all__ = [
    "Back",
    "Counts",
    "Deed",
    "Ending",
    "HistoryRow",
    "KeyQuery",
    "Ledger",
    "NamedTrees",
    "Page",
    "Rewind",
    "SandboxQuery",
    "Side",
]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Ledger:
    """The record. One a process; its methods are called from the event loop."""

    def __init__(self, writer: Writer, readers: Readers | Writer, remembered: Remembered) -> None:
        self._writer = writer
        self._readers = readers
        self._remembered = remembered
        self._numbers: Iterator[int] | None = None  # of sandboxes to come; known once somebody has asked

    @classmethod
    def open(cls, url: str) -> "Ledger":
        """Open the ledger at `sqlite:////path/ledger.db`, or in memory at `sqlite://`; bring it up to date.

        `Unavailable`, with what would help, if the file is damaged, locked or out of reach.
        """
        return cls(*opened(url))

    async def close(self) -> None:
        """Finish what was asked for, then end every thread and connection. Twice is fine."""
        self._readers.refuse()
        self._writer.refuse()
        self._remembered.forget()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.close()
        self._writer.close()  # last: the last connection to go folds the -wal into the file

    def require_room(self) -> None:
        """Raise `StorageFull` if there is room for deletions and endings only."""
        self._writer.require_room()

    async def restore_ballast(self) -> None:
        """Fill up what was let go to write on a full disk, once there is room. Called by the reaper."""
        await self._writer.restore_ballast()

    # ---------------------------------------------------------------------------------------- sandboxes

    async def add_sandbox(self, sandbox: Sandbox, *, most: int = 0, is_made: bool = False) -> Sandbox:
        """Write down a new sandbox; return it with its number, which no other ever had or will have.

        One that `is_made` has `next_number` already, and is ready. `Conflict` if a live sandbox of the tenant
        has its name, `OverQuota` if it has `most` live ones (0: any number will do).
        """
        add = sandboxes.add_made if is_made else sandboxes.add
        return await self._writer.do(lambda connection: add(connection, sandbox, most))

    async def next_number(self) -> int:
        """Return the number of the next sandbox. One that is then not made takes it along, for this life."""
        last = 0 if self._numbers else await self._readers.glance(sandboxes.last_number)
        if self._numbers is None:
            self._numbers = itertools.count(last + 1)
        return next(self._numbers)

    async def sandbox(self, sandbox_id: str, tenant: str) -> Sandbox:
        """Return a sandbox in whatever state; `NotFound` if it is not this tenant's."""
        return await self._readers.glance(lambda connection: sandboxes.find(connection, sandbox_id, tenant))

    async def sandbox_in_use(self, sandbox_id: str, tenant: str) -> Sandbox:
        """Return a sandbox as `sandbox` does, but for when it was last in use: that may be as it once was.

        From memory, if nothing else of it has changed since it was read for this.
        """
        return await self._remembered.or_read(sandbox_id, tenant, self.sandbox)

    async def sandbox_named(self, name: str, tenant: str) -> Sandbox | None:
        """Return the live sandbox that holds `name`, if one does."""
        return await self._readers.glance(lambda connection: sandboxes.named(connection, name, tenant))

    async def sandboxes(self, tenant: str, query: SandboxQuery) -> Page[Sandbox]:
        """Return a tenant's sandboxes, newest first."""
        return await self._readers.do(lambda connection: sandboxes.page(connection, tenant, query))

    async def advance(self, sandbox: Sandbox, event: Event, detail: Mapping[str, Any] = _NOTHING) -> Sandbox:
        """Do `event` to `sandbox`; return it as it is now.

        `Conflict` if the lifecycle does not allow it, or if somebody else advanced the sandbox since
        it was read.
        """
        happening = Happening(sandbox.id, time.time(), event.value, detail)
        return await self._writer.do(
            lambda connection: sandboxes.advance(connection, sandbox, happening), must=True
        )

    async def amend(self, sandbox: Sandbox, changes: Mapping[str, Any]) -> Sandbox:
        """Change `name`, `ttl_s`, `idle_s`, `limits` or `metadata` of a live sandbox; return it as it is now.

        Of `limits` only those named change: two who change different ones at once both get their way.
        `Conflict` if it has ended, or if another live sandbox has the name.
        """
        at = time.time()
        return await self._writer.do(lambda connection: sandboxes.amend(connection, sandbox.id, changes, at))

    async def set_added(self, run: Run, added: Sequence[Addition]) -> None:
        """Write down all packages that the runs of a sandbox asked for, the last of them by `run`."""
        detail = {"packages": [each.text for each in last_words(added)], "environment": run.environment}
        happening = Happening(run.sandbox_id, time.time(), "packages.added", detail, run.id)
        await self._writer.do(lambda c: sandboxes.set_added(c, added, run.environment, happening))

    async def touch(self, sandbox_id: str, at: float) -> None:
        """Note that a sandbox was in use at `at`. One that has ended stays as it is."""
        await self._writer.do(lambda connection: expiry.touch(connection, sandbox_id, at))

    async def expired(self, at: float) -> list[Sandbox]:
        """Return the live sandboxes whose time is up at `at`, longest overdue first."""
        return await self._readers.do(lambda connection: expiry.expired(connection, at))

    async def unfinished(self) -> list[Sandbox]:
        """Return the sandboxes whose state names work to be finished. Called by the reaper."""
        return await self._readers.do(sandboxes.unfinished)

    async def used_up(self) -> list[Sandbox]:
        """Return the ephemeral sandboxes that are still there though they had their run."""
        return await self._readers.do(sandboxes.used_up)

    # --------------------------------------------------------------------------------------- their files

    async def set_tree(self, sandbox_id: str, tree: str) -> None:
        """Write down the tree that a sandbox's files are, if that is news."""
        await self._writer.do(lambda connection: sandboxes.set_tree(connection, sandbox_id, tree))

    async def begin_becoming(
        self,
        sandbox_id: str,
        tree: str,
        kind: str,
        detail: Mapping[str, Any] = _NOTHING,
        back: Back | None = None,
        *,
        agreed: str | None = None,
    ) -> None:
        """Write down that the files of a sandbox are to be `tree`, before one of them is touched.

        `kind` and `detail` say why; `agreed` is what it agrees on with a client. `Conflict` if not ready.
        """
        happening = Happening(sandbox_id, time.time(), kind, {**detail, "tree": tree})
        await self._writer.do(lambda connection: becoming.begin(connection, tree, happening, back, agreed))

    async def end_becoming(self, sandbox_id: str, tree: str) -> None:
        """Write down that the files of a sandbox are now `tree`, as they were to be."""
        happening = Happening(sandbox_id, time.time(), "files.settled", {"tree": tree})
        await self._writer.do(lambda connection: becoming.end(connection, tree, happening), must=True)

    async def give_up_becoming(self, sandbox_id: str, tree: str, now: str | None, why: str) -> None:
        """Write down that the files of a sandbox will not be `tree` after all; they are `now`, as before."""
        happening = Happening(sandbox_id, time.time(), UNCHANGED, {"tree": now, "why": why})
        await self._writer.do(lambda connection: becoming.give_up(connection, tree, happening), must=True)

    async def unsettled(self) -> list[Sandbox]:
        """Return the ready sandboxes whose files are not yet what they are to be."""
        return await self._readers.do(becoming.unsettled)

    async def agree(
        self, sandbox_id: str, tree: str, at: float, *, kind: str = "", detail: Mapping[str, Any] = _NOTHING
    ) -> None:
        """Write down the tree that a client and a sandbox agree on, and what happened, if `kind` says so.

        The tree stays known for 30 days, the last 16 of a sandbox at most.
        """
        happening = Happening(sandbox_id, at, kind, detail)

        def write(connection: Connection) -> None:
            agreements.add(connection, sandbox_id, tree, at)
            if kind:
                sandboxes.note(connection, happening)

        await self._writer.do(write, must=bool(kind))

    async def last_to_undo(self, sandbox: Sandbox) -> Run | None:
        """Return the last run of a sandbox that changed files or added packages and is not undone, if any."""
        return await self._readers.do(lambda connection: becoming.last_to_undo(connection, sandbox))

    async def has_been(self, sandbox: Sandbox, tree: str) -> bool:
        """Say whether a sandbox's files were this tree at some time that is on record."""
        return await self._readers.do(lambda connection: becoming.has_been(connection, sandbox, tree))

    async def named_trees(self, tenant: str, last_runs: int) -> NamedTrees:
        """Return which of a tenant's trees must stay, and those of the last runs of each live sandbox."""
        at = time.time()
        return await self._readers.do(lambda connection: trees.named_trees(connection, tenant, last_runs, at))

    async def every_tenant(self) -> list[str]:
        """Return the name of everybody who ever had a sandbox."""
        return await self._readers.do(trees.every_tenant)

    # ---------------------------------------------------------------------------------------- snapshots

    async def add_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Write down a new snapshot; `Conflict` if its tenant has one of that name."""
        return await self._writer.do(lambda connection: snapshots.add(connection, snapshot))

    async def snapshot(self, id_or_name: str, tenant: str) -> Snapshot:
        """Return a snapshot by its id or its name; `NotFound` if it is not this tenant's, or deleted."""
        return await self._readers.glance(lambda connection: snapshots.find(connection, id_or_name, tenant))

    async def snapshots(
        self, tenant: str, sandbox_id: str | None, *, limit: int, cursor: str | None
    ) -> Page[Snapshot]:
        """Return a tenant's snapshots, of one sandbox or of all, newest first."""
        return await self._readers.do(
            lambda connection: snapshots.page(connection, tenant, sandbox_id, limit, cursor)
        )

    async def delete_snapshot(self, snapshot: Snapshot) -> None:
        """Write down that a snapshot is wanted no more."""
        at = time.time()
        await self._writer.do(lambda connection: snapshots.delete(connection, snapshot, at), must=True)

    # --------------------------------------------------------------------------------------------- runs

    async def add_run(self, run: Run, *, start: bool) -> Run:
        """Write down a queued run and, with `start`, that it runs. `Conflict` if its sandbox has ended."""
        return await self._writer.do(lambda connection: runs.add(connection, run, start=start))

    async def advance_run(self, run: Run, event: RunEvent, *, at: float, ending: Ending = NO_ENDING) -> Run:
        """Do `event` to `run`; return it as it is now.

        `Conflict` if the lifecycle does not allow it, or if the run moved on since it was read.
        """
        must = event is not RunEvent.START
        return await self._writer.do(
            lambda connection: runs.advance(connection, run, event, at, ending), must=must
        )

    async def foresee(self, run: Run) -> None:
        """Write down again that files will be as before `run`, if its changes may be thrown away."""
        await self._writer.do(lambda connection: runs.begin_trial(connection, run))

    async def run(self, run_id: str, tenant: str) -> Run:
        """Return a run in whatever state; `NotFound` if it is not this tenant's."""
        return await self._readers.glance(lambda connection: runs.find(connection, run_id, tenant))

    async def output(self, run_id: str) -> bytes | None:
        """Return what a run wrote, as `Ending.output` had it; None if that is kept elsewhere."""
        return await self._readers.glance(lambda connection: runs.output(connection, run_id))

    async def runs(self, sandbox_id: str, *, limit: int, cursor: str | None) -> Page[Run]:
        """Return a sandbox's runs, newest first."""
        return await self._readers.do(lambda connection: runs.page(connection, sandbox_id, limit, cursor))

    async def runs_by_id(self, run_ids: Sequence[str]) -> list[Run]:
        """Return those runs, in no order. Only for ids that the ledger itself gave."""
        return await self._readers.do(lambda connection: runs.many(connection, run_ids))

    async def last_equipped_run(self, sandbox_id: str) -> Run | None:
        """Return the last run of a sandbox for which packages were wanted."""
        return await self._readers.do(lambda connection: runs.last_equipped(connection, sandbox_id))

    async def environments(self) -> set[str]:
        """Return the address of every environment that a run had. Takes as long as there are runs."""
        return await self._readers.do(runs.environments)

    async def unfinished_runs(self) -> list[Run]:
        """Return the runs that are queued or running, oldest first."""
        return await self._readers.do(runs.unfinished)

    async def interrupt_unfinished_runs(self, at: float) -> int:
        """Write down that every unfinished run was cut off; return how many were. Called at start."""
        return await self._writer.do(lambda connection: runs.interrupt_unfinished(connection, at), must=True)

    # ------------------------------------------------------------------------------------------ history

    async def note(self, sandbox_id: str, kind: str, detail: Mapping[str, Any], *, at: float) -> None:
        """Write down something that changed no state, such as `files.written`; the sandbox was in use."""
        happening = Happening(sandbox_id, at, kind, detail)
        await self._writer.do(lambda connection: sandboxes.note(connection, happening), must=True)

    async def events(self, sandbox_id: str, *, limit: int, cursor: str | None) -> Page[HistoryRow]:
        """Return the history of a sandbox and its runs, oldest first."""
        return await self._readers.do(lambda connection: events.page(connection, sandbox_id, limit, cursor))

    async def file_history(self, sandbox_id: str, limit: int) -> list[HistoryRow]:
        """Return what happened to a sandbox's files, or may have and was not given up: the latest first."""
        return await self._readers.do(lambda connection: events.latest(connection, sandbox_id, limit))

    async def counts(self, tenant: str | None = None) -> Counts:
        """Return how many sandboxes and runs are in each state: a tenant's, or everybody's."""
        return await self._readers.do(lambda connection: counts(connection, tenant))

    # ----------------------------------------------------------------------------------- tenants and keys

    async def tenants(self) -> list[Tenant]:
        """Return every tenant, oldest first."""
        return await self._readers.do(tenants.every)

    async def tenant(self, name: str) -> Tenant:
        """Return a tenant; `NotFound` if there is none of that name."""
        return await self._readers.do(lambda connection: tenants.find(connection, name))

    async def tenants_page(self, *, limit: int, cursor: str | None) -> Page[Tenant]:
        """Return a page of tenants, oldest first."""
        return await self._readers.do(lambda connection: tenants.page(connection, limit, cursor))

    async def amend_tenant(self, name: str, changes: Mapping[str, int | None], deed: Deed) -> Tenant:
        """Change quotas of a tenant, which is made if there is none; None is back to the operator's own."""
        return await self._writer.do(lambda connection: tenants.amend(connection, name, changes, deed))

    async def tenant_events(self, name: str, *, limit: int, cursor: str | None) -> Page[HistoryRow]:
        """Return what happened to a tenant, its keys and its quotas, oldest first."""
        return await self._readers.do(lambda connection: tenants.history(connection, name, limit, cursor))

    async def live_by_tenant(self) -> Mapping[str, int]:
        """Return how many live sandboxes each tenant has that has any."""
        return await self._readers.do(sandboxes.live_by_tenant)

    async def live(self, tenant: str | None = None) -> Mapping[str, float]:
        """Return the ids of live sandboxes, a tenant's or everybody's, and when each was last in use."""
        return await self._readers.do(lambda connection: sandboxes.live(connection, tenant))

    async def add_key(self, key: Key, deed: Deed) -> Key:
        """Write down a new key, and its tenant if that is new. `Conflict` if the tenant has that name."""
        return await self._writer.do(lambda connection: keys.add(connection, key, deed))

    async def revoke_key(self, key_id: str, deed: Deed) -> Key:
        """Write down that a key opens nothing any more; `NotFound` if there is none."""
        return await self._writer.do(lambda connection: keys.revoke(connection, key_id, deed))

    async def keys(self, query: KeyQuery) -> Page[Key]:
        """Return keys, newest first."""
        return await self._readers.do(lambda connection: keys.page(connection, query))

    async def held_keys(self) -> list[Key] | None:
        """Return every key that was not revoked, or None if there never was a key at all."""
        return await self._readers.do(lambda c: keys.held(c) if keys.any_ever(c) else None)

    async def note_uses(self, uses: Mapping[str, float]) -> None:
        """Write down when keys, by id, were last used."""
        await self._writer.do(lambda connection: keys.note_uses(connection, uses))
