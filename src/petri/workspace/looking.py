"""One look at a workspace: visits folders, reads what changed, notes what is different."""

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from blake3 import blake3

from petri.errors import Conflict, Unavailable
from petri.holes import windows
from petri.trees import Change, Entry, File, Folder, Link
from petri.workspace.beneath import FOLDER, beneath, open_beneath
from petri.workspace.paths import MAX_PATH_BYTES
from petri.workspace.versions import is_young

_CHUNK_BYTES = 1 << 20
LOST = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EAGAIN})
"""How opening something fails when the code has just moved, swapped or closed it."""


class Sink(Protocol):
    """Takes in contents and folder objects: a session of the store, whatever that is."""

    def has(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return which of these it has."""
        ...

    def put_file(self, descriptor: int, size: int, digest: bytes | None = None) -> bytes:
        """Take the first `size` bytes of an open file and return their digest.

        `Conflict` if the file is shorter, `Invalid` if the digest is not the one given.
        """
        ...

    def put_folder(self, encoded: bytes, address: bytes | None = None) -> bytes:
        """Take a folder object and return its address."""
        ...


class TooMuch(Exception):
    """More would have to be read than the caller allowed; nothing is lost, look again with more patience."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found."""

    tree: bytes
    changes: tuple[Change, ...]
    """Since the look before. A folder is in it only if it came or went, as `SOME_FOLDER`."""
    skipped: tuple[bytes, ...]
    """Sockets, devices and the like, and what lies deeper than any path reaches: not part of a tree."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How much a look may take on."""

    most_bytes: int
    """Of content."""
    leaves_rest: bool
    """What becomes of more: `TooMuch`, or files of unread content, known by what the kernel says of them."""
    most_entries: int = sys.maxsize
    """Looked at; beyond, `TooMuch`."""
    is_over: Callable[[], bool] = bool
    """Whether to give up: nobody waits any more."""
    waits: bool = True
    """Whether to wait for another's look at the same workspace; else `TooMuch`."""
    sink: Sink | None = None
    """Who is given every content that is read, so that it need not be read again to be kept."""


class Sight(NamedTuple):
    """What the kernel said of a file, and what it held then."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int
    entry: Entry
    steady: bool
    """False for a file that may have changed since without any of the above telling."""

    @staticmethod
    def of(status: os.stat_result, entry: Entry, *, steady: bool) -> "Sight":
        """Return what the kernel says of a file, with what it holds."""
        return Sight(*said_of(status), entry, steady)

    def is_still(self, status: os.stat_result) -> bool:
        """Say whether a file is certainly what it was."""
        return self.steady and self[:5] == said_of(status)


_WORTH_FINDING = 16
"""So many files that are new at their paths are read; from there on, each may be a known one that moved."""
SOME_FOLDER = Folder(b"")
"""A folder in a list of changes: what is different inside is told by changes of its own."""


@dataclass(slots=True)
class Seen:
    """One folder."""

    files: dict[bytes, Sight] = field(default_factory=dict)
    folders: set[bytes] = field(default_factory=set)
    address: bytes | None = None
    """Of the folder object; None when something in it, or below it, has changed."""
    has_linked: bool = False
    """Whether some file here has another name elsewhere, by which it can change unwatched."""

    def names(self) -> set[bytes]:
        """Return the names of everything in the folder."""
        return self.files.keys() | self.folders

    def entry(self, name: bytes) -> Entry | None:
        """Return what is called `name`; of a folder only that it is one."""
        if name in self.folders:
            return SOME_FOLDER
        sight = self.files.get(name)
        return sight.entry if sight is not None else None


class Looking:
    """One look: visits folders, notes what is different, forgets what is gone."""

    def __init__(self, seen: dict[bytes, Seen], top: int, reading: Reading) -> None:
        self._seen = seen
        self._top = top
        self._reading = reading
        self._room = reading.most_bytes
        self._entries = 0
        self._now_ns = time.time_ns()
        self._replaced: dict[bytes, Seen | None] = {}
        self._unknown = 0
        self._by_inode: dict[int, Sight] = {}
        self.changes: list[Change] = []
        self.skipped: list[bytes] = []
        self.met_linked = False
        """Whether a file with several names has changed or come."""

    def undo(self) -> None:
        """Have everything as it was before this look."""
        for path, seen in self._replaced.items():
            if seen is None:
                self._seen.pop(path, None)
            else:
                self._seen[path] = seen

    def visit_all(self) -> None:
        """Visit every folder there is."""
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            self._visit(path)
            waiting += [join(path, name) for name in self._seen[path].folders]

    def visit(self, dirty: Collection[bytes]) -> None:
        """Visit the folders where something may have changed, and what is new below them."""
        linked = [path for path, seen in self._seen.items() if seen.has_linked]
        for path in sorted({*dirty, *linked}):  # a folder comes before what is in it
            if path in self._seen:
                self._visit_anew(path)

    def _visit_anew(self, path: bytes) -> None:
        known = self._seen[path].folders
        self._visit(path)
        new = [join(path, name) for name in self._seen[path].folders - known]
        while new:
            path = new.pop()
            self._visit(path)
            new += [join(path, name) for name in self._seen[path].folders]

    def _visit(self, path: bytes) -> None:
        """Bring one folder up to date; one that is just gone, or closed to us, is as good as empty."""
        was = self._seen.get(path, NOTHING)
        try:
            with beneath(self._top, os.fsdecode(path), FOLDER, follow=False) as fd:
                now = self._look_into(fd, path, was)
        except OSError as error:
            if error.errno not in LOST:
                raise
            if not path:
                raise
            now = Seen()
        self._replace(path, now)
        self._note(path, was, now)

    def _look_into(self, fd: int, path: bytes, was: Seen) -> Seen:
        now = Seen()
        with os.scandir(fd) as entries:
            for each in entries:
                name = os.fsencode(each.name)
                self._entries += 1
                if self._entries > self._reading.most_entries:
                    raise TooMuch
                try:
                    status = each.stat(follow_symlinks=False)
                    self._take(fd, path, name, status, was, now)
                except OSError as error:
                    if error.errno not in LOST:
                        raise
        return now

    def _take(self, fd: int, path: bytes, name: bytes, status: os.stat_result, was: Seen, now: Seen) -> None:
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR and len(path) + len(name) + 2 < MAX_PATH_BYTES:
            now.folders.add(name)
        elif kind in (stat.S_IFREG, stat.S_IFLNK):
            sight = now.files[name] = self._sight(fd, name, status, was.files.get(name))
            if status.st_nlink > 1:
                now.has_linked = True
                self.met_linked |= sight is not was.files.get(name)
        else:
            self.skipped.append(join(path, name))

    def _sight(self, fd: int, name: bytes, status: os.stat_result, was: Sight | None) -> Sight:
        if was is None:
            was = self._elsewhere(status.st_ino)
        if was is not None and was.is_still(status):
            return was
        steady = not is_young(max(status.st_mtime_ns, status.st_ctime_ns), self._now_ns)
        if stat.S_ISLNK(status.st_mode):
            return Sight.of(status, Link(os.readlink(name, dir_fd=fd)), steady=steady)
        return Sight.of(status, self._file(fd, name, status), steady=steady)

    def _elsewhere(self, inode: int) -> Sight | None:
        """Return what is known of a file that is new at its path: its folder may have been moved."""
        self._unknown += 1
        if self._unknown == _WORTH_FINDING:
            for seen in (*self._seen.values(), *(each for each in self._replaced.values() if each)):
                self._by_inode.update((sight.inode, sight) for sight in seen.files.values())
        return self._by_inode.get(inode)

    def _file(self, fd: int, name: bytes, status: os.stat_result) -> File:
        mode = (status.st_mode >> 6) & 7
        file = open_beneath(fd, os.fsdecode(name), os.O_RDONLY | os.O_NOFOLLOW, follow=False)
        try:
            opened = os.fstat(file)
            if not stat.S_ISREG(opened.st_mode):
                raise OSError(errno.ENOENT, "swapped for something else")
            return File(self._digest(file, opened), opened.st_size, mode)
        finally:
            os.close(file)

    def _digest(self, file: int, opened: os.stat_result) -> bytes:
        size = opened.st_size
        if size > self._room:
            if self._reading.leaves_rest:
                return unread(opened)
            raise TooMuch
        self._room -= size
        if self._reading.is_over():
            raise Unavailable("the server is stopping")
        if self._reading.sink is not None:
            with suppress(Conflict):  # it became shorter just now: the next look sees what it is then
                return self._reading.sink.put_file(file, size)
        hasher = blake3()
        # Not until the end of the file: a program that appends as fast as we read would hold us for ever.
        for chunk in windows(file, size, _CHUNK_BYTES):
            if self._reading.is_over():
                raise Unavailable("the server is stopping")
            hasher.update(chunk)
        return hasher.digest()

    def _note(self, path: bytes, was: Seen, now: Seen) -> None:
        """Write down how a folder differs from what it was, and forget what is below what is gone."""
        if was is not NOTHING and now.files == was.files and now.folders == was.folders:
            now.address = was.address  # name by name, finding that out would take longer than the look itself
            return
        different = was is NOTHING
        for name in was.names() | now.names():
            before, after = was.entry(name), now.entry(name)
            if before != after:
                different = True
                self.changes.append(Change(join(path, name), before, after))
        for name in was.folders - now.folders:
            self._forget(join(path, name))
        if different:
            self._spoil(path)
        else:
            now.address = was.address

    def _forget(self, path: bytes) -> None:
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            gone = self._seen.get(folder, NOTHING)
            self._replace(folder, None)
            for name in gone.names():
                self.changes.append(Change(join(folder, name), gone.entry(name), None))
            waiting += [join(folder, name) for name in gone.folders]

    def _replace(self, path: bytes, now: Seen | None) -> None:
        self._replaced.setdefault(path, self._seen.get(path))
        if now is None:
            self._seen.pop(path, None)
        else:
            self._seen[path] = now

    def _spoil(self, path: bytes) -> None:
        """Have the addresses of a folder and all above it computed anew."""
        while True:
            if path in self._seen:
                self._seen[path].address = None
            if not path:
                return
            path = path.rpartition(b"/")[0]


NOTHING = Seen()


def said_of(status: os.stat_result) -> tuple[int, int, int, int, int]:
    """Return what tells one version of a file from another."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode


def unread(status: os.stat_result) -> bytes:
    """Return what stands for the digest of a file that nobody read; no content has it."""
    said = f"petri-unread {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return blake3(said.encode()).digest()


def join(folder: bytes, name: bytes) -> bytes:
    """Return the path of `name` in `folder`, which may be the workspace itself."""
    return folder + b"/" + name if folder else name
