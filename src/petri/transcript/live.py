"""A transcript that is being written, and those who follow it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from functools import cached_property
from pathlib import Path

from blake3 import blake3

from petri.model import Kept, Stream
from petri.threads import in_thread
from petri.transcript.frames import Chunk, frame
from petri.transcript.written import BLOCK_BYTES, Written

FEW_BYTES = 1 << 14
"""Frames of so much in all are few: the ledger takes them with the run's end, in a transaction that is on
its way to the disk anyway."""
_SOON_S = 0.1
"""After the first output: a run that is over by then needs no file."""


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
    """Takes a run's output on the event loop.

    As long as the frames are few they are in memory, all of them. A file is made as soon as they are not,
    and earlier so that a crash does not take them: when somebody follows, or a moment after the first.
    """

    def __init__(self, name: Callable[[], Path], kept_bytes: int) -> None:
        self._name = name
        self._limit = kept_bytes
        self._few: bytearray | None = bytearray()
        """Every frame so far; None once they are too many."""
        self._size = 0
        self._descriptor = -1
        self._in_file = 0
        """How much of that is in the file: all of it, unless the disk is full."""
        self._soon: asyncio.TimerHandle | None = None
        self._failed = False
        self._on_record = False
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

    @cached_property
    def _path(self) -> Path:
        """Where its file is: most have none, and to name one takes longer than to take what they write."""
        return self._name()

    def kept(self, stream: Stream) -> Kept:
        """Say what was written and what of it was kept."""
        return self._tallies[stream].kept()

    @property
    def few(self) -> bytes | None:
        """Every frame, if they are few: they go on record with the run's end. None if a file has them."""
        return None if self._few is None else bytes(self._few)

    def written(self) -> Written:
        """Return what came so far, to be shown: from now on a crash does not take it back."""
        self.survive()
        few = self.few
        return Written(self._path if few is None else few)

    def survive(self) -> None:
        """Have what came so far outlive this process, as far as the disk has room."""
        if self._few and self._descriptor < 0 and not (self._on_record or self._closed):
            self._to_file()

    def make_durable(self) -> None:
        """Have the file on disk before anybody is told that the run has ended. Blocks."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            sync_folder(self._path.parent)

    def on_record(self) -> None:
        """The ledger has the frames, if they are few: a file of theirs goes when this is closed."""
        self._on_record = True

    def close(self) -> None:
        """Take nothing more; whoever follows comes to the end. Closing twice is fine."""
        self.survive()  # unless it is on record, this is the last that is heard of it
        self._closed = True
        if self._soon is not None:
            self._soon.cancel()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._on_record and self._few is not None:
                self._path.unlink(missing_ok=True)
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
            return self.written().block(position)  # it came a moment ago: a thread would cost more
        return await in_thread(self.written().block, position)

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
        if self._few is not None and self._size + len(framed) <= FEW_BYTES:
            self._few += framed
            if self._descriptor >= 0:
                self._to_file()  # what it does not take now it is offered again
            elif self._soon is None:
                self._soon = asyncio.get_running_loop().call_later(_SOON_S, self.survive)
        elif self._to_file(framed):
            self._few = None
        else:
            self._failed = True
            return False
        self._size += len(framed)
        return True

    def _to_file(self, more: bytes = b"") -> bool:
        """Write what the file lacks, and `more`; all of it or nothing. Say whether the disk took it."""
        lacks = b"" if self._few is None else bytes(self._few[self._in_file :])
        try:
            if self._descriptor < 0:
                self._create()
            self._write(lacks + more)
        except OSError:
            return False
        self._in_file += len(lacks) + len(more)
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
            os.ftruncate(self._descriptor, self._in_file)  # never leave half a frame for others to read
            raise


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
