"""What bubblewrap in particular must do: nothing survives, nothing leaks, nothing is forged."""

import ast
import asyncio
import errno
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.footprint import groups_of

from petri.engine import Ahead, Mount, Place
from petri.engine.bubblewrap import BubblewrapEngine
from petri.engine.confine import MASKED, Walls, confine
from petri.errors import EngineFailed
from tests.benches import BOTH_WAYS, LIMITS, OWNER, Bench, bench
from tests.calls import eventually

__all__ = ["bench"]

pytestmark = [pytest.mark.long, BOTH_WAYS]
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
    beats = bench.place.folder / "beats"
    async with asyncio.timeout(30), asyncio.TaskGroup() as all_runs:
        command = ("/bin/sh", "-c", "while :; do date >> beats; done")
        runs = [all_runs.create_task(bench.run(command)) for _ in range(8)]
        while not beats.exists():  # noqa: ASYNC110 - however long that takes on a busy machine
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        for run in runs:
            run.cancel()
    assert all(run.cancelled() for run in runs)
    size = beats.stat().st_size
    await asyncio.sleep(0.3)

    assert beats.stat().st_size == size
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


HARMLESS = {
    *("bootconfig", "buddyinfo", "cgroups", "config.gz", "consoles", "cpuinfo", "crypto", "devices"),
    *("diskstats", "dma", "execdomains", "fb", "filesystems", "iomem", "ioports", "loadavg", "locks"),
    *("mdstat", "meminfo", "misc", "modules", "mounts", "partitions", "schedstat", "softirqs", "stat"),
    *("swaps", "uptime", "version", "version_signature", "vmstat", "zoneinfo"),
}
"""What a run may know of its host, by SECURITY.md: what kind of machine it is, and how busy."""


async def test_nothing_of_the_kernel_s_can_be_read_but_what_was_reviewed(bench: Bench) -> None:
    """What is masked is missing from the list above, and so is whatever a kernel comes to show next."""
    await bench.run(
        python("""
            import os
            for name in os.listdir("/proc"):
                try:
                    with open(f"/proc/{name}", "rb") as file:
                        print(name if file.read(1) else "")
                except OSError:
                    pass
        """)
    )

    assert set(bench.screen["stdout"].decode().split()) - HARMLESS == set()


async def test_nothing_of_the_kernel_s_can_be_written_to(bench: Bench) -> None:
    """A file that everybody may open for writing is a door to the kernel of all: `pressure/cpu` is one."""
    await bench.run(
        python("""
            import os
            for folder, inner, names in os.walk("/proc"):
                if folder == "/proc":
                    inner[:] = [name for name in inner if not name.isdigit()]
                for path in (f"{folder}/{name}" for name in names):
                    try:
                        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
                        print(path)
                    except OSError:
                        pass
        """)
    )

    # What is covered by /dev/null is /dev/null, wherever it lies; so it may be opened.
    covered = {path for path, _ in MASKED}
    assert set(bench.screen["stdout"].decode().split()) - covered == set()


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


async def test_what_lingers_of_a_run_s_connections_is_in_nobody_s_way(bench: Bench) -> None:
    serving = """
        import socket
        listening = socket.socket()
        listening.bind(("127.0.0.1", 8000))  # with no SO_REUSEADDR: one that lingers would be in its way
        listening.listen()
        calling = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        accepted.close()
        calling.close()
        """
    for _ in range(3):
        assert (await bench.run(python(serving))).exit_code == 0, bench.screen

    await bench.run(("/bin/sh", "-c", "tail -n +3 /proc/net/dev"))

    assert set(bytes(bench.screen["stdout"]).split()[1:]) == {b"0"}  # nor does a counter tell of it


