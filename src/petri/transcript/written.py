"""What a run wrote, to be read: out of its file, or out of the few frames of a short one."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from petri.errors import InvalidField
from petri.model import Stream
from petri.transcript.frames import Chunk, Read, chunks

BLOCK_BYTES = 1 << 16
"""What one who follows is given at a time, about: it waits in memory until that client has taken it."""
_READ_BYTES = 1 << 18
_CUT_BYTES = 3
"""What there can be at most of a UTF-8 character that is not whole."""


class Written:
    """One run's output as far as it is there: the file at a path, which need not exist, or frames in hand."""

    def __init__(self, source: Path | bytes) -> None:
        self._source = source

    def replay(self, position: int = 0) -> Iterator[Chunk]:
        """Yield everything from `position` on."""
        return self._chunks(position, _READ_BYTES)

    def block(self, position: int) -> list[Chunk]:
        """Return the next whole frames from `position` on, a block of them; none at the end."""
        found: list[Chunk] = []
        for chunk in self._chunks(position, BLOCK_BYTES):
            found.append(chunk)
            if chunk.position - position >= BLOCK_BYTES:
                break
        return found

    def before(self, position: int) -> dict[Stream, bytes]:
        """Return the last few bytes of each stream before `position`: enough to finish a cut character.

        `InvalidField` unless a frame ends there: inside of one the run's own output would be read as frames.
        """
        ends: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        reached = 0
        if position > 0:
            for chunk in self.replay():
                if chunk.position > position:
                    break
                reached = chunk.position
                ends[chunk.stream] = (ends[chunk.stream] + chunk.content)[-_CUT_BYTES:]
        if reached != position:
            raise InvalidField("from", f"{position} is no position of this run; take one from an event's id")
        return ends

    def stream(self, stream: Stream) -> Iterator[bytes]:
        """Yield the exact bytes of one stream."""
        return (chunk.content for chunk in self.replay() if chunk.stream == stream)

    def _chunks(self, position: int, read_bytes: int) -> Iterator[Chunk]:
        with _opened(self._source) as read:
            yield from chunks(read, position, read_bytes)


@contextmanager
def _opened(source: Path | bytes) -> Generator[Read]:
    if isinstance(source, bytes):
        yield lambda size, start: source[start : start + size]
        return
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield lambda _size, _start: b""
        return
    try:
        yield partial(os.pread, descriptor)
    finally:
        os.close(descriptor)
