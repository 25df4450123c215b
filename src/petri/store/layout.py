"""What is in a pack, byte by byte.

    pack     b"petri-pack-1\\n\\0\\0\\0", then batches, one behind the other
    batch    header   magic, number of records, bytes of content, bytes durable, CRC-32 of these
             records  one for each object: digest, kind, form, stored bytes, time
             contents of the objects, in that order, as they are stored
             seal     16 bytes of BLAKE3 over the header and the BLAKE3 of all between

A batch counts if its seal is right. It says how much of the pack was known to be on the disk when it was
written, so that after a crash only what came later has to be read to be believed. All records of a batch
stand together, so that finding out what a pack holds reads none of the contents. Numbers are little-endian.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from blake3 import blake3

from petri.store.disk import read_at, write_at

PACK_MAGIC = b"petri-pack-1\n\0\0\0"
LARGEST_PACK = 2**32 - 1
"""A place in a pack is kept in four bytes."""

BLOB, FOLDER = 1, 2
"""What an object is. A piece of a larger one is a blob."""
PLAIN, ZSTD, LIST = 0, 1, 2
"""How it is stored: as it is, compressed, or as the list of its pieces, which are objects themselves."""

BATCH_BYTES = 1 << 20
"""How much content is gathered in memory before it is written as a batch."""

_BATCH_MAGIC = b"bat1"
_HEADER = struct.Struct("<4sIQQI")
_UNCHECKED = _HEADER.size - 4
_RECORD = struct.Struct("<32sBBxxII")
_SEAL_BYTES = 16
_PIECE = struct.Struct("<I32s")
_READ_BYTES = 1 << 20
_PAGE = 4096
"""What a file system writes at once, or not at all."""


class Record(NamedTuple):
    """One object in a pack; what it is called, and how it is stored."""

    digest: bytes
    kind: int
    form: int
    stored: int
    """Bytes in the pack."""
    time: int
    """When it was put there, in seconds since 1970."""


class Body(NamedTuple):
    """A batch before it has a place."""

    objects: int
    records: bytes
    contents: bytes
    digest: bytes


class Batch(NamedTuple):
    """A batch in a pack, by what its header says."""

    at: int
    objects: int
    content_bytes: int
    durable: int
    """How much of the pack was on the disk before this was written."""

    @property
    def contents_at(self) -> int:
        """Where the content of its first object is."""
        return self.at + _HEADER.size + self.objects * _RECORD.size

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.contents_at + self.content_bytes + _SEAL_BYTES


def body(objects: Sequence[tuple[Record, bytes]]) -> Body:
    """Return a batch of `objects`, each as a record and what is stored."""
    packed = b"".join(_RECORD.pack(*record) for record, _ in objects)
    content = b"".join(stored for _, stored in objects)
    hasher = blake3(packed)
    hasher.update(content)
    return Body(len(objects), packed, content, hasher.digest())


def contents_offset(body: Body) -> int:
    """Return how far behind its beginning the contents of a batch are."""
    return _HEADER.size + len(body.records)


def sealed(body: Body, durable: int) -> bytes:
    """Return the bytes of a batch for a pack of which `durable` bytes are on the disk."""
    header = _header(body.objects, len(body.contents), durable)
    return b"".join((header, body.records, body.contents, _seal(header, body.digest)))


def _header(objects: int, content_bytes: int, durable: int) -> bytes:
    said = _HEADER.pack(_BATCH_MAGIC, objects, content_bytes, durable, 0)[:_UNCHECKED]
    return said + struct.pack("<I", crc32(said))


def _seal(header: bytes, digest: bytes) -> bytes:
    return blake3(header + digest).digest(_SEAL_BYTES)


def batches(descriptor: int) -> Iterator[Batch]:
    """Yield the batches of a pack by their headers, up to where there is none or it is cut short."""
    end = os.fstat(descriptor).st_size
    at = len(PACK_MAGIC)
    while at < end:
        header = read_at(descriptor, _HEADER.size, at)
        if len(header) < _HEADER.size:
            return
        magic, objects, content_bytes, durable, check = _HEADER.unpack(header)
        batch = Batch(at, objects, content_bytes, durable)
        if magic != _BATCH_MAGIC or crc32(header[:_UNCHECKED]) != check or batch.end > end:
            return
        yield batch
        at = batch.end


def is_whole(descriptor: int, batch: Batch) -> bool:
    """Say if every byte of `batch` is as it was written; of one that stands for nothing, that it is."""
    if batch.objects == 0:
        return True
    header = read_at(descriptor, _HEADER.size, batch.at)
    at, end = batch.at + _HEADER.size, batch.end - _SEAL_BYTES
    hasher = blake3()
    while at < end and (part := read_at(descriptor, min(_READ_BYTES, end - at), at)):
        hasher.update(part)
        at += len(part)
    return read_at(descriptor, _SEAL_BYTES, end) == _seal(header, hasher.digest())


def is_unwritten(descriptor: int, batch: Batch) -> bool:
    """Say if part of `batch` is as a power cut leaves it: its place is there, and nothing in it."""
    at = batch.at - batch.at % _PAGE
    while at < batch.end:
        begin, end = max(at, batch.at), min(at + _PAGE, batch.end)
        if not any(read_at(descriptor, end - begin, begin)):
            return True
        at += _PAGE
    return False


def stray_bytes(descriptor: int, at: int) -> int:
    """Return how many bytes from `at` on are neither the beginning of a batch nor unwritten."""
    rest = os.fstat(descriptor).st_size - at
    header = read_at(descriptor, _HEADER.size, at)
    if len(header) < _HEADER.size or not any(header):
        return 0
    magic, *_, check = _HEADER.unpack(header)
    return 0 if magic == _BATCH_MAGIC and crc32(header[:_UNCHECKED]) == check else rest


def void(descriptor: int, batch: Batch) -> None:
    """Have a batch that is not whole stand for nothing, for good; those behind it are found as before."""
    rest = batch.end - batch.at - _HEADER.size - _SEAL_BYTES
    write_at(descriptor, _header(0, rest, batch.durable), batch.at)


def records(descriptor: int, batch: Batch) -> Iterator[tuple[Record, int]]:
    """Yield each record of `batch` with the offset of its content."""
    at = batch.contents_at
    for fields in _RECORD.iter_unpack(
        read_at(descriptor, batch.objects * _RECORD.size, batch.at + _HEADER.size)
    ):
        record = Record(*fields)
        yield record, at
        at += record.stored


class Piece(NamedTuple):
    """A part of a large object."""

    size: int
    digest: bytes


def list_of(pieces: Sequence[Piece]) -> bytes:
    """Return what is stored for an object that is in pieces."""
    return b"".join(_PIECE.pack(*piece) for piece in pieces)


def pieces_of(stored: bytes) -> list[Piece]:
    """Return the pieces that a list names."""
    return [Piece(*fields) for fields in _PIECE.iter_unpack(stored)]
