"""Records as a stream: compressed on the way out, bounded on the way in. Neither side holds a file in memory.

One zstd frame, or several. What a stream inflates to is bounded in all, and as a ratio to what came over the
line. An honest sender may have a gigabyte of zeros to send: it keeps to the ratio by sending more, in frames
that decompressors skip.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import zstandard

from petri.errors import Invalid, TooLarge
from petri.syncing.records import (
    LONGEST_FIELDS,
    End,
    Record,
    decode,
    encode,
    payload_length,
    read_varint,
)

PIECE_BYTES = 256 * 1024
"""Payloads are handed on in pieces of at most this."""
LARGEST_WINDOW = 64 * 2**20
LARGEST_RATIO = 1000
ALWAYS_ALLOWED = 64 * 2**20
"""A stream may inflate to this much, whatever the ratio."""
MUCH = 2**20
"""From this many bytes on, looking 8 MiB back is worth the memory."""

_SKIPPED_FRAME = b"\x50\x2a\x4d\x18"


class Source(Protocol):
    """Where a stream comes from."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, waiting for the first of them; none at the end."""


class Outgoing:
    """Records on their way out. `sink` gets compressed bytes; `end` must be called, or the stream is cut."""

    def __init__(self, sink: Callable[[bytes], object], *, level: int = 1, expected: int = 0) -> None:
        self._sink = sink
        self._compressor = zstandard.ZstdCompressor(compression_params=_parameters(level, expected))
        self._frame = self._compressor.compressobj()
        self._waiting: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self.bytes_in = 0
        """What the records have, and their payloads."""
        self.bytes_out = 0
        """What they were compressed to, so far."""

    def add(self, record: Record, payload: Iterable[bytes | memoryview] = ()) -> None:
        """Send one record; `Invalid` if its payload is not as long as it says."""
        for _ in self.adding(record, payload):
            pass

    def adding(self, record: Record, payload: Iterable[bytes | memoryview] = ()) -> Iterator[None]:
        """Send one record as `add` does, and let the caller do something else after every piece of it."""
        self._take(encode(record))
        left = payload_length(record)
        for piece in payload:
            left -= len(piece)
            self._take(piece)
            yield
        if left:
            raise Invalid(f"a payload is {abs(left)} bytes too {'long' if left < 0 else 'short'}: {record!r}")

    def flush(self) -> None:
        """Send all that was added, though more would compress better."""
        self._compress()
        self._send(self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))

    def end(self) -> None:
        """Send what is left and close the stream."""
        self._compress()
        self._send(self._frame.flush())

    def _take(self, data: bytes | memoryview) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= PIECE_BYTES:
            self._compress()

    def _compress(self) -> None:
        self.bytes_in += self._waiting_bytes
        self._send(self._frame.compress(b"".join(self._waiting)))
        self._waiting, self._waiting_bytes = [], 0
        if self.bytes_in > ALWAYS_ALLOWED // 2 + self.bytes_out * (LARGEST_RATIO - 200):
            self._pad()

    def _pad(self) -> None:
        self._send(self._frame.flush())
        # Twice what is needed: the next time is then as far away as all that was sent.
        padding = 2 * self.bytes_in // LARGEST_RATIO
        self._send(_SKIPPED_FRAME + padding.to_bytes(4, "little") + bytes(padding))
        self._frame = self._compressor.compressobj()

    def _send(self, data: bytes) -> None:
        if data:
            self.bytes_out += len(data)
            self._sink(data)


def compressed(
    said: Iterable[tuple[Record, Iterable[bytes]]], *, level: int = 1, expected: int = 0
) -> Iterator[bytes]:
    """Yield a stream of records and their payloads, as it is asked for; nothing is made before."""
    ready: list[bytes] = []
    outgoing = Outgoing(ready.append, level=level, expected=expected)
    for record, payload in said:
        for _ in outgoing.adding(record, payload):
            if ready:
                yield b"".join(ready)
                ready.clear()
    outgoing.end()
    yield b"".join(ready)


def _parameters(level: int, expected: int) -> zstandard.ZstdCompressionParameters:
    # Measured on 26 MB of source: threads and long-distance matching cost more time than they save bytes.
    if expected < MUCH:
        return zstandard.ZstdCompressionParameters.from_level(level)
    return zstandard.ZstdCompressionParameters.from_level(level, window_log=23)


