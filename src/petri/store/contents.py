"""What a pack holds: from the index beside it, or from its batches where there is none.

The index is a copy of what the batches say, sorted, for a quick start. It is written when a pack is sealed,
believed only if its own digest is right, and can be thrown away at any time.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from petri.store.disk import replace_file
from petri.store.layout import (
    PACK_MAGIC,
    Batch,
    batches,
    is_unwritten,
    is_whole,
    records,
    stray_bytes,
    void,
)
from petri.store.manifest import Dead
from petri.store.packs import index_path
from petri.store.table import BUCKETS, ENTRY, Found, Place, bucket_of, entry, found_in

_MAGIC = b"petri-index-1\n\0\0"
_HEADER = struct.Struct("<16sQ")
_CHECK_BYTES = 16
_COUNTS_BYTES = 4 * BUCKETS


class Contents(NamedTuple):
    """Entries, sorted, and how many of them each bucket of a table gets."""

    entries: bytes
    counts: "array[int]"

    def __len__(self) -> int:
        return len(self.entries) // ENTRY.size

    def found(self) -> Iterator[Found]:
        """Yield what is in there, sorted by digest."""
        return found_in(self.entries)

    def without(self, dead: Dead) -> "Contents":
        """Return what is left when what is `dead` is taken out."""
        if len(self) != dead.entries or not dead.bits:
            return self
        kept = (self.entries[at : at + ENTRY.size] for at in range(0, len(self.entries), ENTRY.size))
        return _contents(one for number, one in enumerate(kept) if number not in dead)


def _contents(entries: Iterable[bytes]) -> Contents:
    counts = array("I", bytes(_COUNTS_BYTES))
    ordered = sorted(entries)
    for one in ordered:
        counts[bucket_of(one)] += 1
    return Contents(b"".join(ordered), counts)


def read_contents(number: int, descriptor: int) -> Contents:
    """Return what pack `number` holds, by its batches."""
    return _contents(
        entry(record.digest, Place(number, offset, record.stored, record.kind, record.form), record.time)
        for batch in batches(descriptor)
        for record, offset in records(descriptor, batch)
    )


class Recovered(NamedTuple):
    """What is left of a pack after a crash."""

    end: int
    """Where the last batch ends that counts, or that is kept for somebody to look at."""
    damaged: list[Batch]
    """Batches that are not as they were written, and not by a crash: that leaves them short, or unwritten."""
    stray: int
    """Bytes behind the last batch that no crash leaves there."""


def recovered(descriptor: int) -> Recovered:
    """Have nothing in a pack count, after a crash, but whole batches.

    What was known to be on the disk when a later batch was written is believed; the rest is read. A batch
    that is not whole costs only itself, not those behind it.
    """
    end = durable = 0
    damaged = []
    found = list(batches(descriptor))
    for batch in reversed(found):
        if batch.at < durable or is_whole(descriptor, batch):
            durable = max(durable, batch.durable)
            end = max(end, batch.end)
        elif not is_unwritten(descriptor, batch):
            damaged.append(batch)
            end = max(end, batch.end)
            void(descriptor, batch)
        elif end:
            void(descriptor, batch)
    reached = found[-1].end if found else len(PACK_MAGIC)
    return Recovered(max(end, len(PACK_MAGIC)), damaged, stray_bytes(descriptor, reached))


def save_index(pack: Path, contents: Contents) -> None:
    """Write the index of a sealed pack, durably."""
    said = _HEADER.pack(_MAGIC, pack.stat().st_size) + contents.counts.tobytes() + contents.entries
    replace_file(index_path(pack), said + blake3(said).digest(_CHECK_BYTES))


def load_index(pack: Path) -> Contents | None:
    """Return what the index says a pack holds; nothing if it is missing, damaged, or of another pack."""
    try:
        said = index_path(pack).read_bytes()
    except FileNotFoundError:
        return None
    said, check = said[:-_CHECK_BYTES], said[-_CHECK_BYTES:]
    if blake3(said).digest(_CHECK_BYTES) != check or len(said) < _HEADER.size + _COUNTS_BYTES:
        return None
    magic, size = _HEADER.unpack_from(said)
    if magic != _MAGIC or size != pack.stat().st_size:
        return None
    counts = array("I", said[_HEADER.size : _HEADER.size + _COUNTS_BYTES])
    return Contents(said[_HEADER.size + _COUNTS_BYTES :], counts)


NOTHING = _contents(())
