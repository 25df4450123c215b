"""Where source distributions are built: in cells, walled as every run is, and without a network.

Building is running a stranger's code, and unpacking may be a trick: both happen in there alone. The cell gets
the source distribution and, to read, what it takes to build it; it leaves files of known names. Whatever else
it did is gone with its folder.
"""

import asyncio
import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from petri.engine import Engine, Leash, Mount, Place
from petri.engine.process import count
from petri.environment.building import prefix, wheels
from petri.environment.building.failures import NO_SPACE, NotInstalled
from petri.environment.building.prefix import Interpreter
from petri.environment.building.shelf import Environment
from petri.environment.building.sources import BuildSystem, Says, read_says
from petri.environment.building.turns import Turns
from petri.errors import EngineFailed, Unavailable
from petri.model import Command, Limits, Outcome, Stream
from petri.threads import in_own_thread, settled

_PROGRAM = (Path(__file__).parents[2] / "cell" / "building.py").read_text(encoding="utf-8")
_AT_ONCE = 4
_BUILDERS = 0x0FFF_0000
"""Behind the owner of sandbox 0: by then a server has had 268 million sandboxes."""
_LOOK_S = 0.25
_LOOKS_FOR_A_COUNT = 8
_MOST_SAID, _MOST_LINES = 1_500, 12
_MOST_TEXT = 4 << 20
_MOST_NEEDS = 100
_NOT_LISTED = 0o311
"""Also not by its owner: where the server is no root, that is whom cells run as."""
LIMITS = Limits(
    cpus=2, memory_bytes=2 << 30, processes=256, timeout_s=600, disk_bytes=2 << 30, inodes=100_000
)
_ENV = {
    "PATH": f"{prefix.AT}/bin:/usr/local/bin:/usr/bin:/bin",
    **{"HOME": "/workspace", "LANG": "C.UTF-8", "VIRTUAL_ENV": prefix.AT},
    # The same source, built with the same, should come to the same wheel.
    **{"SOURCE_DATE_EPOCH": "315532800", "PYTHONHASHSEED": "0"},
}


class NotBuilt(Exception):
    """It did not come to a wheel. Says why, in its own last words where it has any."""


@dataclass(frozen=True, slots=True)
class Sdist:
    """A source distribution that was fetched, and how it is built."""

    path: Path
    system: BuildSystem
    tenant: str
    """For whom it is built."""


@dataclass(frozen=True, slots=True)
class _Plot:
    """What one cell has of the disk, and whose it is."""

    folder: Path
    owner: int | None


