"""A transcript that is being written, and those who follow it."""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from blake3 import blake3

from petri.model import Kept, Stream
from petri.threads import in_thread
from petri.transcript.frames import BLOCK_BYTES, Chunk, block, frame


class _Tally:
    """What one stream came to so far."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.kept_bytes = 0
        self._digest = blake3()

    def keep(self, content: bytes) -> None:
        self.kept_bytes += len(content)
        self._digest.update(content)

    def kept(self) -> Kept:
        return Kept(self.total_bytes, self.kept_bytes, self._digest.hexdigest())


class Transcript:
    """Takes a run's output on the event loop; the file is made with the first byte."""

    def __init__(self, path: Path, kept_bytes: int) -> None:
        self._path = path
        self._limit = kept_bytes
        self._descriptor = -1
        self._size = 0
        self._failed = False
        self._tallies: dict[Stream, _Tally] = {"stdout": _Tally(), "stderr": _Tally()}
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False

    def __call__(self, stream: Stream, content: bytes, /) -> None:
        """Take one chunk. Never raises: a full disk costs the rest of the output, not the run."""
        tally = self._tallies[stream]
        tally.total_bytes += len(content)
        content = content[: max(0, self._limit - tally.kept_bytes)]
        if content and not self._failed and self._append(frame(stream, content)):
            tally.keep(content)
            self._wake()

    def kept(self, stream: Stream) -> Kept:
        """Say what was written and what of it was kept."""
        return self._tallies[stream].kept()

    def make_durable(self) -> None:
        """Have everything on disk before anybody is told that the run has ended. Blocks."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            sync_folder(self._path.parent)

    def close(self) -> None:
        """Take nothing more; whoever follows comes to the end. Closing twice is fine."""
        self._closed = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._wake()

    async def follow(self, position: int, silence_s: float | None = None) -> AsyncGenerator[Chunk | None]:
        """Yield everything from `position` on, as it comes, until the transcript is closed.

        Whenever nothing came for `silence_s`, yields None.
        """
        while True:
            closed = self._closed  # asked before reading: what came before the end is then read too
            found = await self._read(position)
            for chunk in found:
                position = chunk.position
                yield chunk
            if not found:
                if closed:
                    return
                if not await self._changed(silence_s):
                    yield None

    async def _read(self, position: int) -> list[Chunk]:
        """Return the next block, so that one follower cannot hold up the event loop."""
        behind = self._size - position
        if behind <= 0:
            return []
        if behind <= BLOCK_BYTES:
            return block(self._path, position)  # it was written a moment ago: a thread would cost more
        return await in_thread(block, self._path, position)

    async def _changed(self, silence_s: float | None) -> bool:
        """Wait until there is more, or no more to come; say whether that was in time."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(silence_s):
                await waiting
        except TimeoutError:
            return False
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        return True

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def _append(self, framed: bytes) -> bool:
        try:
            if self._descriptor < 0:
                self._create()
            self._write(framed)
        except OSError:
            self._failed = True
            return False
        self._size += len(framed)
        return True

    def _create(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)

    def _write(self, framed: bytes) -> None:
        view = memoryview(framed)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            os.ftruncate(self._descriptor, self._size)  # never leave half a frame for others to read
            raise


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
