"""A workspace as a tree: what each file was when it was last looked at, so that only changes are read.

Like git's index: a file whose size, times, inode and mode are as they were has the content it had. `ctime`
cannot be set back by any program, so a change cannot hide. A file that changed within the clock's last ticks
could change again unseen; it is read again at the next look.

A look goes through the whole workspace, or only through the folders that somebody who watched says have
changed (`watching`). Either way the result is the same: the address of the tree, and what is different
since the look before.
"""

import errno
import marshal
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from blake3 import blake3

from petri.errors import Unavailable
from petri.trees import Change, Entry, File, Folder, Link, address, encode
from petri.workspace.beneath import FOLDER, beneath, open_beneath
from petri.workspace.paths import MAX_PATH_BYTES

_CHUNK_BYTES = 1 << 20
_RACY_NS = 50_000_000
_LOST = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EAGAIN})
"""How opening something fails when the code has just moved, swapped or closed it."""


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


class _Sight(NamedTuple):
    """What the kernel said of a file, and what it held then."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int
    entry: Entry
    steady: bool
    """False for a file that may have changed since without any of the above telling."""


SOME_FOLDER = Folder(b"")
"""A folder in a list of changes: what is different inside is told by changes of its own."""


@dataclass(slots=True)
class _Seen:
    """One folder."""

    files: dict[bytes, _Sight] = field(default_factory=dict)
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


class Index:
    """What is known of one workspace. Not for two threads at once."""

    def __init__(self) -> None:
        self._seen: dict[bytes, _Seen] = {}

    def __len__(self) -> int:
        return sum(len(seen.files) + 1 for seen in self._seen.values())

    def look(self, top: int, dirty: Collection[bytes] | None, reading: Reading) -> Look:
        """Look at the workspace open as `top`.

        `dirty`: the only folders in which something may have changed; None: anywhere.
        """
        looking = _Looking(self._seen, top, reading)
        try:
            if dirty is None or not self._seen:
                looking.visit_all()
            else:
                looking.visit(dirty)
                if looking.met_linked:  # of its other names nobody has told us yet
                    looking.visit_all()
        except BaseException:
            looking.undo()
            raise
        return Look(self._address(b""), tuple(looking.changes), tuple(looking.skipped))

    def folders(self) -> Iterator[bytes]:
        """Yield every folder's path, the workspace's own being empty."""
        yield from self._seen

    def folder_objects(self, is_known: Callable[[bytes], bool]) -> Iterator[bytes]:
        """Yield the folder objects of the tree, but none below one that `is_known`."""
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            seen = self._seen[path]
            assert seen.address is not None
            if not is_known(seen.address):
                yield encode(self._entries(path, seen))
                waiting += [_join(path, name) for name in seen.folders]

    def entry(self, path: bytes) -> Entry | None:
        """Return what was at `path` at the last look; of a folder only that it is one."""
        if path in self._seen:
            return SOME_FOLDER
        folder, _, name = path.rpartition(b"/")
        seen = self._seen.get(folder)
        return seen.entry(name) if seen is not None else None

    def frozen(self) -> bytes:
        """Return everything known, to be kept in a file of the server's own."""
        return marshal.dumps((_FORMAT, [_row(path, seen) for path, seen in self._seen.items()]))

    @classmethod
    def thawed(cls, kept: bytes) -> "Index":
        """Return what `frozen` made bytes of; `ValueError` if these are no such bytes."""
        index = cls()
        try:
            version, rows = marshal.loads(kept)
            if version != _FORMAT:
                raise ValueError(f"an index of format {version}")
            for path, files, folders, has_linked in rows:
                seen = index._seen[path] = _Seen(folders=set(folders), has_linked=has_linked)
                for name, sight, entry in files:
                    seen.files[name] = _Sight(*(*sight, _ENTRIES[entry[0]](*entry[1:]), True))
        except (EOFError, TypeError, KeyError) as error:
            raise ValueError("not an index") from error
        return index

    def _address(self, top: bytes) -> bytes:
        """Compute the addresses that are missing at and below `top`, deepest first; return that of `top`."""
        order, waiting = [], [top]
        while waiting:
            path = waiting.pop()
            if self._seen[path].address is None:
                order.append(path)
                waiting += [_join(path, name) for name in self._seen[path].folders]
        for path in reversed(order):
            seen = self._seen[path]
            seen.address = address(encode(self._entries(path, seen)))
        found = self._seen[top].address
        assert found is not None
        return found

    def _entries(self, path: bytes, seen: _Seen) -> dict[bytes, Entry]:
        entries: dict[bytes, Entry] = {name: sight.entry for name, sight in seen.files.items()}
        for name in seen.folders:
            inner = self._seen[_join(path, name)].address
            assert inner is not None
            entries[name] = Folder(inner)
        return entries


