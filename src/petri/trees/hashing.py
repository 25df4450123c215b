"""Digests of contents that come piece by piece; a large one is hashed by a second thread meanwhile."""

from types import TracebackType
from typing import Self

from blake3 import blake3

WORTH_A_THREAD = 16 * 2**20
"""Bytes. Less is hashed in the time that a thread takes to get going."""
_AT_ONCE = 2**20
"""Bytes that are handed over together: the two meet that often, and no more."""
_MOST_WAITING = 8


class Hashing:
    """A digest in the making, in a `with`. What is given to `update` must stay as it is until `digest`.

    `size` is how much is to come, roughly.
    """

    def __init__(self, size: int) -> None:
        self._hasher = blake3()
        self._helper = _Helper(self._hasher) if size >= WORTH_A_THREAD else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._helper is not None:
            self._helper.end()
            self._helper = None

    def update(self, piece: bytes | memoryview) -> None:
        """Take what comes next."""
        if self._helper is None:
            self._hasher.update(piece)
        else:
            self._helper.take(piece)

    def digest(self) -> bytes:
        """Return the digest of all that was taken."""
        if self._helper is not None:
            self._helper.end()
            self._helper = None
        return self._hasher.digest()


class _Helper:
    """The second thread. `end` waits until it has hashed everything, and is gone."""

    def __init__(self, hasher: blake3) -> None:
        # On use: most programs that need a digest never have so much to hash.
        from queue import SimpleQueue
        from threading import Semaphore, Thread

        self._hasher = hasher
        self._held: list[bytes | memoryview] = []
        self._held_bytes = 0
        self._handed: SimpleQueue[list[bytes | memoryview]] = SimpleQueue()
        self._room = Semaphore(_MOST_WAITING)
        self._thread = Thread(target=self._work, name="petri-hashing", daemon=True)
        self._thread.start()

    def take(self, piece: bytes | memoryview) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes >= _AT_ONCE:
            self._hand_over()

    def end(self) -> None:
        if self._held:
            self._hand_over()
        self._handed.put([])
        self._thread.join()

    def _hand_over(self) -> None:
        self._room.acquire()
        self._handed.put(self._held)
        self._held, self._held_bytes = [], 0

    def _work(self) -> None:
        while pieces := self._handed.get():
            for piece in pieces:
                self._hasher.update(piece)
            self._room.release()
