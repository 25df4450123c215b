"""The format of a transcript: one byte for the stream, four for the length, then the bytes."""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from petri.model import Stream

_HEAD = struct.Struct("<BI")
_STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
_LARGEST = 1 << 20
_READ_BYTES = 1 << 18
BLOCK_BYTES = 1 << 16
"""What one who follows is given at a time, about: it waits in memory until that client has taken it."""

HEAD_BYTES = _HEAD.size


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some output, and the position right behind it."""

    stream: Stream
    content: bytes
    position: int


def frame(stream: Stream, content: bytes) -> bytes:
    """Return `content` as it stands in the file."""
    return _HEAD.pack(_STREAMS.index(stream), len(content)) + content


def block(path: Path, position: int) -> list[Chunk]:
    """Return the next whole frames of a file from `position` on, a block of them; none at its end."""
    found: list[Chunk] = []
    with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
        for chunk in chunks(file.fileno(), position, BLOCK_BYTES):
            found.append(chunk)
            if chunk.position - position >= BLOCK_BYTES:
                break
    return found


def chunks(descriptor: int, position: int, read_bytes: int = _READ_BYTES) -> Iterator[Chunk]:
    """Yield every whole frame from `position` on; an unfinished or damaged one is the end of it."""
    window, start = b"", position
    while more := os.pread(descriptor, read_bytes, start + len(window)):
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
