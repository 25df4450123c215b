"""Trees as folders that cells may read: what a sandbox sees of its peers.

A checkout is made from the tenant's store, used by every run of that tenant that sees this tree, and never
written to by anybody else: cells have it mounted read-only. A later tree of the same peer is made of the
checkout before it, so that it costs what changed: in place if nobody looks at that one any more, else by
hard links. For the links no file is ever changed, only replaced.

Checkouts are copies of what the store has. So nothing is fsynced, and what an earlier life of the server
left is thrown away at start. They lie in a folder that only the server may enter; in there everybody may
pass, since cells of many uids do, by names that cannot be guessed.
"""

import errno
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from petri import trees
from petri.errors import Busy, Conflict, NotFound, StorageFull, Unavailable
from petri.trees import EMPTY, Change, Entry, Fetch, File, Folder, FolderObject, Link, measure
from petri.workspace.beneath import trusted
from petri.workspace.paths import quoted
from petri.workspace.refusals import refusing
from petri.workspace.removal import Trash

_BURN_S = 60.0
_READ_AND_RUN = 0o5
_PASSABLE = 0o711
_MOST_ENTRIES = 1_000_000
"""Few objects can be many paths: what no workspace holds is not made one of."""


class Shelves(Protocol):
    """Where the objects of one tenant's trees are to be had."""

    def folder(self, address: bytes) -> FolderObject:
        """Return a folder object; `NotFound` if it is not kept."""
        ...

    def content(self, digest: bytes) -> Iterator[bytes]:
        """Yield a file's content, part by part; `NotFound` if it is not kept."""
        ...


@dataclass(slots=True, eq=False)
class Checkout:
    """A tree as a folder, and who uses it. Whoever borrowed it gives it back."""

    tenant: str
    kin: str
    """Whose trees follow one another: those of one kin are made of each other."""
    tree: bytes
    folder: Path
    size: int
    users: int = 1
    idle_since: float = field(default_factory=time.monotonic)


