"""Where every object of a tenant is, in memory: 50 bytes for each, and a little.

An object is an entry of fixed width, and the entries lie one behind the other in buckets, chosen by the first
bits of the digest. A dictionary of tuples would take seven times as much. The index beside a pack is a run of
the same entries, sorted, so that loading it is a slice for each bucket and not a step for each object.
Not safe for threads by itself; `Shelf` guards it.
"""

import struct
from array import array
from collections.abc import Container, Iterator
from typing import NamedTuple

ENTRY = struct.Struct("<32sIIIIBB")
"""Digest, pack, offset, bytes stored, time, kind and form, mark."""
BUCKETS = 1 << 14

_PLACE = struct.Struct("<III")
_PLACE_AT = 32
_TIME = struct.Struct("<I")
_TIME_AT = 44
_MARK_AT = 49


class Place(NamedTuple):
    """Where the content of an object is stored, and how."""

    pack: int
    offset: int
    stored: int
    kind: int
    form: int


class Found(NamedTuple):
    """An object in the table."""

    digest: bytes
    place: Place
    time: int
    mark: int


def entry(digest: bytes, place: Place, time: int) -> bytes:
    """Return an object as it stands in a table and in an index."""
    pack, offset, stored, kind, form = place
    return ENTRY.pack(digest, pack, offset, stored, time, kind << 2 | form, 0)


def found_in(entries: bytes | bytearray) -> Iterator[Found]:
    """Yield what stands in a run of entries."""
    for digest, pack, offset, stored, time, how, mark in ENTRY.iter_unpack(entries):
        yield Found(digest, Place(pack, offset, stored, how >> 2, how & 3), time, mark)


def bucket_of(digest: bytes) -> int:
    """Return the number of the bucket for an object: the first 14 bits of its digest."""
    return digest[0] << 6 | digest[1] >> 2


class Table:
    """Objects, found by digest, each once."""

    def __init__(self) -> None:
        self._buckets = [bytearray() for _ in range(BUCKETS)]

    def __len__(self) -> int:
        return sum(map(len, self._buckets)) // ENTRY.size

    def _at(self, digest: bytes) -> tuple[bytearray, int]:
        bucket = self._buckets[digest[0] << 6 | digest[1] >> 2]
        at = bucket.find(digest)
        while at >= 0 and at % ENTRY.size:  # across two entries: chosen bytes, no digest that anybody has met
            at = bucket.find(digest, at + 1)
        return bucket, at

    def find(self, digest: bytes) -> Place | None:
        """Return where an object is."""
        bucket, at = self._at(digest)
        if at < 0:
            return None
        _, pack, offset, stored, _, how, _ = ENTRY.unpack_from(bucket, at)
        return Place(pack, offset, stored, how >> 2, how & 3)

    def touch(self, digest: bytes, time: int) -> bool:
        """Note that somebody counts on an object, and say if it is there."""
        bucket, at = self._at(digest)
        if at >= 0:
            _TIME.pack_into(bucket, at + _TIME_AT, time)
        return at >= 0

    def unmark(self) -> None:
        """Take the marks from all objects."""
        for bucket in self._buckets:
            bucket[_MARK_AT :: ENTRY.size] = bytes(len(bucket) // ENTRY.size)

    def mark(self, digest: bytes, mark: int) -> int | None:
        """Add `mark` to an object's; return those it had, nothing if there is no such object."""
        bucket, at = self._at(digest)
        if at < 0:
            return None
        had = bucket[at + _MARK_AT]
        bucket[at + _MARK_AT] = had | mark
        return had

    def take_mark(self, digest: bytes, mark: int) -> None:
        """Take `mark` from an object, if it is there."""
        bucket, at = self._at(digest)
        if at >= 0:
            bucket[at + _MARK_AT] &= ~mark

    def put(self, digest: bytes, place: Place, time: int) -> None:
        """Have an object that is here already at its old place, any other at this one."""
        if not self.touch(digest, time):
            self._buckets[bucket_of(digest)] += entry(digest, place, time)

    def move(self, digest: bytes, sources: Container[int], place: Place) -> bool:
        """Have an object that is in one of the packs `sources` at `place`; say if it was."""
        bucket, at = self._at(digest)
        if at < 0 or _PLACE.unpack_from(bucket, at + _PLACE_AT)[0] not in sources:
            return False
        _PLACE.pack_into(bucket, at + _PLACE_AT, *place[:3])
        return True

    def load(self, entries: bytes, counts: "array[int]") -> None:
        """Add a sorted run of entries, of which `counts` says how many each bucket gets."""
        begin = 0
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                end = begin + count * ENTRY.size
                bucket += entries[begin:end]
                begin = end

    def unify(self) -> None:
        """Forget all but the first of an object that was loaded several times."""
        for bucket in self._buckets:
            entries = bytes(bucket)
            first = {
                entries[at : at + _PLACE_AT]: at for at in range(len(entries) - ENTRY.size, -1, -ENTRY.size)
            }
            if len(first) * ENTRY.size < len(entries):
                bucket[:] = b"".join(entries[at : at + ENTRY.size] for at in sorted(first.values()))

    def forget(self, digest: bytes) -> None:
        """Have an object no more."""
        bucket, at = self._at(digest)
        if at >= 0:
            del bucket[at : at + ENTRY.size]

    def sweep(self, packs: Container[int], young: int) -> int:
        """Forget what is in `packs`, has no mark, and was not touched since `young`; say how much."""
        before = len(self)
        for bucket in self._buckets:
            kept = bytearray()
            for at, fields in zip(
                range(0, len(bucket), ENTRY.size), ENTRY.iter_unpack(bytes(bucket)), strict=True
            ):
                if fields[6] or fields[4] >= young or fields[1] not in packs:
                    kept += bucket[at : at + ENTRY.size]
            bucket[:] = kept
        return before - len(self)

    def __iter__(self) -> Iterator[Found]:
        """Yield every object; one that comes or goes meanwhile may be missed."""
        for bucket in self._buckets:
            yield from found_in(bytes(bucket))
