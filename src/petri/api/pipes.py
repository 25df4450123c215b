"""A body on its way from the event loop to the thread that reads it, a little at a time."""

import asyncio
import queue
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from petri.operations.sync_request import BrokenOff
from petri.threads import begun_in_thread, settled

_MOST_WAITING = 1 << 20
"""Bytes that wait to be read, and one piece more."""

T = TypeVar("T")


async def while_it_comes(request: Request, read: Callable[["Pipe"], T]) -> T:
    """Return what `read` makes of the body, in a thread, while it comes.

    On every way out the thread is done. One whose request breaks off is told by `BrokenOff`, and then so is
    whoever called this, as `ClientDisconnect`.
    """
    pipe = Pipe()
    reading = begun_in_thread(read, pipe)
    filling = asyncio.ensure_future(pipe.fill(request.stream()))
    reading.add_done_callback(lambda _: filling.cancel())  # it may have had enough before the end
    try:
        await asyncio.wait((filling,))
    finally:
        filling.cancel()
        await settled(reading)
    try:
        return reading.result()
    except BrokenOff:
        raise ClientDisconnect from None


class Pipe:
    """Read in a thread, filled from the event loop; neither runs far ahead of the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._rest = b""
        self._waiting = 0
        self._has_room = asyncio.Event()
        self._is_over = False

    async def fill(self, body: AsyncIterator[bytes]) -> None:
        """Put in everything that `body` brings; whatever breaks it off is passed on as `BrokenOff`."""
        last: bytes | None = None
        try:
            async for piece in body:
                if piece:
                    await self._put(piece)
            last = b""
        except ClientDisconnect:
            pass
        finally:
            self._pieces.put(last)

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, waiting for the first of them; none at the end. In the thread."""
        if not self._rest and not self._is_over:
            piece = self._pieces.get()
            if piece is None:
                raise BrokenOff
            self._is_over = not piece
            self._rest = piece
            self._loop.call_soon_threadsafe(self._took, len(piece))
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    async def _put(self, piece: bytes) -> None:
        self._pieces.put(piece)
        self._waiting += len(piece)
        while self._waiting > _MOST_WAITING:
            self._has_room.clear()
            await self._has_room.wait()

    def _took(self, size: int) -> None:
        self._waiting -= size
        self._has_room.set()
