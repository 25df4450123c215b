"""Reading a cell's pipes without ever waiting for them to close."""

import asyncio
import os
from collections.abc import Callable

_CHUNK_BYTES = 262_144
_SMALL_BYTES = 4096
_SOME_SMALL = 100
_PAUSE_S = 0.002
"""A program that writes byte by byte would keep the server busy with every one of them. After so many small
pieces, each is followed by a pause in which more can gather: 500 a second is quick enough for any eye."""


class Tap:
    """Hands on what comes out of a pipe, on the event loop, until it ends or is closed.

    Always reads, whatever becomes of the bytes: a command that floods its pipes is drained, not stuck.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._small = 0
        self._taken = 0
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._ready)

    def close(self) -> None:
        """Stop reading. Closing twice is fine."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            if self._pause is not None:
                self._pause.cancel()
            os.close(self._descriptor)
            self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def exhaust(self) -> None:
        """Take everything that is there right now: whoever could write more is gone."""
        before = -1
        while self._descriptor >= 0 and self._taken != before:
            before = self._taken
            self._ready()

    def hurry(self) -> None:
        """Go on at once: there is an end to come to."""
        if self._pause is not None and self._descriptor >= 0:
            self._pause.cancel()
            self._go_on()

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._descriptor, self._ready)

    def _ready(self) -> None:
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
            return
        self._taken += len(chunk)
        self._take(chunk)
        self._small = self._small + 1 if len(chunk) < _SMALL_BYTES else 0
        if self._small > _SOME_SMALL and self._pause is None:
            self._loop.remove_reader(self._descriptor)
            self._pause = self._loop.call_later(_PAUSE_S, self._go_on)
