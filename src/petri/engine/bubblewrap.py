"""Unprivileged namespaces by bubblewrap. Weaker than gVisor: the host kernel is the wall."""

import asyncio
import hashlib
import os
import resource
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from petri.engine import Layer, Leash, Output, Place, rootfs, seccomp, walls
from petri.engine.confine import (
    ARGUMENTS_FD,
    GO_FD,
    INIT,
    MASKED,
    REPORT_FD,
    SECCOMP_FD,
    STATUS_FD,
    WORKSPACE,
    Walls,
    confine,
    readable,
)
from petri.engine.process import Ending, Launcher
from petri.engine.vigil import Vigil
from petri.engine.wiring import Wiring
from petri.errors import EngineFailed, PetriError, Unavailable
from petri.model import Command, Limits, Outcome, Stream, Usage

_TARGETS = [0, 1, 2, REPORT_FD, GO_FD, ARGUMENTS_FD, SECCOMP_FD, STATUS_FD]
_YOUNG_S = 0.5
"""What takes longer than this makes way for what may not: nobody waits for it with bated breath."""
_DRAIN_S = 2
"""With the cell gone its pipes end at once; this only bounds the unthinkable."""
_TRIAL = Limits(cpus=1, memory_bytes=256 * 2**20, processes=32, timeout_s=20)
_NO_SUCH_COMMAND, _CANNOT_RUN = 127, 126
"""What a shell answers, and so what programs expect."""


@dataclass(frozen=True, slots=True)
class Total:
    """What all cells together may use."""

    memory_bytes: int = 1 << 60
    processes: int = 1 << 22


@dataclass(frozen=True, slots=True)
class Setup:
    """What the engine must be told."""

    home: Path
    """A folder of the engine's own, for what is built at start."""
    workspaces: Path
    require_cgroups: bool = True
    total: Total = Total()


