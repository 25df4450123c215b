"""An engine that runs nothing: it plays the ending you ask for. Ships with Petri, for tests.

Understands `("fake", VERB, ...)`:

    exit CODE           ends with that exit code
    signal NUMBER       ends by that signal
    print TEXT          writes TEXT to stdout and exits 0
    complain TEXT       writes TEXT to stderr and exits 0
    echo                writes its stdin to stdout
    sleep SECONDS       takes that long
    break               the engine itself fails

Anything else is a command that does not exist: exit code 127.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from petri.engine import Layer, Leash, Output, Place
from petri.errors import EngineFailed
from petri.model import Command, Outcome, Usage

_NOTHING = Usage(cpu_ms=0, peak_memory_bytes=0)
_SIGKILL = 9


class FakeEngine:
    """Every outcome and error within reach, and no isolation: it starts no process at all."""

    name = "fake"

    def __init__(self) -> None:
        self.running = 0

    async def start(self) -> None:
        self.running = 0

    async def stop(self) -> None:
        pass

    async def layers(self) -> Sequence[Layer]:
        return [Layer("nothing", True, "this engine runs no code, so there is nothing to keep in")]

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        begun = time.monotonic()
        self.running += 1
        try:
            await asyncio.wait((leash.go, leash.cancelled), return_when=asyncio.FIRST_COMPLETED)
            if leash.cancelled.done():
                return Outcome(0, _NOTHING, signal=_SIGKILL, cancelled=True)
            outcome = await self._play(command, output, leash.cancelled)
        finally:
            self.running -= 1
        return replace(outcome, duration_ms=(time.monotonic() - begun) * 1e3)

    async def _play(self, command: Command, output: Output, cancelled: asyncio.Future[None]) -> Outcome:
        match command.argv:
            case ("fake", "exit", code):
                return Outcome(0, _NOTHING, exit_code=int(code))
            case ("fake", "signal", number):
                return Outcome(0, _NOTHING, signal=int(number))
            case ("fake", "print", text):
                output("stdout", text.encode())
            case ("fake", "complain", text):
                output("stderr", text.encode())
            case ("fake", "echo"):
                output("stdout", command.stdin)
            case ("fake", "sleep", seconds):
                return await _sleep(float(seconds), command.timeout_s, cancelled)
            case ("fake", "break"):
                raise EngineFailed("the fake engine was told to fail")
            case _:
                return Outcome(0, _NOTHING, exit_code=127)
        return Outcome(0, _NOTHING, exit_code=0)


async def _sleep(seconds: float, timeout_s: float, cancelled: asyncio.Future[None]) -> Outcome:
    await asyncio.wait((cancelled,), timeout=min(seconds, timeout_s))
    if cancelled.done():
        return Outcome(0, _NOTHING, signal=_SIGKILL, cancelled=True)
    if seconds > timeout_s:
        return Outcome(0, _NOTHING, signal=_SIGKILL, timed_out=True)
    return Outcome(0, _NOTHING, exit_code=0)
