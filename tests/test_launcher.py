"""The launcher as a process of its own, spoken to as the server does: what it does when things go wrong."""

import errno
import fcntl
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.footprint import groups_of

from petri.engine import rootfs
from petri.launcher import cgroups, groups, processes, protocol
from tests.calls import eventually

pytestmark = pytest.mark.long

SOURCE = Path(__file__).parents[1] / "src"
BOOT = """
import sys; sys.path.insert(0, sys.argv[1])
from petri.launcher import main as launcher
launcher._LAST_WORDS_S, launcher._STUCK_S, launcher._CLEAR_MS = float(sys.argv[2]), 0.2, 20
launcher.main()
"""
KEPT = """
import os, sys, time; sys.path.insert(0, sys.argv[1])
from petri.launcher import keeper
keeper.leave_behind(os.dup(0), 5)
time.sleep(60)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine") / "rootfs"
    rootfs.build(folder)
    return folder


class Launcher:
    """A real launcher, and our end of the line to it."""

    def __init__(self, root: Path, memory: Path, patience_s: float, *, private_view: bool) -> None:
        self.memory = memory
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-I", "-S", "-c", BOOT, str(SOURCE), str(patience_s), str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(
                argv,
                pass_fds=(theirs.fileno(),),
                stderr=subprocess.PIPE,
                start_new_session=True,
                extra_groups=[4, 27] if os.geteuid() == 0 else None,  # as of a server started with `sudo`
            )
        self.line.settimeout(20)
        settings = {
            "tag": f"petri-test-{os.getpid()}-{memory.parent.name}",
            "memory": str(memory),
            "private_view": private_view,
            "lends_networks": private_view,
            "total": {"memory_bytes": 1 << 40, "processes": 1 << 15},
            "folders": {"rootfs": str(root)},
        }
        protocol.send(self.line, settings)

    @property
    def pid(self) -> int:
        """Return its own id; the process that was started is its keeper."""
        return int(Path(f"{self.memory}.lock").read_text())

    def hear(self) -> dict[str, Any]:
        """Return what it says next."""
        heard = protocol.receive(self.line)
        assert heard is not None, "it ended"
        return heard[0]

    def is_silent(self, for_s: float) -> bool:
        """Say whether it says nothing for so long."""
        return select.select([self.line], [], [], for_s) == ([], [], [])

    def spawn(self, number: int, *argv: str, stdin: int = -1) -> None:
        """Order a process, which need not be a cell of ours."""
        null = os.open("/dev/null", os.O_RDWR)
        try:
            protocol.send(self.line, order(number, *argv), (null if stdin < 0 else stdin, null, null))
        finally:
            os.close(null)

    def groups(self) -> list[Path]:
        """Return the cgroups of its cells."""
        bases = self.memory.read_text().split() if self.memory.exists() else []
        return [group for base in bases for group in groups_of(base)]

    def close(self) -> None:
        """Hang up, and wait for its end."""
        self.line.close()
        self.process.wait(20)
        assert self.process.stderr is not None
        self.process.stderr.close()


def order(number: int, *argv: str, uid: int | None = None) -> dict[str, Any]:
    limits = {"cpus": 1, "memory_bytes": 2**28, "processes": 16}
    return {
        "do": "spawn",
        "id": number,
        "argv": list(argv),
        "targets": [0, 1, 2, 7],
        "uid": uid,
        "limits": limits,
        "rlimits": [],
    }


def mounted(pid: int | str) -> list[str]:
    """Return where something is mounted for a process."""
    return [line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Callable[..., Launcher]]:
    """Start launchers that share one memory, as those of one home do."""
    made: list[Launcher] = []

    def start_one(patience_s: float = 10, *, private_view: bool = False) -> Launcher:
        made.append(Launcher(root, tmp_path / "cgroups", patience_s, private_view=private_view))
        return made[-1]

    yield start_one
    for each in made:
        each.close()


@pytest.fixture
def launcher(start: Callable[..., Launcher]) -> Launcher:
    """A launcher that is ready."""
    made = start()
    assert made.hear()["says"] == "ready"
    return made


@needs_root
def test_a_cell_is_its_own_user_with_none_of_the_server_s_groups(launcher: Launcher) -> None:
    reading, writing = os.pipe()
    who = order(1, "/bin/sh", "-c", "id -u; id -G; exec sleep 60", uid=0x7000_0000 + os.getpid())
    protocol.send(launcher.line, who, (reading, writing, writing))
    os.close(writing)
    with os.fdopen(reading) as said:
        seen = [said.readline().strip(), said.readline().strip()]
    groups = {group.name.rpartition("cell-")[2] for group in launcher.groups()}

    assert seen == [str(who["uid"])] * 2
    protocol.send(launcher.line, {"do": "kill", "id": 1})
    assert launcher.hear()["id"] == 1
    assert groups == {"1"}


def network_of(launcher: Launcher, number: int, **words: str) -> str:
    """Return which network a new process finds itself in."""
    reading, writing = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    asking = order(number, "/bin/readlink", "/proc/self/ns/net")
    protocol.send(launcher.line, {**asking, **words}, (null, writing, null))
    os.close(writing)
    os.close(null)
    with os.fdopen(reading) as said:
        seen = said.read().strip()
    assert launcher.hear()["status"] == 0
    return seen


@needs_root
def test_what_no_cell_needs_is_out_of_its_view(start: Callable[..., Launcher]) -> None:
    """Each mount is copied, listed and let go for every cell there is; those one upon another too."""
    before = mounted("self")
    launcher = start(private_view=True)
    hello = launcher.hear()
    if hello["devices"] is None:
        pytest.skip("this root may make no devices: its cells have the host's")

    points = mounted(launcher.pid)
    assert {"/", "/proc", hello["view"], hello["devices"]} <= set(points)
    assert [point for point in points if point.startswith(("/dev", "/sys", "/run"))] == []
    assert mounted("self") == before


@needs_root
def test_a_launcher_that_makes_networks_starts_nobody_in_the_host_s(start: Callable[..., Launcher]) -> None:
    launcher = start(private_view=True)
    assert launcher.hear()["networks"]

    seen = [network_of(launcher, 1, network="a"), network_of(launcher, 2, network="a")]
    unnamed = network_of(launcher, 3)

    assert seen[0] == seen[1]
    assert str(Path("/proc/self/ns/net").readlink()) not in (*seen, unnamed)


def test_a_launcher_that_makes_none_refuses_whoever_was_to_have_one(launcher: Launcher) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    protocol.send(launcher.line, {**order(1, "/bin/true"), "network": "a"}, (null, null, null))
    os.close(null)

    assert launcher.hear() == {
        "says": "failed",
        "id": 1,
        "why": f"[Errno {errno.ENOSYS}] this launcher makes no networks",
    }


@needs_root
def test_the_network_of_a_cell_that_could_not_be_started_is_let_go(start: Callable[..., Launcher]) -> None:
    launcher = start(private_view=True)
    assert launcher.hear()["networks"]
    held = len(list(Path(f"/proc/{launcher.pid}/fd").iterdir()))
    null = os.open("/dev/null", os.O_RDWR)
    too_long = order(1, "/bin/true", "x" * (1 << 20))
    protocol.send(launcher.line, {**too_long, "network": "a"}, (null, null, null))
    os.close(null)

    assert "Argument list too long" in launcher.hear()["why"]
    protocol.send(launcher.line, {"do": "ask"})
    assert launcher.hear()["says"] == "alive"
    assert len(list(Path(f"/proc/{launcher.pid}/fd").iterdir())) == held


@needs_root
def test_swap_counts_as_memory(launcher: Launcher) -> None:
    """Or a cell could have as much again as its limit, where the host has swap."""
    launcher.spawn(1, "/bin/sleep", "60")
    protocol.send(launcher.line, {"do": "ask"})
    assert launcher.hear()["says"] == "alive", "one order after the other: the cell is made by now"
    limits = {
        name: (group / name).read_text().strip()
        for group in launcher.groups()
        for name in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes", "memory.max", "memory.swap.max")
        if (group / name).exists()
    }

    assert limits in (
        {"memory.limit_in_bytes": str(2**28), "memory.memsw.limit_in_bytes": str(2**28)},
        {"memory.max": str(2**28), "memory.swap.max": "0"},
        {"memory.limit_in_bytes": str(2**28)},  # a kernel that does not account for swap
        {"memory.max": str(2**28)},
    )


@needs_root
def test_the_group_of_a_cell_has_the_limits_that_were_ordered(launcher: Launcher) -> None:
    """Seen on the group itself: of some, a second wall would make up for the first."""
    launcher.spawn(1, "/bin/sleep", "60")
    protocol.send(launcher.line, {"do": "ask"})
    assert launcher.hear()["says"] == "alive", "one order after the other: the cell is made by now"
    found = {
        name: (group / name).read_text().strip()
        for group in launcher.groups()
        for name in ("pids.max", "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
        if (group / name).exists()
    }

    assert found in (
        {"pids.max": "16", "cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000"},
        {"pids.max": "16", "cpu.max": "100000 100000"},
    )


@needs_root
def test_a_cell_is_made_though_somebody_tidied_the_folder_of_all_cells_away(launcher: Launcher) -> None:
    bases = [Path(base) for base in launcher.memory.read_text().split()]
    if len(bases) == 1:
        pytest.skip("on cgroup v2 the controllers that were handed down would be gone with it")
    for base in bases:
        base.rmdir()

    launcher.spawn(1, "/bin/sh", "-c", "exit 3")

    assert launcher.hear()["status"] >> 8 == 3


@needs_root
def test_all_cells_together_have_the_limits_that_were_set(launcher: Launcher) -> None:
    bases = [Path(base) for base in launcher.memory.read_text().split()]
    found = {
        name: (base / name).read_text().strip()
        for base in bases
        for name in ("pids.max", "memory.max", "memory.limit_in_bytes")
        if (base / name).exists()
    }

    assert found in (
        {"pids.max": str(1 << 15), "memory.limit_in_bytes": str(1 << 40)},
        {"pids.max": str(1 << 15), "memory.max": str(1 << 40)},
    )


# --------------------------------------------------------------------------------------- groups that stay


@needs_root
def test_the_group_of_a_cell_is_gone_when_its_end_is_told(launcher: Launcher) -> None:
    for number in range(1, 21):
        launcher.spawn(number, "/bin/sh", "-c", "sleep 60 & sleep 60 & exit 3")

        assert launcher.hear()["status"] >> 8 == 3
        assert launcher.groups() == []


def obstruct(launcher: Launcher) -> tuple[list[Path], int]:
    """Start a cell whose groups cannot be removed; return what is in the way, and what it ends with."""
    reading, writing = os.pipe()
    launcher.spawn(1, "/bin/cat", stdin=reading)
    os.close(reading)
    protocol.send(launcher.line, {"do": "ask"})
    assert launcher.hear()["says"] == "alive", "one order after the other: the cell is made by now"
    obstacles = [group / "obstacle" for group in launcher.groups()]
    for obstacle in obstacles:
        obstacle.mkdir()
    return obstacles, writing


@needs_root
def test_an_end_is_not_told_while_its_group_may_still_go(launcher: Launcher) -> None:
    obstacles, ending = obstruct(launcher)
    os.close(ending)
    assert launcher.is_silent(0.2)

    for obstacle in obstacles:
        obstacle.rmdir()

    assert launcher.hear()["says"] == "ended"
    assert launcher.groups() == []


@needs_root
def test_a_group_that_cannot_be_removed_holds_nobody_up_and_is_removed_later(launcher: Launcher) -> None:
    obstacles, ending = obstruct(launcher)

    os.close(ending)

    assert (ended := launcher.hear())["says"] == "ended"
    assert (ended["status"], ended["cpu_ms"] > 0) == (0, True)
    assert sorted(launcher.groups()) == sorted(obstacle.parent for obstacle in obstacles)
    launcher.spawn(2, "/bin/true")
    assert launcher.hear()["id"] == 2
    for obstacle in obstacles:
        obstacle.rmdir()
    eventually(lambda: launcher.groups() == [])


@needs_root
def test_a_group_that_could_not_be_removed_is_removed_at_the_end_at_the_latest(launcher: Launcher) -> None:
    obstacles, ending = obstruct(launcher)

    launcher.line.close()
    os.close(ending)
    eventually(lambda: all(not (each.parent / "cgroup.procs").read_text() for each in obstacles))
    for obstacle in obstacles:
        obstacle.rmdir()

    launcher.close()
    assert launcher.groups() == []


@needs_root
def test_a_server_that_goes_while_it_is_being_told_something_is_gone_like_any_other(
    launcher: Launcher,
) -> None:
    launcher.spawn(1, "/bin/sleep", "60")
    launcher.line.shutdown(socket.SHUT_RD)  # it hears us, and we hear nothing any more

    launcher.spawn(2, "/bin/true")

    _, complaints = launcher.process.communicate(timeout=20)
    assert (launcher.process.returncode, complaints) == (0, b"")
    assert launcher.groups() == []


# --------------------------------------------------------------------------------------- what gets lost


def test_an_order_whose_content_was_lost_is_refused_and_the_launcher_lives(launcher: Launcher) -> None:
    launcher.line.sendmsg([b'\0{"id": 7}'])
    assert launcher.hear() == {
        "says": "failed",
        "id": 7,
        "why": "descriptors were lost on the way: too many files are open",
    }

    launcher.line.sendmsg([b"\0"])  # not even that
    assert launcher.hear()["id"] is None
    launcher.spawn(8, "/bin/true")
    assert (launcher.hear()["id"], launcher.process.poll()) == (8, None)


def test_an_order_whose_descriptors_do_not_fit_is_refused_and_nothing_stays_open(launcher: Launcher) -> None:
    held = Path(f"/proc/{launcher.pid}/fd")
    before = len(list(held.iterdir()))
    _, most = resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in held.iterdir())
    resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE, (highest + 2, most))

    launcher.spawn(1, "/bin/true")
    assert (refused := launcher.hear())["says"] == "failed"
    launcher.spawn(2, "/bin/echo", "x" * 100_000)
    assert launcher.hear()["says"] == "failed"

    assert refused["id"] == 1
    assert len(list(held.iterdir())) == before
    resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE, (most, most))
    launcher.spawn(3, "/bin/true")
    assert launcher.hear()["says"] == "ended"


def test_an_order_with_more_descriptors_than_are_taken_is_refused(launcher: Launcher) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    protocol.send(launcher.line, order(1, "/bin/true"), (null,) * 20)
    os.close(null)

    assert (launcher.hear()["says"], launcher.process.poll()) == ("failed", None)


def test_a_large_order_arrives_whole(launcher: Launcher) -> None:
    launcher.spawn(1, "/bin/sh", "-c", "exit $#", "sh", *["x" * 1000] * 50)

    assert launcher.hear()["status"] >> 8 == 50


def test_a_launcher_that_is_asked_says_that_it_lives(launcher: Launcher) -> None:
    protocol.send(launcher.line, {"do": "ask"})

    assert launcher.hear()["says"] == "alive"


# ------------------------------------------------------------------------------- a launcher that is killed


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Callable[[], list[int]]]:
    """Who wrote down its id in `pids`; none of them outlives the test."""
    written = tmp_path / "pids"
    written.touch()

    def read() -> list[int]:
        return [int(pid) for pid in written.read_text().split()]

    yield read
    for pid in read():
        processes.sigkill(pid)


def spawn_family(launcher: Launcher, tmp_path: Path, pids: Callable[[], list[int]]) -> None:
    """Start a process, its child and one that left its family; none was told to die with anybody."""
    alone = f"setsid sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 60' &"
    launcher.spawn(1, "/bin/sh", "-c", f"{alone} echo $$ >> {tmp_path}/pids; sleep 60 & wait")
    eventually(lambda: len(pids()) == 2)


def test_whatever_a_killed_launcher_leaves_is_ended_at_once(
    launcher: Launcher, tmp_path: Path, pids: Callable[[], list[int]]
) -> None:
    spawn_family(launcher, tmp_path, pids)

    os.kill(launcher.pid, signal.SIGKILL)

    assert launcher.process.wait(5) == signal.SIGKILL
    assert [pid for pid in pids() if processes.exists(pid)] == []


def test_whatever_a_launcher_leaves_that_is_killed_with_its_server_is_ended_at_once(
    launcher: Launcher, tmp_path: Path, pids: Callable[[], list[int]]
) -> None:
    spawn_family(launcher, tmp_path, pids)

    os.kill(launcher.pid, signal.SIGSTOP)  # so that it does not see the end of the line
    launcher.line.close()
    os.kill(launcher.pid, signal.SIGKILL)

    assert launcher.process.wait(5) == signal.SIGKILL
    assert [pid for pid in pids() if processes.exists(pid)] == []


def test_a_launcher_s_end_is_heard_though_its_keeper_is_busy(launcher: Launcher) -> None:
    launcher.process.send_signal(signal.SIGSTOP)
    os.kill(launcher.pid, signal.SIGKILL)

    assert protocol.receive(launcher.line) is None

    launcher.process.send_signal(signal.SIGCONT)


def test_a_keeper_that_is_told_to_ends_its_launcher(launcher: Launcher) -> None:
    os.kill(launcher.pid, signal.SIGSTOP)

    launcher.process.send_signal(signal.SIGUSR1)

    assert launcher.process.wait(5) == signal.SIGKILL


def test_a_keeper_that_is_told_when_its_child_is_gone_does_its_work_all_the_same() -> None:
    """Told again and again while it waits, so that now and then the word comes just behind the end."""
    for _ in range(40):
        argv = [sys.executable, "-I", "-S", "-c", KEPT, str(SOURCE)]
        with subprocess.Popen(argv) as keeper:
            name = Path(f"/proc/{keeper.pid}/comm")
            eventually(lambda name=name: name.read_text() == "petri-keeper\n")  # type: ignore[misc]
            while keeper.poll() is None:
                keeper.send_signal(signal.SIGUSR1)
        assert keeper.returncode == signal.SIGKILL


def test_a_launcher_dies_with_its_keeper(launcher: Launcher) -> None:
    pid = launcher.pid

    launcher.process.kill()

    eventually(lambda: not processes.exists(pid))


def test_the_next_launcher_waits_until_the_keeper_has_done_its_work(
    launcher: Launcher, start: Callable[..., Launcher]
) -> None:
    launcher.process.send_signal(signal.SIGSTOP)
    os.kill(launcher.pid, signal.SIGKILL)
    successor = start()
    assert successor.is_silent(0.5), "it is ready beside what another one left"

    launcher.process.send_signal(signal.SIGCONT)

    assert successor.hear()["says"] == "ready"


# ------------------------------------------------------------------------------------------ predecessors


def test_a_launcher_waits_until_its_predecessor_has_ended_its_cells(
    launcher: Launcher, start: Callable[..., Launcher]
) -> None:
    launcher.spawn(1, "/bin/sleep", "60")
    successor = start()
    assert successor.is_silent(0.5), "it is ready beside another one"

    launcher.line.close()

    assert successor.hear()["says"] == "ready"
    assert launcher.process.wait(1) == 0
    assert launcher.groups() == []


def test_a_predecessor_that_is_stuck_is_ended_and_so_are_its_cells(
    launcher: Launcher, start: Callable[..., Launcher]
) -> None:
    launcher.spawn(1, "/bin/sleep", "60")
    eventually(lambda: os.geteuid() != 0 or launcher.groups() != [])
    os.kill(launcher.pid, signal.SIGSTOP)

    successor = start(patience_s=0.3)

    assert successor.hear()["says"] == "ready"
    assert launcher.process.wait(1) == signal.SIGKILL
    assert successor.groups() == []


def test_a_lock_that_nobody_gives_back_ends_the_launcher_and_not_its_patience(
    start: Callable[..., Launcher], tmp_path: Path
) -> None:
    with (tmp_path / "cgroups.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        launcher = start(patience_s=0.3)

        assert launcher.process.wait(20) != 0

    assert launcher.process.stderr is not None
    assert b"cannot be ended" in launcher.process.stderr.read()
    launcher.close()


# ------------------------------------------------------------------------------------------- cgroup v2


def delegated(folder: Path) -> Path:
    """Make a folder that looks like a group of cgroup v2 which was given to an ordinary user."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cgroup.type", "cgroup.procs", "cgroup.subtree_control"):
        (folder / name).touch()
    return folder


