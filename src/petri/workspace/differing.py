"""From what a workspace is to what it is to be, as steps: what differs is planted, moved or taken away."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from petri import trees
from petri.errors import Conflict
from petri.trees import Change, Entry, File, Folder, Move, renames
from petri.workspace import kernel
from petri.workspace.beneath import LOOK, beneath
from petri.workspace.commit import FEW
from petri.workspace.drafting import Draft
from petri.workspace.index import Index
from petri.workspace.looking import Sight
from petri.workspace.paths import quoted, split
from petri.workspace.planting import Planter, Source
from petri.workspace.removal import loosen
from petri.workspace.rework import Step

_LARGE = 4 << 20
"""From this size on, a changed file is made of the one that is there."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What lies between a workspace and a tree, and what the kernel says of the files that will go."""

    changes: list[Change]
    sights: Mapping[bytes, Sight]


def difference(index: Index, source: Source, tree: bytes) -> Difference:
    """Return what turns the workspace, as `index` knows it, into `tree`."""
    here = index.addresses()

    def fetch(address: bytes) -> Mapping[bytes, Entry]:
        path = here.get(address)
        return source.folder(address) if path is None else index.folder_object(path)

    changes = list(trees.diff(fetch, index.tree, tree))
    seen = ((change.path, index.sight(change.path)) for change in changes)
    return Difference(changes, {path: sight for path, sight in seen if sight is not None})


@dataclass(slots=True)
class Plan:
    """Steps for one rework: everything that comes is in the stage when they are told."""

    workspace: int
    staging: int
    planter: Planter
    drafts: Sequence[Draft] = ()
    _takes: list[Step] = field(default_factory=list)
    _swaps: list[Step] = field(default_factory=list)
    _puts: list[Step] = field(default_factory=list)
    _names: int = 0
    _files: list[str] = field(default_factory=list)
    """Staged files, as long as nothing larger was staged."""
    _has_more: bool = False

    def steps(self, wanted: Difference) -> list[Step]:
        """Return the steps, takings first: what moves within the workspace must be out before it is put."""
        moves, rest = renames(wanted.changes)
        for move in moves:
            self._move(move, wanted.sights)
        for change in rest:
            self._change(change, wanted.sights.get(change.path))
        return [*self._takes, *self._swaps, *self._puts]

    def harden(self) -> None:
        """Make all that is staged durable; one syncfs is quicker than many of fsync, and slower than few."""
        if self._has_more or len(self._files) > FEW:
            kernel.syncfs(self.staging)
            return
        for staged in self._files:
            with beneath(self.staging, staged, os.O_RDONLY, follow=False) as fd:
                os.fsync(fd)

    def _move(self, move: Move, sights: Mapping[bytes, Sight]) -> None:
        source, destination = os.fsdecode(move.source), os.fsdecode(move.destination)
        found = self._stat(source)
        if found is None:
            raise _changed(source)
        staged = self._take(source, found, sights.get(move.source))
        self._clear(destination)
        self._puts.append(Step("put", destination, staged, found.st_ino))

    def _change(self, change: Change, sight: Sight | None) -> None:
        path = os.fsdecode(change.path)
        found = self._stat(path)
        if change.new is None:
            if found is not None:
                self._take(path, found, sight)
            return
        staged = self._name()
        self._plant(staged.encode(), path, change, sight)
        if isinstance(change.new, File):
            self._files.append(staged)
        self._has_more |= isinstance(change.new, Folder)
        inode = os.stat(staged, dir_fd=self.staging, follow_symlinks=False).st_ino
        if found is None:
            self._puts.append(Step("put", path, staged, inode))
        else:
            self._swaps.append(Step("swap", path, staged, inode, *_expected(path, found, sight)))

    def _plant(self, staged: bytes, path: str, change: Change, sight: Sight | None) -> None:
        """Make what comes in the stage: a large file of the one it replaces, if that is as it was seen."""
        old, new = change.old, change.new
        assert new is not None
        if not isinstance(old, File) or not isinstance(new, File) or min(old.size, new.size) < _LARGE:
            self.planter.plant(self.staging, staged, new)
            return
        with beneath(self.workspace, path, os.O_RDONLY | os.O_NOFOLLOW, follow=False) as there:
            if sight is None or not sight.is_still(os.fstat(there)):
                self.planter.plant(self.staging, staged, new)
                return
            if not any(
                each.is_of(change.path, new, sight) and each.was_moved(self.staging, staged)
                for each in self.drafts
            ):
                pieces = self.planter.source.changed(old.digest, new.digest)
                self.planter.plant_changed(self.staging, staged, new, there, pieces)
            if not sight.is_still(os.fstat(there)):
                raise _changed(path)

    def _take(self, path: str, found: os.stat_result, sight: Sight | None) -> str:
        staged = self._name()
        inode, *rest = _expected(path, found, sight)
        self._takes.append(Step("take", path, staged, inode, -1, *rest))
        return staged

    def _clear(self, path: str) -> None:
        """Have what no tree knows, a FIFO perhaps, out of the way."""
        if (found := self._stat(path)) is not None:
            self._take(path, found, None)

    def _stat(self, path: str) -> os.stat_result | None:
        """Return what is at `path`, which we may move from now on; nothing if there is nothing."""
        folder, name = split(path)
        try:
            return self._look(folder, name)
        except PermissionError:
            self._open_up(folder)
            return self._look(folder, name)

    def _look(self, folder: str, name: str) -> os.stat_result | None:
        with beneath(self.workspace, folder, LOOK | os.O_DIRECTORY, follow=False) as fd:
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
                raise PermissionError
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return None
            # Moving a folder rewrites its `..`, so its own permissions count, unless we are root.
            if stat.S_ISDIR(found.st_mode) and os.geteuid() != 0 and not found.st_mode & stat.S_IWUSR:
                loosen(fd, name)
            return found

    def _open_up(self, folder: str) -> None:
        """Have a folder open to us, and all above it. What may be done in folders is in no tree."""
        done = ""
        for name in folder.split("/") if folder else ():
            with beneath(self.workspace, done, LOOK | os.O_DIRECTORY, follow=False) as fd:
                loosen(fd, name)
            done = f"{done}/{name}" if done else name

    def _name(self) -> str:
        self._names += 1
        return str(self._names)


def _expected(path: str, found: os.stat_result, sight: Sight | None) -> tuple[int, int, int]:
    """Return the inode, size and time of what is to go; where no file was seen, the inode alone."""
    if sight is None:
        return found.st_ino, -1, -1
    if found.st_ino != sight.inode:
        raise _changed(path)
    return sight.inode, sight.size, sight.mtime_ns


def _changed(path: str) -> Conflict:
    return Conflict(f"{quoted(path)} changed while the workspace was being updated; nothing was done")
