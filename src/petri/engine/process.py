"""Our own processes: the launcher, the compiler for a cell's `init`, and who counts a large workspace.

Only this module and `tools`, which is for installers, start any on the server. Everything else runs inside
cells, and cells are the launcher's.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from petri import tally
from petri.engine.confine import WORKSPACE
from petri.errors import EngineFailed, Unavailable
from petri.launcher import cgroups, protocol
from petri.tally import Tally
from petri.threads import settled

_SOURCE = Path(__file__).parents[2]
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from petri.launcher.main import main; main()"
_HELLO_S = 15
_GOODBYE_S = 15
_COMPILE_S = 60
_COUNT_S = 120
_AGAIN_S = 0.05
_ANSWER_S = 15
"""A killed cell is gone within milliseconds, and a launcher that is asked answers at once; one that says
nothing for so long is stuck."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a cell ended, as the launcher saw it, or what it has used so far."""

    wait_status: int | None
    """None before it has ended."""
    cpu_ms: float
    peak_memory_bytes: int
    oom_killed: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """What the launcher found on this host."""

    cgroups: int | None
    """The version of cgroups it uses; None when it cannot use them."""
    missing: str | None
    """Why it cannot."""
    view: str | None
    """Where the configured folders lie in its own mount namespace, if it has one."""
    devices: str | None
    """Where a `/dev` for cells lies there, if it could make one."""
    networks: bool = False
    """Whether it makes the networks of cells; if not, bubblewrap does."""


