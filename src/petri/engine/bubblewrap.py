"""Unprivileged namespaces by bubblewrap. Weaker than gVisor: the host kernel is the wall."""

import hashlib
import os
import resource
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from petri.engine import Ahead, Fallen, Layer, Leash, Output, Place, rootfs, walls
from petri.engine import ahead as early
from petri.engine.confine import ARGUMENTS_FD, INIT, MASKED, TARGETS, WORKSPACE, Walls, confine, readable
from petri.engine.process import Launcher
from petri.engine.rehearsal import Rehearsal
from petri.engine.standing import StandingCell
from petri.engine.vigil import Vigil
from petri.engine.wiring import Wiring
from petri.errors import EngineFailed, PetriError, Unavailable
from petri.model import Command, Limits, Outcome, Stream

_PLACES_IN_USE = 128
"""Places whose walls are remembered as words, each a kilobyte of them."""
_TRIAL = Limits(cpus=1, memory_bytes=256 * 2**20, processes=32, timeout_s=20)


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
    checkouts: Path
    environments: Path
    """Below these two lies whatever is mounted into cells beside their workspace."""
    lends_networks: bool = True
    """Whether a network may serve a sandbox's next cell; in vain where none is made soon after the last."""
    require_cgroups: bool = True
    total: Total = Total()