async def test_a_cell_has_a_network_of_the_launcher_s_or_bubblewrap_makes_one(bench: Bench) -> None:
    engine = bench.engine
    assert isinstance(engine, BubblewrapEngine)
    is_lent = engine._order(bench.place, None)["network"] is not None
    is_made = b"--unshare-net" in engine._arguments(bench.place, None).split(b"\0")

    assert is_lent == (os.geteuid() == 0)
    assert is_made == (not is_lent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's launcher makes networks")
async def test_places_that_share_a_name_and_an_owner_share_no_network(bench: Bench) -> None:
    """As builds of several tenants do, one after the other."""
    engine = bench.engine
    assert isinstance(engine, BubblewrapEngine)
    places = [replace(bench.place, folder=bench.place.folder / name) for name in "ab"]

    one, other = (engine._order(place, None)["network"] for place in places)

    assert one != other


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount what has a limit")
async def test_a_cell_has_terminals_but_not_those_of_all_others(bench: Bench) -> None:
    source = """
    import os
    ends = []
    try:
        while len(ends) < 500:
            ends.append(os.openpty())
    except OSError as error:
        print(error.strerror, len(ends))
    master, slave = ends[0]
    os.write(slave, b"typed")
    print(os.ttyname(slave), os.read(master, 5).decode())
    """
    outcomes = [await bench.run(python(source)) for _ in range(2)]

    assert [outcome.exit_code for outcome in outcomes] == [0, 0], bench.screen["stderr"]
    assert bench.screen["stdout"] == b"No space left on device 64\n/dev/pts/0 typed\n" * 2


async def test_the_devices_of_a_cell_are_there_and_stay_as_they_are(bench: Bench) -> None:
    source = """
    import os, stat
    for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx"):
        found = os.stat(f"/dev/{name}")
        print(name, os.major(found.st_rdev), os.minor(found.st_rdev), oct(found.st_mode & 0o777))
    open("/dev/null", "w").write("x")
    assert open("/dev/zero", "rb").read(2) == bytes(2) and len(os.urandom(8)) == 8
    for change in (
        lambda: open("/dev/new", "w"),
        lambda: os.unlink("/dev/null"),
        lambda: os.chmod("/dev/null", 0),
        lambda: os.utime("/dev/null"),
        lambda: os.symlink("/etc", "/dev/etc"),
        lambda: os.mknod("/tmp/sda", stat.S_IFBLK, os.makedev(8, 0)),
        lambda: os.mknod("/dev/shm/mem", stat.S_IFCHR, os.makedev(1, 1)),
    ):
        try:
            change()
        except OSError:
            continue
        print("changed")
    """
    if os.geteuid() != 0:
        # Without root these are the host's own, on which every user of it may set the time.
        source = source.replace('lambda: os.utime("/dev/null"),', "")
    assert (await bench.run(python(source))).exit_code == 0, bench.screen["stderr"]
    assert bench.screen["stdout"].decode().splitlines() == [
        *("null 1 3 0o666", "zero 1 5 0o666", "full 1 7 0o666", "random 1 8 0o666"),
        *("urandom 1 9 0o666", "tty 5 0 0o666", "ptmx 5 2 0o666"),
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")
async def test_memory_beyond_the_limit_is_an_oom_kill_and_said_so(bench: Bench) -> None:
    outcome = await bench.run(python("x = bytearray(600 * 2**20); print(len(x))"))

    assert outcome.oom_killed
    assert outcome.signal == 9
    assert outcome.usage.peak_memory_bytes >= 250 * 2**20


FORK_BOMB = """
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
"""


async def test_a_fork_bomb_stays_within_its_limit(bench: Bench) -> None:
    outcome = await bench.run(python(FORK_BOMB))

    assert outcome.exit_code == 0
    assert LIMITS.processes // 2 < int(bench.screen["stdout"]) < LIMITS.processes
    assert processes_in(bench) == []


async def test_a_fork_bomb_stays_within_its_limit_without_a_cgroup_too(bench: Bench) -> None:
    """Counted for each cell by itself, though all of them are one user's here."""
    assert isinstance(bench.engine, BubblewrapEngine)
    few = LIMITS.processes // 2
    more = replace(bench.place, limits=replace(LIMITS, processes=10 * few))  # so that no cgroup holds it
    order = bench.engine._order

    def with_a_loose_cgroup(place: Place, ahead: Ahead | None) -> dict[str, Any]:
        return {
            **order(replace(place, limits=replace(LIMITS, processes=few)), ahead),
            "limits": order(more, ahead)["limits"],
        }

    bench.engine._order = with_a_loose_cgroup  # type: ignore[method-assign]
    hold = "time.sleep(1)"
    async with asyncio.TaskGroup() as both:
        runs = [both.create_task(bench.run(python(FORK_BOMB + hold))) for _ in range(3)]

    assert [run.result().exit_code for run in runs] == [0, 0, 0]
    # Our own first process and the command itself count as well.
    # All three share a screen, and a Python that does not buffer writes a line and its end one by one.
    assert bench.screen["stdout"].decode().replace("\n", "") == str(few - 2) * 3
    assert processes_in(bench) == []


async def test_code_cannot_loosen_the_bound_on_its_processes(bench: Bench) -> None:
    await bench.run(
        python("""
            import resource
            print(resource.getrlimit(resource.RLIMIT_NPROC))
            try:
                resource.setrlimit(resource.RLIMIT_NPROC, (-1, -1))
            except (ValueError, OSError):
                print("for good")
        """)
    )

    assert bench.screen["stdout"].decode() == f"({LIMITS.processes}, {LIMITS.processes})\nfor good\n"


STAYS = ("/bin/sh", "-c", "setsid sleep 60 & echo there; sleep 60")


async def test_a_lost_launcher_is_an_error_and_nothing_of_its_cells_is_left(bench: Bench) -> None:
    async def lose_it() -> None:
        await bench.has_begun()
        os.kill(bench.launcher, signal.SIGKILL)

    async with asyncio.TaskGroup() as both:
        both.create_task(lose_it())
        with pytest.raises(EngineFailed):
            await bench.run(STAYS)

    assert processes_in(bench) == []
    assert (await bench.run(("/bin/true",))).exit_code == 0
    assert groups(bench) == []


async def test_a_run_whose_launcher_is_lost_is_not_over_before_its_cell_is(bench: Bench) -> None:
    async with asyncio.TaskGroup() as both:
        running = both.create_task(_lost(bench))
        await bench.has_begun()
        launcher = bench.launcher
        keeper = os.getpgid(launcher)
        os.kill(keeper, signal.SIGSTOP)  # nobody ends what is left for now
        os.kill(launcher, signal.SIGKILL)
        await asyncio.sleep(0.5)
        is_over = running.done()
        os.kill(keeper, signal.SIGCONT)

    assert not is_over
    assert processes_in(bench) == []


async def _lost(bench: Bench) -> None:
    with pytest.raises(EngineFailed):
        await bench.run(STAYS)


@pytest.mark.slow
async def test_a_launcher_that_is_stuck_holds_nobody_for_ever(bench: Bench) -> None:
    async def wedge_it() -> None:
        await bench.has_begun()
        os.kill(bench.launcher, signal.SIGSTOP)

    async with asyncio.TaskGroup() as both, asyncio.timeout(40):
        both.create_task(wedge_it())
        with pytest.raises(EngineFailed):
            await bench.run(STAYS, timeout_s=2)

    assert processes_in(bench) == []
    assert (await bench.run(("/bin/true",))).exit_code == 0


async def test_nor_does_one_whose_keeper_is_stuck_as_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.engine.process._ANSWER_S", 0.5)

    async def wedge_them() -> None:
        await bench.has_begun()
        os.killpg(os.getpgid(bench.launcher), signal.SIGSTOP)

    async with asyncio.TaskGroup() as both, asyncio.timeout(20):
        both.create_task(wedge_them())
        with pytest.raises(EngineFailed):
            await bench.run(STAYS, timeout_s=2)

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


async def test_what_is_mounted_gives_no_privilege_and_no_way_out(bench: Bench) -> None:
    seen = bench.place.folder.parents[1] / "checkouts" / "tree"
    seen.mkdir()
    (seen / "passwd").symlink_to("/etc/passwd")
    (seen / "up").symlink_to("../../../../../../../..")
    (seen / "zero").touch(mode=0o6755)
    bench.place = replace(bench.place, mounts=(Mount(seen, "/peers/writer"),))

    await bench.run(
        python("""
        import os
        line = next(line for line in open("/proc/self/mountinfo") if " /peers/writer " in line)
        print(sorted(line.split()[5].split(",")))
        print(open("/peers/writer/passwd").read().splitlines()[0])
        print(sorted(os.listdir("/peers/writer/up")) == sorted(os.listdir("/")), os.listdir("/peers"))
        for change in (
            lambda: os.chmod("/peers/writer/zero", 0o777),
            lambda: os.remove("/peers/writer/zero"),
            lambda: os.mkdir("/peers/mine"),
            lambda: os.link("/peers/writer/zero", "/workspace/zero"),
        ):
            try:
                change()
            except OSError as error:
                print(error.errno)
        """)
    )
    flags, passwd, at_root, *refused = bench.screen["stdout"].decode().splitlines()

    assert {"ro", "nosuid", "nodev"} <= set(ast.literal_eval(flags))
    assert passwd.startswith("petri:x:1000")
    assert at_root == "True ['writer']"
    assert set(map(int, refused)) <= {errno.EROFS, errno.EXDEV, errno.EPERM}
    assert len(refused) == 4


async def test_the_arguments_of_bwrap_are_those_that_were_reviewed(bench: Bench) -> None:
    walls = Walls("/W", "/R", ("/proc/kcore", "/proc/keys"), 1024, "/D", (("/C/tree", "/peers/writer"),))
    words = confine(walls, {"PATH": "/bin", "A": "1"})

    lines = (
        "\n".join(words)
        .replace("\n--", "\n\n--")
        .replace("\n\n", "\0")
        .replace("\n", " ")
        .replace("\0", "\n")
    )
    assert lines + "\n" == GOLDEN.read_text()
    born_in_one = confine(replace(walls, own_network=False), {"PATH": "/bin", "A": "1"})
    assert born_in_one == [word for word in words if word != "--unshare-net"]


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
    return [str(group) for base in bases for group in groups_of(base)]
