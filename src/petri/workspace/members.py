"""What an archive that somebody sent is made of, before any of it is believed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from petri.errors import Invalid, TooLarge

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Member:
    """One member, as the archive names it; `hardlink`'s target is the name of another member."""

    name: str
    kind: Literal["file", "folder", "link", "hardlink"]
    mode: int = 0o644
    target: str = ""


Members = Iterator[tuple[Member, Iterator[bytes]]]
"""Each member with its content, which must be read before the next member is asked for."""


class Flow:
    """Unpacked bytes as they come, from which exact amounts are taken. Bounded in all."""

    def __init__(self, chunks: Iterator[bytes], max_bytes: int) -> None:
        self._chunks = chunks
        self._left = max_bytes
        self._held = memoryview(b"")

    def some(self, at_most: int) -> bytes:
        """Return the next bytes, at least one; refuse if there are none."""
        while not self._held:
            chunk = self._next()
            if chunk is None:
                raise Invalid("the archive ends too early; send all of it")
            self._held = memoryview(chunk)
        taken, self._held = self._held[:at_most], self._held[at_most:]
        return bytes(taken)

    def stream(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes."""
        while size:
            piece = self.some(min(size, CHUNK_BYTES))
            size -= len(piece)
            yield piece

    def exactly(self, size: int) -> bytes:
        """Return the next `size` bytes; for small sizes."""
        return b"".join(self.stream(size))

    def skip(self, size: int) -> None:
        """Pass over the next `size` bytes."""
        for _ in self.stream(size):
            pass

    def drain(self) -> None:
        """Read to the end, for the checksum that compressed streams end with."""
        while self._next() is not None:
            pass

    def _next(self) -> bytes | None:
        chunk = next(self._chunks, None)
        self._left -= len(chunk or b"")
        if self._left < 0:
            raise TooLarge("the archive unpacks to more than is taken in one request; send less at once")
        return chunk
