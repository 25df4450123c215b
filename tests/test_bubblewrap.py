"""What bubblewrap in particular must do: nothing survives, nothing leaks, nothing is forged."""

import asyncio
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.engine import Place
from petri.engine.confine import Walls, confine
from petri.errors import EngineFailed
from tests.calls import eventually
from tests.test_engine_contract import LIMITS, OWNER, Bench, bench

__all__ = ["bench"]

pytestmark = pytest.mark.parametrize("bench", ["bubblewrap"], indirect=True)
GOLDEN = Path(__file__).parent / "golden" / "bwrap.txt"


def python(source: str) -> tuple[str, ...]:
    return ("/usr/bin/python3", "-c", textwrap.dedent(source))


async def test_a_background_child_does_not_hold_the_run_open(bench: Bench) -> None:
    begun = time.monotonic()
    outcome = await bench.run(("/bin/sh", "-c", "setsid sleep 60 & echo done"))

    assert outcome.exit_code == 0
    assert bench.screen["stdout"] == b"done\n"
    assert time.monotonic() - begun < 5
    assert processes_in(bench) == []


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sh -c 'trap \"\" TERM HUP INT; sleep 60' & exit 0",
        "(setsid sleep 60 &) ; kill -STOP $$",
        "for i in 1 2 3 4 5 6 7 8; do setsid sleep 60 & done; kill -9 $$",
        "sleep 60 & exec sleep 60",
    ],
)
async def test_whatever_a_command_leaves_behind_is_dead_when_the_answer_comes(
    bench: Bench, escape: str
) -> None:
    await bench.run(("/bin/sh", "-c", escape), timeout_s=0.5)

    assert processes_in(bench) == []
    assert groups(bench) == []


async def test_eight_cancelled_at_once_are_dead_when_the_calls_return(bench: Bench) -> None:
    async def one() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await bench.run(("/bin/sh", "-c", "while :; do date >> beats; done"))

    async with asyncio.TaskGroup() as all_runs:
        for _ in range(8):
            all_runs.create_task(one())
    size = (bench.place.folder / "beats").stat().st_size
    await asyncio.sleep(0.3)

    assert (bench.place.folder / "beats").stat().st_size == size
    assert groups(bench) == []


async def test_a_flood_is_drained_and_the_command_ends(bench: Bench) -> None:
    outcome = await bench.run(("/bin/sh", "-c", "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2"))

    assert outcome.exit_code == 0
    assert (len(bench.screen["stdout"]), len(bench.screen["stderr"])) == (50_000_000, 50_000_000)


async def test_the_result_cannot_be_forged_through_pid_1(bench: Bench) -> None:
    outcome = await bench.run(
        python("""
            import os, sys
            for pid in ("1", "self", str(os.getppid())):
                for number in range(64):
                    try:
                        fd = os.open(f"/proc/{pid}/fd/{number}", os.O_WRONLY)
                        os.write(fd, b"E" + bytes(4))
                    except OSError:
                        pass
            sys.exit(3)
        """)
    )

    assert outcome.exit_code == 3


async def test_the_command_inherits_nothing_but_its_three_streams(bench: Bench) -> None:
    await bench.run(python("import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"))

    # The fourth is the folder being listed.
    assert bench.screen["stdout"] == b"['0', '1', '2', '3']\n"


async def test_the_server_s_environment_is_nowhere_inside(bench: Bench) -> None:
    os.environ["PETRI_TEST_CANARY"] = "canary-4711"
    try:
        await bench.run(
            ("/bin/sh", "-c", "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; env; true")
        )
    finally:
        del os.environ["PETRI_TEST_CANARY"]

    assert b"canary-4711" not in bench.screen["stdout"]
    assert b"PATH=/usr/bin:/bin" in bench.screen["stdout"]


