"""One cell from the server's side: it stands and waits, takes one command, and is gone.

Whether it was made long before its command was known or a moment ago makes no difference in here: there is
one way a command runs.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable

from petri.engine import Ahead, Fallen, Leash, Output
from petri.engine.brief import brief, word
from petri.engine.process import Ending, Launcher
from petri.engine.wiring import Wiring
from petri.model import Command, Outcome, Usage
from petri.threads import first_of

_YOUNG_S = 0.5
"""What takes longer than this makes way for what may not: nobody waits for it with bated breath."""
_DRAIN_S = 2
"""With the cell gone its pipes end at once; this only bounds the unthinkable."""
_NO_SUCH_COMMAND, _CANNOT_RUN = 127, 126
"""What a shell answers, and so what programs expect."""


class StandingCell:
    """A cell that the launcher made. Whoever has it uses it once, or ends it."""

    def __init__(
        self,
        launcher: Launcher,
        wiring: Wiring,
        number: int,
        ending: asyncio.Future[Ending],
        ahead: Ahead | None,
        *,
        waits: bool,
    ) -> None:
        self._launcher = launcher
        self._wiring = wiring
        self._number = number
        self._ending = ending
        self._ahead = ahead
        self._waits = waits
        """Whether it makes way for those that do not wait for a command, until it has one."""
        self._briefed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting when it ends before it is used.
        ending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    @property
    def stands(self) -> bool:
        return not self._ending.done()

    def when_gone(self, tell: Callable[[], None]) -> None:
        self._ending.add_done_callback(lambda _: tell())

    async def made(self) -> None:
        await first_of(self._wiring.report.stands, self._ending, self._briefed)

    async def exec(
        self, command: Command, output: Output, leash: Leash, file_bytes: int | None = None
    ) -> Outcome:
        with self._wiring as wiring:
            begun = time.monotonic()
            self._briefed.set_result(None)
            if (quiet := leash.quiet) is not None:
                wiring.report.when_alone(lambda: self._be_quiet(begun, output, quiet))
            cut_short = await self._see_through(command, output, leash, file_bytes)
            took_ms = (time.monotonic() - begun) * 1e3
            await wiring.drained(_DRAIN_S)
        if not cut_short:
            return _ended(wiring, self._ending.result(), took_ms, output)
        return _cut_short(wiring, self._ending.result(), took_ms, cancelled=leash.cancelled.done())

    async def end(self) -> None:
        with self._wiring:
            if not self._ending.done():
                await self._launcher.see_ended(self._number, self._ending)

    def _be_quiet(self, begun: float, output: Output, quiet: asyncio.Future[Outcome]) -> None:
        """Say how the command ended, though the cell is not gone yet: what it used is all there is to ask."""
        if self._wiring.report.refused is not None:
            return  # what is to be said of that is said once, when the cell is gone
        took_ms = (time.monotonic() - begun) * 1e3
        spent = self._launcher.count(self._number)
        if spent is not None and not quiet.done():
            self._wiring.finish()
            quiet.set_result(_ended(self._wiring, spent, took_ms, output))

    async def _see_through(
        self, command: Command, output: Output, leash: Leash, file_bytes: int | None
    ) -> bool:
        """Return once the cell is gone; say whether it had to be ended."""
        ending = self._ending
        ageing = asyncio.get_running_loop().call_later(_YOUNG_S, self._launcher.age, self._number)
        try:
            self._wiring.tell(brief(command, self._ahead), command.stdin, output)
            if self._waits:
                self._launcher.hurry(self._number)
            await first_of(ending, leash.go, leash.cancelled)
            if not leash.cancelled.done():
                self._wiring.say(word(file_bytes))
            await first_of(ending, leash.cancelled, timeout_s=command.timeout_s)
            return not ending.done()
        finally:
            ageing.cancel()
            if not ending.done():
                await self._launcher.see_ended(self._number, ending)
            if ending.exception() is not None:
                # The launcher was lost. A new one first ends whatever the old one left behind.
                await self._launcher.start()


def _ended(wiring: Wiring, ending: Ending, took_ms: float, output: Output) -> Outcome:
    report = wiring.report
    if not report.begun:
        raise Fallen(wiring.complaints.decode(errors="replace"))
    usage = Usage(ending.cpu_ms, ending.peak_memory_bytes)
    if report.refused is not None:
        output("stderr", f"petri: the command could not be started: {os.strerror(report.refused)}\n".encode())
        code = _NO_SUCH_COMMAND if report.refused == 2 else _CANNOT_RUN
        return Outcome(took_ms, usage, exit_code=code)
    # A report that breaks off means that init itself was killed, which only the kernel's OOM killer does.
    status = int(signal.SIGKILL) if report.ended is None else report.ended
    if os.WIFSIGNALED(status):
        return Outcome(took_ms, usage, signal=os.WTERMSIG(status), oom_killed=ending.oom_killed)
    return Outcome(took_ms, usage, exit_code=os.WEXITSTATUS(status), oom_killed=ending.oom_killed)


def _cut_short(wiring: Wiring, ending: Ending, took_ms: float, *, cancelled: bool) -> Outcome:
    status = wiring.report.ended
    usage = Usage(ending.cpu_ms, ending.peak_memory_bytes)
    if status is not None and os.WIFEXITED(status):  # it ended by itself in the last instant
        return Outcome(took_ms, usage, exit_code=os.WEXITSTATUS(status))
    return Outcome(
        took_ms,
        usage,
        signal=int(signal.SIGKILL),
        timed_out=not cancelled,
        cancelled=cancelled,
        oom_killed=ending.oom_killed,
    )