def test_a_launcher_started_anew_divides_the_group_its_predecessor_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has stepped into the leaf by then, and its launchers are born there."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    made: list[str] = []
    monkeypatch.setattr(cgroups, "mkdir", lambda path: made.append(str(delegated(Path(path)))))
    delegated(tmp_path / "user/service")

    first = cgroups.V2.under(str(tmp_path), "/user/service", "petri-x")
    second = cgroups.V2.under(str(tmp_path), "/user/service/petri-server", "petri-x")

    assert first.bases() == second.bases() == [f"{tmp_path}/user/service/petri-x"]
    assert f"{tmp_path}/user/service/petri-server/petri-server" not in made


def test_a_process_that_ends_while_we_step_aside_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    mount = cgroups._mounts().get("")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root may move processes between groups of cgroup v2")
    group = Path(mount, f"petri-test-{os.getpid()}")
    group.mkdir()
    living = subprocess.Popen(["sleep", "60"])
    ended = subprocess.Popen(["true"])
    ended.wait()
    try:
        (group / "cgroup.procs").write_text(str(living.pid))
        listed = groups.pids
        monkeypatch.setattr(cgroups, "pids", lambda path: [ended.pid, *listed(path)])

        cgroups._step_aside(str(group))

        assert (group / "petri-server/cgroup.procs").read_text().split() == [str(living.pid)]
    finally:
        living.kill()
        living.wait()
        for folder in (group / "petri-server", group):
            eventually(lambda folder=folder: not folder.exists() or groups.rmdir(str(folder)))  # type: ignore[misc]