async def test_the_host_s_files_are_not_there(bench: Bench) -> None:
    await bench.run(
        ("/bin/sh", "-c", "ls / ; ls /root /home /var /sys /boot /work 2>/dev/null; cat /etc/shadow; true")
    )

    names = set(bench.screen["stdout"].decode().split())
    assert names == {"bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "tmp", "usr", "workspace"}


async def test_only_the_workspace_and_tmp_can_be_written(bench: Bench) -> None:
    await bench.run(
        (
            "/bin/sh",
            "-c",
            "for d in / /usr /etc /dev /run /run/petri /proc /proc/sys/kernel /tmp /dev/shm /workspace; do "
            "if (: > $d/probe) 2>/dev/null; then echo $d; fi; done",
        )
    )

    assert bench.screen["stdout"].decode().split() == ["/tmp", "/dev/shm", "/workspace"]


async def test_there_is_no_network_but_a_private_loopback(bench: Bench) -> None:
    await bench.run(
        python("""
            import socket
            print(sorted(name for _, name in socket.if_nameindex()))
            for family in (socket.AF_VSOCK, socket.AF_PACKET):
                try:
                    socket.socket(family, socket.SOCK_STREAM)
                    print("made", family)
                except OSError:
                    pass
            try:
                socket.create_connection(("192.0.2.1", 80), 2)
            except OSError as error:
                print(error.errno)
        """)
    )

    assert bench.screen["stdout"] == b"['lo']\n101\n"


async def test_a_cell_that_cannot_be_made_is_an_error_and_not_an_exit_code(bench: Bench) -> None:
    bench.place = Place("gone", bench.place.folder.parent / "gone", OWNER, LIMITS)

    with pytest.raises(EngineFailed) as caught:
        await bench.run(("/bin/true",))
    assert "gone" in caught.value.detail
    assert "gone" not in caught.value.message
    assert bench.screen["stderr"] == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")
async def test_what_sockets_hold_is_bounded_like_memory(bench: Bench) -> None:
    source = """
    import socket
    listener, held, ends = socket.create_server(("127.0.0.1", 0)), 0, []
    for _ in range(80):
        ours = socket.create_connection(listener.getsockname())
        for end in (ours, listener.accept()[0]):
            ends.append(end)
            end.setblocking(False)
            try:
                while True:
                    held += end.send(bytes(65536))
            except BlockingIOError:
                pass
    print(held)
    """
    outcome = await bench.run(python(source))

    assert outcome.oom_killed or int(bench.screen["stdout"]) < LIMITS.memory_bytes


@pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")
async def test_memory_beyond_the_limit_is_an_oom_kill_and_said_so(bench: Bench) -> None:
    outcome = await bench.run(python("x = bytearray(600 * 2**20); print(len(x))"))

    assert outcome.oom_killed
    assert outcome.signal == 9
    assert outcome.usage.peak_memory_bytes >= 250 * 2**20


@pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")
async def test_a_fork_bomb_stays_within_its_limit(bench: Bench) -> None:
    outcome = await bench.run(
        python("""
            import os, time
            made = 0
            while True:
                try:
                    if os.fork() == 0:
                        time.sleep(60)
                except OSError:
                    break
                made += 1
            print(made)
        """)
    )

    assert outcome.exit_code == 0
    assert int(bench.screen["stdout"]) < LIMITS.processes
    assert processes_in(bench) == []


async def test_a_lost_launcher_is_an_error_and_nothing_of_its_cells_is_left(bench: Bench) -> None:
    async def lose_it() -> None:
        await asyncio.sleep(0.3)
        os.kill(launcher_of_this_process(), signal.SIGKILL)

    async with asyncio.TaskGroup() as both:
        both.create_task(lose_it())
        with pytest.raises(EngineFailed):
            await bench.run(("/bin/sh", "-c", "setsid sleep 60 & sleep 60"))

    assert processes_in(bench) == []
    assert (await bench.run(("/bin/true",))).exit_code == 0
    assert groups(bench) == []


@pytest.mark.slow
async def test_a_launcher_that_is_stuck_holds_nobody_for_ever(bench: Bench) -> None:
    async def wedge_it() -> None:
        await asyncio.sleep(0.3)
        os.kill(launcher_of_this_process(), signal.SIGSTOP)

    async with asyncio.TaskGroup() as both, asyncio.timeout(40):
        both.create_task(wedge_it())
        with pytest.raises(EngineFailed):
            await bench.run(("/bin/sh", "-c", "setsid sleep 60 & sleep 60"), timeout_s=1)

    assert processes_in(bench) == []
    assert (await bench.run(("/bin/true",))).exit_code == 0


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A group of cgroup v1 whose processes can be frozen, and then do not even die of SIGKILL."""
    if os.geteuid() != 0 or not Path("/sys/fs/cgroup/freezer").is_dir():
        pytest.skip("only root may freeze processes, and only by cgroup v1")
    group = Path(f"/sys/fs/cgroup/freezer/petri-test-{os.getpid()}")
    group.mkdir()
    yield group
    (group / "freezer.state").write_text("THAWED")
    eventually(lambda: (group / "tasks").read_text() == "")
    group.rmdir()


async def test_a_cell_that_takes_long_to_die_costs_no_other_its_life(
    bench: Bench, freezer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher goes on killing it, and says that it lives when it is asked."""
    monkeypatch.setattr("petri.engine.process._ANSWER_S", 0.5)
    async with asyncio.TaskGroup() as both:
        stuck = both.create_task(bench.run(("/bin/sleep", "60"), timeout_s=2))
        while "/bin/sleep\x0060\0" not in processes_in(bench):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.01)
        for pid in command_lines(bench):
            (freezer / "tasks").write_text(str(pid))
        (freezer / "freezer.state").write_text("FROZEN")

        outcome = await bench.run(("/bin/sh", "-c", "sleep 4; exit 3"))

        assert outcome.exit_code == 3
        assert not stuck.done()
        (freezer / "freezer.state").write_text("THAWED")
        assert (await stuck).timed_out


