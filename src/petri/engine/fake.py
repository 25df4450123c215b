"""An engine that runs nothing: it plays the ending you ask for. Ships with Petri, for tests.

Understands `("fake", VERB, ...)`:

    exit CODE           ends with that exit code
    signal NUMBER       ends by that signal
    print TEXT          writes TEXT to stdout and exits 0
    complain TEXT       writes TEXT to stderr and exits 0
    echo                writes its stdin to stdout
    read PATH           writes what is in that file of the cell to stdout
    write PATH TEXT     puts TEXT into that file of the cell, if it may
    sleep SECONDS       takes that long
    break               the engine itself fails

Anything else is a command that does not exist: exit code 127.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from petri.engine import Ahead, Fallen, Layer, Leash, Output, Place
from petri.errors import EngineFailed
from petri.model import Command, Outcome, Usage

_NOTHING = Usage(cpu_ms=0, peak_memory_bytes=0)
_SIGKILL = 9
_WORKSPACE = "/workspace"


class FakeEngine:
    """Every outcome and error within reach, and no isolation: it starts no process at all."""

    name = "fake"

    def __init__(self) -> None:
        self.running = 0
        self.standing: list[FakeCell] = []

    async def start(self) -> None:
        self.running = 0

    async def stop(self) -> None:
        pass

    async def layers(self) -> Sequence[Layer]:
        return [Layer("nothing", True, "this engine runs no code, so there is nothing to keep in")]

    async def park(self, place: Place, ahead: Ahead | None) -> "FakeCell":
        cell = FakeCell(self, place, ahead)
        await asyncio.sleep(0)  # a real one takes a while, and others go on meanwhile
        self.standing.append(cell)
        return cell

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        begun = time.monotonic()
        self.running += 1
        try:
            await asyncio.wait((leash.go, leash.cancelled), return_when=asyncio.FIRST_COMPLETED)
            if leash.cancelled.done():
                return Outcome(0, _NOTHING, signal=_SIGKILL, cancelled=True)
            outcome = await self._play(place, command, output, leash.cancelled)
        finally:
            self.running -= 1
        return replace(outcome, duration_ms=(time.monotonic() - begun) * 1e3)

    async def _play(
        self, place: Place, command: Command, output: Output, cancelled: asyncio.Future[None]
    ) -> Outcome:
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
            case ("fake", "read", path):
                return _read(place, path, output)
            case ("fake", "write", path, text):
                return _write(place, path, text)
            case ("fake", "sleep", seconds):
                return await _sleep(float(seconds), command.timeout_s, cancelled)
            case ("fake", "break"):
                raise EngineFailed("the fake engine was told to fail")
            case _:
                return Outcome(0, _NOTHING, exit_code=127)
        return Outcome(0, _NOTHING, exit_code=0)


def _read(place: Place, path: str, output: Output) -> Outcome:
    for link in place.links:
        if f"{path}/".startswith(f"{link.at}/"):
            path = f"{link.target}{path.removeprefix(link.at)}"
    for folder, at in ((place.folder, _WORKSPACE), *((each.folder, each.at) for each in place.mounts)):
        if path.startswith(f"{at}/") and (folder / path.removeprefix(f"{at}/")).is_file():
            output("stdout", (folder / path.removeprefix(f"{at}/")).read_bytes())
            return Outcome(0, _NOTHING, exit_code=0)
    return Outcome(0, _NOTHING, exit_code=1)


def _write(place: Place, path: str, text: str) -> Outcome:
    """Only the workspace can be written to, as in any cell."""
    if not path.startswith(f"{_WORKSPACE}/"):
        return Outcome(0, _NOTHING, exit_code=1)
    (place.folder / path.removeprefix(f"{_WORKSPACE}/")).write_text(text)
    return Outcome(0, _NOTHING, exit_code=0)


async def _sleep(seconds: float, timeout_s: float, cancelled: asyncio.Future[None]) -> Outcome:
    await asyncio.wait((cancelled,), timeout=min(seconds, timeout_s))
    if cancelled.done():
        return Outcome(0, _NOTHING, signal=_SIGKILL, cancelled=True)
    if seconds > timeout_s:
        return Outcome(0, _NOTHING, signal=_SIGKILL, timed_out=True)
    return Outcome(0, _NOTHING, exit_code=0)


class FakeCell:
    """A cell that stands, unless somebody says that it has fallen, or will."""

    def __init__(self, engine: FakeEngine, place: Place, ahead: Ahead | None) -> None:
        self.place = place
        self.ahead = ahead
        self.stands = True
        self.falls = False
        """Whether it will be gone when its command is to begin, though it seems to stand."""
        self.may_go = asyncio.Event()
        """Cleared, it is not gone before this is set."""
        self.may_go.set()
        self.is_made = asyncio.Event()
        """Cleared, it takes processors until this is set."""
        self.is_made.set()
        self._engine = engine
        self._gone: list[Callable[[], None]] = []

    def when_gone(self, tell: Callable[[], None]) -> None:
        self._gone.append(tell)

    async def made(self) -> None:
        await self.is_made.wait()

    def fall(self) -> None:
        """Be gone, and have everybody told who wants to know."""
        self.stands = False
        for tell in self._gone:
            tell()

    async def exec(
        self, command: Command, output: Output, leash: Leash, file_bytes: int | None = None
    ) -> Outcome:
        self._engine.standing.remove(self)
        if self.falls:
            raise Fallen("it was knocked over")
        return await self._engine.exec(replace(self.place, file_bytes=file_bytes), command, output, leash)

    async def end(self) -> None:
        self.stands = False
        await self.may_go.wait()
        self._engine.standing.remove(self)
