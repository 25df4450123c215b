"""Writing what changed in the sandbox to a folder, with care for what happens there in the meantime.

Whatever is replaced or removed is looked at once more in the moment before: if it is not what the folder was
found to hold, it stays. Folders are entered one by one and no link is passed, so nothing is written
elsewhere, whatever links there are or come to be.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from petri import trees
from petri.errors import Invalid, StorageFull
from petri.sdk.folder.collisions import Fold, folding, refuse_collisions
from petri.sdk.folder.contents import Contents, key_of
from petri.sdk.folder.index import FOLDER, Index
from petri.sdk.folder.stage import Stage
from petri.syncing import Delete, MakeFolder, MakeLink, Move, NewFile, SetMode, Step, steps
from petri.trees import Entry, Fetch, File, Folder, Link

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(NamedTuple):
    """A path that was left as it is, and why."""

    path: bytes
    reason: str


class Placing:
    """Turns a folder that was found to be the tree `old` into the tree `new`, as far as it still is `old`."""

    def __init__(self, top: bytes, index: Index, contents: Contents, stage: Stage, fetch: Fetch) -> None:
        self._top = top
        self._index = index
        self._contents = contents
        self._stage = stage
        self._fetch = fetch
        self._old = trees.EMPTY
        self._moves: list[Move] = []
        self._gone: set[bytes] = set()
        """Paths that were moved or removed, so that nothing is expected there any more."""
        self._refused: list[bytes] = []
        """Where folders were not moved to."""
        self._uses: Counter[bytes] = Counter()
        self._fold: Fold | None = None
        """How this file system takes names, if not as they are."""
        self.touched: set[bytes] = set()
        """Every path that is not as it was."""
        self.kept: list[Kept] = []

    def run(self, old: bytes, new: bytes) -> None:
        """Do it. Contents that are not on the stage must be somewhere in `old`."""
        self._old = old
        todo = list(steps(self._fetch, old, new))
        files = [step for step in todo if isinstance(step, NewFile)]
        self._uses = Counter(step.file.digest for step in files)
        self._gather({step.file.digest: step.file for step in files})
        self._look_for_collisions(new, todo)
        if self._fold:  # a name can only be had in another spelling once the first is gone
            todo.sort(key=_turn)
        for step in todo:
            try:
                self._do(step)
            except _Otherwise:
                self._keep(step)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise StorageFull(f"no space is left here, for {os.fsdecode(_path(step))}") from None
                raise

    def _keep(self, step: Step) -> None:
        """Leave what a step was about as it is; after a move, also what would have happened where it led."""
        self.kept.append(Kept(_path(step), OCCUPIED if self._is_occupied(_path(step)) else CHANGED))
        if isinstance(step, Move):
            self.kept.append(Kept(step.source, CHANGED))
            self._refused.append(step.target + b"/")

    def _is_occupied(self, path: bytes) -> bool:
        """Say whether at `path` there was a folder all along that only has ignored things in it."""
        row = self._index.find(path)
        return row is not None and row[0] == FOLDER and self._expected(path) is None

    def _do(self, step: Step) -> None:
        if _path(step).startswith(tuple(self._refused)):
            raise _Otherwise
        if isinstance(step, Move):
            self._move(step)
        elif isinstance(step, Delete):
            self._delete(step.path)
        elif isinstance(step, MakeFolder):
            with self._parent(step.path, make=True) as (folder, name):
                _make_folder(folder, name)
        elif isinstance(step, MakeLink):
            self._place(step.path, lambda _: self._stage.link(step.target))
        elif isinstance(step, NewFile):
            self._place(step.path, lambda others: self._staged(step.file, others))
        else:
            self._set_mode(step)
        self.touched.add(_path(step))

    def _staged(self, file: File, others: int | None) -> str:
        self._uses[file.digest] -= 1
        return self._stage.take(file.digest, file.mode, others, is_last=not self._uses[file.digest])

    def _move(self, step: Move) -> None:
        with (
            self._parent(step.source) as (source, name),
            self._parent(step.target, make=True) as (target, new),
        ):
            self._check(step.source, source, name)
            if self._fold and self._fold(step.source) == self._fold(step.target):
                self._respell((source, name), (target, new))
            else:
                _rename_to_nothing(source, name, target, new)
        self._moves.append(step)
        self._gone.add(step.source)
        self.touched.add(step.source)

    @staticmethod
    def _respell(old: tuple[int, bytes], new: tuple[int, bytes]) -> None:
        """Have a name in another spelling. To rename from one to the other is nothing at all, on Linux."""
        folder, name = old
        room = _LONGEST_NAME - len(RESPELLING)
        between = os.fsencode(name[:room].decode(errors="ignore")) + RESPELLING
        _rename_to_nothing(folder, name, folder, between)
        try:
            _rename_to_nothing(folder, between, *new)
        except (_Otherwise, OSError):
            os.rename(between, name, src_dir_fd=folder, dst_dir_fd=folder)
            raise

    def _place(self, path: bytes, staged: Callable[[int | None], str]) -> None:
        """Put a file or a link at `path`, by rename."""
        with self._parent(path, make=True) as (folder, name):
            self._check(path, folder, name)
            status = _status(folder, name)
            is_file = status is not None and stat.S_ISREG(status.st_mode)
            new = staged(status.st_mode & 0o077 if status is not None and is_file else None)
            os.rename(new, name, src_dir_fd=self._stage.fd, dst_dir_fd=folder)

    def _set_mode(self, step: SetMode) -> None:
        with self._parent(step.path) as (folder, name):
            self._check(step.path, folder, name)
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                others = os.fstat(fd).st_mode & 0o066
                # Whoever may read it may run it, if the owner may.
                runs = (others & 0o044) >> 2 if step.mode & 1 else 0
                os.fchmod(fd, step.mode << 6 | others | runs)
            finally:
                os.close(fd)

    def _delete(self, path: bytes) -> None:
        entry = self._expected(path)
        if isinstance(entry, Folder):
            for inner, each in reversed(list(trees.walk(self._fetch, entry.address))):
                self._remove(path + b"/" + inner, each)
        self._remove(path, entry)
        self._gone.add(path)

    def _remove(self, path: bytes, entry: Entry | None) -> None:
        """Remove one thing; if it is not as it was it stays, and so do the folders around it."""
        try:
            with self._parent(path) as (folder, name):
                if isinstance(entry, Folder):
                    with suppress(OSError):  # there is more in it: what is ignored, or new
                        os.rmdir(name, dir_fd=folder)
                else:
                    self._check(path, folder, name)
                    os.unlink(name, dir_fd=folder)
        except _Otherwise:
            self.kept.append(Kept(path, CHANGED))

    def _check(self, path: bytes, folder: int, name: bytes) -> None:
        """Raise `_Otherwise` unless at `path` there still is what was found there."""
        entry, status = self._expected(path), _status(folder, name)
        if (entry is None) != (status is None):
            raise _Otherwise
        if entry is None or status is None:
            return
        origin = self._origin(path)
        row = self._index.find(origin) if origin is not None else None
        if (row is None or row[0] != key_of(status)) and not self._is(entry, path, status):
            raise _Otherwise

    def _is(self, entry: Entry, path: bytes, status: os.stat_result) -> bool:
        """Say whether what is at `path` is `entry`, by looking into it."""
        if isinstance(entry, Folder):
            return stat.S_ISDIR(status.st_mode)
        if isinstance(entry, Link):
            return stat.S_ISLNK(status.st_mode) and os.readlink(self._top + b"/" + path) == entry.target
        if not stat.S_ISREG(status.st_mode) or status.st_size != entry.size:
            return False
        return self._contents.examine(path)[1] == entry.digest

    def _expected(self, path: bytes) -> Entry | None:
        """Return what should be at `path`, after what was done so far."""
        origin = self._origin(path)
        return trees.find(self._fetch, self._old, origin) if origin is not None else None

    def _origin(self, path: bytes) -> bytes | None:
        """Return where in the old tree was what should be at `path` now; None if nothing should."""
        if any(path[:at] in self._gone for at in (*_slashes(path), len(path))):
            return None
        for move in self._moves:
            if (path + b"/").startswith(move.target + b"/"):
                return move.source + path[len(move.target) :]
        return path

    @contextmanager
    def _parent(self, path: bytes, *, make: bool = False) -> Iterator[tuple[int, bytes]]:
        """Hold the folder around `path` open, with the name in it; no link is passed on the way."""
        *above, name = path.split(b"/")
        folder = os.open(self._top, _FOLDER)
        try:
            for part in above:
                inner = _entered(folder, part, make=make)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)

    def _gather(self, files: dict[bytes, File]) -> None:
        """Put the contents on the stage that are only somewhere in the folder, while they still are."""
        missing = [file for digest, file in files.items() if not self._stage.has(digest)]
        if not missing:
            return
        places = self._index.places()
        for file in missing:
            if file.digest not in places:
                raise Invalid(f"the server left a content out, {file.digest.hex()}; sync again")
            pieces = self._contents.pieces(places[file.digest], file.size)
            self._stage.receive(file.digest, file.size, pieces)

    def _look_for_collisions(self, new: bytes, todo: Iterable[Step]) -> None:
        """Find out how names are taken here; raise `Invalid` if two would be one."""
        paths = [_path(step) for step in todo if not isinstance(step, Delete | SetMode)]
        if not paths or not (fold := folding(self._stage.fd)):
            return
        self._fold = fold
        # Folders, too, are made on the way to what is in them.
        for folder in sorted({path[:at] for path in paths for at in (0, *_slashes(path))}):
            entry = trees.find(self._fetch, new, folder)
            if isinstance(entry, Folder) and entry.address != trees.EMPTY:
                refuse_collisions(folder, self._fetch(entry.address), fold)


class _Otherwise(Exception):
    """Something is not as it was found."""


CHANGED = "it changed here in the meantime"
OCCUPIED = "there is a folder here with things in it that the rules ignore"
RESPELLING = b".petri-respelling"
"""What is added to a name for the moment between two spellings of it. Whoever is killed then leaves it."""
_LONGEST_NAME = 255
IGNORED = "there is something here that the rules ignore"


def _turn(step: Step) -> int:
    """Say when a step has its turn: whatever goes is gone before anything comes."""
    return 0 if isinstance(step, Move) else 1 if isinstance(step, Delete) else 2


def _path(step: Step) -> bytes:
    return step.target if isinstance(step, Move) else step.path


def _slashes(path: bytes) -> Iterator[int]:
    return (at for at, byte in enumerate(path) if byte == ord("/"))


def _status(folder: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _rename_to_nothing(folder: int, name: bytes, target: int, new: bytes) -> None:
    if _status(target, new) is not None:
        raise _Otherwise
    os.rename(name, new, src_dir_fd=folder, dst_dir_fd=target)


def _entered(folder: int, name: bytes, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        raise _Otherwise from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _Otherwise from None


def _make_folder(folder: int, name: bytes) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        status = _status(folder, name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise _Otherwise from None