class _Looking:
    """One look: visits folders, notes what is different, forgets what is gone."""

    def __init__(self, seen: dict[bytes, _Seen], top: int, reading: Reading) -> None:
        self._seen = seen
        self._top = top
        self._reading = reading
        self._room = reading.most_bytes
        self._entries = 0
        self._now_ns = time.time_ns()
        self._replaced: dict[bytes, _Seen | None] = {}
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
            waiting += [_join(path, name) for name in self._seen[path].folders]

    def visit(self, dirty: Collection[bytes]) -> None:
        """Visit the folders where something may have changed, and what is new below them."""
        linked = [path for path, seen in self._seen.items() if seen.has_linked]
        for path in sorted({*dirty, *linked}):  # a folder comes before what is in it
            if path in self._seen:
                self._visit_anew(path)

    def _visit_anew(self, path: bytes) -> None:
        known = self._seen[path].folders
        self._visit(path)
        new = [_join(path, name) for name in self._seen[path].folders - known]
        while new:
            path = new.pop()
            self._visit(path)
            new += [_join(path, name) for name in self._seen[path].folders]

    def _visit(self, path: bytes) -> None:
        """Bring one folder up to date; one that is just gone, or closed to us, is as good as empty."""
        was = self._seen.get(path, _NOTHING)
        try:
            with beneath(self._top, os.fsdecode(path), FOLDER, follow=False) as fd:
                now = self._look_into(fd, path, was)
        except OSError as error:
            if error.errno not in _LOST:
                raise
            if not path:
                raise
            now = _Seen()
        self._replace(path, now)
        self._note(path, was, now)

    def _look_into(self, fd: int, path: bytes, was: _Seen) -> _Seen:
        now = _Seen()
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
                    if error.errno not in _LOST:
                        raise
        return now

    def _take(
        self, fd: int, path: bytes, name: bytes, status: os.stat_result, was: _Seen, now: _Seen
    ) -> None:
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR and len(path) + len(name) + 2 < MAX_PATH_BYTES:
            now.folders.add(name)
        elif kind in (stat.S_IFREG, stat.S_IFLNK):
            sight = now.files[name] = self._sight(fd, name, status, was.files.get(name))
            if status.st_nlink > 1:
                now.has_linked = True
                self.met_linked |= sight is not was.files.get(name)
        else:
            self.skipped.append(_join(path, name))

    def _sight(self, fd: int, name: bytes, status: os.stat_result, was: _Sight | None) -> _Sight:
        key = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)
        if was is not None and was.steady and was[:5] == key:
            return was
        steady = self._now_ns - max(status.st_mtime_ns, status.st_ctime_ns) > _RACY_NS
        if stat.S_ISLNK(status.st_mode):
            return _Sight(*key, Link(os.readlink(name, dir_fd=fd)), steady)
        return _Sight(*key, self._file(fd, name, status), steady)

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
                return _unread(opened)
            raise TooMuch
        self._room -= size
        hasher, offset = blake3(), 0
        # Not until the end of the file: a program that appends as fast as we read would hold us for ever.
        while offset < size and (chunk := os.pread(file, min(_CHUNK_BYTES, size - offset), offset)):
            if self._reading.is_over():
                raise Unavailable("the server is stopping")
            hasher.update(chunk)
            offset += len(chunk)
        return hasher.digest()

    def _note(self, path: bytes, was: _Seen, now: _Seen) -> None:
        """Write down how a folder differs from what it was, and forget what is below what is gone."""
        different = was is _NOTHING
        for name in was.names() | now.names():
            before, after = was.entry(name), now.entry(name)
            if before != after:
                different = True
                self.changes.append(Change(_join(path, name), before, after))
        for name in was.folders - now.folders:
            self._forget(_join(path, name))
        if different:
            self._spoil(path)
        else:
            now.address = was.address

    def _forget(self, path: bytes) -> None:
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            gone = self._seen.get(folder, _NOTHING)
            self._replace(folder, None)
            for name in gone.names():
                self.changes.append(Change(_join(folder, name), gone.entry(name), None))
            waiting += [_join(folder, name) for name in gone.folders]

    def _replace(self, path: bytes, now: _Seen | None) -> None:
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


_NOTHING = _Seen()
_FORMAT = f"petri-index-1 {sys.version_info[:2]}"
"""Named after the interpreter too: what marshal writes is its own business."""
_ENTRIES: dict[str, Callable[..., Entry]] = {"f": File, "l": Link}


def _row(path: bytes, seen: _Seen) -> tuple[object, ...]:
    """Return a folder as plain values. What is not steady is left out: it must be read again anyhow."""
    files = [
        (name, sight[:5], ("f" if isinstance(sight.entry, File) else "l", *sight.entry))
        for name, sight in seen.files.items()
        if sight.steady
    ]
    return path, files, list(seen.folders), seen.has_linked


def _unread(status: os.stat_result) -> bytes:
    """Return what stands for the digest of a file that nobody read; no content has it."""
    said = f"petri-unread {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return blake3(said.encode()).digest()


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name
