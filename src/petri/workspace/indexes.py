"""The index of every workspace in use, on disk while it is not, and how a look at one is done."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from petri.trees import Change, Entry
from petri.workspace.index import Index
from petri.workspace.looking import Look, Reading, Sight, TooMuch
from petri.workspace.watching import Watches

QUICK = Reading(most_bytes=1 << 20, leaves_rest=False, most_entries=512, waits=False)
"""So little that the event loop's own thread may do it."""
WHOLE = Reading(most_bytes=16 << 30, leaves_rest=True)
"""About ten seconds of one processor: a program's sparse terabytes must not cost us an hour."""
_WORTH_WATCHING = 256
"""Entries; fewer are looked through quicker than they are watched."""
_MOST_WEIGHT = 1_000_000
"""Of what is kept in memory of all workspaces together: entries, each of about 400 bytes."""


@dataclass(slots=True)
class _Kept:
    index: Index
    guard: threading.Lock = field(default_factory=threading.Lock)
    dirty: set[bytes] | None = None
    """Folders to look into next time; None: all."""
    weight: int = 0
    marked: dict[bytes, Entry | None] | None = field(default_factory=dict)
    """What was, at the last mark, at each path that has changed since; None if nobody will ask."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.guard.release()


class Indexes:
    """What is known of each workspace. Safe to use from many threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._guard = threading.Lock()
        """Over the two below; held for moments only."""
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._weight = 0
        self._watches = Watches()

    def close(self) -> None:
        """Write down what is known, and stop watching."""
        with self._guard:
            for sandbox_id, kept in self._kept.items():
                self._write(sandbox_id, kept.index)
            self._kept.clear()
            self._watches.close()

    def look(self, sandbox_id: str, top: int, reading: Reading, *, restless: bool) -> Look:
        """Look at the workspace open as `top`. `restless`: something may be running in it right now."""
        with self._of(sandbox_id, waits=reading.waits) as kept:
            return self._look_and_watch(sandbox_id, kept, top, reading, restless=restless)

    @contextmanager
    def looked(
        self, sandbox_id: str, top: int, reading: Reading, *, restless: bool = False
    ) -> Iterator[tuple[Index, Look]]:
        """Hold the index of a workspace as a look at it, now, left it."""
        with self._of(sandbox_id, waits=reading.waits) as kept:
            yield kept.index, self._look_and_watch(sandbox_id, kept, top, reading, restless=restless)

    def mark(self, sandbox_id: str, found: bytes | None = None) -> bool:
        """Begin to note what is different from now on; not if the last look `found` another tree."""
        with self._of(sandbox_id) as kept:
            if found is not None and not kept.index.found(found):
                return False
            kept.marked = {}
            return True

    def changes(self, sandbox_id: str) -> list[Change]:
        """Return what is different since the mark, by path, as of the last look."""
        with self._of(sandbox_id) as kept:
            marked = (kept.marked or {}).items()
            found = (Change(path, before, kept.index.entry(path)) for path, before in marked)
            return sorted((each for each in found if each.old != each.new), key=lambda each: each.path)

    def unmark(self, sandbox_id: str) -> None:
        """Note nothing until the next mark: whoever wanted to know has been told, and it may be much."""
        with self._guard:
            if (kept := self._kept.get(sandbox_id)) is not None:
                kept.marked = None

    def adopt(self, sandbox_id: str, index: Index) -> None:
        """Know `index` of a workspace that was exchanged as a whole."""
        with self._guard:
            self._drop(sandbox_id)
            kept = self._kept[sandbox_id] = _Kept(index, weight=index.weight)
            self._weight += kept.weight

    def steady_files(self, sandbox_id: str) -> dict[bytes, tuple[bytes, Sight]]:
        """Return a path for each content of a workspace that has long been as it is, by its digest."""
        with self._of(sandbox_id) as kept:
            return kept.index.steady_files()

    def size(self, sandbox_id: str) -> int:
        """Return what writing all files of a workspace would take, as of the last look."""
        with self._of(sandbox_id) as kept:
            return kept.index.size

    def sight(self, sandbox_id: str, path: bytes) -> Sight | None:
        """Return what is known of a file without a look at it; nothing while somebody looks."""
        with suppress(TooMuch), self._of(sandbox_id, waits=False) as kept:
            return kept.index.sight(path)
        return None

    def forget(self, sandbox_id: str) -> None:
        """Know nothing of a workspace any more: it is gone, or was exchanged as a whole."""
        with self._guard:
            self._drop(sandbox_id)
        (self._root / sandbox_id).unlink(missing_ok=True)

    def _look_and_watch(
        self, sandbox_id: str, kept: _Kept, top: int, reading: Reading, *, restless: bool
    ) -> Look:
        look = self._look(sandbox_id, kept, top, reading, restless=restless)
        if not restless and self._watch(sandbox_id, kept, top):
            # What happened in a folder before its watch was there, nobody would tell.
            look = self._look(sandbox_id, kept, top, reading, restless=restless)
        return look

    def _look(self, sandbox_id: str, kept: _Kept, top: int, reading: Reading, *, restless: bool) -> Look:
        with self._guard:
            seen = self._watches.dirty(sandbox_id)
        kept.dirty = None if seen is None or kept.dirty is None else kept.dirty | seen
        look = kept.index.look(top, None if restless else kept.dirty, reading)
        if not restless:
            kept.dirty = set()
        if kept.marked is not None:
            for change in look.changes:
                kept.marked.setdefault(change.path, change.old)
        if look.changes:
            self._weigh(kept)
        return look

    def _weigh(self, kept: _Kept) -> None:
        weight = kept.index.weight
        with self._guard:
            self._weight += weight - kept.weight
            kept.weight = weight

    def _watch(self, sandbox_id: str, kept: _Kept, top: int) -> bool:
        with self._guard:
            # One that is watched stays so, however small it becomes: what is new in it would go unseen.
            if kept.weight < _WORTH_WATCHING and not self._watches.is_watching(sandbox_id):
                return False
            fresh = self._watches.watch(sandbox_id, top, kept.index.folders())
        if kept.dirty is not None:
            kept.dirty |= fresh
        return bool(fresh)

    def _of(self, sandbox_id: str, *, waits: bool = True) -> _Kept:
        """Return what is known of a workspace, to be held in a `with`: it is ours until then."""
        with self._guard:
            kept = self._kept.get(sandbox_id)
            if kept is None:
                kept = self._kept[sandbox_id] = _Kept(self._read(sandbox_id))
            self._kept.move_to_end(sandbox_id)
            self._make_room()
        if not kept.guard.acquire(blocking=waits):
            raise TooMuch
        return kept

    def _make_room(self) -> None:
        while len(self._kept) > 1 and self._weight > _MOST_WEIGHT:
            sandbox_id, kept = next(iter(self._kept.items()))
            self._drop(sandbox_id)
            self._write(sandbox_id, kept.index)

    def _drop(self, sandbox_id: str) -> None:
        kept = self._kept.pop(sandbox_id, None)
        if kept is not None:
            self._weight -= kept.weight
        self._watches.forget(sandbox_id)

    def _read(self, sandbox_id: str) -> Index:
        with suppress(OSError, ValueError):
            return Index.thawed((self._root / sandbox_id).read_bytes())
        return Index()

    def _write(self, sandbox_id: str, index: Index) -> None:
        """Keep an index on disk. Without it the next look reads everything again, which is all."""
        new = self._root / f"{sandbox_id}.new"
        with suppress(OSError):
            new.write_bytes(index.frozen())
            new.rename(self._root / sandbox_id)
