"""Garbage collection: what no tree needs is dropped, while others read and write.

Whatever is kept keeps what it refers to, for whatever reason it is kept: a tree needs it, somebody touched it
lately, or it is in a pack that a session still writes to. So an object that is there is there with all its
pieces, and a folder object with all that was ever put of it.

First everything dead is forgotten, in one moment, and the manifest makes that last. Packs with nothing left
are then unlinked, before anything is copied: on a full disk that comes first. At last the remains of packs
that are half dead, or small, are gathered in new ones. A crash at any point leaves the old packs or the new.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from petri.errors import Invalid
from petri.store.contents import Contents, load_index, read_contents, save_index
from petri.store.disk import on_disk
from petri.store.layout import BATCH_BYTES, FOLDER, LIST, Record, body, pieces_of
from petri.store.manifest import Dead
from petri.store.packs import Pack
from petri.store.reading import whole
from petri.store.shelf import Shelf
from petri.store.table import Found
from petri.trees import EMPTY, Folder, Link, decode

_NEEDED, _OPENED = 1, 2
"""Marks: something refers to it; it was looked into as a folder object."""
_SMALL_BYTES = 8 << 20


class Swept(NamedTuple):
    """What a sweep did."""

    dropped: int
    """Objects that are gone; pieces of large ones count by themselves."""
    freed_bytes: int
    """Bytes the disk has back. What is dropped from a pack that is mostly alive stays until that changes."""
    missing: list[bytes]
    """Objects that the trees need and the store does not have: too large to be kept, or lost."""
    let_go: list[bytes]
    """Trees for which there was no room."""


class Spare(NamedTuple):
    """Trees that are kept while there is room for them, the dearest first."""

    trees: Sequence[bytes] = ()
    most_bytes: int = 0
    """What they may take in all, beyond what is needed anyhow."""


NOTHING_SPARE = Spare()


def sweep(shelf: Shelf, roots: Iterable[bytes], grace_s: float, spare: Spare = NOTHING_SPARE) -> Swept:
    """Drop what no tree of `roots` needs, none of `spare` that fits, and nobody has touched in `grace_s`.

    `Unavailable` if a folder object that is there cannot be read, and then nothing is dropped: what it
    refers to is not known.
    """
    with shelf.sweeping:
        limit = int(shelf.now() - grace_s)  # by the clock of now: who is touched while we look is young
        packs = shelf.set_aside()
        numbers = frozenset(pack.number for pack in packs)
        with shelf.guard:
            shelf.table.unmark()
        missing = _Marking(shelf).trees(roots)
        let_go = _mark_spare(shelf, spare)
        dropped = _forget(shelf, numbers, limit)
        shelf.forget_long_sessions(limit)
        freed = _free(shelf, packs)
        return Swept(dropped, freed, missing, let_go)


def missing(shelf: Shelf, trees: Iterable[bytes]) -> list[bytes]:
    """Return what the store does not have of what `trees` need."""
    with shelf.sweeping:
        with shelf.guard:
            shelf.table.unmark()
        return _Marking(shelf).trees(trees)


def _mark_spare(shelf: Shelf, spare: Spare) -> list[bytes]:
    """Mark those of the trees that fit; return the others."""
    left, let_go = spare.most_bytes, []
    for tree in spare.trees:
        marking = _Marking(shelf)
        marking.trees([tree])
        if marking.new_bytes > left:
            marking.undo()
            let_go.append(tree)
        else:
            left -= marking.new_bytes
    return let_go


class _Marking:
    """Marks what is needed, and what that needs."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._folders: list[bytes] = []
        self._missing: dict[bytes, None] = {}
        self._marked: list[tuple[bytes, int]] = []
        self.new_bytes = 0
        """What is stored of that which nothing needed before."""

    def undo(self) -> None:
        """Take back every mark."""
        with self._shelf.guard:
            for digest, mark in self._marked:
                self._shelf.table.take_mark(digest, mark)

    def trees(self, roots: Iterable[bytes]) -> list[bytes]:
        """Mark all that `roots` need, and return what of it is missing."""
        for root in roots:
            self._open(root)
            while self._folders:
                self._look_into(self._folders.pop())
        return list(self._missing)

    def kept(self, objects: Iterable[Found]) -> None:
        """Mark `objects` and all that they need."""
        for found in objects:
            if found.place.kind == FOLDER:
                self.trees([found.digest])
            else:
                self._need([found.digest])

    def _open(self, address: bytes) -> None:
        if address == EMPTY:
            return
        with self._shelf.guard:
            had = self._shelf.table.mark(address, _OPENED)
        if had is None:
            self._missing[address] = None
        elif not had & _OPENED:
            self._marked.append((address, _OPENED))
            self._folders.append(address)
            self._need([address])

    def _look_into(self, address: bytes) -> None:
        encoded = whole(self._shelf, address)
        try:
            entries = decode(encoded).values()
        except Invalid:  # some tree calls it a folder, and it is none: there is nothing in it
            self._missing[address] = None
            return
        self._need(entry.digest for entry in entries if not isinstance(entry, Folder | Link))
        for entry in entries:
            if isinstance(entry, Folder):
                self._open(entry.address)

    def _need(self, digests: Iterable[bytes]) -> None:
        table = self._shelf.table
        lists = []
        with self._shelf.guard:
            for digest in digests:
                had = table.mark(digest, _NEEDED)
                if had is None:
                    self._missing[digest] = None
                elif not had & _NEEDED and (place := table.find(digest)):
                    self._marked.append((digest, _NEEDED))
                    self.new_bytes += place.stored
                    if place.form == LIST:
                        lists.append(digest)
        for digest in lists:
            self._need(piece.digest for piece in pieces_of(self._shelf.read(digest)[1]))