class Yard:
    """Builds in cells of `engine`; `raze` has a folder gone, whatever is in it.

    As root, what is built at one time belongs to as many owners, who have nothing else: those of sandboxes
    are counted from `owner`, and do not come as far as `_BUILDERS`.
    """

    def __init__(
        self,
        engine: Engine,
        shelf: Path,
        owner: int | None,
        raze: Callable[[Path], None],
        has_room: Callable[[], bool],
        limits: Limits = LIMITS,
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._raze = raze
        self._has_room = has_room
        self._limits = limits
        self._turns = Turns(_AT_ONCE)
        # Below the shelf, which cells can be given folders of.
        self._folder = shelf / ".building"
        self._folder.mkdir(exist_ok=True)  # and not anew: there may be no room for that
        self._clear()

    def _clear(self) -> None:
        """Have gone what was being built when an earlier life ended."""
        self._folder.chmod(stat.S_IRWXU)
        for left in self._folder.iterdir():
            with suppress(OSError):  # on a full disk it stays until the next life
                self._raze(left)
        self._folder.chmod(_NOT_LISTED)

    async def look(self, sdist: Sdist, interpreter: Interpreter) -> Says:
        """Return what a source distribution says of itself; nothing of it is run."""
        async with self._plot(sdist) as plot:
            await self._run(plot, (interpreter.path, "-I", "-S", "-c", _PROGRAM, "look"), ())
            try:
                return read_says(_read(plot.folder / "says.json", _MOST_TEXT))
            except ValueError as error:
                raise NotBuilt(str(error)) from error

    async def build(
        self, sdist: Sdist, environment: Environment, interpreter: Interpreter, wheel: Path, *, is_last: bool
    ) -> list[str]:
        """Have what `sdist` is built to at `wheel`, unchecked; or return what else that takes.

        It is not asked for more if `is_last`.
        """
        python = (f"{prefix.AT}/bin/python3", "-s", "-c", _PROGRAM)
        verb = "build again" if is_last else "build"
        mounts = (Mount(environment.folder / "prefix", prefix.AT),)
        async with self._plot(sdist) as plot:
            await self._run(plot, (*python, verb, sdist.system.text, *interpreter.packages), mounts)
            if not is_last and (plot.folder / "needs.json").exists():
                return _needs(_read(plot.folder / "needs.json", _MOST_TEXT))
            await in_own_thread(_take, plot.folder / "wheel", wheel)
            return []

    @asynccontextmanager
    async def _plot(self, sdist: Sdist) -> AsyncIterator[_Plot]:
        """Hold a folder for one cell, with a source distribution in it; nothing is left of it."""
        folder = self._folder / secrets.token_hex(16)
        async with self._turns.hold(sdist.tenant) as place:
            owner = None if self._owner is None else self._owner + _BUILDERS + place
            folder.mkdir(mode=0o700)
            try:
                await in_own_thread(shutil.copyfile, sdist.path, folder / "sdist")
                if owner is not None:
                    for each in (folder / "sdist", folder):
                        os.chown(each, owner, owner)
                yield _Plot(folder, owner)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise NotInstalled(NO_SPACE, is_passing=True) from error
            finally:
                await in_own_thread(self._raze, folder)

    async def _run(self, plot: _Plot, argv: tuple[str, ...], mounts: tuple[Mount, ...]) -> None:
        """Run our program in a cell over `plot`; `NotBuilt` unless it succeeds."""
        place = Place("building", plot.folder, plot.owner, self._limits, mounts)
        command = Command(argv, "/workspace", self._limits.timeout_s, _ENV)
        leash, said = Leash.loose(), _LastWords()
        why: list[str] = []
        watching = asyncio.ensure_future(self._watch(plot.folder, leash, why))
        try:
            outcome = await self._engine.exec(place, command, said, leash)
        except (Unavailable, EngineFailed) as error:
            raise NotInstalled(
                f"it would have to be built, and this server has no cell for that: {error.message}",
                is_passing=True,
            ) from error
        finally:
            watching.cancel()
            await settled(watching)
        if not self._has_room():
            raise NotInstalled(NO_SPACE, is_passing=True)
        if not outcome.is_success:
            raise NotBuilt(_ending(outcome, why, said.text, self._limits.timeout_s))

    async def _watch(self, plot: Path, leash: Leash, why: list[str]) -> None:
        """End a build that takes more of the disk than it may. Never raises but when it is cancelled."""
        looks = 0
        while not why:
            await asyncio.sleep(_LOOK_S)
            looks += 1
            if not self._has_room() or (looks % _LOOKS_FOR_A_COUNT == 0 and await self._is_too_much(plot)):
                why.append(f"it wrote more than {self._limits.disk_bytes >> 20} MiB, or too many files")
                if not leash.cancelled.done():
                    leash.cancelled.set_result(None)

    async def _is_too_much(self, plot: Path) -> bool:
        most = self._limits
        try:
            held = await in_own_thread(count, str(plot), most.disk_bytes, most.inodes)
        except Unavailable:
            return False  # it goes on changing; the next look may do better
        return held.disk_bytes > most.disk_bytes or held.inodes > most.inodes


class _LastWords:
    """Keeps the end of what a build writes."""

    def __init__(self) -> None:
        self._tail = b""

    def __call__(self, _stream: Stream, chunk: bytes, /) -> None:
        self._tail = (self._tail + chunk)[-4 * _MOST_SAID :]

    @property
    def text(self) -> str:
        lines = [line.rstrip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        said = "\n".join(lines[-_MOST_LINES:])[-_MOST_SAID:]
        return "".join(each if each.isprintable() or each == "\n" else "�" for each in said)


def _ending(outcome: Outcome, why: list[str], said: str, timeout_s: float) -> str:
    if outcome.timed_out:
        return f"it took longer than {timeout_s:g} s"
    if outcome.oom_killed:
        return "it took more memory than it may"
    return "; ".join([*why, *([said] if said else [])]) or "it did not say why"


def _read(path: Path, most_bytes: int) -> bytes:
    """Return what a cell left in a file; `NotBuilt` where it left anything else there, or too much."""
    with _opened(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise NotBuilt("it says too much of itself")
    return content


def _needs(text: bytes) -> list[str]:
    try:
        needs = json.loads(text)
    except (ValueError, RecursionError):
        needs = None
    if not isinstance(needs, list) or not 0 < len(needs) <= _MOST_NEEDS:
        raise NotBuilt("it does not say what else building it takes")
    return [str(each) for each in needs]


def _take(left: Path, wheel: Path) -> None:
    """Copy the wheel that a cell left, if it is a file and not too large."""
    size = 0
    with _opened(left) as file, wheel.open("xb") as copy:
        while piece := file.read(1 << 20):
            size += len(piece)
            if size > wheels.LARGEST:
                raise NotBuilt("what it was built to is too large")
            copy.write(piece)


def _opened(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotBuilt("it left no wheel") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotBuilt("it left no wheel")
    return os.fdopen(descriptor, "rb")
