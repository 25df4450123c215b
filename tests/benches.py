"""Every engine, with a place to run in. A new driver is one line in `DRIVERS`."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from benchmarks.footprint import launchers_of

from petri.engine import Ahead, Engine, Fallen, Leash, Output, Place
from petri.engine.bubblewrap import BubblewrapEngine, Setup
from petri.engine.fake import FakeEngine
from petri.errors import EngineFailed
from petri.model import Command, Limits, Outcome, Stream
from tests.programs import put_programs

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
PYTHON = "/usr/bin/python3"
LIMITS = Limits(cpus=1, memory_bytes=256 * 2**20, processes=64, timeout_s=10)
OWNER = 0x7000_0000 + os.getpid() if os.geteuid() == 0 else None
"""Another for each test process: several may run at once, and each looks for what is left of its own."""


class ParkedBubblewrap(BubblewrapEngine):
    """Every command is given to a cell that stood ready before: the second way to the same promises."""

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        program = command.argv[0]
        ahead = Ahead(PYTHON, "code") if program == PYTHON else None
        if ahead is None and program.endswith("sh"):  # one that makes way by exec
            ahead = Ahead(PYTHON, "file")
        # Or it would be a cell without a Python that is tested here, and nobody would know.
        assert ahead is None or await self._rehearsal.allows(PYTHON)
        cell = await self.park(place, ahead)
        try:
            return await cell.exec(command, output, leash, place.file_bytes)
        except Fallen as fallen:
            raise EngineFailed("it could not begin", detail=str(fallen)) from fallen


def _bubblewrap(home: Path, kind: type[BubblewrapEngine] = BubblewrapEngine) -> Engine:
    workspaces = home / "workspaces"
    workspaces.mkdir()
    workspaces.chmod(0o711)
    put_programs(home / "engine")
    environments = home / "environments"
    environments.mkdir(mode=0o711, exist_ok=True)
    setup = Setup(
        *(home / "engine", workspaces, home / "checkouts", environments),
        require_cgroups=os.geteuid() == 0,
    )
    return kind(setup)


def _parked(home: Path) -> Engine:
    return _bubblewrap(home, ParkedBubblewrap)


def _fake(home: Path) -> Engine:
    (home / "workspaces").mkdir()
    return FakeEngine()


def python_code(code: str, *args: str) -> tuple[str, ...]:
    return (PYTHON, "-c", code, *args)


def _sh(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


@dataclass(frozen=True)
class Driver:
    """An engine, and how to say things to it."""

    make: Callable[[Path], Engine]
    exits: Callable[[int], tuple[str, ...]]
    dies_of: Callable[[int], tuple[str, ...]]
    says: Callable[[str], tuple[str, ...]]
    complains: Callable[[str], tuple[str, ...]]
    sleeps: tuple[str, ...]
    echoes: tuple[str, ...]
    reads: Callable[[str], tuple[str, ...]]
    writes: Callable[[str, str], tuple[str, ...]]
    is_missing: tuple[str, ...]


DRIVERS = {
    "fake": Driver(
        make=_fake,
        exits=lambda code: ("fake", "exit", str(code)),
        dies_of=lambda number: ("fake", "signal", str(number)),
        says=lambda text: ("fake", "print", text),
        complains=lambda text: ("fake", "complain", text),
        sleeps=("fake", "sleep", "60"),
        echoes=("fake", "echo"),
        reads=lambda path: ("fake", "read", path),
        writes=lambda path, text: ("fake", "write", path, text),
        is_missing=("no-such-program",),
    ),
    "bubblewrap": Driver(
        make=_bubblewrap,
        exits=lambda code: _sh(f"exit {code}"),
        dies_of=lambda number: _sh(f"kill -{number} $$"),
        says=lambda text: ("/usr/bin/printf", "%s", text),
        complains=lambda text: ("/bin/sh", "-c", 'printf %s "$1" >&2', "sh", text),
        sleeps=("/usr/bin/sleep", "60"),
        echoes=("/usr/bin/cat",),
        reads=lambda path: ("/usr/bin/cat", path),
        writes=lambda path, text: ("/bin/sh", "-c", 'printf %s "$2" > "$1"', "sh", path, text),
        is_missing=("/no/such/program",),
    ),
}
DRIVERS["bubblewrap, parked"] = replace(DRIVERS["bubblewrap"], make=_parked)
DRIVERS["bubblewrap, Python parked"] = replace(
    DRIVERS["bubblewrap, parked"],
    exits=lambda code: python_code("import sys; sys.exit(int(sys.argv[1]))", str(code)),
    dies_of=lambda number: python_code("import os, sys; os.kill(os.getpid(), int(sys.argv[1]))", str(number)),
    says=lambda text: python_code("import sys; sys.stdout.write(sys.argv[1])", text),
    complains=lambda text: python_code("import sys; sys.stderr.write(sys.argv[1])", text),
    sleeps=python_code("import time; time.sleep(60)"),
    echoes=python_code("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"),
    reads=lambda path: python_code("import sys; sys.stdout.write(open(sys.argv[1]).read())", path),
    writes=lambda path, text: python_code(
        "import sys; open(sys.argv[1], 'w').write(sys.argv[2])", path, text
    ),
)
BOTH_WAYS = pytest.mark.parametrize("bench", ["bubblewrap", "bubblewrap, parked"], indirect=True)
"""For what bubblewrap in particular must do: in a cell that is made for a command, and in one that stood."""


@dataclass
class Bench:
    """An engine with a place to run in and a screen that remembers."""

    driver: Driver
    engine: Engine
    place: Place
    strangers: frozenset[int] = frozenset()
    """Launchers that this process had before: of a whole server that other tests use."""
    screen: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )

    def __post_init__(self) -> None:
        self.leash = Leash.loose()

    @property
    def launcher(self) -> int:
        """The process that owns the cells of this engine, and of no other."""
        (launcher,) = launchers_of(os.getpid()) - self.strangers
        return launcher

    def elsewhere(self, name: str) -> "Bench":
        """Return another place of the same engine, with a screen of its own."""
        return Bench(self.driver, self.engine, _place(self.place.folder.parent, name), self.strangers)

    async def run(self, argv: tuple[str, ...], *, timeout_s: float = 20, stdin: bytes = b"") -> Outcome:
        command = Command(argv, "/workspace", timeout_s, ENV, stdin)
        return await self.engine.exec(self.place, command, self.take, self.leash)

    def take(self, stream: Stream, chunk: bytes) -> None:
        self.screen[stream] += chunk

    async def has_begun(self) -> None:
        """Wait until a command that says so has begun."""
        while not self.screen["stdout"]:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.01)


PARKED = {name: [pytest.mark.long] if "parked" in name else [] for name in DRIVERS}
"""`make check` leaves the second way to `make test`."""
EACH_DRIVER = [pytest.param(name, marks=marks) for name, marks in PARKED.items()]


@pytest.fixture(params=EACH_DRIVER)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """One with an engine of its own, to kill or to look at from outside."""
    async with open_bench(DRIVERS[request.param], tmp_path) as bench:
        yield bench


@asynccontextmanager
async def open_bench(driver: Driver, home: Path) -> AsyncIterator[Bench]:
    """Hold open an engine, with all its walls, and a place in it."""
    (home / "checkouts").mkdir(mode=0o711)
    strangers = launchers_of(os.getpid())
    engine = driver.make(home)
    await engine.start()
    assert [layer.name for layer in await engine.layers() if layer.required and not layer.on] == []
    yield Bench(driver, engine, _place(home / "workspaces", "sb-test"), strangers)
    await engine.stop()


def _place(workspaces: Path, name: str) -> Place:
    folder = workspaces / name
    folder.mkdir(mode=0o700)
    if OWNER is not None:
        os.chown(folder, OWNER, OWNER)
    return Place(name, folder, OWNER, LIMITS)
