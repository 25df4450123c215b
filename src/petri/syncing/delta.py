"""A large file that changed, said as what to copy from the old content and what is new.

Whoever makes a delta needs no old content, only its *signature*: where it can be cut (by content, so that an
insertion does not move the cuts behind it), and a mark for each chunk and for each group of chunks. Marks are
eight bytes of BLAKE3; should two contents ever have one mark, the digest of the whole tells.

The payload of a `ChangedFile` record is a row of instructions, each a varint and what it asks for:

    length << 1      offset: varint      copy so many bytes of the old content from there
    length << 1 | 1  bytes               take these
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from blake3 import blake3

from petri.errors import Invalid
from petri.syncing.records import read_varint, varint
from petri.trees import Hashing

Read = Callable[[int, int], bytes]
"""Gives the bytes of a content from an offset on, as many as asked for; fewer only at its end."""

WORTH_SIGNING = 16 * 1024
"""Bytes. A smaller file is sent whole: compressed, that is little more than its changed chunk."""
PIECE_BYTES = 256 * 1024

_GROUP = 64
"""Chunks that have a mark together. Most of a changed file is compared by these: few calls, much per call."""
_WINDOW = 4 * 2**20
_MARK_BYTES = 8
_MUCH = 2**20
_HEADER = struct.Struct("<8sQIII")
_MAGIC = b"pt-sign1"


class Signature(NamedTuple):
    """What is remembered of a content: its chunks' lengths and marks, and those of groups of chunks."""

    size: int
    average: int
    lengths: "array[int]"
    marks: "array[int]"
    counts: "array[int]"
    """How many chunks each group has."""
    group_marks: "array[int]"

    def to_bytes(self) -> bytes:
        """Return it as bytes, for a file on this machine."""
        head = _HEADER.pack(_MAGIC, self.size, self.average, len(self.lengths), len(self.counts))
        return b"".join((head, *(each.tobytes() for each in self[2:])))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Signature | None":
        """Return the signature that `to_bytes` made these of; None if it did not."""
        if len(data) < _HEADER.size:
            return None
        magic, size, average, chunks, groups = _HEADER.unpack_from(data)
        if magic != _MAGIC or len(data) != _HEADER.size + 12 * (chunks + groups):
            return None
        parts = []
        at = _HEADER.size
        for kind, count in (("I", chunks), ("Q", chunks), ("I", groups), ("Q", groups)):
            parts.append(array(kind))
            end = at + count * parts[-1].itemsize
            parts[-1].frombytes(data[at:end])
            at = end
        found = cls(size, average, *parts)
        return found if sum(found.lengths) == size and sum(found.counts) == chunks else None


class Copy(NamedTuple):
    """So many bytes of the old content."""

    offset: int
    length: int


class Fresh(NamedTuple):
    """So many bytes of the new content, which the old one does not have."""

    offset: int
    length: int


class Delta(NamedTuple):
    """What makes a new content of an old one, with the digest and the signature of the new one."""

    digest: bytes
    pieces: list[Copy | Fresh]
    signature: Signature

    @property
    def fresh_bytes(self) -> int:
        """How much of the new content has to be sent."""
        return sum(piece.length for piece in self.pieces if isinstance(piece, Fresh))

    def payload_length(self) -> int:
        """Return how long the payload is."""
        return self.fresh_bytes + sum(len(_instruction(piece)) for piece in self.pieces)

    def payload(self, read: Read) -> Iterator[bytes]:
        """Yield the payload; `read` gives the new content. Raises EOFError if that has become shorter."""
        for piece in self.pieces:
            yield _instruction(piece)
            if isinstance(piece, Fresh):
                yield from _pieces(read, piece.offset, piece.length)


class _Group(NamedTuple):
    """A group of chunks: where it is in its content, and which chunks of the signature it has."""

    offset: int
    length: int
    mark: int
    first: int
    chunks: int


def sign(read: Read, size: int) -> Signature:
    """Return the signature of a content of `size` bytes. Raises EOFError if there are fewer."""
    making = _Making(size, _average(size))
    making.cut(read, 0, size)
    return making.done()


