"""Objects as they were put, from however they are stored."""

from collections import deque
from collections.abc import Iterable, Iterator

from blake3 import blake3

from petri.store.layout import LIST, pieces_of
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
    return b"".join(verified(digest, shelf.read(digest, 0)[0], parts(shelf, digest)))


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