class BubblewrapEngine:
    """A fresh set of namespaces for each command, made by `bwrap`, owned by the launcher."""

    name = "bubblewrap"

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._bwrap = shutil.which("bwrap")
        self._rootfs = setup.home / "rootfs"
        self._filter = b""
        self._masked = readable(path for path, _ in MASKED)
        self._layers: Sequence[Layer] = ()
        self._vigil: Vigil
        self._launcher = Launcher(
            {
                "tag": _tag(setup.home),
                "memory": str(setup.home / "cgroups"),
                "private_view": os.geteuid() == 0,
                "total": asdict(setup.total),
                "folders": {"workspaces": str(setup.workspaces), "rootfs": str(self._rootfs)},
            }
        )

    async def start(self) -> None:
        program = self._build_program()
        filtered = self._build_filter()
        launched = await self._launch()
        entered = await self._try() if program.on and filtered.on and launched.on else walls.not_tried()
        limited = walls.cgroups(self._launcher.hello, required=self._setup.require_cgroups)
        self._vigil = Vigil(self._bwrap, self._rootfs, self._setup.home / "cgroups")
        self._layers = [program, launched, entered, filtered, limited, walls.own_uid()]

    async def stop(self) -> None:
        await self._launcher.stop()

    async def layers(self) -> Sequence[Layer]:
        return self._vigil.look(self._layers)

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        for layer in self._layers:
            if layer.required and not layer.on:
                raise Unavailable(walls.refusal(layer))
        return await self._exec(place, command, output, leash)

    async def _exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        arguments = os.fsencode("\0".join(self._arguments(place, command)) + "\0")
        with _wired(output, command.stdin, arguments, self._filter) as wiring:
            begun = time.monotonic()
            number, ending = await self._launcher.spawn(self._order(place, command), tuple(wiring.theirs))
            wiring.hand_over()
            ageing = asyncio.get_running_loop().call_later(_YOUNG_S, self._launcher.age, number)
            try:
                await _first(ending, leash.go, leash.cancelled)
                if not leash.cancelled.done():
                    wiring.go()
                await _first(ending, leash.cancelled, timeout_s=command.timeout_s)
                cut_short = not ending.done()
            finally:
                ageing.cancel()
                if not ending.done():
                    await self._launcher.see_ended(number, ending)
                if ending.exception() is not None:
                    # The launcher was lost. A new one first ends whatever the old one left behind.
                    await self._launcher.start()
            took_ms = (time.monotonic() - begun) * 1e3
            await wiring.drained(_DRAIN_S)
        if not cut_short:
            return _ended(wiring, ending.result(), took_ms, output)
        return _cut_short(wiring, ending.result(), took_ms, cancelled=leash.cancelled.done())

    def _order(self, place: Place, command: Command) -> dict[str, Any]:
        limits = place.limits
        return {
            "argv": [
                *(str(self._bwrap), "--args", str(ARGUMENTS_FD), "--", INIT, str(REPORT_FD), str(GO_FD)),
                *command.argv,
            ],
            "targets": _TARGETS,
            "uid": place.owner,
            "limits": {
                "cpus": limits.cpus,
                "memory_bytes": limits.memory_bytes,
                "processes": limits.processes,
            },
            "rlimits": [
                (resource.RLIMIT_NOFILE, limits.open_files),
                # A file larger than all the space there is, sparse or not, ends here and not on the disk.
                (resource.RLIMIT_FSIZE, limits.disk_bytes),
            ],
        }

    def _arguments(self, place: Place, command: Command) -> list[str]:
        found = Walls(
            folder=self._seen(place.folder),
            rootfs=self._seen(self._rootfs),
            masked=self._masked,
            # It is memory: a program that fills it is to be told so, not to be killed for it.
            tmp_bytes=min(place.limits.tmp_bytes, place.limits.memory_bytes // 2),
        )
        return confine(found, command.cwd, command.env)

    def _seen(self, folder: Path) -> str:
        """Return where the launcher sees `folder`."""
        view = self._launcher.hello.view
        if view is None:
            return str(folder)
        if folder.is_relative_to(self._rootfs):
            return f"{view}/rootfs/{folder.relative_to(self._rootfs)}"
        return f"{view}/workspaces/{folder.relative_to(self._setup.workspaces)}"

    def _build_program(self) -> Layer:
        if self._bwrap is None:
            return walls.no_bubblewrap()
        try:
            rootfs.build(self._rootfs)
        except PetriError as error:
            return walls.no_root(error)
        return walls.bubblewrap(self._bwrap)

    def _build_filter(self) -> Layer:
        try:
            self._filter = seccomp.program()
        except PetriError as error:
            return walls.no_seccomp(error)
        return walls.seccomp()

    async def _launch(self) -> Layer:
        if not self._rootfs.exists():
            return walls.no_launcher("a cell's root could not be built")
        try:
            await self._launcher.start()
        except PetriError as error:
            return walls.no_launcher(error.message)
        return walls.launcher()

    async def _try(self) -> Layer:
        """Make one cell: whether namespaces can be had is best asked of the kernel itself."""
        complaint = bytearray()

        def take(_: Stream, chunk: bytes) -> None:
            complaint.extend(chunk)

        place = Place("trial", self._rootfs / "workspace", walls.trial_uid(), _TRIAL)
        command = Command(("/usr/bin/true",), WORKSPACE, _TRIAL.timeout_s)
        try:
            outcome = await self._exec(place, command, take, Leash.loose())
        except PetriError as error:
            return walls.no_namespaces(error.detail or error.message)
        if outcome.exit_code != 0:
            return walls.no_namespaces(complaint.decode(errors="replace"))
        return walls.namespaces()


def _tag(home: Path) -> str:
    """Return a name for this server's cgroups: the same in every life, another for every home."""
    return "petri-" + hashlib.blake2s(str(home.resolve()).encode(), digest_size=6).hexdigest()


def _wired(output: Output, *inputs: bytes) -> Wiring:
    try:
        return Wiring(output, *inputs)
    except OSError as error:
        raise Unavailable(f"the server is out of means to start a cell: {error.strerror}") from error


async def _first(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


def _ended(wiring: Wiring, ending: Ending, took_ms: float, output: Output) -> Outcome:
    report = wiring.report
    if not report.begun:
        detail = wiring.complaints.decode(errors="replace")
        raise EngineFailed("the cell could not be made; the command was not started", detail=detail)
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
