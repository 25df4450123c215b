"""What a client says in a sync, taken record by record: contents go into the tenant's store as they come.

A request that breaks off changes no sandbox, and what arrived of it stays in the store for the grace period
of its sweeps, so that the next one need not bring it again: whole contents by their digests, and the
beginning of a large one as a content of its own, of which `Begun` knows.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from petri.errors import BaseUnknown, Invalid, NotFound, StorageFull, TooLarge
from petri.operations.sync_objects import Objects
from petri.store import Store, Writing
from petri.syncing import (
    Agreed,
    Base,
    ChangedFile,
    Clash,
    End,
    Growing,
    Incoming,
    KnownFile,
    Record,
    Said,
    WholeFile,
    asked_digests,
    encode_held,
    instructions,
    rebuild,
)
from petri.trees import File
from petri.workspace import Wanted

COMMIT_BYTES = 128 << 20
"""So much is put between two commits at most: a crash of the server costs no more than that."""
LARGE_BYTES = 1 << 20
"""From this size on, the beginning of a content is worth remembering."""
SHORT_BYTES = 64 << 10
"""A delta up to this length is held in memory: each of its bytes may become a hundred there."""
_MOST_BEGUN = 4096
_MOST_BASES, _MOST_AGREEMENTS = 2, 1
"""Each has the tree made as it is then: thousands of them would make thousands of large ones."""
_RECORD_BYTES, _FOLDER_BYTES = 256, 512
"""What one takes of memory while it is in hand, beside its fields."""
_TOLD_BYTES = 1 << 20
"""How much more is taken before it is told."""


class BrokenOff(Exception):
    """The request ends in the middle: the client is gone, or fell silent, or the server is ending."""


class Asked(NamedTuple):
    """What a request comes to."""

    agreed: bytes
    """The tree last agreed on."""
    folder: bytes
    """The tree that the client's folder is."""
    claims: Mapping[bytes, int] = {}
    """How long contents are by the client's word, where they did not come along."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may bring."""

    records: int
    """And as many folders that come by themselves."""
    content_bytes: int
    """More than this the sandbox can never hold."""
    refuse_without: Callable[[int], None]
    """Raises `StorageFull` if so many bytes more do not fit on the disk."""
    grow: Callable[[int], None]
    """Raises `Busy` if the records in hand, which now take so many bytes of memory, are too much for all."""
    foresee: Callable[[Wanted], None] = lambda _: None
    """Told of a changed file as soon as it is known what it is made of, and before that was checked."""