class Launcher:
    """The server's end of the launcher: starts it, talks to it, and starts it anew should it die."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._numbers = itertools.count(1)
        self._endings: dict[int, asyncio.Future[Ending]] = {}
        self._hierarchy: cgroups.Hierarchy | None = None
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()
        self._heard_at = 0.0
        self.hello = Hello(None, "the launcher has not started", None, None)

    async def start(self) -> None:
        """Start the launcher unless it runs, and wait until it is ready."""
        async with self._starting:
            if self._channel is None:
                await self._start()

    async def spawn(
        self, order: dict[str, Any], descriptors: tuple[int, ...]
    ) -> tuple[int, asyncio.Future[Ending]]:
        """Start a cell; return its number and the future of its ending."""
        if self._channel is None:
            await self.start()
        assert self._channel is not None
        number = next(self._numbers)
        ending = asyncio.get_running_loop().create_future()
        self._endings[number] = ending
        try:
            order = {"do": "spawn", "id": number, **order}
            protocol.send(self._channel, order, descriptors, socket.MSG_DONTWAIT)
        except BlockingIOError as error:
            self._endings.pop(number, None)
            raise Unavailable("the launcher has more orders than it can take; try again") from error
        except OSError as error:
            self._endings.pop(number, None)
            raise EngineFailed("the launcher did not take the command", detail=str(error)) from error
        return number, ending

    def kill(self, number: int) -> None:
        """Ask for the end of a cell; its ending still comes by its future."""
        self._tell("kill", number)

    def age(self, number: int) -> None:
        """Have a cell make way for younger ones."""
        self._tell("age", number)

    def count(self, number: int) -> Ending | None:
        """Return what a cell has used so far; None where nobody counts, or if it is gone already.

        Looked up by ourselves: asking the launcher would take longer than all there is to gain.
        """
        if self._hierarchy is None:
            return None
        spent = self._hierarchy.spent(cgroups.name_of(number))
        is_known = spent.cpu_ms > 0 and spent.peak_memory_bytes > 0
        return Ending(None, spent.cpu_ms, spent.peak_memory_bytes, spent.oom_killed) if is_known else None

    def hurry(self, number: int) -> None:
        """Have a cell that waited come before those that still do. It is a courtesy, and may fail.

        We do so ourselves, which is sooner. One that the launcher has not set aside yet, or not even made, is
        left to it: it would do that afterwards, and the run would wait for a pause of the whole machine.
        """
        if self._hierarchy is not None:
            with contextlib.suppress(OSError):
                if self._hierarchy.come_first(cgroups.name_of(number)):
                    return
            self._tell("hurry", number)

    def _tell(self, what: str, number: int) -> None:
        if number in self._endings and not self._send({"do": what, "id": number}):
            asyncio.get_running_loop().call_later(_AGAIN_S, self._tell, what, number)

    def _send(self, order: dict[str, Any]) -> bool:
        """Send a short order; False if there is no room for it now. A launcher that is gone needs none."""
        if self._channel is not None:
            try:
                protocol.send(self._channel, order, (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                self._lost(str(error))
        return True

    async def see_ended(self, number: int, ending: asyncio.Future[Ending]) -> None:
        """Kill a cell and wait until it is gone. A launcher that does not answer is itself ended.

        The next one then ends whatever it left: nobody waits for ever, and nothing is left behind. One that
        answers is left alone: it has other cells, and goes on killing this one.
        """
        self.kill(number)
        self._doubt(ending, asked_at=self._ask())
        await settled(ending)

    def _ask(self) -> float:
        """Ask the launcher whether it lives; return when. Whatever it says is an answer."""
        self._send({"do": "ask"})
        return time.monotonic()

    def _doubt(self, ending: asyncio.Future[Ending], asked_at: float) -> None:
        """Look after a while whether a launcher that was asked has answered, for as long as that matters."""

        def look() -> None:
            if self._heard_at < asked_at and self._process is not None:
                self._process.send_signal(signal.SIGUSR1)  # its keeper then ends it, and what it leaves
                insisting = loop.call_later(_ANSWER_S, self._process.kill)  # that one may be stopped as well
                ending.add_done_callback(lambda _: insisting.cancel())
            else:
                self._doubt(ending, asked_at=self._ask())

        loop = asyncio.get_running_loop()
        looking = loop.call_later(_ANSWER_S, look)
        ending.add_done_callback(lambda _: looking.cancel())

    async def stop(self) -> None:
        """Close the line: the launcher ends every cell and then itself. Returns when it is gone."""
        process, self._process = self._process, None
        self._lost("the server is stopping")
        if process is not None:
            await asyncio.to_thread(_await_end, process)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self._process is not None:
            await asyncio.to_thread(_await_end, self._process)
        argv = [sys.executable, "-I", "-S", "-c", _BOOT, str(_SOURCE), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - vfork and exec, done in a millisecond
                argv,
                stdin=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        protocol.send(ours, self._settings)
        ours.settimeout(_HELLO_S)
        try:
            said = await asyncio.to_thread(protocol.receive, ours)
        except OSError as error:
            said = None
            detail = str(error)
        else:
            detail = "it ended"
        if said is None:
            message = "the launcher could not be started; the server's log says why"
            await self._refuse_to_be_without(ours, message, detail)
        if said[0]["says"] == "unable":
            await self._refuse_to_be_without(ours, f"the launcher {said[0]['why']}", "")
        self._ready(ours, said[0])

    async def _refuse_to_be_without(self, ours: socket.socket, message: str, detail: str) -> Never:
        ours.close()
        assert self._process is not None
        await asyncio.to_thread(_await_end, self._process)
        raise Unavailable(message, detail=detail)

    def _ready(self, channel: socket.socket, said: dict[str, Any]) -> None:
        channel.setblocking(False)
        self._hierarchy = cgroups.known(said["groups"])
        self.hello = Hello(said["cgroups"], said["missing"], said["view"], said["devices"], said["networks"])
        self._channel = channel
        asyncio.get_running_loop().add_reader(channel, self._hear)

    def _hear(self) -> None:
        assert self._channel is not None
        try:
            received = protocol.receive(self._channel, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(str(error))
            return
        self._heard_at = time.monotonic()
        if received is None:
            self._lost("it ended")
        else:
            self._settle(received[0])

    def _settle(self, said: dict[str, Any]) -> None:
        ending = self._endings.pop(said["id"], None)
        if ending is None or ending.done():
            return
        if said["says"] == "failed":
            ending.set_exception(EngineFailed("the cell could not be started", detail=said["why"]))
            return
        ending.set_result(
            Ending(said["status"], said["cpu_ms"], said["peak_memory_bytes"], said["oom_killed"])
        )

    def _lost(self, why: str) -> None:
        """Forget a launcher that is gone. Its cells die with it or by its keeper, before there is another."""
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()
            self._channel = None
        endings, self._endings = self._endings, {}
        for ending in endings.values():
            if not ending.done():
                ending.set_exception(EngineFailed("the launcher was lost while the command ran", detail=why))


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_GOODBYE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def count(folder: str, most_bytes: int, most_inodes: int) -> Tally:
    """Count what a folder holds, and what its cells have deleted and still hold, until it is more. Blocks."""
    asked = {"folder": folder, "within": WORKSPACE, "most_bytes": most_bytes, "most_inodes": most_inodes}
    argv = [sys.executable, "-I", "-S", tally.__file__, json.dumps(asked)]
    try:
        done = subprocess.run(argv, env={}, capture_output=True, timeout=_COUNT_S, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", None) or b""
        raise Unavailable("a workspace could not be counted", detail=f"{error} {said.decode()}") from error
    return Tally(**json.loads(done.stdout))


def compile_program(compilers: Sequence[str], source: Path, target: Path) -> None:
    """Build the freestanding C program `source` with the first of `compilers` that can."""
    complaints = []
    for compiler in compilers:
        argv = [compiler, "-static", "-nostdlib", "-fno-stack-protector", "-o", str(target), str(source)]
        done = subprocess.run(argv, capture_output=True, timeout=_COMPILE_S, check=False)
        if done.returncode == 0:
            return
        complaints.append(done.stderr.decode(errors="replace"))
    raise Unavailable(
        "no C compiler on this host could build a cell's programs", detail="\n".join(complaints)
    )
