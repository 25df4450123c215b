"""The format of a transcript: one byte for the stream, four for the length, then the bytes."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from petri.model import Stream

Read = Callable[[int, int], bytes]
"""Gives so many bytes from an offset on, or fewer at the end, as pread(2) does."""

_HEAD = struct.Struct("<BI")
_STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
_LARGEST = 1 << 20

HEAD_BYTES = _HEAD.size


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some output, and the position right behind it."""

    stream: Stream
    content: bytes
    position: int


def frame(stream: Stream, content: bytes) -> bytes:
    """Return `content` as it stands in a transcript."""
    return _HEAD.pack(_STREAMS.index(stream), len(content)) + content


def chunks(read: Read, position: int, read_bytes: int) -> Iterator[Chunk]:
    """Yield every whole frame from `position` on; an unfinished or damaged one is the end of it."""
    window, start = b"", position
    while more := read(read_bytes, start + len(window)):
        window, used = window + more, 0
        while len(window) - used >= HEAD_BYTES:
            kind, length = _HEAD.unpack_from(window, used)
            if kind >= len(_STREAMS) or length > _LARGEST:
                return
            end = used + HEAD_BYTES + int(length)
            if end > len(window):
                break
            yield Chunk(_STREAMS[kind], window[used + HEAD_BYTES : end], start + end)
            used = end
        window, start = window[used:], start + used
