"""What every engine promises. A new driver is one line in `DRIVERS` of `tests/benches.py`."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from petri.engine import Leash, Link, Mount, Place
from petri.engine.ahead import HOOK
from petri.engine.fake import FakeEngine
from petri.errors import EngineFailed
from petri.model import Command
from tests.benches import DRIVERS, EACH_DRIVER, ENV, LIMITS, OWNER, Bench, open_bench, python_code

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUMBERS = itertools.count()


@pytest_asyncio.fixture(params=EACH_DRIVER, scope="module", loop_scope="module")
async def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    """An engine for all these tests: it takes longer to start than most of them."""
    async with open_bench(DRIVERS[request.param], tmp_path_factory.mktemp("bench")) as bench:
        yield bench


@pytest_asyncio.fixture(loop_scope="module")
async def bench(shared: Bench) -> Bench:
    """A place of one's own in it."""
    return shared.elsewhere(f"sb-test-{next(NUMBERS)}")


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


STARTED_WITH = [
    ("bubblewrap", []),
    pytest.param("bubblewrap, parked", [HOOK], marks=pytest.mark.long),
    pytest.param("bubblewrap, Python parked", [HOOK], marks=pytest.mark.long),
]


@pytest.mark.parametrize(("shared", "folders"), STARTED_WITH, indirect=["shared"])
async def test_a_python_that_was_started_ahead_is_the_one_that_runs(bench: Bench, folders: list[str]) -> None:
    """Or all that is tested of it here would be tested of another one, which was started anew."""
    await bench.run(
        python_code("import re; print(re.findall(r'PYTHONPATH=(.*?)\\0', open('/proc/self/environ').read()))")
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
