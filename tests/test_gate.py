"""The program that becomes bubblewrap: each step it takes, and that no step is left out in silence."""

import os
import resource
import sys
from pathlib import Path

import pytest

from petri.engine import rootfs
from petri.launcher import view
from petri.launcher.networks import Networks
from petri.launcher.terminals import Terminals

SH = "/bin/sh"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("engine")
    rootfs.build(folder / "rootfs")
    return str(folder / "rootfs" / "gate")


def started(gate: str, *words: str, inherit: tuple[tuple[int, int], ...] = ()) -> tuple[int, str]:
    """Start the gate as the launcher does; return how it ended and what it wrote."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, writing, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, source, target) for source, target in inherit]
    pid = os.posix_spawn(gate, ["petri-gate", *words], {"PATH": "/usr/bin:/bin"}, file_actions=actions)
    os.close(writing)
    with os.fdopen(reading) as out:
        said = out.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


@pytest.mark.long
def test_the_command_gets_its_words_and_the_environment_it_was_started_with(gate: str) -> None:
    assert started(gate, "-", "-", "3", "-", "-", "-", SH, "-c", 'echo "$PATH|$1"', "sh", "a b") == (
        0,
        "/usr/bin:/bin|a b\n",
    )


def test_descriptors_that_are_not_the_commands_are_closed(gate: str) -> None:
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    asking = "for n in 9 10 11; do [ -e /proc/$$/fd/$n ] && echo $n; done; exit 0"

    kept = started(
        gate, "-", "-", "10", "-", "-", "-", SH, "-c", asking, inherit=((null, 9), (null, 10), (null, 11))
    )
    os.close(null)

    assert kept == (0, "9\n")


def test_limits_are_set_and_never_above_what_the_host_allows(gate: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    _, small = started(
        gate, "-", "-", "3", "7=77,4=0", "-", "-", SH, "-c", "ulimit -Hn; ulimit -Sn; ulimit -Hc"
    )
    _, large = started(gate, "-", "-", "3", "7=18446744073709551615", "-", "-", SH, "-c", "ulimit -Hn")

    assert small.split() == ["77", "77", "0"]
    assert large.split() == [str(most) if most != resource.RLIM_INFINITY else "unlimited"]


@needs_root
def test_the_sandboxes_user_has_its_own_group_and_no_other(gate: str) -> None:
    code, said = started(
        gate, "-", "-", "3", "-", "-", "123456", SH, "-c", "grep -E '^(Uid|Gid|Groups):' /proc/$$/status"
    )

    assert code == 0
    assert [line.split()[1:] for line in said.splitlines()] == [["123456"] * 4, ["123456"] * 4, []]


def test_the_oom_killer_takes_a_cell_first(gate: str) -> None:
    assert started(gate, "-", "-", "3", "-", "-", "-", SH, "-c", "cat /proc/self/oom_score_adj") == (
        0,
        "500\n",
    )


@needs_root
def test_a_cell_is_not_protected_where_the_server_is_and_cannot_become_so(gate: str) -> None:
    ours = Path("/proc/self/oom_score_adj")
    before = ours.read_text()
    try:
        ours.write_text("-900")  # as of a service that an operator protects
    except PermissionError:
        pytest.skip("this root may not protect itself (CAP_SYS_RESOURCE)")
    try:
        asking = "echo 499 > /proc/$$/oom_score_adj; cat /proc/$$/oom_score_adj"
        _, said = started(gate, "-", "-", "3", "-", "-", "123456", SH, "-c", f"({asking}) 2> /dev/null")
    finally:
        ours.write_text(before)

    assert said == "500\n"


def test_every_door_is_written_to(gate: str, tmp_path: Path) -> None:
    doors = [os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC) for name in "ab"]

    code, _ = started(
        gate, "w3-4", "-", "3", "-", "-", "-", SH, "-c", ":", inherit=((doors[0], 3), (doors[1], 4))
    )
    for door in doors:
        os.close(door)

    assert code == 0
    assert [(tmp_path / name).read_text() for name in "ab"] == ["0", "0"]


@needs_root
def test_the_command_is_in_the_network_that_was_given_and_no_longer_holds_it(gate: str) -> None:
    lending = Networks()
    network = lending.take("of this test")
    asking = "readlink /proc/$$/ns/net; tail -n +3 /proc/$$/net/dev | cut -d: -f1; ls /proc/$$/fd"

    code, said = started(
        gate, "-", "5", "5", "-", "-", "123456", SH, "-c", asking, inherit=((network.namespace, 5),)
    )
    there = f"net:[{os.fstat(network.namespace).st_ino}]"
    network.close()
    os.close(lending._home._here)

    assert (code, said.split()[:2]) == (0, [there, "lo"])
    assert there != str(Path("/proc/self/ns/net").readlink())
    assert "5" not in said.split()[2:]


@needs_root
def test_the_command_is_among_the_mounts_that_were_given_and_no_longer_holds_them(gate: str) -> None:
    child = os.fork()
    if child == 0:  # who makes mounts is in a view of its own, as the launcher is
        place = view.arrange({"rootfs": str(Path(gate).parent)})
        os._exit(0 if _is_among_mounts(f"{place}/rootfs/gate", place) else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _is_among_mounts(gate: str, place: str) -> bool:
    (folder := Path(place, "pts")).mkdir()
    devpts = Terminals(str(folder)).make()
    asking = f"readlink /proc/$$/ns/mnt; ls {folder}; ls /proc/$$/fd"
    words = ("-", "-", "5", "-", "5", "-", SH, "-c", asking)
    code, said = started(gate, *words, inherit=((devpts.namespace, 5),))
    there = f"mnt:[{os.fstat(devpts.namespace).st_ino}]"
    return (code, said.split()[:2], "5" in said.split()[2:]) == (0, [there, "ptmx"], False)


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (("w8-8", "-", "3", "-", "-", "-"), "enter the cell's cgroup: error 9"),
        (("b8-9", "-", "3", "-", "-", "-"), "be born in the cell's cgroup: error 9"),
        (("-", "8", "3", "-", "-", "-"), "enter the cell's network: error 9"),
        (("-", "-", "3", "-", "8", "-"), "enter the cell's mounts: error 9"),
        (("-", "-", "3", "99=1", "-", "-"), "read a resource limit: error 22"),
        (("-", "-", "3", "-", "-", "4294967295"), "become this user: error 22"),
        (("-", "-", "3", "-", "-", "0"), "become this user: error 22"),
    ],
)
def test_a_step_that_fails_ends_it_before_the_command(gate: str, words: tuple[str, ...], step: str) -> None:
    code, said = started(gate, *words, SH, "-c", "echo started")

    assert code == 126
    assert said.startswith(f"petri-gate: could not {step}")
    assert "started" not in said


def test_a_command_that_is_not_there_is_said_to_be_so(gate: str) -> None:
    assert started(gate, "-", "-", "3", "-", "-", "-", "/no/such") == (
        126,
        "petri-gate: could not start the cell's program: error 2\n",
    )


@pytest.fixture
def group_v2() -> "os.PathLike[str]":
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, behind = line.partition(" - ")
        if behind.startswith("cgroup2 "):
            folder = Path(before.split()[4]) / f"petri-test-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError:
                break
            return folder
    pytest.skip("no cgroup v2 in which this user may make a group")


def test_on_cgroup_v2_the_command_is_born_in_its_group_as_a_child_of_ours(gate: str, group_v2: Path) -> None:
    group = os.open(group_v2, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    hearing, telling = os.pipe2(os.O_CLOEXEC)

    try:
        code, said = started(
            gate,
            *("b8-9", "-", "3", "-", "-", "-", SH, "-c", "cat /proc/$$/cgroup; exit 5"),
            inherit=((group, 8), (telling, 9)),
        )
        pid = int.from_bytes(os.read(hearing, 4), sys.byteorder)
        _, status = os.waitpid(pid, 0)
    finally:
        for descriptor in (group, hearing, telling):
            os.close(descriptor)
        group_v2.rmdir()

    assert code == 0
    assert os.waitstatus_to_exitcode(status) == 5
    assert f"0::/{group_v2.name}" in said
