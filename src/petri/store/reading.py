"""Objects as they were put, from however they are stored."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from blake3 import blake3

from petri.store.layout import LIST, Piece, pieces_of
from petri.store.packing import HEADER_BYTES, damaged, size_of, unpack
from petri.store.shelf import Shelf
from petri.store.table import Place


def parts(shelf: Shelf, digest: bytes) -> Iterator[bytes]:
    """Yield an object, part by part."""
    place, stored = shelf.read(digest)
    if place.form != LIST:
        yield unpack(digest, place, stored)
        return
    for piece in pieces_of(stored):
        # A piece may be in pieces: somebody's file may hold what is elsewhere a large folder object.
        yield from parts(shelf, piece.digest)


class Run(NamedTuple):
    """Bytes of a content, and where in another one the same bytes are."""

    offset: int
    length: int
    source: int | None
    """None: nowhere."""

    def is_followed_by(self, other: "Run") -> bool:
        """Say whether both are one run."""
        if self.source is None or other.source is None:
            return self.source is other.source
        return self.source + self.length == other.source


class Opened:
    """A content of which any part can be read. `part` gives a whole object by its digest."""

    def __init__(self, part: Callable[[bytes], bytes], pieces: Sequence[Piece]) -> None:
        self._part = part
        self._digests = [piece.digest for piece in pieces]
        self._begins = list(accumulate((piece.size for piece in pieces), initial=0))
        self._at_hand = b""
        self._number = -1

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._begins[-1]

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on; fewer only at the end."""
        end = min(offset + length, self.size)
        found = []
        while offset < end:
            number = bisect_right(self._begins, offset) - 1
            begin = offset - self._begins[number]
            part = self._opened(number)[begin : begin + end - offset]
            found.append(part)
            offset += len(part)
        return b"".join(found)

    def parts(self, offset: int, end: int) -> Iterator[tuple[Piece | None, bytes]]:
        """Yield what is between two places, piece by piece; the piece itself is named where all of it is."""
        while offset < end:
            number = bisect_right(self._begins, offset) - 1
            begin, behind = self._begins[number], self._begins[number + 1]
            content = self._opened(number)
            if offset == begin and behind <= end:
                yield Piece(len(content), self._digests[number]), content
            else:
                content = content[offset - begin : end - begin]
                yield None, content
            offset += len(content)

    def alike(self, new: "Opened") -> Iterator["Run"]:
        """Yield what makes `new` of this: runs of bytes that are here, and of bytes that are not."""
        places: dict[bytes, int] = {}
        for digest, begin in zip(self._digests, self._begins, strict=False):
            places.setdefault(digest, begin)
        last: Run | None = None
        for digest, begin, behind in zip(new._digests, new._begins, new._begins[1:], strict=False):
            here = places.get(digest)
            # Of several places, that which goes on where the last one ended: a run is one call.
            if last is not None and last.source is not None and here is not None:
                following = last.source + last.length
                here = following if self._digest_at(following) == digest else here
            run = Run(begin, behind - begin, here)
            if last is not None and last.is_followed_by(run):
                last = last._replace(length=last.length + run.length)
                continue
            if last is not None:
                yield last
            last = run
        if last is not None:
            yield last

    def _digest_at(self, offset: int) -> bytes | None:
        number = bisect_right(self._begins, offset) - 1
        is_there = number < len(self._digests) and self._begins[number] == offset
        return self._digests[number] if is_there else None

    def _opened(self, number: int) -> bytes:
        if number != self._number:
            self._at_hand, self._number = self._part(self._digests[number]), number
        return self._at_hand


def verified(digest: bytes, place: Place, content: Iterable[bytes]) -> Iterator[bytes]:
    """Yield `content`, and raise `Unavailable` in place of its end if it is not what `digest` names."""
    hasher = blake3()
    for part in content:
        hasher.update(part)
        yield part
    if hasher.digest() != digest:
        raise damaged(digest, place)


def whole(shelf: Shelf, digest: bytes) -> bytes:
    """Return an object, verified; `Unavailable` if it is damaged."""
    place, stored = shelf.read(digest)
    if place.form == LIST:
        return b"".join(verified(digest, place, parts(shelf, digest)))
    content = unpack(digest, place, stored)
    if blake3(content).digest() != digest:
        raise damaged(digest, place)
    return content


def check_object(shelf: Shelf, digest: bytes, *, deep: bool) -> None:
    """Raise if an object lacks something, or, with `deep`, if it is not what it was."""
    place, stored = shelf.read(digest)
    if deep:
        deque(verified(digest, place, parts(shelf, digest)), maxlen=0)
    elif place.form == LIST:
        for piece in pieces_of(stored):
            check_object(shelf, piece.digest, deep=False)


def size(shelf: Shelf, digest: bytes) -> int:
    """Return how many bytes an object has; reads little of it."""
    place, begin = shelf.read(digest, HEADER_BYTES)
    if place.form == LIST:
        return sum(piece.size for piece in pieces_of(shelf.read(digest)[1]))
    return size_of(place, begin)
