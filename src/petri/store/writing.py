"""Putting objects into the store, many at a time and visible together."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import TracebackType
from typing import Self

from blake3 import blake3

from petri.errors import Conflict, Invalid, Unavailable
from petri.holes import windows
from petri.store.cutting import WHOLE_BYTES, WINDOW_BYTES, pieces
from petri.store.disk import on_disk
from petri.store.layout import BATCH_BYTES, BLOB, FOLDER, LIST, Piece, Record, body, contents_offset, list_of
from petri.store.packing import pack
from petri.store.packs import Span
from petri.store.reading import Opened
from petri.store.shelf import Shelf
from petri.store.table import Place
from petri.trees import ADDRESS_BYTES, Hashing, Link, decode


class Writing:
    """A session that puts objects into one tenant's store, in a `with`, by one thread at a time.

    What is put is there for this session at once and for everybody after `commit`. Leaving without one
    leaves the store as it was. What a session put or found is not swept while it goes on, and not for
    the grace period after.
    """

    def __init__(self, shelf: Shelf) -> None:
        self.began = shelf.now()
        self._shelf = shelf
        self._pending: dict[bytes, tuple[Record, bytes]] = {}
        self._pending_bytes = 0
        self._written: dict[bytes, Place] = {}
        self._spans: list[Span] = []
        self._is_over = False

    def __enter__(self) -> Self:
        self._shelf.begin(self)
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._is_over = True
        self._shelf.end(self, self._spans)

    def has(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return which of these objects are in the store, or were put in this session."""
        digests = {checked(digest) for digest in digests}
        own = {digest for digest in digests if digest in self._pending or digest in self._written}
        return own | self._shelf.has(digests - own)

    def put_blob(self, content: bytes, digest: bytes | None = None) -> bytes:
        """Have `content` in the store and return its digest; `Invalid` if that is not the one given."""
        return self._put(BLOB, content, digest)

    def put_folder(self, encoded: bytes, address: bytes | None = None) -> bytes:
        """Have a folder object in the store and return its address; `Invalid` if it is malformed.

        What is in the folder need not be there. What is there of it is not swept while this session goes on.
        """
        inside = [entry[0] for entry in decode(encoded).values() if not isinstance(entry, Link)]
        self._shelf.has(inside)
        return self._put(FOLDER, encoded, address)

    def put_file(self, descriptor: int, size: int, digest: bytes | None = None) -> bytes:
        """Have the first `size` bytes of an open file in the store and return their digest.

        Holds little of it in memory. `Conflict` if the file is shorter, `Invalid` if its digest is not the
        one given.
        """
        if size <= WHOLE_BYTES[BLOB]:
            return self._put(BLOB, b"".join(_windows(descriptor, size)), digest)
        return self._put_large(BLOB, _windows(descriptor, size), digest)

    def put_stream(self, content: Iterable[bytes], digest: bytes | None = None) -> bytes:
        """Have a content that comes piece by piece in the store and return its digest.

        Holds little of it in memory. `Invalid` if its digest is not the one given.
        """
        windows = _gathered(content)
        first = next(windows, b"")
        if len(first) <= WHOLE_BYTES[BLOB]:  # then it is the only one
            return self._put(BLOB, first, digest)
        return self._put_large(BLOB, chain((first,), windows), digest)

    def put_changed(self, old: Opened, made: Iterable[bytes | tuple[int, int]], digest: bytes) -> bytes:
        """Have a large content in the store that is made of new bytes and of parts of an old one.

        Returns its digest; `Invalid` if that is not the one given. A part is where it begins and where it
        ends. Pieces that come whole are neither cut nor stored again.
        """
        self._check()
        made_of = _MadeOf(self._put_piece)
        with Hashing(old.size) as hashing:
            for part in made:
                if isinstance(part, bytes):
                    hashing.update(part)
                    made_of.add(None, part)
                else:
                    for piece, content in old.parts(*part):
                        hashing.update(content)
                        made_of.add(piece, content)
            actual = _agreed(hashing.digest(), digest)
        if not self._holds(actual):
            self._keep(actual, BLOB, LIST, list_of(made_of.done()))
        return actual

    def _put_piece(self, content: bytes | memoryview) -> Piece:
        piece = Piece(len(content), blake3(content).digest())
        self._add(BLOB, piece.digest, content)
        return piece

    def commit(self) -> None:
        """Have all that was put on the disk, and there for everybody. May be called again after more.

        If the disk is full, nothing is there for others, and the session is over.
        """
        self._check()
        try:
            self._flush()
            self._shelf.publish(self._written.items(), self._spans)
        except BaseException:
            self._is_over = True
            raise
        self._written.clear()
        self._spans.clear()

    def _check(self) -> None:
        if self._is_over:
            raise Unavailable("this session of the store is over; begin another and put everything again")

    def _put(self, kind: int, content: bytes, digest: bytes | None) -> bytes:
        if len(content) > WHOLE_BYTES[kind]:
            view = memoryview(content)
            cuts = range(0, len(content), WINDOW_BYTES)
            return self._put_large(kind, (bytes(view[at : at + WINDOW_BYTES]) for at in cuts), digest)
        self._check()
        actual = _agreed(blake3(content).digest(), digest)
        self._add(kind, actual, content)
        return actual

    def _put_large(self, kind: int, windows: Iterable[bytes], digest: bytes | None) -> bytes:
        self._check()
        hasher = blake3()
        named = []
        for piece in pieces(kind, _hashed(hasher, windows)):
            named.append(self._put_piece(piece))
        actual = _agreed(hasher.digest(), digest)
        if not self._holds(actual):
            self._keep(actual, kind, LIST, list_of(named))
        return actual

    def _add(self, kind: int, digest: bytes, content: bytes | memoryview) -> None:
        if not self._holds(digest):
            stored, form = pack(content)
            self._keep(digest, kind, form, stored)

    def _holds(self, digest: bytes) -> bool:
        return digest in self._pending or digest in self._written or self._shelf.touch(digest)

    def _keep(self, digest: bytes, kind: int, form: int, stored: bytes) -> None:
        self._pending[digest] = Record(digest, kind, form, len(stored), self._shelf.now()), stored
        self._pending_bytes += len(stored)
        if self._pending_bytes >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write what is pending, in one batch."""
        if not self._pending:
            return
        batch = body(list(self._pending.values()))
        span = self._shelf.append(batch)
        self._spans.append(span)
        at = span.at + contents_offset(batch)
        for record, _ in self._pending.values():
            self._written[record.digest] = Place(
                span.pack.number, at, record.stored, record.kind, record.form
            )
            at += record.stored
        self._pending.clear()
        self._pending_bytes = 0


class _MadeOf:
    """The pieces of a content in the making: old ones as they come, and what lies between, cut anew."""

    def __init__(self, put: Callable[[memoryview], Piece]) -> None:
        self._put = put
        self._pieces: list[Piece] = []
        self._loose: list[bytes] = []
        self._loose_bytes = 0

    def add(self, piece: Piece | None, content: bytes) -> None:
        """Add a piece that is in the store, or a content that belongs to none."""
        if piece is not None:
            self._cut()
            self._pieces.append(piece)
            return
        self._loose.append(content)
        self._loose_bytes += len(content)
        if self._loose_bytes >= WINDOW_BYTES:
            self._cut()

    def done(self) -> list[Piece]:
        """Return them all."""
        self._cut()
        return self._pieces

    def _cut(self) -> None:
        self._pieces += [
            self._put(piece) for piece in pieces(BLOB, [b"".join(self._loose)] * bool(self._loose))
        ]
        self._loose, self._loose_bytes = [], 0


def checked(digest: bytes) -> bytes:
    """Return `digest` if it can be one, else raise `Invalid`."""
    if len(digest) != ADDRESS_BYTES:
        raise Invalid(f"a digest has {ADDRESS_BYTES} bytes, not {len(digest)}: {bytes(digest[:40]).hex()}")
    return digest


def _agreed(actual: bytes, said: bytes | None) -> bytes:
    if said is not None and actual != said:
        raise Invalid(f"the content has the digest {actual.hex()}, not {said.hex()} as was said")
    return actual


def _hashed(hasher: blake3, windows: Iterable[bytes]) -> Iterator[bytes]:
    for window in windows:
        hasher.update(window)
        yield window


def _gathered(content: Iterable[bytes]) -> Iterator[bytes]:
    """Yield `content` in windows; only the last may be short."""
    held: list[bytes] = []
    size = 0
    for piece in content:
        held.append(piece)
        size += len(piece)
        if size >= WINDOW_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _windows(descriptor: int, size: int) -> Iterator[bytes]:
    at = 0
    with on_disk():
        for window in windows(descriptor, size, WINDOW_BYTES):
            yield window
            at += len(window)
    if at < size:
        raise Conflict(f"the file was to have {size} bytes and ends after {at}; it changed meanwhile")
