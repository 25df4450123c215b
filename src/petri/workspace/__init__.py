"""Workspace: the files an agent owns. They outlive every process that wrote them.

The workspace of sandbox `sb-x` is the folder `ROOT/sb-x`, readable with ordinary tools, server running
or not. Hostile code writes there while we do: it plants links and FIFOs, swaps folders by rename,
takes permissions away, nests ten thousand levels deep. So no path is checked and then used. The
kernel resolves each one beneath the workspace (`beneath`), and what was opened is used by descriptor.

What is acknowledged is durable: staged, fsynced, renamed, folder fsynced, and only then said. An
upload appears whole or not at all, also after kill -9 (`intake`, `commit`, `journal`).

Everything here is synchronous and meant for threads. Nothing waits without bound.

Imported by: `operations`, `app`. Imports: `petri.trees`, `petri.errors`.
"""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from petri.errors import Conflict, Invalid, StorageFull
from petri.tally import Tally, tally
from petri.trees import Change
from petri.workspace.archives import ArchiveKind, archivable, archived
from petri.workspace.becoming import Becoming, Place
from petri.workspace.beneath import FOLDER, beneath, trusted
from petri.workspace.checkouts import Checkout, Checkouts
from petri.workspace.drafting import Draft, Wanted
from petri.workspace.errand import Errand
from petri.workspace.finishing import complete
from petri.workspace.ground import Ground
from petri.workspace.holding import Holding, find_holding
from petri.workspace.indexes import QUICK, WHOLE, Indexes
from petri.workspace.intake import Intake, StagedFile, Written
from petri.workspace.keeping import lacking, supply
from petri.workspace.listing import Entry, Listing, list_folder, look
from petri.workspace.looking import SOME_FOLDER, Sink, TooMuch
from petri.workspace.measuring import disk_bytes
from petri.workspace.paths import clean, split
from petri.workspace.plan import Bounds
from petri.workspace.planting import Source
from petri.workspace.preconditions import Conditions, current_version
from petri.workspace.quota import Quota, give_all, project_of
from petri.workspace.reading import OpenFile, open_file, resolve_file, resolve_folder
from petri.workspace.refusals import refusing
from petri.workspace.removal import raze
from petri.workspace.room import Room
from petri.workspace.space import Space, default_reserve, refuse_if_short
from petri.workspace.space import look as look_at_disk
from petri.workspace.versions import Version, names_a_digest
from petri.workspace.viewing import View
from petri.workspace.weight import Weight

__all__ = [
    "SOME_FOLDER",
    "ArchiveKind",
    "Bounds",
    "Checkout",
    "Checkouts",
    "Draft",
    "Entry",
    "Errand",
    "Holding",
    "Intake",
    "Listing",
    "OpenFile",
    "Quota",
    "Sink",
    "Source",
    "Space",
    "StagedFile",
    "TooMuch",
    "Version",
    "View",
    "Wanted",
    "Weight",
    "Workspaces",
    "Written",
    "find_holding",
    "look_at_disk",
    "names_a_digest",
    "raze",
]

_ANY_BYTES = 1 << 62
_DELETE_S = 10.0
"""How long deleting a folder frees its space before it leaves the rest to `empty_trash`. The folder is gone
at once; only a huge one, or code that stands in it and keeps filling it, takes longer."""
_TRIES = 3
_REMOVE_S = 300.0
"""The same for a whole workspace."""


