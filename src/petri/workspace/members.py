"""What an archive that somebody sent is made of, before any of it is believed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from petri.errors import Invalid, TooLarge
from petri.workspace.errand import Errand
from petri.workspace.plan import Bounds

CHUNK_BYTES = 1 << 18
_HEADERS_PER_FILE = 4
"""Its own, a pax header, and a long name and link as GNU has them; no tool writes more for one member."""
_MORE_HEADERS = 16
"""For what stands before the first member, such as the comment that git writes."""
_ANY_BYTES = 64 << 20
"""What every archive may unpack to, however small it is."""
_MOST_TIMES = 200
"""Beyond that, how many times its own size. Text shrinks to a tenth or a fiftieth, a bomb to a thousandth."""
_HEADER_BYTES = 512


@dataclass(frozen=True, slots=True)
class Member:
    """One member, as the archive names it; `hardlink`'s target is the name of another member."""

    name: str
    kind: Literal["file", "folder", "link", "hardlink"]
    mode: int = 0o644
    target: str = ""


Members = Iterator[tuple[Member, Iterator[bytes]]]
"""Each member with its content, which must be read before the next member is asked for."""


class Allowance:
    """What unpacking one archive may cost, counted as it is spent; and whether it is still wanted.

    Headers and padding count too: nothing in an archive is read for free.
    """

    def __init__(self, bounds: Bounds, packed_bytes: int, errand: Errand) -> None:
        self._errand = errand
        self._packed_bytes = packed_bytes
        self._most_headers = bounds.max_files * _HEADERS_PER_FILE + _MORE_HEADERS
        self._headers_left = self._most_headers
        overhead = self._most_headers * 2 * _HEADER_BYTES  # one more for what follows: a name, or padding
        self._bytes_left = bounds.max_upload_bytes + overhead
        self._times_left = max(_ANY_BYTES, _MOST_TIMES * packed_bytes)

    def header(self) -> None:
        """Allow for one more header or member."""
        self._errand.check()
        self._headers_left -= 1
        if self._headers_left < 0:
            raise TooLarge(
                f"the archive has more than {self._most_headers} headers; send it in smaller parts"
            )

    def spend(self, size: int) -> None:
        """Allow for `size` more bytes that came out of the archive."""
        self._errand.check()
        self._bytes_left -= size
        self._times_left -= size
        if self._bytes_left < 0:
            raise TooLarge("the archive unpacks to more than is taken in one request; send less at once")
        if self._times_left < 0:
            raise TooLarge(
                f"the archive unpacks to more than {_MOST_TIMES} times its own {self._packed_bytes} bytes, "
                "as bombs do; send the files as they are"
            )


class Flow:
    """Unpacked bytes as they come, from which exact amounts are taken. Bounded in all."""

    def __init__(self, chunks: Iterator[bytes], allowance: Allowance) -> None:
        self._chunks = chunks
        self.allowance = allowance
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
        self.allowance.spend(len(chunk or b""))
        return chunk