async def test_usage_is_what_the_command_used(bench: Bench) -> None:
    outcome = await bench.run(
        python("""
            import time
            x = bytearray(50 * 2**20)
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
        """)
    )

    assert 300 <= outcome.usage.cpu_ms < 1500
    assert outcome.usage.peak_memory_bytes >= 50 * 2**20
    assert outcome.duration_ms >= 300


async def test_the_arguments_of_bwrap_are_those_that_were_reviewed(bench: Bench) -> None:
    walls = Walls("/W", "/R", ("/proc/kcore", "/proc/keys"), 1024)
    words = confine(walls, "/workspace/sub", {"PATH": "/bin", "A": "1"})

    lines = (
        "\n".join(words)
        .replace("\n--", "\n\n--")
        .replace("\n\n", "\0")
        .replace("\n", " ")
        .replace("\0", "\n")
    )
    assert lines + "\n" == GOLDEN.read_text()


def launcher_of_this_process() -> int:
    """Return the pid of the launcher that a bench in this process started."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return next(pid for pid in map(int, children) if b"launcher" in Path(f"/proc/{pid}/comm").read_bytes())


def processes_in(bench: Bench) -> list[str]:
    """Return the command lines of every process whose `/workspace` is the bench's."""
    return list(command_lines(bench).values())


def command_lines(bench: Bench) -> dict[int, str]:
    """Return the same by process id."""
    ours = bench.place.folder.stat()
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            theirs = (entry / "root/workspace").stat()
            if entry.name.isdecimal() and (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    return found


def groups(bench: Bench) -> list[str]:
    """Return every cgroup of a cell that this engine left."""
    remembered = bench.place.folder.parents[1] / "engine" / "cgroups"
    bases = remembered.read_text().split() if remembered.exists() else []
    return [str(group) for base in bases for group in Path(base).glob("cell-*")]
