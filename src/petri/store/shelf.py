"""One tenant's objects: the packs, the table that finds things in them, and who is using which.

Two locks. `_appending` is held while bytes are added to the one pack that grows; `guard` for moments only,
whenever the table or the packs are looked at. Whoever needs both takes `_appending` first.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from petri.errors import NotFound, PetriError, Unavailable
from petri.store.contents import read_contents, save_index
from petri.store.disk import make_folder, on_disk
from petri.store.layout import LARGEST_PACK, LIST, Body, pieces_of
from petri.store.loading import load
from petri.store.manifest import Manifest, save_manifest
from petri.store.packs import Pack, Span
from petri.store.table import Place

_MOST_OPEN = 32
"""Descriptors held for packs that nobody is reading at the moment."""


_SHORT_S = 1
"""A session no longer than this makes no difference to when something was touched."""


class Session(Protocol):
    """Somebody who writes here."""

    began: int
    """What was touched since is not swept, however long the session takes."""


class Shelf:
    """One tenant's objects. Safe to use from many threads, by one process."""

    def __init__(self, folder: Path, pack_bytes: int, clock: Callable[[], float]) -> None:
        self.folder = folder
        self.pack_bytes = min(pack_bytes, LARGEST_PACK // 2)
        self.guard = threading.Lock()
        self.sweeping = threading.Lock()
        self.sessions: set[Session] = set()
        self._long_sessions: list[tuple[int, int]] = []
        self._idle: dict[Pack, None] = {}
        """Open packs that nobody is using, the one that rested longest first."""
        self._clock = clock
        self._appending = threading.Lock()
        with on_disk():
            self.table, self.packs, self._next, self._active, self.findings = load(folder)
        if self._active is not None:
            self._active.users += 1
        if self.findings:
            self._drop_dangling()

    def close(self) -> None:
        """Give back every descriptor. Nobody may be using it."""
        for pack in self.packs.values():
            pack.close()

    def now(self) -> int:
        """Return the time, in whole seconds since 1970."""
        return int(self._clock())

    # ------------------------------------------------------------------------------------------ reading

    def has(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return which objects are here; they are touched by that."""
        now = self.now()
        with self.guard:
            return {digest for digest in digests if self.table.touch(digest, now)}

    def touch(self, digest: bytes) -> bool:
        """Say if an object is here; it is touched by that."""
        with self.guard:
            return self.table.touch(digest, self.now())

    def read(self, digest: bytes, most: int | None = None) -> tuple[Place, bytes]:
        """Return how an object is stored, and what is stored: all of it, or the first bytes."""
        with self.guard:
            place = self.table.find(digest)
            if place is None:
                raise NotFound(f"the store has no object {digest.hex()}")
            pack = self._use(place.pack)
        try:
            with on_disk():
                wanted = place.stored if most is None else min(most, place.stored)
                content = pack.read(wanted, place.offset)
        finally:
            self.leave(pack)
        if len(content) != wanted or place.offset + place.stored > pack.end:
            raise Unavailable(f"object {digest.hex()} is damaged: pack {place.pack} ends within it")
        return place, content

    def use(self, number: int) -> Pack:
        """Return a pack that stays open until `leave`."""
        with self.guard:
            return self._use(number)

    def _use(self, number: int) -> Pack:
        pack = self.packs[number]
        with on_disk():
            pack.open()
        pack.users += 1
        self._idle.pop(pack, None)
        return pack

    def leave(self, pack: Pack) -> None:
        """Need a pack no more."""
        with self.guard:
            pack.users -= 1
            self._rest(pack)

    def _rest(self, pack: Pack) -> None:
        """Keep a pack that nobody uses open for the next, unless it is gone or there are many."""
        if pack.users:
            return
        self._idle[pack] = None
        if pack.number not in self.packs:
            closing = pack
        elif len(self._idle) > _MOST_OPEN:
            closing = next(iter(self._idle))
        else:
            return
        closing.close()
        del self._idle[closing]

    # ------------------------------------------------------------------------------------------ writing

    def begin(self, session: Session) -> None:
        """Have regard for a session from now on."""
        with self.guard:
            self.sessions.add(session)

    def append(self, body: Body) -> Span:
        """Write a batch to the pack that grows, which is pinned until it is published or given up."""
        full = None
        try:
            with self._appending, on_disk():
                pack = self._active
                if pack is None or pack.is_spoilt or pack.end >= self.pack_bytes:
                    full, pack = self._roll()
                span = pack.append(body)
                with self.guard:
                    pack.pins += 1
        finally:
            if full is not None:
                self._seal(full)
        return span

    def _roll(self) -> tuple[Pack | None, Pack]:
        """Begin a new pack; return the one that is full, and the new one."""
        make_folder(self.folder)
        new = Pack.create(self.folder, self.new_number())
        with self.guard:
            new.users += 1
            self.packs[new.number] = new
            full, self._active = self._active, new
        return full, new

    def new_number(self) -> int:
        """Return a number that no pack has or had."""
        with self.guard:
            self._next += 1
            return self._next - 1

    def _seal(self, pack: Pack) -> None:
        """Have a pack that grows no more on the disk, with an index."""
        try:
            # Without an index it is only slower to load; a disk that fails is noticed by whoever commits.
            with suppress(OSError, PetriError):
                pack.sync(pack.end)
                save_index(pack.path, read_contents(pack.number, pack.open()))
        finally:
            self.leave(pack)

    def publish(self, objects: Iterable[tuple[bytes, Place]], written: Sequence[Span]) -> None:
        """Have `objects`, which are in the batches `written`, on the disk and found from now on.

        Raises, and nothing is found, if the disk refuses.
        """
        with on_disk():
            for pack in {span.pack for span in written}:
                pack.sync(max(span.end for span in written if span.pack is pack))
        now = self.now()
        with self.guard:
            for digest, place in objects:
                self.table.put(digest, place, now)
            for span in written:
                span.pack.pins -= 1

    def end(self, session: Session, given_up: Sequence[Span]) -> None:
        """See a session off, and give the disk back what it wrote and did not publish.

        That is what is last in the pack that grows; what others have written behind is left to a sweep.
        """
        with self._appending:
            for pack, at, end in reversed(given_up):
                if pack is self._active and pack.end == end:
                    pack.cut(at)
        now = self.now()
        with self.guard:
            self.sessions.remove(session)
            if now - session.began > _SHORT_S:
                self._long_sessions.append((session.began, now))
            for span in given_up:
                span.pack.pins -= 1

    # ----------------------------------------------------------------------------------------- sweeping

    def set_aside(self) -> list[Pack]:
        """Let writers begin a new pack, and return all those that none will write to or publish from."""
        with self._appending:
            full, self._active = self._active, None
        if full is not None:
            self._seal(full)
        with self.guard:
            return [pack for pack in self.packs.values() if pack is not self._active and not pack.pins]

    def forget_long_sessions(self, limit: int) -> None:
        """Have no regard any longer for sessions that ended before `limit`."""
        with self.guard:
            self._long_sessions = [each for each in self._long_sessions if each[1] >= limit]

    def young(self, limit: int) -> int:
        """Return since when an object must not have been touched to be dropped: `limit`, or longer ago.

        What a session counted on at its beginning is to stay for the grace period after its end.
        """
        open_now = [session.began for session in self.sessions.copy()]
        return min([limit, *open_now, *(began for began, ended in self._long_sessions if ended >= limit)])

    def stand(self, pack: Pack) -> None:
        """Take a new pack, which nobody has written to since it was sealed."""
        with self.guard:
            self.packs[pack.number] = pack
            self._rest(pack)

    def remove(self, packs: Sequence[Pack]) -> None:
        """Have `packs` no more, on the disk either; in the table nothing is in them any longer.

        The manifest goes first: a crash now, and they are still gone at the next start.
        """
        with self.guard:
            rest = {number: pack.dead for number, pack in self.packs.items() if pack not in packs}
            manifest = Manifest(self._next, rest)
        with on_disk():
            save_manifest(self.folder, manifest)
        with self.guard:
            for pack in packs:
                del self.packs[pack.number]
                self._rest(pack)
        with on_disk():
            for pack in packs:
                pack.unlink()

    def _drop_dangling(self) -> None:
        """Forget large objects of which a part is missing: a sweep had dropped them, and they are back."""
        lists = [found.digest for found in self.table if found.place.form == LIST]
        for digest in lists:
            pieces = pieces_of(self.read(digest)[1])
            if any(self.table.find(piece.digest) is None for piece in pieces):
                self.table.forget(digest)