class Checkouts:
    """Every checkout under one root. Safe to use from many threads."""

    def __init__(self, root: Path, most_bytes: int, reserve_bytes: int) -> None:
        self.trees = root / "trees"
        """Below it lies whatever an engine is asked to mount."""
        self._most_bytes = most_bytes
        self._reserve_bytes = reserve_bytes
        self._ending = threading.Event()
        self._trash = Trash(root / "trash", self._ending)
        self._guard = threading.Lock()
        """Over the table; held for moments only."""
        self._kept: dict[tuple[str, bytes], Checkout] = {}
        self._making: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        for folder, mode in ((root, 0o700), (root / "trash", 0o700), (self.trees, _PASSABLE)):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
            folder.chmod(mode)
        for left in self.trees.iterdir():
            self._throw(left)

    def stop(self) -> None:
        """Give up what is being made: the server is ending. Called once, by `app`."""
        self._ending.set()

    def borrow(self, tenant: str, source: Shelves, kin: str, tree: bytes) -> Checkout:
        """Return a tenant's tree as a folder, made if need be; it stays until it is given back."""
        key = tenant, tree
        if (found := self._found(key)) is not None:
            return found
        with self._guard:
            making = self._making.setdefault(tenant, threading.Lock())
        with making:
            if (found := self._found(key)) is not None:
                return found
            made = self._make(tenant, source, kin, tree)
            with self._guard:
                self._kept[key] = made
            return made

    def give_back(self, checkout: Checkout) -> None:
        """Use a checkout no longer."""
        with self._guard:
            checkout.users -= 1
            checkout.idle_since = time.monotonic()

    def sweep(self, idle_s: float, within_s: float) -> bool:
        """Remove what nobody has used for so long; free what was thrown away, for `within_s` at most.

        Says whether all was tried that is there. Called by the reaper.
        """
        long_ago = time.monotonic() - idle_s
        with self._guard:
            old = [each for each in self._idle() if each.idle_since <= long_ago]
            for checkout in old:
                del self._kept[checkout.tenant, checkout.tree]
        for checkout in old:
            self._throw(checkout.folder)
        with refusing(""):
            return self._trash.empty(patience_s=within_s)

    def _found(self, key: tuple[str, bytes]) -> Checkout | None:
        with self._guard:
            found = self._kept.get(key)
            if found is not None:
                found.users += 1
            return found

    def _idle(self) -> list[Checkout]:
        """Return those nobody uses, the one longest unused first."""
        idle = (each for each in self._kept.values() if each.users == 0)
        return sorted(idle, key=lambda each: each.idle_since)

    def _make(self, tenant: str, source: Shelves, kin: str, tree: bytes) -> Checkout:
        size = _measured(source.folder, tree)
        base = self._base(tenant, kin)
        try:
            self._make_room(tenant, size)
            folder = self._filled(source, base, tree)
        finally:
            if base is not None:
                self._let_go(base)
        return Checkout(tenant, kin, tree, folder, size)

    def _base(self, tenant: str, kin: str) -> Checkout | None:
        """Return the latest checkout of this kin: one that others use too, or else ours from now on."""
        with self._guard:
            ours = [each for each in self._kept.values() if (each.tenant, each.kin) == (tenant, kin)]
            latest = max(ours, key=lambda each: each.idle_since, default=None)
            if latest is not None and latest.users == 0:
                del self._kept[tenant, latest.tree]
            elif latest is not None:
                latest.users += 1
            return latest

    def _let_go(self, base: Checkout) -> None:
        if base.users > 0:
            self.give_back(base)
        else:
            self._throw(base.folder)

    def _filled(self, source: Shelves, base: Checkout | None, tree: bytes) -> Path:
        folder = self.trees / secrets.token_hex(16)
        try:
            with refusing(""):
                self._begun(source, base, folder).become(base.tree if base else EMPTY, tree)
        except NotFound:
            self._throw(folder)
            if base is None:
                raise Conflict("the peer's files hold something that was too large to be kept") from None
            return self._filled(source, None, tree)  # what the base is made of may be swept by now
        except BaseException:
            self._throw(folder)
            raise
        return folder

    def _make_room(self, tenant: str, size: int) -> None:
        """Have `size` bytes fit into what the tenant's checkouts may take, or say that they cannot."""
        if size > self._most_bytes:
            raise Conflict(
                f"the peer's files come to {size} bytes, and {self._most_bytes} may be seen here "
                "(PETRI_PEERS_BYTES)"
            )
        with self._guard:
            theirs = sum(each.size for each in self._kept.values() if each.tenant == tenant)
            gone = []
            for idle in self._idle():
                if theirs + size > self._most_bytes and idle.tenant == tenant:
                    theirs -= idle.size
                    gone.append(self._kept.pop((tenant, idle.tree)))
        for checkout in gone:
            self._throw(checkout.folder)
        if theirs + size > self._most_bytes:
            raise Busy(
                f"the peers that runs of this tenant see now come to {theirs} bytes, and "
                f"{self._most_bytes} may be (PETRI_PEERS_BYTES); wait for a run to end"
            )

    def _begun(self, source: Shelves, base: Checkout | None, folder: Path) -> "_Work":
        """Return work on `folder`, which now holds what `base` does; nothing without one."""
        work = _Work(source, folder, self._trash, self._room(), self._ending.is_set)
        if base is not None and base.users == 0:
            base.folder.rename(folder)
            return work
        folder.mkdir()
        folder.chmod(0o755)
        if base is not None:
            work.link(base)
        return work

    def _room(self) -> int:
        free = os.statvfs(self.trees)
        return free.f_bavail * free.f_frsize - self._reserve_bytes

    def _throw(self, folder: Path) -> None:
        """Have a folder gone; what of it takes long to free waits for the next sweep."""
        with refusing(""), suppress(FileNotFoundError), trusted(self.trees) as here:
            self._trash.throw(here, folder.name)


