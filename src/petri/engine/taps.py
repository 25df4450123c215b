"""Reading a cell's pipes without ever waiting for them to close."""

import asyncio
import os
from collections.abc import Callable

_CHUNK_BYTES = 262_144


class Tap:
    """Hands on what comes out of a pipe, on the event loop, until it ends or is closed.

    Always reads, whatever becomes of the bytes: a command that floods its pipes is drained, not stuck.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._ready)

    def close(self) -> None:
        """Stop reading. Closing twice is fine."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def poll(self) -> None:
        """Take what is there right now, before the event loop would come round to it."""
        if self._descriptor >= 0:
            self._ready()

    def _ready(self) -> None:
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self._take(chunk)
        else:
            self.close()
