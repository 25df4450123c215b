"""The index of every workspace in use, on disk while it is not, and how a look at one is done."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from petri.trees import Change, Entry
from petri.workspace.index import Index, Look, Reading
from petri.workspace.watching import Watches

QUICK = Reading(most_bytes=1 << 20, leaves_rest=False, most_entries=512)
"""So little that the event loop's own thread may do it."""
WHOLE = Reading(most_bytes=16 << 30, leaves_rest=True)
"""About ten seconds of one processor: a program's sparse terabytes must not cost us an hour."""
_WORTH_WATCHING = 256
"""Entries; fewer are looked through quicker than they are watched."""
_MOST_ENTRIES = 1_000_000
"""Kept in memory, of all workspaces together; about 400 bytes each."""


@dataclass(slots=True)
class _Kept:
    index: Index
    guard: threading.Lock = field(default_factory=threading.Lock)
    dirty: set[bytes] | None = None
    """Folders to look into next time; None: all."""
    entries: int = 0
    marked: dict[bytes, Entry | None] = field(default_factory=dict)
    """What was, at the last mark, at each path that has changed since."""


class Indexes:
    """What is known of each workspace. Safe to use from many threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._guard = threading.Lock()
        """Over the two below; held for moments only."""
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._entries = 0
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
        with self._of(sandbox_id) as kept:
            look = self._look(sandbox_id, kept, top, reading, restless=restless)
            if not restless and self._watch(sandbox_id, kept, top):
                # What happened in a folder before its watch was there, nobody would tell.
                look = self._look(sandbox_id, kept, top, reading, restless=restless)
            return look

    def mark(self, sandbox_id: str) -> None:
        """Begin to note what is different from now on."""
        with self._of(sandbox_id) as kept:
            kept.marked.clear()

    def changes(self, sandbox_id: str) -> list[Change]:
        """Return what is different since the mark, by path, as of the last look."""
        with self._of(sandbox_id) as kept:
            found = (Change(path, before, kept.index.entry(path)) for path, before in kept.marked.items())
            return sorted((each for each in found if each.old != each.new), key=lambda each: each.path)

    @contextmanager
    def of(self, sandbox_id: str) -> Iterator[Index]:
        """Hold the index of a workspace as the last look left it."""
        with self._of(sandbox_id) as kept:
            yield kept.index

    def forget(self, sandbox_id: str) -> None:
        """Know nothing of a workspace any more: it is gone, or was exchanged as a whole."""
        with self._guard:
            self._drop(sandbox_id)
        (self._root / sandbox_id).unlink(missing_ok=True)

    def _look(self, sandbox_id: str, kept: _Kept, top: int, reading: Reading, *, restless: bool) -> Look:
        with self._guard:
            seen = self._watches.dirty(sandbox_id)
        kept.dirty = None if seen is None or kept.dirty is None else kept.dirty | seen
        look = kept.index.look(top, None if restless else kept.dirty, reading)
        if not restless:
            kept.dirty = set()
        for change in look.changes:
            kept.marked.setdefault(change.path, change.old)
        if look.changes:
            self._count(kept)
        return look

    def _count(self, kept: _Kept) -> None:
        entries = len(kept.index)
        with self._guard:
            self._entries += entries - kept.entries
            kept.entries = entries

    def _watch(self, sandbox_id: str, kept: _Kept, top: int) -> bool:
        with self._guard:
            # One that is watched stays so, however small it becomes: what is new in it would go unseen.
            if kept.entries < _WORTH_WATCHING and not self._watches.is_watching(sandbox_id):
                return False
            fresh = self._watches.watch(sandbox_id, top, kept.index.folders())
        if kept.dirty is not None:
            kept.dirty |= fresh
        return bool(fresh)

    @contextmanager
    def _of(self, sandbox_id: str) -> Iterator[_Kept]:
        with self._guard:
            kept = self._kept.get(sandbox_id)
            if kept is None:
                kept = self._kept[sandbox_id] = _Kept(self._read(sandbox_id))
            self._kept.move_to_end(sandbox_id)
            self._make_room()
        with kept.guard:
            yield kept

    def _make_room(self) -> None:
        while len(self._kept) > 1 and self._entries > _MOST_ENTRIES:
            sandbox_id, kept = next(iter(self._kept.items()))
            self._drop(sandbox_id)
            self._write(sandbox_id, kept.index)

    def _drop(self, sandbox_id: str) -> None:
        kept = self._kept.pop(sandbox_id, None)
        if kept is not None:
            self._entries -= kept.entries
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