class _Work:
    """One folder on its way from one tree to another."""

    def __init__(
        self, source: Shelves, folder: Path, trash: Trash, room: int, is_over: Callable[[], bool]
    ) -> None:
        self._source = source
        self._folder = folder
        self._trash = trash
        self._room = room
        self._is_over = is_over

    def link(self, base: Checkout) -> None:
        """Have everything of `base` here, its files by hard links."""
        with trusted(base.folder) as theirs, trusted(self._folder) as top:
            for path, entry in trees.walk(self._source.folder, base.tree):
                try:
                    if not isinstance(entry, File):
                        self._put(top, path, entry)
                    else:
                        os.link(path, path, src_dir_fd=theirs, dst_dir_fd=top, follow_symlinks=False)
                except OSError as error:
                    if error.errno != errno.EMLINK:
                        raise
                    self._put(top, path, entry)

    def become(self, old: bytes, new: bytes) -> None:
        """Make the tree `old`, which the folder is, the tree `new`."""
        with trusted(self._folder) as top:
            for change in trees.diff(self._source.folder, old, new):
                self._change(top, change)

    def _change(self, top: int, change: Change) -> None:
        if isinstance(change.old, Folder):
            self._trash.burn(self._trash.throw(top, os.fsdecode(change.path)), patience_s=_BURN_S)
        elif change.old is not None:
            os.unlink(change.path, dir_fd=top)
        if change.new is not None:
            self._put(top, change.path, change.new)
            for path, entry in _inside(self._source.folder, change.path, change.new):
                self._put(top, path, entry)

    def _put(self, top: int, path: bytes, entry: Entry) -> None:
        """Have `entry` at `path`, where nothing is; of a folder only itself."""
        if self._is_over():
            raise Unavailable("the server is stopping")
        if isinstance(entry, Folder):
            os.mkdir(path, dir_fd=top)
            os.chmod(path, 0o755, dir_fd=top)
        elif isinstance(entry, Link):
            os.symlink(entry.target, path, dir_fd=top)
        else:
            self._write(top, path, entry)

    def _write(self, top: int, path: bytes, file: File) -> None:
        self._room -= file.size
        if self._room < 0:
            raise StorageFull("no space is left for what this sandbox is to see of its peers")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _opened(path, flags, top) as descriptor:
            size = _written(descriptor, self._source.content(file.digest))
            if size != file.size:
                raise Unavailable(f"{quoted(os.fsdecode(path))} of a peer is not what it was; run petri fsck")
            os.ftruncate(descriptor, size)
            os.fchmod(descriptor, 0o111 * (file.mode & _READ_AND_RUN))


def _measured(fetch: Fetch, tree: bytes) -> int:
    """Return how many bytes a tree's files are, unless they are too many files."""
    try:
        totals = measure(fetch, tree)
    except NotFound:
        raise Conflict("the peer's files, as they were then, are not kept any more") from None
    if (entries := totals.files + totals.links + totals.folders) > _MOST_ENTRIES:
        raise Conflict(f"the peer holds {entries} files and folders, and {_MOST_ENTRIES} can be seen here")
    return totals.size


def _inside(fetch: Fetch, path: bytes, entry: Entry) -> Iterator[tuple[bytes, Entry]]:
    if isinstance(entry, Folder):
        for inner, each in trees.walk(fetch, entry.address):
            yield path + b"/" + inner, each


@contextmanager
def _opened(path: bytes, flags: int, top: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600, dir_fd=top)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _written(descriptor: int, content: Iterable[bytes]) -> int:
    """Write a file's content and return its size. What is all zeros becomes a hole, as it may have been."""
    offset = 0
    for part in content:
        if part.count(0) != len(part):
            view = memoryview(part)
            while view:
                view = view[os.pwrite(descriptor, view, offset + len(part) - len(view)) :]
        offset += len(part)
    return offset