def _forget(shelf: Shelf, numbers: frozenset[int], limit: int) -> int:
    """Forget every object that is dead, all in one moment."""
    while True:
        # Most of what is kept unmarked is found before the table is held on to.
        _Marking(shelf).kept(_unmarked(shelf, numbers, shelf.young(limit)))
        with shelf.guard:
            young = shelf.young(limit)
            late = list(_unmarked(shelf, numbers, young))
            if not late:
                return shelf.table.sweep(numbers, young)


def _unmarked(shelf: Shelf, numbers: frozenset[int], young: int) -> Iterator[Found]:
    """Yield what is kept and refers to others that may not be marked yet.

    Not the empty folder, should somebody have put it: nothing ever opens that, and it would come up for ever.
    """
    for found in shelf.table:
        (pack, _, _, kind, form), time, mark = found.place, found.time, found.mark
        is_kept = mark or time >= young or pack not in numbers
        refers = (kind == FOLDER and not mark & _OPENED) or (form == LIST and not mark & _NEEDED)
        if is_kept and refers and found.digest != EMPTY:
            yield found


class _Judged(NamedTuple):
    """A pack, and how much of it is still alive."""

    pack: Pack
    dead: Dead
    live: int
    live_bytes: int

    @property
    def is_poor(self) -> bool:
        """Say if what is left in it had better be elsewhere."""
        return 2 * self.live_bytes <= self.pack.end or self.pack.end < _SMALL_BYTES


def _free(shelf: Shelf, packs: Iterable[Pack]) -> int:
    """Give the disk back what it can have, and return how many bytes those are."""
    judged = [_judge(shelf, pack) for pack in packs]
    empty = [each.pack for each in judged if not each.live]
    if empty or any(each.dead != each.pack.dead for each in judged):
        for each in judged:
            each.pack.dead = each.dead
        shelf.remove(empty)
    freed = sum(pack.end for pack in empty)
    poor = [each for each in judged if each.live and each.is_poor]
    if len(poor) > 1 or any(each.dead.bits for each in poor):
        freed += sum(_gather(shelf, group) for group in _groups(poor, shelf.pack_bytes))
    return freed


def _judge(shelf: Shelf, pack: Pack) -> _Judged:
    """Find out what of a pack is still used."""
    contents = _contents(shelf, pack)
    bits = bytearray(len(contents) + 7 >> 3)
    live = live_bytes = 0
    for number, found in enumerate(contents.found()):
        with shelf.guard:
            place = shelf.table.find(found.digest)
        if place == found.place:
            live += 1
            live_bytes += place.stored
        else:
            bits[number >> 3] |= 1 << (number & 7)
    return _Judged(pack, Dead(len(contents), bytes(bits) if any(bits) else b""), live, live_bytes)


def _contents(shelf: Shelf, pack: Pack) -> Contents:
    with on_disk():
        if (contents := load_index(pack.path)) is not None:
            return contents
        shelf.use(pack.number)
        try:
            return read_contents(pack.number, pack.open())
        finally:
            shelf.leave(pack)


def _groups(judged: list[_Judged], most_bytes: int) -> Iterator[list[_Judged]]:
    """Yield groups whose remains fit into one pack."""
    group: list[_Judged] = []
    for each in judged:
        if group and sum(one.live_bytes for one in group) + each.live_bytes > most_bytes:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _gather(shelf: Shelf, group: list[_Judged]) -> int:
    """Have what is left of several packs in a new one instead; return how much shorter that is."""
    with on_disk():
        new = Pack.create(shelf.folder, shelf.new_number())
        try:
            for each in group:
                _copy(shelf, each, new)
            new.sync(new.end)
            contents = read_contents(new.number, new.open())
            save_index(new.path, contents)
        except BaseException:
            new.close()
            new.unlink()
            raise
    shelf.stand(new)
    _move(shelf, group, contents)
    shelf.remove([each.pack for each in group])
    return sum(each.pack.end for each in group) - new.end


def _copy(shelf: Shelf, judged: _Judged, new: Pack) -> None:
    """Append what is alive in a pack to a new one, as it is stored."""
    batch: list[tuple[Record, bytes]] = []
    waiting = 0
    for number, found in enumerate(_contents(shelf, judged.pack).found()):
        if number in judged.dead:
            continue
        place, stored = shelf.read(found.digest)
        batch.append((Record(found.digest, place.kind, place.form, place.stored, found.time), stored))
        waiting += len(stored)
        if waiting >= BATCH_BYTES:
            new.append(body(batch))
            batch, waiting = [], 0
    if batch:
        new.append(body(batch))


def _move(shelf: Shelf, group: list[_Judged], contents: Contents) -> None:
    """Have everything found in its new place."""
    sources = {each.pack.number for each in group}
    moved = 0
    for found in contents.found():
        with shelf.guard:
            moved += shelf.table.move(found.digest, sources, found.place)
    if moved != sum(each.live for each in group):
        raise RuntimeError(
            f"{moved} objects were moved out of packs {sorted(sources)}, not all that are alive"
        )