def compare(old: Signature, read: Read, size: int) -> Delta:
    """Say what makes the content that `read` gives of the one `old` is the signature of.

    The new content is read once from end to end; what differs, once more. Raises EOFError if there are
    fewer than `size` bytes.
    """
    digest, same = _same_groups(old, read, size)
    making = _Making(size, old.average)
    pieces = _Pieces()
    table: dict[tuple[int, int], int] | None = None
    at = 0
    for begin, group in [*same, (size, None)]:
        if at < begin:
            if table is None:
                kept = {each.first for _, each in same} if _uncovered(same, size) < _MUCH else set()
                table = _table(old, kept)
            for length, mark in making.cut(read, at, begin):
                pieces.add(table.get((length, mark)), at, length)
                at += length
        if group is not None:
            making.keep(old, group)
            pieces.add(group.offset, begin, group.length)
            at = begin + group.length
    return Delta(digest, pieces.done, making.done())


def instructions(payload: Iterable[bytes]) -> Iterator[Copy | bytes]:
    """Yield what a payload asks for, as it arrives: copies, and pieces of what is new."""
    buffer = b""
    left = 0
    for piece in payload:
        buffer += piece
        at = 0
        while at < len(buffer):
            if left:
                taken = buffer[at : at + left]
                yield taken
                left -= len(taken)
                at += len(taken)
                continue
            found = _parsed(buffer, at)
            if found is None:
                break
            asked, at = found
            if isinstance(asked, Copy):
                yield asked
            else:
                left = asked
        buffer = buffer[at:]
    if buffer or left:
        raise Invalid("a delta ends within an instruction")


def rebuild(payload: Iterable[bytes], read_old: Read, size: int) -> Iterator[bytes]:
    """Yield the new content, piece by piece; `Invalid` if the payload does not give exactly `size` bytes."""
    left = size
    for asked in instructions(payload):
        left -= asked.length if isinstance(asked, Copy) else len(asked)
        if left < 0:
            raise Invalid(f"a delta makes more than the {size} bytes it should")
        if isinstance(asked, bytes):
            yield asked
            continue
        try:
            yield from _pieces(read_old, asked.offset, asked.length)
        except EOFError:
            raise Invalid("a delta copies from beyond the end of the old content") from None
    if left:
        raise Invalid(f"a delta makes {left} bytes fewer than the {size} it should")


class _Making:
    """A signature in the making."""

    def __init__(self, size: int, average: int) -> None:
        self._size = size
        self._average = average
        self._lengths = array("I")
        self._marks = array("Q")
        self._counts = array("I")
        self._group_marks = array("Q")

    def cut(self, read: Read, begin: int, end: int) -> list[tuple[int, int]]:
        """Add what is between two places; return the length and mark of each chunk there."""
        # On use: only a large file that is new or changed needs it, and a sync that has none starts sooner.
        from pyfastcdc import FastCDC

        cutter = FastCDC(self._average)
        first = len(self._lengths)
        at, carried = begin, b""
        while at < end or carried:
            window = carried + _exactly(read, at, min(_WINDOW, end - at))
            at += len(window) - len(carried)
            lengths = [chunk.length for chunk in cutter.cut_buf(window)]
            # The last chunk may be longer than this window shows.
            carried = window[len(window) - lengths.pop() :] if at < end else b""
            self._add(memoryview(window), lengths)
        return list(zip(self._lengths[first:], self._marks[first:], strict=True))

    def keep(self, old: Signature, group: _Group) -> None:
        """Add a group that the old signature has."""
        chunks = slice(group.first, group.first + group.chunks)
        self._lengths.extend(old.lengths[chunks])
        self._marks.extend(old.marks[chunks])
        self._counts.append(group.chunks)
        self._group_marks.append(group.mark)

    def done(self) -> Signature:
        """Return it."""
        return Signature(
            self._size, self._average, self._lengths, self._marks, self._counts, self._group_marks
        )

    def _add(self, window: memoryview, lengths: list[int]) -> None:
        at = 0
        for first in range(0, len(lengths), _GROUP):
            group = lengths[first : first + _GROUP]
            begin = at
            for length in group:
                self._marks.append(_mark(window[at : at + length]))
                at += length
            self._lengths.extend(group)
            self._counts.append(len(group))
            self._group_marks.append(_mark(window[begin:at]))


class _Pieces:
    """Pieces in the making, neighbours joined."""

    def __init__(self) -> None:
        self.done: list[Copy | Fresh] = []

    def add(self, source: int | None, at: int, length: int) -> None:
        """Add a copy from `source`, or, if there is none, what is new at `at`."""
        last = self.done[-1] if self.done else None
        offset, kind = (at, Fresh) if source is None else (source, Copy)
        if type(last) is kind and last.offset + last.length == offset:
            self.done[-1] = kind(last.offset, last.length + length)
        else:
            self.done.append(kind(offset, length))


