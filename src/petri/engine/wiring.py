"""The descriptors between the server and one cell, and what comes back over them."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Self

from petri.engine import Output
from petri.engine.taps import Tap


class Report:
    """What a cell's `init` says of the command (see `cell/init.c`)."""

    def __init__(self) -> None:
        self._said = bytearray()
        self.take = self._said.extend

    @property
    def begun(self) -> bool:
        """Whether the cell was complete and the command about to start."""
        return self._said.startswith(b"S")

    @property
    def refused(self) -> int | None:
        """The errno with which the command could not be started."""
        return self._record(b"X")

    @property
    def ended(self) -> int | None:
        """How the command ended, as wait(2) has it."""
        return self._record(b"E")

    def _record(self, kind: bytes) -> int | None:
        for start in range(1, len(self._said) - 4, 5):
            if self._said[start : start + 1] == kind:
                return int.from_bytes(self._said[start + 1 : start + 5], "little")
        return None


class Wiring:
    """Pipes for the output and the report, memory files for what goes in. Closed on every way out."""

    def __init__(self, output: Output, stdin: bytes, *inputs: bytes) -> None:
        self.report = Report()
        self.complaints = bytearray()
        """What bubblewrap itself wrote to stderr, before the command began."""
        self._output = output
        self.theirs: list[int] = []
        """What the cell inherits: stdin, stdout, stderr, the report, the go, then `inputs`."""
        self._go = -1
        self._taps: list[Tap] = []
        try:
            self.theirs.append(filled(stdin) if stdin else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
            self._stdout = self._pipe(lambda chunk: output("stdout", chunk))
            self._stderr = self._pipe(self._take_stderr)
            self._reports = self._pipe(self.report.take)
            reading, self._go = os.pipe2(os.O_CLOEXEC)
            self.theirs.append(reading)
            self.theirs += [filled(content) for content in inputs]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def go(self) -> None:
        """Let the command start. A cell that is gone by now is no concern of ours."""
        if self._go >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._go, b"G")

    def hand_over(self) -> None:
        """Close our copies of what the cell now holds, so that its end is seen as an end."""
        while self.theirs:
            os.close(self.theirs.pop())

    async def drained(self, within_s: float) -> None:
        """Wait until every pipe has ended, but no longer than `within_s`."""
        for tap in self._taps:
            tap.hurry()
        await asyncio.wait([tap.ended for tap in self._taps], timeout=within_s)

    def close(self) -> None:
        """Close everything. Closing twice is fine."""
        self.hand_over()
        if self._go >= 0:
            os.close(self._go)
            self._go = -1
        for tap in self._taps:
            tap.close()

    def _pipe(self, take: Callable[[bytes], None]) -> Tap:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self.theirs.append(writing)
        tap = Tap(reading, take)
        self._taps.append(tap)
        return tap

    def _take_stderr(self, chunk: bytes) -> None:
        # The report of a beginning is written before the command can write anything.
        if not self.report.begun:
            self._reports.poll()
        if self.report.begun:
            self._output("stderr", chunk)
        else:
            self.complaints += chunk


def filled(content: bytes) -> int:
    """Return the descriptor of a memory file with `content`, at its beginning."""
    descriptor = os.memfd_create("petri", os.MFD_CLOEXEC)
    try:
        written = 0
        while written < len(content):
            written += os.pwrite(descriptor, memoryview(content)[written:], written)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
