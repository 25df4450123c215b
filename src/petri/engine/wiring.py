"""The descriptors between the server and one cell, and what comes back over them."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Self

from petri.engine import Output
from petri.engine.brief import BEGUN, READ_IT
from petri.engine.taps import Tap

_RECORD_BYTES = 5
"""A letter and a number."""
_ALONE, _REFUSED, _ENDED = b"AXE"
_BRIEF = 1
"""Where it comes among our ends of what is told to the cell."""


class Report:
    """What a cell's `init` says of the command (see `cell/init.c`)."""

    def __init__(self) -> None:
        self.begun = False
        """Whether the cell was complete and the command about to start, as far as anybody has looked."""
        self._said = bytearray()
        self._records: dict[int, int] = {}
        """What was said of each kind, by its letter. What is said first holds."""
        self._on_alone: Callable[[], None] | None = None
        self.stands: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once there is nothing left to do in the cell before the word."""

    def take(self, chunk: bytes) -> None:
        """Hear some more of it."""
        self._said += chunk
        if self._said.startswith(b"P"):
            del self._said[:1]
            self.stands.set_result(None)
        while len(self._said) >= _RECORD_BYTES:
            kind, value = self._said[0], self._said[1:_RECORD_BYTES]
            self._records.setdefault(kind, int.from_bytes(value, "little"))
            del self._said[:_RECORD_BYTES]
        if self._on_alone is not None and self.is_alone:
            tell, self._on_alone = self._on_alone, None
            tell()

    def when_alone(self, tell: Callable[[], None]) -> None:
        """Have `tell` called once the command has ended and nobody else is left in the cell."""
        self._on_alone = tell

    @property
    def is_alone(self) -> bool:
        """Whether the command has ended and nobody else was left in the cell then."""
        return _ALONE in self._records

    @property
    def refused(self) -> int | None:
        """The errno with which the command could not be started."""
        return self._records.get(_REFUSED)

    @property
    def ended(self) -> int | None:
        """How the command ended, as wait(2) has it."""
        return self._records.get(_ENDED)


class Wiring:
    """Pipes for the output and the report, memory files for what goes in. Closed on every way out."""

    def __init__(self, *inputs: bytes) -> None:
        self.report = Report()
        self.complaints = bytearray()
        """What bubblewrap itself wrote to stderr, before the command began."""
        self._output: Output = _nobody
        self.theirs: list[int] = []
        """What the cell inherits: stdin, stdout, stderr, the report, the go, `inputs`, brief and input."""
        self._ours: list[int] = []
        """Our ends of what is told to the cell: the go, the brief, the command's input."""
        self._taps: list[Tap] = []
        try:
            self.theirs.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
            self._pipe(lambda chunk: self._output("stdout", chunk))
            self._pipe(self._take_stderr)
            self._pipe(self.report.take)
            reading, writing = os.pipe2(os.O_CLOEXEC)
            self.theirs.append(reading)
            self._ours.append(writing)
            self.theirs += [filled(content) for content in inputs]
            for _ in ("brief", "input"):
                self._ours.append(filled(b""))
                self.theirs.append(self._ours[-1])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, brief: bytes, stdin: bytes, output: Output) -> None:
        """Say what the command is, and where what it writes goes. It does not start before it is told to."""
        self._output = output
        _, described, fed = self._ours
        fill(described, brief)
        fill(fed, stdin)
        self.say(READ_IT)

    def say(self, word: bytes) -> None:
        """Tell the cell that it may read, or that the command may start. One that is gone does not matter."""
        if self._ours:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._ours[0], word)

    def hand_over(self) -> None:
        """Close our copies of what the cell now holds, so that its end is seen as an end."""
        while self.theirs:
            if (held := self.theirs.pop()) not in self._ours:
                os.close(held)

    def finish(self) -> None:
        """Take all that was written, now that nobody is left to write more, and listen no longer.

        Each pipe would have an end of its own to wake up for, while the cell is taken apart.
        """
        self._look_whether_begun()
        for tap in self._taps:
            tap.exhaust()
            tap.close()

    async def drained(self, within_s: float) -> None:
        """Wait until every pipe has ended, but no longer than `within_s`."""
        self._look_whether_begun()
        for tap in self._taps:
            tap.hurry()
        if open_yet := [tap.ended for tap in self._taps if not tap.ended.done()]:
            await asyncio.wait(open_yet, timeout=within_s)

    def close(self) -> None:
        """Close everything. Closing twice is fine."""
        self.hand_over()
        while self._ours:
            os.close(self._ours.pop())
        for tap in self._taps:
            tap.close()

    def _pipe(self, take: Callable[[bytes], None]) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self.theirs.append(writing)
        self._taps.append(Tap(reading, take))

    def _take_stderr(self, chunk: bytes) -> None:
        # That a command begins is marked before it can write anything.
        self._look_whether_begun()
        if self.report.begun:
            self._output("stderr", chunk)
        else:
            self.complaints += chunk

    def _look_whether_begun(self) -> None:
        if not self.report.begun and self._ours:
            self.report.begun = os.pread(self._ours[_BRIEF], len(BEGUN), 0) == BEGUN


def filled(content: bytes) -> int:
    """Return the descriptor of a memory file with `content`, at its beginning."""
    descriptor = os.memfd_create("petri", os.MFD_CLOEXEC)
    try:
        fill(descriptor, content)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def fill(descriptor: int, content: bytes) -> None:
    """Put `content` into an empty memory file, and stay at its beginning."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, memoryview(content)[written:], written)


def _nobody(_stream: str, _chunk: bytes) -> None:
    """Take what is written before there is a command: nothing, or the last words of a cell that failed."""