def _same_groups(old: Signature, read: Read, size: int) -> tuple[bytes, list[tuple[int, _Group]]]:
    """Return the digest of a content, and which groups of the old one are where in it.

    From the beginning, groups are looked for where they were. From the first one on that is not there,
    they are looked for as far from the end as they were: one insertion, or any change in place, is found so.
    """
    found: list[tuple[int, _Group]] = []
    at = shift = 0
    with Hashing(size) as whole:
        passing = _Passing(read, size, whole)
        for group in _groups(old):
            begin = group.offset + shift
            if begin < at or begin + group.length > size:
                continue
            at = begin + group.length
            if _mark(passing.part(begin, at)) == group.mark:
                found.append((begin, group))
            else:
                shift = size - old.size
        passing.to(size)
        return whole.digest(), found


class _Passing:
    """A content that is read once, from its beginning to its end, and hashed on the way."""

    def __init__(self, read: Read, size: int, whole: Hashing) -> None:
        self._read = read
        self._size = size
        self._whole = whole
        self._window = b""
        self._begin = self._end = 0
        """Where the window is."""

    def part(self, begin: int, end: int) -> bytes | memoryview:
        """Return what is between two places, the first of which is not before the last part's end."""
        self.to(min(begin + 1, end))
        parts: list[bytes | memoryview] = []
        while self._end < end:
            parts.append(memoryview(self._window)[begin - self._begin :])
            begin = self._end
            self.to(begin + 1)
        parts.append(memoryview(self._window)[begin - self._begin : end - self._begin])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def to(self, end: int) -> None:
        """Pass on until what is before `end` has been read."""
        while self._end < end:
            self._window = _exactly(self._read, self._end, min(_WINDOW // 4, self._size - self._end))
            self._begin, self._end = self._end, self._end + len(self._window)
            self._whole.update(self._window)


def _groups(old: Signature) -> Iterator[_Group]:
    offset = first = 0
    for count, mark in zip(old.counts, old.group_marks, strict=True):
        length = sum(old.lengths[first : first + count])
        yield _Group(offset, length, mark, first, count)
        offset += length
        first += count


def _uncovered(same: list[tuple[int, _Group]], size: int) -> int:
    return size - sum(group.length for _, group in same)


def _table(old: Signature, left_out: set[int]) -> dict[tuple[int, int], int]:
    """Return where in the old content each chunk is, but for the groups that were found whole."""
    table: dict[tuple[int, int], int] = {}
    for group in _groups(old):
        if group.first in left_out:
            continue
        offset = group.offset
        for number in range(group.first, group.first + group.chunks):
            table.setdefault((old.lengths[number], old.marks[number]), offset)
            offset += old.lengths[number]
    return table


def _average(size: int) -> int:
    """Return how long chunks are to be: short for small deltas, long where there would be too many.

    What is small is text more often than not, of which twice as much is as little on the line.
    """
    if size < 2**20:
        return 2048
    return 1024 if size < 2**28 else 4096 if size < 2**30 else 16384


def _mark(data: bytes | memoryview) -> int:
    return int.from_bytes(blake3(data).digest(_MARK_BYTES), "little")


def _instruction(piece: Copy | Fresh) -> bytes:
    if isinstance(piece, Copy):
        return varint(piece.length << 1) + varint(piece.offset)
    return varint(piece.length << 1 | 1)


def _parsed(buffer: bytes, at: int) -> tuple[Copy | int, int] | None:
    """Return the instruction at `at` and where it ends; None if the rest of it has yet to come."""
    try:
        number, at = read_varint(buffer, at)
        if number < 2:
            raise Invalid("a delta asks for nothing")
        if number & 1:
            return number >> 1, at
        offset, at = read_varint(buffer, at)
    except IndexError:
        return None
    return Copy(offset, number >> 1), at


def _pieces(read: Read, offset: int, length: int) -> Iterator[bytes]:
    while length:
        piece = _exactly(read, offset, min(length, PIECE_BYTES))
        yield piece
        offset += len(piece)
        length -= len(piece)


def _exactly(read: Read, offset: int, length: int) -> bytes:
    data = read(offset, length) if length else b""
    if len(data) != length:
        raise EOFError
    return data
