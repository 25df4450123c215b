"""What every engine promises. A new driver is one line in `DRIVERS`."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from benchmarks.footprint import launchers_of

from petri.engine import Ahead, Engine, Fallen, Leash, Link, Mount, Output, Place
from petri.engine.ahead import HOOK
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


def _python(code: str, *args: str) -> tuple[str, ...]:
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
    exits=lambda code: _python("import sys; sys.exit(int(sys.argv[1]))", str(code)),
    dies_of=lambda number: _python("import os, sys; os.kill(os.getpid(), int(sys.argv[1]))", str(number)),
    says=lambda text: _python("import sys; sys.stdout.write(sys.argv[1])", text),
    complains=lambda text: _python("import sys; sys.stderr.write(sys.argv[1])", text),
    sleeps=_python("import time; time.sleep(60)"),
    echoes=_python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"),
    reads=lambda path: _python("import sys; sys.stdout.write(open(sys.argv[1]).read())", path),
    writes=lambda path, text: _python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", path, text),
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
"""An engine is made anew for every test, so `make check` leaves the second way to `make test`."""


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, marks in PARKED.items()])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    driver = DRIVERS[request.param]
    (tmp_path / "checkouts").mkdir(mode=0o711)
    strangers = launchers_of(os.getpid())
    engine = driver.make(tmp_path)
    await engine.start()
    assert [layer.name for layer in await engine.layers() if layer.required and not layer.on] == []
    folder = tmp_path / "workspaces" / "sb-test"
    folder.mkdir(mode=0o700)
    if OWNER is not None:
        os.chown(folder, OWNER, OWNER)
    yield Bench(driver, engine, Place("sb-test", folder, OWNER, LIMITS), strangers)
    await engine.stop()


@pytest.mark.parametrize("code", [0, 1, 125, 137, 255])
async def test_an_exit_code_is_reported_as_it_was(bench: Bench, code: int) -> None:
    outcome = await bench.run(bench.driver.exits(code))

    assert (outcome.exit_code, outcome.signal) == (code, None)


@pytest.mark.parametrize("number", [6, 9, 11, 15])
async def test_a_signal_is_not_an_exit_code(bench: Bench, number: int) -> None:
    outcome = await bench.run(bench.driver.dies_of(number))

    assert (outcome.exit_code, outcome.signal) == (None, number)


async def test_stdout_and_stderr_are_kept_apart(bench: Bench) -> None:
    await bench.run(bench.driver.says("out"))
    await bench.run(bench.driver.complains("err"))

    assert bench.screen == {"stdout": b"out", "stderr": b"err"}


async def test_stdin_reaches_the_command(bench: Bench) -> None:
    await bench.run(bench.driver.echoes, stdin=b"\0\xff in" * 100_000)

    assert bench.screen["stdout"] == b"\0\xff in" * 100_000


async def test_a_missing_program_is_an_exit_code_and_not_an_error(bench: Bench) -> None:
    outcome = await bench.run(bench.driver.is_missing)

    assert outcome.exit_code == 127


async def test_time_that_is_up_ends_the_command(bench: Bench) -> None:
    begun = time.monotonic()
    outcome = await bench.run(bench.driver.sleeps, timeout_s=0.3)

    assert outcome.timed_out
    assert (outcome.exit_code, outcome.signal, outcome.cancelled) == (None, 9, False)
    assert time.monotonic() - begun < 5


async def test_a_command_can_be_cancelled_and_says_so(bench: Bench) -> None:
    asyncio.get_running_loop().call_later(0.2, bench.leash.cancelled.set_result, None)
    outcome = await bench.run(bench.driver.sleeps)

    assert outcome.cancelled
    assert (outcome.exit_code, outcome.timed_out) == (None, False)


async def test_a_command_does_not_start_before_it_may(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    bench.leash = Leash(loop.create_future(), loop.create_future())
    async with asyncio.TaskGroup() as runs:
        run = runs.create_task(bench.run(bench.driver.says("out")))
        await asyncio.sleep(0.5)
        said_before = bytes(bench.screen["stdout"])
        bench.leash.go.set_result(None)

    assert said_before == b""
    assert bench.screen["stdout"] == b"out"
    assert run.result().exit_code == 0


async def test_a_command_that_was_never_allowed_can_be_cancelled(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    bench.leash = Leash(loop.create_future(), loop.create_future())
    loop.call_later(0.3, bench.leash.cancelled.set_result, None)
    outcome = await bench.run(bench.driver.says("out"))

    assert outcome.cancelled
    assert bench.screen["stdout"] == b""


async def test_cancelling_the_call_ends_the_command_before_it_returns(bench: Bench) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await bench.run(bench.driver.sleeps)

    assert b"sleep" not in _commands_of(OWNER)


async def test_many_cells_at_once_do_not_mix(bench: Bench) -> None:
    screens: list[bytes] = []

    async def one(number: int) -> None:
        said = bytearray()
        command = Command(bench.driver.says(f"cell {number}"), "/workspace", 20, ENV)
        await bench.engine.exec(bench.place, command, lambda _, chunk: said.extend(chunk), bench.leash)
        screens.append(bytes(said))

    async with asyncio.TaskGroup() as all_cells:
        for number in range(8):
            all_cells.create_task(one(number))

    assert sorted(screens) == [f"cell {number}".encode() for number in range(8)]


async def test_what_is_mounted_can_be_read_and_not_written(bench: Bench) -> None:
    seen = bench.place.folder.parents[1] / "checkouts" / "a" / "tree"
    seen.mkdir(parents=True)
    (seen / "notes.txt").write_text("as it was")
    (seen / "notes.txt").chmod(0o666)
    bench.place = replace(bench.place, mounts=(Mount(seen, "/peers/writer"),))

    read = await bench.run(bench.driver.reads("/peers/writer/notes.txt"))
    wrote = await bench.run(bench.driver.writes("/peers/writer/notes.txt", "otherwise"))
    added = await bench.run(bench.driver.writes("/peers/writer/new.txt", "otherwise"))

    assert read.exit_code == 0
    assert bench.screen["stdout"] == b"as it was"
    assert wrote.exit_code != 0
    assert added.exit_code != 0
    assert [file.read_text() for file in seen.iterdir()] == ["as it was"]


async def test_a_link_leads_to_what_is_mounted_now(bench: Bench) -> None:
    seen = bench.place.folder.parents[1] / "checkouts" / "links"
    for name in ("one", "two"):
        (seen / name).mkdir(parents=True)
        (seen / name / "notes.txt").write_text(name)
    (seen / "current").symlink_to("one")
    links = (Link("/peers/links/current", "/here"), Link("/nowhere", "/there"))
    bench.place = replace(bench.place, mounts=(Mount(seen, "/peers/links"),), links=links)

    await bench.run(bench.driver.reads("/here/notes.txt"))
    (seen / "next").symlink_to("two")
    (seen / "next").rename(seen / "current")
    await bench.run(bench.driver.reads("/here/notes.txt"))
    nothing = await bench.run(bench.driver.reads("/there/notes.txt"))

    assert bench.screen["stdout"] == b"onetwo"
    assert nothing.exit_code != 0


async def test_what_was_mounted_for_one_command_is_not_there_for_the_next(bench: Bench) -> None:
    seen = bench.place.folder.parents[1] / "checkouts" / "tree"
    seen.mkdir()
    (seen / "notes.txt").write_text("as it was")
    own = bench.place
    bench.place = replace(own, mounts=(Mount(seen, "/peers/writer"),))
    await bench.run(bench.driver.exits(0))
    bench.place = own

    read = await bench.run(bench.driver.reads("/peers/writer/notes.txt"))

    assert read.exit_code == 1
    assert bench.screen["stdout"] == b""


STARTED_WITH = {"bubblewrap": [], "bubblewrap, parked": [HOOK], "bubblewrap, Python parked": [HOOK]}


@pytest.mark.parametrize(("bench", "folders"), STARTED_WITH.items(), indirect=["bench"])
async def test_a_python_that_was_started_ahead_is_the_one_that_runs(bench: Bench, folders: list[str]) -> None:
    """Or all that is tested of it here would be tested of another one, which was started anew."""
    await bench.run(
        _python("import re; print(re.findall(r'PYTHONPATH=(.*?)\\0', open('/proc/self/environ').read()))")
    )

    assert bench.screen["stdout"].decode() == f"{folders}\n"


async def test_a_failing_engine_raises_and_returns_nothing(tmp_path: Path) -> None:
    (tmp_path / "workspaces").mkdir()
    fake = FakeEngine()
    place = Place("sb-test", tmp_path, None, LIMITS)

    with pytest.raises(EngineFailed):
        await fake.exec(place, Command(("fake", "break"), "/workspace", 1), lambda *_: None, Leash.loose())


def _commands_of(uid: int | None) -> list[bytes]:
    """Return the names of all processes of a uid, as the host sees them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and entry.stat().st_uid == (uid if uid is not None else -1):
                found.append((entry / "comm").read_bytes().strip())
        except OSError:
            continue
    return found
