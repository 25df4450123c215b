"""What every engine promises. A new driver is one line in `DRIVERS`."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from petri.engine import Engine, Leash, Place
from petri.engine.bubblewrap import BubblewrapEngine, Setup
from petri.engine.fake import FakeEngine
from petri.errors import EngineFailed
from petri.model import Command, Limits, Outcome, Stream

LIMITS = Limits(cpus=1, memory_bytes=256 * 2**20, processes=64, timeout_s=10)
OWNER = 0x7000_0000 + os.getpid() if os.geteuid() == 0 else None
"""Another for each test process: several may run at once, and each looks for what is left of its own."""


def _bubblewrap(home: Path) -> Engine:
    workspaces = home / "workspaces"
    workspaces.mkdir()
    workspaces.chmod(0o711)
    (home / "engine").mkdir()
    return BubblewrapEngine(Setup(home / "engine", workspaces, require_cgroups=os.geteuid() == 0))


def _fake(home: Path) -> Engine:
    (home / "workspaces").mkdir()
    return FakeEngine()


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
        is_missing=("/no/such/program",),
    ),
}


@dataclass
class Bench:
    """An engine with a place to run in and a screen that remembers."""

    driver: Driver
    engine: Engine
    place: Place
    screen: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )

    def __post_init__(self) -> None:
        self.leash = Leash.loose()

    async def run(self, argv: tuple[str, ...], *, timeout_s: float = 20, stdin: bytes = b"") -> Outcome:
        command = Command(argv, "/workspace", timeout_s, {"PATH": "/usr/bin:/bin"}, stdin)
        return await self.engine.exec(self.place, command, self.take, self.leash)

    def take(self, stream: Stream, chunk: bytes) -> None:
        self.screen[stream] += chunk


@pytest.fixture(params=DRIVERS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    driver = DRIVERS[request.param]
    engine = driver.make(tmp_path)
    await engine.start()
    assert [layer.name for layer in await engine.layers() if layer.required and not layer.on] == []
    folder = tmp_path / "workspaces" / "sb-test"
    folder.mkdir(mode=0o700)
    if OWNER is not None:
        os.chown(folder, OWNER, OWNER)
    yield Bench(driver, engine, Place("sb-test", folder, OWNER, LIMITS))
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
        command = Command(bench.driver.says(f"cell {number}"), "/workspace", 20)
        await bench.engine.exec(bench.place, command, lambda _, chunk: said.extend(chunk), bench.leash)
        screens.append(bytes(said))

    async with asyncio.TaskGroup() as all_cells:
        for number in range(8):
            all_cells.create_task(one(number))

    assert sorted(screens) == [f"cell {number}".encode() for number in range(8)]


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