class Workspaces:
    """Every workspace under one root. Safe to use from many threads."""

    def __init__(self, root: Path, bounds: Bounds, reserve_bytes: int | None = None) -> None:
        self._ground = Ground(root)
        self._bounds = bounds
        self._indexes = Indexes(self._ground.indexes)
        self.reserve_bytes = default_reserve(self.space()) if reserve_bytes is None else reserve_bytes
        """Free space that nobody's files may touch."""
        self.holding = find_holding(self._ground.root)

    def stop(self) -> None:
        """Give up what only serves a request: the server is ending. Called once, by `app`."""
        self._ground.ending.set()

    def close(self) -> None:
        """Keep what is known of the files for the next life. Called once, by `app`, when nothing runs."""
        self._indexes.close()

    def errand(self) -> Errand:
        """Return new work for one request, to be called off should nobody wait for it any more."""
        return self._ground.errand()

    def create(self, sandbox_id: str, owner: int | None) -> None:
        """Have an empty workspace, durably, that belongs to `owner`. Creating twice is fine."""
        folder = self._ground.folder(sandbox_id)
        with refusing(""):
            folder.mkdir(mode=0o700, exist_ok=True)
            if owner is not None:
                os.chown(folder, owner, owner, follow_symlinks=False)
            with trusted(self._ground.root) as root:
                os.fsync(root)

    def folder(self, sandbox_id: str) -> Path:
        """Return where the workspace is on this host, for engines to mount."""
        return self._ground.folder(sandbox_id)

    def unlock(self, sandbox_id: str) -> None:
        """Let its owner in again, should code have shut the folder of the workspace itself."""
        with refusing(""):
            self._ground.unlock(sandbox_id)

    def measure(self, sandbox_id: str) -> int:
        """Return the bytes of the disk that a workspace takes now. Takes as long as there are files."""
        with refusing(""), self._ground.workspace(sandbox_id) as workspace:
            return disk_bytes(workspace)

    def size(self, sandbox_id: str) -> int:
        """Return what the files would take if each was written by itself, as of the last look at them."""
        return self._indexes.size(sandbox_id)

    def remove(self, sandbox_id: str) -> None:
        """Have no such workspace, durably, and its space back. Removing twice is fine."""
        name = self._ground.folder(sandbox_id).name
        with refusing(""), trusted(self._ground.root) as root:
            try:
                thrown = self._ground.trash.throw(root, name)
            except FileNotFoundError:
                return
            os.fsync(root)
            self._indexes.forget(name)
            self._ground.trash.burn(thrown, patience_s=_REMOVE_S)

    def look(self, sandbox_id: str, *, quick: bool = False, restless: bool = False) -> bytes:
        """Return the address of the tree that the workspace is now.

        `quick`: only if next to nothing need be read, else `TooMuch`. `restless`: something may run in it.
        """
        reading = QUICK if quick else replace(WHOLE, is_over=self._ground.ending.is_set)
        with refusing(""), self._ground.workspace(sandbox_id) as workspace:
            return self._indexes.look(sandbox_id, workspace, reading, restless=restless).tree

    def keep(self, sandbox_id: str, sink: Sink, *, restless: bool = False) -> bytes:
        """Have `sink` hold the tree that the workspace is now, whole, and return its address.

        `restless`: something may run in it. `Conflict` if it does not come to rest; an upload is waited for.
        """
        for _ in range(_TRIES):
            with suppress(Conflict):
                return self._keep(sandbox_id, sink, restless=restless)
        with self._ground.changing(sandbox_id):
            return self._keep(sandbox_id, sink, restless=restless)

    def _keep(self, sandbox_id: str, sink: Sink, *, restless: bool) -> bytes:
        reading = replace(WHOLE, is_over=self._ground.ending.is_set, sink=sink)
        with refusing(""), self._ground.workspace(sandbox_id) as workspace:
            looking = self._indexes.looked(sandbox_id, workspace, reading, restless=restless)
            with looking as (index, look):
                wanted = lacking(index, sink)
            supply(workspace, wanted, sink)
            return look.tree

    def become(
        self,
        sandbox_id: str,
        tree: bytes,
        owner: int | None,
        source: Source,
        errand: Errand,
        like: str | None = None,
    ) -> None:
        """Have the workspace be `tree`, with contents from `source`, durably; or raise, and it is as it was.

        Nothing may run in it. What is there already, and is to be, is not touched. `like`: a workspace that
        may well hold the same files, and may be running.
        """
        self._becoming(sandbox_id, owner, source, errand, like).become(tree)

    def step(
        self,
        sandbox_id: str,
        trees: tuple[bytes, bytes],
        owner: int | None,
        source: Source,
        *,
        restless: bool,
        drafts: Sequence[Draft] = (),
    ) -> bool:
        """Have the workspace be the second of `trees`, durably, if it is the first; say whether it was.

        `restless`: something may run in it. What that writes where the two differ is not lost: `Conflict`.
        """
        becoming = self._becoming(sandbox_id, owner, source, self.errand())
        return replace(becoming, drafts=drafts).step(*trees, restless=restless)

    def draft(
        self, sandbox_id: str, owner: int | None, source: Source, wanted: Wanted, errand: Errand
    ) -> Draft | None:
        """Make a large file ahead of time, for `step`, or nothing; whoever asked discards it."""
        return self._becoming(sandbox_id, owner, source, errand).draft(wanted)

    def _becoming(
        self, sandbox_id: str, owner: int | None, source: Source, errand: Errand, like: str | None = None
    ) -> Becoming:
        room = Room(self._ground.root, self.reserve_bytes, None, self._project(owner))
        place = Place(self._ground, self._indexes, sandbox_id, owner, room)
        return Becoming(place, source, errand, like)

    def _project(self, owner: int | None) -> int | None:
        return owner if self.holding.quota is not None else None

    def mark(self, sandbox_id: str, found: bytes | None = None) -> bool:
        """Begin to note what changes from the last look on, unless that `found` another tree; say whether."""
        return self._indexes.mark(sandbox_id, found)

    def changes(self, sandbox_id: str) -> list[Change]:
        """Return what is different since the mark, by path, as of the last look."""
        return self._indexes.changes(sandbox_id)

    def unmark(self, sandbox_id: str) -> None:
        """Note nothing more: whoever wanted to know has been told."""
        self._indexes.unmark(sandbox_id)

    def tidy(self) -> None:
        """Finish what a crash interrupted: committed uploads are completed, scraps thrown away.

        Looks only where an upload was under way, and removes nothing. Called at start, or any time later.
        """
        with refusing(""):
            for stage in self._ground.old_stages():
                with suppress(StorageFull):  # then it stays committed, and the next start completes it
                    complete(self._ground, stage)
                    self._ground.throw_away(stage)

    def drop_unknown(self, known: Collection[str]) -> None:
        """Remove the folders of sandboxes that nobody knows, if they are empty: some were never finished.

        Never one with something in it: whoever put an old ledger beside these files has not lost them.
        """
        self._ground.drop_empty(known)

    def empty_trash(self, *, within_s: float) -> bool:
        """Free what was thrown away, for so long at most; say whether all was tried that is there."""
        with refusing(""):
            return self._ground.trash.empty(patience_s=within_s)

    def receive(self, sandbox_id: str, owner: int | None, disk_bytes: int | None = None) -> Intake:
        """Begin an upload, to be used in a `with`; its files will belong to `owner`.

        It is refused as soon as it holds more than `disk_bytes`, or the disk is short.
        """
        room = Room(self._ground.root, self.reserve_bytes, disk_bytes, self._project(owner))
        return Intake(self._ground, self._bounds, sandbox_id, owner, room)

    def space(self) -> Space:
        """Return how full the disk is. Takes a microsecond, and no thread."""
        with refusing(""):
            return look_at_disk(self._ground.root)

    def refuse_without(self, wanted_bytes: int) -> None:
        """Raise `StorageFull` if the disk is short, or would be with so much more on it."""
        space = self.space()
        refuse_if_short(space, self.reserve_bytes)
        left = space.free_bytes - self.reserve_bytes
        if wanted_bytes > left:
            raise StorageFull(
                f"{wanted_bytes} bytes more are to come to the disk of the workspaces, and {left} can: "
                "delete what is not needed and try again"
            )

    def used(self, owner: int) -> Weight:
        """Return what the kernel counts for `owner`; only where it holds quotas."""
        assert self.holding.quota is not None
        with refusing(""):
            return self.holding.quota.used(owner)

    def tally(self, sandbox_id: str, most_inodes: int) -> Tally:
        """Count what a workspace holds, unless it holds more names than `most_inodes`."""
        with refusing(""):
            return tally(str(self._ground.folder(sandbox_id)), _ANY_BYTES, most_inodes)

    def hold(self, sandbox_id: str, owner: int | None, share: Weight) -> None:
        """Have the kernel hold a workspace to `share`, where it can. Holding again, to another, is fine."""
        if self.holding.quota is not None and owner is not None:
            with refusing(""):
                folder = self._ground.folder(sandbox_id)
                self.holding.quota.limit(owner, share)
                if project_of(folder) != owner:
                    give_all(folder, owner)

    def release(self, owner: int | None) -> None:
        """Have the kernel forget the share of a workspace that is gone."""
        if self.holding.quota is not None and owner is not None:
            with refusing(""):
                self.holding.quota.limit(owner, Weight(0, 0))

    def open(self, sandbox_id: str, path: str) -> OpenFile:
        """Open a regular file for reading; the caller closes it.

        Its version holds the digest if that is known, or learnt in the blink of an eye.
        """
        with self._ground.workspace(sandbox_id) as workspace:
            return open_file(workspace, path, self._ground.digests, self.errand())

    def entry(self, sandbox_id: str, path: str) -> Entry:
        """Return what is at `path`; a link is itself, not what it points to."""
        with self._ground.workspace(sandbox_id) as workspace:
            return look(workspace, path)

    def resolve_file(self, sandbox_id: str, path: str) -> str:
        """Return the plain form of `path` if it is a regular file, or a link to one inside."""
        with self._ground.workspace(sandbox_id) as workspace:
            return resolve_file(workspace, path)

    def resolve_folder(self, sandbox_id: str, path: str) -> str:
        """Return the plain form of `path` if it is a folder, or a link to one inside."""
        with self._ground.workspace(sandbox_id) as workspace:
            return resolve_folder(workspace, path)

    def list(
        self, sandbox_id: str, path: str, *, recursive: bool, limit: int, errand: Errand | None = None
    ) -> Listing:
        """Return what is in the folder at `path`, at most `limit` entries, sorted by path."""
        with self._ground.workspace(sandbox_id) as workspace:
            return list_folder(workspace, path, errand or self.errand(), recursive=recursive, limit=limit)

    @contextmanager
    def view(self, sandbox_id: str) -> Iterator[View]:
        """Hold a workspace to look around in."""
        with self._ground.workspace(sandbox_id) as workspace:
            yield View(workspace)

    def archive(
        self, sandbox_id: str, path: str, kind: ArchiveKind, errand: Errand | None = None
    ) -> Iterator[bytes]:
        """Return the folder at `path` as a stream; empty `path` for everything.

        What cannot be archived is refused now, not when the first bytes have been sent.
        """
        with self._ground.workspace(sandbox_id) as workspace:
            most = self._bounds.max_upload_bytes
            path = archivable(workspace, path, kind, most, errand or self.errand())
        return self._archived(sandbox_id, path, kind)

    def _archived(self, sandbox_id: str, path: str, kind: ArchiveKind) -> Iterator[bytes]:
        # Opened anew: a generator that is never started would never close what it was given.
        with self._ground.workspace(sandbox_id) as workspace:
            yield from archived(workspace, path, kind, self._bounds.max_upload_bytes)

    def delete(
        self, sandbox_id: str, path: str, *, if_match: str | None, errand: Errand | None = None
    ) -> None:
        """Remove a file, a link itself, or a folder with everything in it, durably."""
        path = clean(path, new=False, empty=True)
        if not path:
            raise Invalid("the workspace itself cannot be deleted; delete the sandbox instead")
        folder, name = split(path)
        ground = self._ground
        with ground.changing(sandbox_id), ground.workspace(sandbox_id) as workspace:
            if if_match is not None:
                wanted, finding = Conditions(if_match), errand or ground.errand()
                wanted.require(path, current_version(workspace, path, ground.digests, wanted, finding))
            with refusing(path), beneath(workspace, folder, FOLDER) as fd:
                thrown = self._unhinge(fd, name)
                os.fsync(fd)
        if thrown is not None:
            with refusing(path):
                ground.trash.burn(thrown, patience_s=_DELETE_S)

    def _unhinge(self, folder: int, name: str) -> str | None:
        """Take `name` out of its folder; return what it is called in the trash, if it was a folder."""
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return self._ground.trash.throw(folder, name)
        os.unlink(name, dir_fd=folder)
        return None