class Begun:
    """Contents that began to arrive, by tenant and digest; as many as may be, the oldest forgotten."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[tuple[str, bytes], tuple[bytes, int]] = OrderedDict()

    def note(self, tenant: str, digest: bytes, beginning: bytes, size: int) -> None:
        """Remember that `beginning`, a content in the store, is the first `size` bytes of `digest`."""
        self._known[tenant, digest] = beginning, size
        if len(self._known) > _MOST_BEGUN:
            self._known.popitem(last=False)

    def of(self, tenant: str, digest: bytes, offset: int) -> Iterator[bytes]:
        """Return the first `offset` bytes; `BaseUnknown` if so many did not arrive, or are there no more."""
        beginning, size = self._known.get((tenant, digest), (b"", -1))
        if size != offset or not self._store.has(tenant, [beginning]):
            raise BaseUnknown("the beginning of a content is not known here any more; send it whole")
        return self._store.open_blob(tenant, beginning)

    def forget(self, tenant: str, digest: bytes) -> None:
        """Know no beginning any more: the whole is there."""
        self._known.pop((tenant, digest), None)

    def held(self, tenant: str, question: bytes) -> bytes:
        """Answer which contents are here, and of which only the beginning."""
        asked = asked_digests(question)
        there = self._store.has(tenant, asked)
        begun = {}
        for number, digest in enumerate(asked):
            beginning, size = self._known.get((tenant, digest), (b"", 0))
            if size and digest not in there and self._store.has(tenant, [beginning]):
                begun[number] = size
        return encode_held([digest in there for digest in asked], begun)


class Taking:
    """Takes one request."""

    def __init__(self, store: Store, tenant: str, begun: Begun, objects: Objects, bounds: Bounds) -> None:
        self._store = store
        self._tenant = tenant
        self._begun = begun
        self._objects = objects
        self._bounds = bounds
        self._records = 0
        self._bases = 0
        self._agreements = 0
        self._folders = 0
        self._memory_bytes = 0
        self._content_bytes = 0
        self._uncommitted = 0
        self._broke: BrokenOff | None = None
        self._growing: Growing | None = None
        self._agreed: bytes | None = None
        self._claims: dict[bytes, int] = {}

    def run(self, incoming: Incoming) -> Asked:
        """Return what is asked. The contents that came with it are in the store then."""
        with self._store.write(self._tenant) as writing:
            try:
                folder = self._read(incoming, writing)
            except BrokenOff:
                self._commit(writing)
                raise
            self._commit(writing)
        assert self._agreed is not None
        return Asked(self._agreed, folder, self._claims)

    def _read(self, incoming: Incoming, writing: Writing) -> bytes:
        end = b""
        for record in incoming:
            self._count(incoming.field_bytes)
            if isinstance(record, Base):
                self._begin(record.tree)
            elif self._growing is None:
                raise Invalid("a sync begins with a Base record")
            elif isinstance(record, Agreed):
                self._agree(self._growing, record.tree)
            elif isinstance(record, End):
                end = self._made(self._growing, record.tree)
            elif isinstance(record, Clash | Said):
                raise Invalid(f"a {type(record).__name__} record is part of an answer, not of a request")
            else:
                self._apply(self._growing, record)
                self._take(record, incoming, writing)
        return end

    def _count(self, field_bytes: int) -> None:
        self._records += 1
        if self._records > self._bounds.records:
            raise TooLarge(
                f"a sync of this sandbox may have {self._bounds.records} records, by its `limits.inodes`; "
                "leave something out with .petriignore"
            )
        folders = self._folders + (self._growing.folders_made if self._growing is not None else 0)
        taken = field_bytes + _RECORD_BYTES * self._records + _FOLDER_BYTES * folders
        if taken > self._memory_bytes + _TOLD_BYTES:
            self._bounds.grow(taken)
            self._memory_bytes = taken

    def _begin(self, tree: bytes) -> None:
        self._bases += 1
        if self._bases > _MOST_BASES:
            raise Invalid(f"a sync has {_MOST_BASES} Base records at most")
        self._folders += self._growing.folders_made if self._growing is not None else 0
        try:
            self._growing = Growing(self._objects.fetch, tree, self._bounds.records)
            if self._agreed is None:
                self._agreed = self._growing.tree(self._objects.put)
        except NotFound:
            raise BaseUnknown(f"the tree {tree.hex()} is not known here, or no more") from None

    def _agree(self, growing: Growing, said: bytes) -> None:
        self._agreements += 1
        if self._agreements > _MOST_AGREEMENTS:
            raise Invalid("a sync has one Agreed record at most")
        self._agreed = self._made(growing, said)

    def _made(self, growing: Growing, said: bytes) -> bytes:
        found = growing.tree(self._objects.put)
        if found != said:
            raise Invalid(f"the records make the tree {found.hex()}, not {said.hex()} as they say")
        return found

    def _apply(self, growing: Growing, record: Record) -> None:
        try:
            growing.apply(record)
        except NotFound:  # a folder below the base; a sweep took it
            raise BaseUnknown("a part of the tree the sync starts from is not known here any more") from None

    # --------------------------------------------------------------------------------------- contents

    def _take(self, record: Record, incoming: Incoming, writing: Writing) -> None:
        if isinstance(record, WholeFile):
            self._take_whole(record, incoming, writing)
        elif isinstance(record, ChangedFile):
            self._take_changed(record, incoming, writing)
        elif isinstance(record, KnownFile):
            self._claims[record.digest] = record.size

    def _take_whole(self, record: WholeFile, incoming: Incoming, writing: Writing) -> None:
        self._allow(record.path, record.size)
        if record.size < LARGE_BYTES and not record.offset:
            self._check(record, writing.put_blob(b"".join(incoming.payload())))
            self._settle(record.size, writing)
            return
        content: Iterable[bytes] = self._until_broken(incoming.payload())
        if record.offset:
            content = chain(self._begun.of(self._tenant, record.digest, record.offset), content)
        counted = _Counted(content)
        found = writing.put_stream(counted)
        if self._broke is not None:
            if counted.size >= LARGE_BYTES:
                self._begun.note(self._tenant, record.digest, found, counted.size)
            raise self._broke
        self._check(record, found)
        self._begun.forget(self._tenant, record.digest)
        self._settle(record.size, writing)

    def _take_changed(self, record: ChangedFile, incoming: Incoming, writing: Writing) -> None:
        self._allow(record.path, record.size)
        try:
            old = self._store.open_at(self._tenant, record.old)
        except NotFound:
            raise BaseUnknown(f"the content {record.old.hex()} is not known here, or no more") from None
        if min(old.size, record.size) > LARGE_BYTES:
            parts: Iterable[bytes | tuple[int, int]] = _parts(record, old.size, incoming.payload())
            if record.length <= SHORT_BYTES:
                parts = list(parts)
                file = File(record.digest, record.size, record.mode)
                self._bounds.foresee(Wanted(record.path, record.old, file, parts))
            found = writing.put_changed(old, parts, record.digest)
        else:
            found = writing.put_stream(rebuild(incoming.payload(), old.read, record.size))
        self._check(record, found)
        self._settle(record.length, writing)

    def _check(self, record: WholeFile | ChangedFile, found: bytes) -> None:
        if found != record.digest:
            raise Invalid(f"the content of {record.path!r} is not the one announced: its digest is wrong")

    def _allow(self, path: bytes, size: int) -> None:
        self._content_bytes += size
        if self._content_bytes > self._bounds.content_bytes:
            raise StorageFull(
                f"with {path!r}, the sync brings more than the {self._bounds.content_bytes} bytes that this "
                "sandbox may hold (limits.disk_bytes); nothing was changed",
                field="limits.disk_bytes",
            )

    def _settle(self, size: int, writing: Writing) -> None:
        self._uncommitted += size
        if self._uncommitted >= COMMIT_BYTES:
            self._commit(writing)

    def _commit(self, writing: Writing) -> None:
        """Have what came in the store; nothing, if there is no room to put it into the workspace as well."""
        if self._uncommitted:
            self._bounds.refuse_without(self._content_bytes)
        writing.commit()
        self._uncommitted = 0

    def _until_broken(self, payload: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what comes; an end that comes too soon is an end, too, and remembered."""
        try:
            yield from payload
        except BrokenOff as broke:
            self._broke = broke


def _parts(record: ChangedFile, old_size: int, payload: Iterable[bytes]) -> Iterator[bytes | tuple[int, int]]:
    """Yield what a delta asks for; `Invalid` if that is not there, or does not give what it should."""
    left = record.size
    for asked in instructions(payload):
        left -= len(asked) if isinstance(asked, bytes) else asked.length
        if left < 0 or (not isinstance(asked, bytes) and asked.offset + asked.length > old_size):
            raise Invalid(
                f"the delta of {record.path!r} asks for more than there is, or than there should be"
            )
        yield asked if isinstance(asked, bytes) else (asked.offset, asked.offset + asked.length)
    if left:
        raise Invalid(f"the delta of {record.path!r} makes {left} bytes fewer than it should")


class _Counted:
    """Pieces that are counted as they pass."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            yield piece
