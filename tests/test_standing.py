"""A cell with a Python ahead of its command: what it must not do in another's name, and what is said once."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.footprint import groups_of

from petri.engine import Ahead, Fallen, Leash, Parks, Standing
from petri.engine.brief import READ_IT
from petri.engine.bubblewrap import BubblewrapEngine
from petri.engine.rehearsal import Rehearsal
from petri.engine.standing import StandingCell
from petri.errors import EngineFailed, Unavailable
from petri.model import Command, Outcome
from tests.benches import BOTH_WAYS, ENV, PYTHON, Bench, bench
from tests.calls import eventually

__all__ = ["bench"]

AHEAD = Ahead(PYTHON, "file")
ONE = pytest.mark.parametrize("bench", ["bubblewrap"], indirect=True)
pytestmark = pytest.mark.long


async def standing(bench: Bench) -> Standing:
    """Return a cell in which a Python waits."""
    assert isinstance(bench.engine, Parks)
    return await bench.engine.park(bench.place, AHEAD)


def ahead_of_us(bench: Bench) -> list[int]:
    """Find every Python that this engine has had started ahead, and that lives."""
    return [pid for pid in _everybody() if _is_ahead(pid, bench.launcher)]


def _everybody() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _is_ahead(pid: int, launcher: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return words.startswith(f"{PYTHON}\0petri-parked".encode()) and launcher in _ancestors(pid)
    except OSError:
        return False


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
        yield pid


@ONE
async def test_a_python_that_died_while_it_waited_is_no_end_of_a_command(bench: Bench) -> None:
    cell = await standing(bench)
    await asyncio.to_thread(eventually, lambda: ahead_of_us(bench) != [])
    for pid in ahead_of_us(bench):
        os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(eventually, lambda: ahead_of_us(bench) == [])

    with pytest.raises(Fallen):
        await cell.exec(Command((PYTHON, "main.py"), "/workspace", 20, ENV), bench.take, Leash.loose())

    assert not any(bench.screen.values())


@ONE
async def test_a_name_is_looked_for_in_the_command_s_own_folder(bench: Bench) -> None:
    (bench.place.folder / "inner").mkdir(mode=0o755)
    (bench.place.folder / "main.py").write_text("print('outer')")
    (bench.place.folder / "inner" / "main.py").write_text("print('inner')")
    bench.place.folder.chmod(0o755)
    cell = await standing(bench)

    await cell.exec(Command((PYTHON, "main.py"), "/workspace/inner", 20, ENV), bench.take, Leash.loose())

    assert bench.screen["stdout"] == b"inner\n"


@BOTH_WAYS
async def test_that_a_command_could_not_be_started_is_said_once(bench: Bench) -> None:
    quiet: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    loose = Leash.loose()
    bench.leash = Leash(loose.go, loose.cancelled, quiet)

    outcome = await bench.run(("/no/such/program",))

    assert outcome.exit_code == 127
    assert bench.screen["stderr"].count(b"could not be started") == 1


def processor_time_of(bench: Bench) -> list[str]:
    return [Path(f"/proc/{pid}/schedstat").read_text().split()[0] for pid in ahead_of_us(bench)]


@ONE
async def test_a_cell_is_made_once_the_python_in_it_has_nothing_left_to_do(bench: Bench) -> None:
    cell = await standing(bench)
    waiting = asyncio.ensure_future(cell.made())
    await asyncio.sleep(0)
    was_made = waiting.done()

    await waiting
    spent = processor_time_of(bench)
    await asyncio.sleep(0.2)

    assert (was_made, cell.stands, len(spent)) == (False, True, 1)
    assert processor_time_of(bench) == spent
    await cell.end()


@ONE
async def test_a_python_stands_ready_where_as_few_files_may_be_open_as_may_be(bench: Bench) -> None:
    (bench.place.folder / "main.py").write_text("print('few')")
    bench.place = replace(bench.place, limits=replace(bench.place.limits, open_files=32))
    cell = await standing(bench)

    await cell.exec(Command((PYTHON, "main.py"), "/workspace", 20, ENV), bench.take, Leash.loose())

    assert bench.screen["stdout"] == b"few\n"


@ONE
async def test_one_with_nobody_ahead_is_made_once_it_could_take_a_command(bench: Bench) -> None:
    assert isinstance(bench.engine, Parks)
    cell = await bench.engine.park(bench.place, None)

    await cell.made()

    assert cell.stands
    await cell.exec(Command(("/bin/echo", "there"), "/workspace", 20, ENV), bench.take, Leash.loose())
    assert bench.screen["stdout"] == b"there\n"


@ONE
async def test_nobody_waits_for_a_cell_that_is_used_before_it_is_made_or_gone(bench: Bench) -> None:
    await (await standing(bench)).end()  # the interpreter is known now
    os.kill(bench.launcher, signal.SIGSTOP)  # so that nothing comes of either for now
    used, ended = await standing(bench), await standing(bench)
    waiting = [asyncio.ensure_future(cell.made()) for cell in (used, ended)]

    running = asyncio.ensure_future(
        used.exec(Command((PYTHON, "-c", "pass"), "/workspace", 20, ENV), bench.take, Leash.loose())
    )
    await asyncio.wait(waiting, timeout=0.1)
    seen = [wait.done() for wait in waiting]
    os.kill(bench.launcher, signal.SIGCONT)
    await ended.end()
    await asyncio.gather(running, *waiting)

    assert seen == [True, False]


@ONE
async def test_a_program_that_ends_while_it_is_started_ahead_leaves_no_cell_behind(bench: Bench) -> None:
    assert isinstance(bench.engine, BubblewrapEngine)
    cell = await bench.engine._make(bench.place, Ahead("/usr/bin/true", "file"))

    await cell.made()
    await asyncio.to_thread(eventually, lambda: not cell.stands)

    with pytest.raises(Fallen):
        await cell.exec(Command((PYTHON, "main.py"), "/workspace", 20, ENV), bench.take, Leash.loose())


@ONE
async def test_a_program_that_is_gone_though_a_child_of_it_might_get_ready_holds_nobody_up(
    bench: Bench,
) -> None:
    assert isinstance(bench.engine, BubblewrapEngine)
    folder = bench.place.folder
    (folder / "program").write_text("#!/bin/sh\nsleep 60 &\necho > gone\n")
    (folder / "program").chmod(0o755)
    folder.chmod(0o777)
    cell = await bench.engine._make(bench.place, Ahead("/workspace/program", "file"))
    await asyncio.to_thread(eventually, lambda: (folder / "gone").exists())

    async with asyncio.timeout(20):
        with pytest.raises(Fallen):
            await cell.exec(Command((PYTHON, "main.py"), "/workspace", 60, ENV), bench.take, Leash.loose())


@ONE
@pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")
async def test_a_cell_that_is_used_before_it_was_set_aside_comes_first_all_the_same(bench: Bench) -> None:
    await (await standing(bench)).end()  # the interpreter is known now
    os.kill(bench.launcher, signal.SIGSTOP)
    cell = await standing(bench)
    leash = Leash.loose()
    command = Command((PYTHON, "-c", "print('begun', flush=True); import time; time.sleep(60)"), "/", 90, ENV)
    running = asyncio.ensure_future(cell.exec(command, bench.take, leash))
    await asyncio.sleep(0)  # it has been told to hurry, and there is no such cell
    os.kill(bench.launcher, signal.SIGCONT)

    await asyncio.to_thread(eventually, lambda: bench.screen["stdout"] == b"begun\n", 60)
    idle = [(group / "cpu.idle").read_text() for group in groups(bench) if (group / "cpu.idle").exists()]
    leash.cancelled.set_result(None)
    await running

    assert set(idle) <= {"0\n"}


def groups(bench: Bench) -> list[Path]:
    """Return every cgroup of a cell that this engine has."""
    remembered = bench.place.folder.parents[1] / "engine" / "cgroups"
    return [group for base in remembered.read_text().split() for group in groups_of(base)]


@ONE
async def test_an_engine_that_fails_once_says_nothing_of_an_interpreter(bench: Bench) -> None:
    engine, failures = bench.engine, [Unavailable("the launcher is busy")]
    assert isinstance(engine, BubblewrapEngine)

    async def make(ahead: Ahead) -> Standing:
        if failures:
            raise failures.pop()
        return await engine._make(engine._trial_place(), ahead)

    rehearsal = Rehearsal(make)
    with pytest.raises(Unavailable):
        await rehearsal.allows(PYTHON)

    assert await rehearsal.allows(PYTHON)


@BOTH_WAYS
@pytest.mark.parametrize("form", ["file", "code"])
async def test_a_file_grows_no_larger_than_the_word_says_whoever_was_started_when(
    bench: Bench, form: str
) -> None:
    assert isinstance(bench.engine, Parks)
    cell = await bench.engine.park(bench.place, Ahead(PYTHON, form))  # type: ignore[arg-type]
    code = "import os; file = os.open('large', 65); os.write(file, bytes(1000)); os.write(file, b'more')"

    outcome = await cell.exec(
        Command((PYTHON, "-c", code), "/workspace", 20, ENV), bench.take, Leash.loose(), file_bytes=1000
    )

    assert outcome.exit_code == 1
    assert b"File too large" in bench.screen["stderr"]
    assert (bench.place.folder / "large").stat().st_size == 1000


@ONE
async def test_no_cell_stands_where_a_wall_is_missing(bench: Bench) -> None:
    assert isinstance(bench.engine, BubblewrapEngine)
    bench.engine._layers = [
        replace(layer, on=layer.name != "seccomp", required=True) for layer in bench.engine._layers
    ]

    with pytest.raises(Unavailable, match="seccomp is off"):
        await bench.engine.park(bench.place, AHEAD)
    with pytest.raises(Unavailable, match="seccomp is off"):
        await bench.run(("/bin/true",))


def _variables_of(pid: int) -> list[bytes]:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return [each.partition(b"=")[0] for each in variables if each]


@ONE
async def test_the_launcher_knows_nothing_of_the_server_s_variables(bench: Bench) -> None:
    """It starts every cell: what it does not have, no slip of its own can hand on."""
    assert _variables_of(bench.launcher) == [b"PATH"]


@ONE
async def test_a_cell_whose_brief_is_broken_is_an_error_and_no_exit_code(bench: Bench) -> None:
    """What init cannot do itself is nothing that the command did."""
    assert isinstance(bench.engine, Parks)
    cell = await bench.engine.park(bench.place, None)
    assert isinstance(cell, StandingCell)
    cell._wiring.tell = lambda *_: cell._wiring.say(READ_IT)  # type: ignore[method-assign] # and no brief

    with pytest.raises(Fallen):
        await cell.exec(Command(("/bin/true",), "/workspace", 20, ENV), bench.take, Leash.loose())


@BOTH_WAYS
async def test_a_bound_that_cannot_be_set_is_an_error_and_no_exit_code(bench: Bench) -> None:
    bench.place = replace(bench.place, limits=replace(bench.place.limits, disk_bytes=1 << 20))
    bench.place = replace(bench.place, file_bytes=2 << 20)  # more than may ever be had here

    with pytest.raises(EngineFailed):
        await bench.run(("/bin/true",))
    assert not any(bench.screen.values())


LEAVING = {
    "nobody": ("", True),
    "a child": ("import os, time; os.fork() or time.sleep(60)", False),
    "a child of another kind": (
        "import ctypes, os, time\n"
        "number = 56 if os.uname().machine == 'x86_64' else 220\n"
        "ctypes.CDLL(None).syscall(number, 0, 0, 0, 0, 0) or time.sleep(60)",
        False,
    ),
    "a grandchild in a session of its own": (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.fork() or time.sleep(60)\n"
        "    os._exit(0)\n"
        "os.wait()",
        False,
    ),
    "one that is stopped": (
        "import os, signal\n"
        "child = os.fork() or os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os.waitid(os.P_PID, child, os.WSTOPPED)",
        False,
    ),
}


@ONE
@pytest.mark.parametrize("ahead", [Ahead(PYTHON, "code"), None], ids=["ahead", "nobody ahead"])
@pytest.mark.parametrize(("code", "is_alone"), LEAVING.values(), ids=LEAVING)
async def test_init_says_that_nobody_is_left_only_if_that_is_so(
    bench: Bench, ahead: Ahead | None, code: str, *, is_alone: bool
) -> None:
    """From then on a run's end is written down, since nothing can change any more."""
    assert isinstance(bench.engine, BubblewrapEngine)
    cell = await bench.engine.park(bench.place, ahead)

    outcome = await cell.exec(Command((PYTHON, "-c", code), "/workspace", 20, ENV), bench.take, Leash.loose())

    assert outcome.exit_code == 0, bench.screen["stderr"]
    assert cell._wiring.report.is_alone == is_alone