class Incoming:
    """Records as they arrive: iterate over them, and take each one's payload before the next.

    Whatever arrives, this ends with `End` as the last record and of the stream, or raises `Invalid`;
    `TooLarge` beyond `most_bytes` of records and payloads. What `source.read` raises is passed on.
    """

    def __init__(self, source: Source, *, most_bytes: int) -> None:
        self._counted = _Counted(source)
        self._plain = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).stream_reader(
            self._counted,  # type: ignore[arg-type] # it reads, and that is all it is asked for
            read_across_frames=True,
        )
        self._most_bytes = most_bytes
        self._buffer = b""
        self._at = 0
        self._payload_left = 0
        self._number = 0
        self.bytes_out = 0
        """What has been inflated so far."""
        self.field_bytes = 0
        """What of that were fields, not payloads."""

    @property
    def bytes_in(self) -> int:
        """How many compressed bytes have been read so far."""
        return self._counted.count

    def __iter__(self) -> Iterator[Record]:
        while True:
            record = self._next()
            yield record
            for _ in self.payload():
                pass
            if isinstance(record, End):
                if self._at < len(self._buffer) or self._fill():
                    raise Invalid("there is more behind the End record, which is the last one")
                return

    def payload(self) -> Iterator[bytes]:
        """Yield the payload of the record that came last, piece by piece, each once."""
        while self._payload_left:
            if self._at == len(self._buffer) and not self._fill():
                raise Invalid(f"the stream ends within the payload of record {self._number}")
            piece = self._buffer[self._at : self._at + self._payload_left]
            self._at += len(piece)
            self._payload_left -= len(piece)
            yield piece

    def _next(self) -> Record:
        self._number += 1
        try:
            kind, fields = self._at_hand() or (self._take(1)[0], self._take(self._length()))
            record = decode(kind, fields)
        except EOFError:
            raise Invalid(f"the stream ends in record {self._number}, before an End record") from None
        except Invalid as error:
            raise Invalid(f"record {self._number} of the stream is malformed: {error.message}") from None
        self.field_bytes += len(fields)
        self._payload_left = payload_length(record)
        return record

    def _at_hand(self) -> tuple[int, bytes] | None:
        """Return the kind and the fields of the next record, if they are short and have come; most have."""
        buffer, at = self._buffer, self._at
        if len(buffer) - at < 3 or (length := buffer[at + 1]) >= 0x80:
            return None
        self._at = end = at + 2 + length
        if end > len(buffer):
            self._at = at
            return None
        return buffer[at], buffer[at + 2 : end]

    def _length(self) -> int:
        number = self._take(1)
        while number[-1] & 0x80 and len(number) < 4:
            number += self._take(1)
        length = LONGEST_FIELDS + 1 if number[-1] & 0x80 else read_varint(number, 0)[0]
        if length > LONGEST_FIELDS:
            raise Invalid(f"it has more than {LONGEST_FIELDS} bytes of fields")
        return length

    def _take(self, count: int) -> bytes:
        while len(self._buffer) - self._at < count:
            kept = self._buffer[self._at :]
            if not self._fill():
                raise EOFError
            self._buffer = kept + self._buffer
        self._at += count
        return self._buffer[self._at - count : self._at]

    def _fill(self) -> bool:
        """Put the next piece into the buffer, in place of what is there; say whether there was one."""
        try:
            self._buffer = self._plain.read(PIECE_BYTES)
        except zstandard.ZstdError as error:
            raise Invalid(f"the stream is not compressed as it should be: {error}") from None
        self._at = 0
        self.bytes_out += len(self._buffer)
        if self.bytes_out > self._most_bytes:
            raise TooLarge(f"the stream inflates to more than the {self._most_bytes} bytes that are allowed")
        if self.bytes_out > ALWAYS_ALLOWED + LARGEST_RATIO * self._counted.count:
            raise Invalid(f"the stream inflates to more than {LARGEST_RATIO} times its size")
        return bool(self._buffer)


class _Counted:
    """A source that counts."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.count = 0

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self.count += len(data)
        return data