class BubblewrapEngine:
    """A fresh set of namespaces for each command, made by `bwrap`, owned by the launcher."""

    name = "bubblewrap"

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._bwrap = shutil.which("bwrap")
        self._rootfs = setup.home / "rootfs"
        self._folders = {
            "workspaces": str(setup.workspaces),
            "rootfs": str(self._rootfs),
            "checkouts": str(setup.checkouts),
            "environments": str(setup.environments),
        }
        """What cells see something of, by the name it has in the launcher's view."""
        self._counts_in_cells = walls.counts_in_cells()
        self._filter = b""
        self._masked = readable(path for path, _ in MASKED)
        self._layers: Sequence[Layer] = ()
        self._vigil: Vigil
        self._rehearsal = Rehearsal(lambda ahead: self._make(self._trial_place(), ahead))
        self._launcher = Launcher(
            {
                "tag": _tag(setup.home),
                "memory": str(setup.home / "cgroups"),
                "private_view": os.geteuid() == 0,
                "lends_networks": setup.lends_networks,
                "total": asdict(setup.total),
                "folders": self._folders,
            }
        )

    async def start(self) -> None:
        program = self._build_program()
        filtered = self._build_filter()
        launched = await self._launch()
        entered = await self._try() if program.on and filtered.on and launched.on else walls.not_tried()
        limited = walls.cgroups(self._launcher.hello, required=self._setup.require_cgroups)
        self._vigil = Vigil(self._bwrap, self._rootfs, self._setup.home / "cgroups")
        # A caller is told the first that is off: causes stand before what was not tried because of them.
        self._layers = [program, launched, filtered, entered, limited, walls.own_uid()]

    async def stop(self) -> None:
        await self._launcher.stop()

    async def layers(self) -> Sequence[Layer]:
        return self._vigil.look(self._layers)

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        self._refuse_without_walls()
        return await self._exec(place, command, output, leash)

    async def park(self, place: Place, ahead: Ahead | None) -> StandingCell:
        self._refuse_without_walls()
        if ahead is not None and not await self._rehearsal.allows(ahead.interpreter):
            ahead = None
        return await self._make(place, ahead, waits=True)

    def _refuse_without_walls(self) -> None:
        for layer in self._layers:
            if layer.required and not layer.on:
                raise Unavailable(walls.refusal(layer))

    async def _exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        cell = await self._make(place, None)
        try:
            return await cell.exec(command, output, leash, place.file_bytes)
        except Fallen as fallen:
            said = "the cell could not be made; the command was not started"
            raise EngineFailed(said, detail=str(fallen)) from fallen

    async def _make(self, place: Place, ahead: Ahead | None, *, waits: bool = False) -> StandingCell:
        wiring = _wired(self._arguments(place, ahead), self._filter)
        try:
            number, ending = await self._launcher.spawn(
                {**self._order(place, ahead), "waits": waits}, tuple(wiring.theirs)
            )
        except BaseException:
            wiring.close()
            raise
        wiring.hand_over()
        return StandingCell(self._launcher, wiring, number, ending, ahead, waits=waits)

    def _order(self, place: Place, ahead: Ahead | None) -> dict[str, Any]:
        limits = place.limits
        return {
            "argv": [
                str(self._bwrap),
                "--args",
                str(ARGUMENTS_FD),
                "--",
                *INIT,
                str(limits.processes if self._counts_in_cells else 0),
                *(early.words(ahead) if ahead else ()),
            ],
            "targets": TARGETS,
            "uid": place.owner,
            # By its folder: builds have one name for all tenants, and take turns as the same few owners.
            "network": f"{place.folder} {place.owner}" if self._launcher.hello.networks else None,
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

    def _arguments(self, place: Place, ahead: Ahead | None) -> bytes:
        found = Walls(
            folder=self._seen(place.folder),
            rootfs=self._seen(self._rootfs),
            masked=self._masked,
            # It is memory: a program that fills it is to be told so, not to be killed for it.
            tmp_bytes=min(place.limits.tmp_bytes, place.limits.memory_bytes // 2),
            mounts=tuple((self._seen(mount.folder), mount.at) for mount in place.mounts),
            links=tuple((link.target, link.at) for link in place.links),
            devices=self._launcher.hello.devices,
            own_network=not self._launcher.hello.networks,
        )
        # Links are a project's own, thousands perhaps, or a run's own: nobody would ask for them again.
        put = _put_into_words if found.links else _words_in_use
        return put(found, is_ahead=ahead is not None)

    def _seen(self, folder: Path) -> str:
        """Return where the launcher sees `folder`."""
        view = self._launcher.hello.view
        if view is None:
            return str(folder)
        place = str(folder)  # as text: three times a run, paths take a tenth of a millisecond
        name, root = next(each for each in self._folders.items() if f"{place}/".startswith(f"{each[1]}/"))
        return f"{view}/{name}{place.removeprefix(root)}"

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
            from petri.engine import seccomp  # only now: it loads a library that this host may lack

            self._filter = seccomp.program()
        except (ImportError, OSError, RuntimeError) as error:
            return walls.no_seccomp(Unavailable("libseccomp could not be loaded", detail=str(error)))
        except PetriError as error:
            return walls.no_seccomp(error)
        return walls.seccomp()

    async def _launch(self) -> Layer:
        if not self._rootfs.exists():
            return walls.nothing_to_launch()
        try:
            await self._launcher.start()
        except PetriError as error:
            return walls.no_launcher(error.message)
        return walls.launcher()

    def _trial_place(self) -> Place:
        return Place("trial", self._rootfs / "workspace", walls.trial_uid(), _TRIAL)

    async def _try(self) -> Layer:
        """Make one cell: whether namespaces can be had is best asked of the kernel itself."""
        complaint = bytearray()

        def take(_: Stream, chunk: bytes) -> None:
            complaint.extend(chunk)

        command = Command(("/usr/bin/true",), WORKSPACE, _TRIAL.timeout_s)
        try:
            outcome = await self._exec(self._trial_place(), command, take, Leash.loose())
        except PetriError as error:
            return walls.no_namespaces(error.detail or error.message)
        if outcome.exit_code != 0:
            return walls.no_namespaces(complaint.decode(errors="replace"))
        return walls.namespaces()


def _put_into_words(found: Walls, *, is_ahead: bool) -> bytes:
    """Return the arguments of `bwrap` as it reads them from a file."""
    return os.fsencode("\0".join(confine(found, early.ENV if is_ahead else {})) + "\0")


_words_in_use = lru_cache(_PLACES_IN_USE)(_put_into_words)
"""The same, remembered: a sandbox has the same walls around each of its cells."""


def _tag(home: Path) -> str:
    """Return a name for this server's cgroups: the same in every life, another for every home."""
    return "petri-" + hashlib.blake2s(str(home.resolve()).encode(), digest_size=6).hexdigest()


def _wired(*inputs: bytes) -> Wiring:
    try:
        return Wiring(*inputs)
    except OSError as error:
        raise Unavailable(f"the server is out of means to start a cell: {error.strerror}") from error
