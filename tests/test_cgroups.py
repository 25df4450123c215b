"""What cgroups are told, on either version: with files that only look like them, and for real."""

import os
import resource
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.footprint import groups_of, launcher_of, standing

from petri.launcher.cgroups import V1, V2, Hierarchy, Limits, find, sweep
from tests.calls import create, eventually, run
from tests.conftest import Server
from tests.scarce import descriptors

GIB = 1 << 30
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")


def group(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def said(folder: Path, name: str) -> str:
    return (folder / name).read_text()


def test_v2_bounds_all_cells_together_and_lets_the_old_give_way(tmp_path: Path) -> None:
    base = group(tmp_path / "petri", "memory.max", "memory.swap.max", "pids.max")
    cell = group(base / "cell-1", "cpu.weight")
    hierarchy = V2(str(base))

    hierarchy.bound(GIB, 500)
    hierarchy.give_way("cell-1")

    assert (said(base, "memory.max"), said(base, "memory.swap.max")) == (str(GIB), "0")
    assert said(base, "pids.max") == "500"
    assert said(cell, "cpu.weight") == "12"


def test_v1_bounds_all_cells_together_and_lets_the_old_give_way(tmp_path: Path) -> None:
    memory = group(
        tmp_path / "memory",
        *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.use_hierarchy"),
        "memory.kmem.tcp.limit_in_bytes",
    )
    (memory / "memory.use_hierarchy").write_text("0\n")
    pids, cpu = group(tmp_path / "pids", "pids.max"), tmp_path / "cpu"
    cell = group(tmp_path / "cpu-cell-1", "cpu.shares")
    hierarchy = V1({"memory": str(memory), "pids": str(pids), "cpu": str(cpu)})

    hierarchy.bound(GIB, 500)
    hierarchy.give_way("cell-1")

    assert 1 << 25 <= int(said(memory, "memory.kmem.tcp.limit_in_bytes")) <= tcp_unminded_bytes() // 2
    assert said(memory, "memory.limit_in_bytes") == said(memory, "memory.memsw.limit_in_bytes") == str(GIB)
    assert said(memory, "memory.use_hierarchy").startswith("1")
    assert said(pids, "pids.max") == "500"
    assert said(cell, "cpu.shares") == "32"


def tcp_unminded_bytes() -> int:
    """Return what all sockets of this host may hold before the kernel begins to be stingy with everybody."""
    return int(Path("/proc/sys/net/ipv4/tcp_mem").read_text().split()[0]) * resource.getpagesize()


@needs_root
def test_what_the_sockets_of_all_runs_hold_leaves_the_host_s_own_undisturbed(server: Server) -> None:
    bases = [Path(line) for line in _remembered(server) if "/memory" in line]
    if not bases:
        pytest.skip("on cgroup v2 what sockets hold counts as memory")

    held = int((bases[0] / "memory.kmem.tcp.limit_in_bytes").read_text())

    assert held <= tcp_unminded_bytes() // 2


@needs_root
def test_runs_that_are_each_within_their_limit_are_not_all_beyond_the_host_s(
    new_server: Callable[..., Server],
) -> None:
    server = new_server(PETRI_TOTAL_MEMORY_BYTES=str(256 << 20))
    take = textwrap.dedent("""
        import time
        held = bytearray(160 << 20)
        time.sleep(5)
    """)

    def one(_: int) -> bool:
        with server.client() as http:
            limits = {"memory_bytes": 200 << 20}
            told = run(http, create(http, limits=limits), code=take, language="python")
            return bool(told["oom_killed"])

    with ThreadPoolExecutor(3) as pool:
        killed = list(pool.map(one, range(3)))

    assert any(killed)
    with server.client() as http:
        assert run(http, create(http), command="echo fine")["stdout"] == "fine\n"


@needs_root
def test_all_runs_together_have_so_many_processes(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_TOTAL_PROCESSES="64")
    bomb = textwrap.dedent("""
        import os, time
        made = 0
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(3)
                    os._exit(0)
                made += 1
        except OSError:
            print(made)
            time.sleep(2)
    """)

    def one(_: int) -> int:
        with server.client() as http:
            told = run(http, create(http), code=bomb, language="python")
            return int(told["stdout"] or 0)

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(one, range(2))) < 64


@pytest.mark.parametrize("has_idle", [True, False], ids=["as of Linux 5.15", "before"])
def test_who_waits_for_a_command_stands_aside_until_it_has_one(tmp_path: Path, *, has_idle: bool) -> None:
    for hierarchy, share, full, less in (
        (V2(str(tmp_path / "v2")), "cpu.weight", "100", "12"),
        (V1(dict.fromkeys(("memory", "pids", "cpu"), str(tmp_path / "v1"))), "cpu.shares", "256", "32"),
    ):
        cell = group(Path(hierarchy.bases()[0]) / "cell-1", share, *["cpu.idle"] * has_idle)
        hierarchy.stand_aside("cell-1")
        before = said(cell, "cpu.idle" if has_idle else share)
        hierarchy.come_first("cell-1")
        after = said(cell, "cpu.idle" if has_idle else share)

        assert (before, after) == (("1", "0") if has_idle else (less, full))


def test_whoever_cannot_look_does_not_take_a_group_for_empty(tmp_path: Path) -> None:
    """Its cell would be told as over with somebody in it."""
    hierarchy = V1(dict.fromkeys(("memory", "pids", "cpu"), str(tmp_path / "v1")))
    second = V2(str(tmp_path / "v2"))
    for each in (hierarchy, second):
        assert each.is_empty("cell-1"), "there is none"
        cell = group(Path(each.bases()[0]) / "cell-1", "cgroup.procs")
        (cell / "cgroup.procs").write_text("")
        assert each.is_empty("cell-1")
        (cell / "cgroup.procs").write_text("7\n")
        assert not each.is_empty("cell-1")
        (cell / "cgroup.procs").unlink()
        (cell / "cgroup.procs").mkdir()  # which cannot be read
        assert not each.is_empty("cell-1")


def test_of_doors_that_cannot_all_be_opened_none_stays_open(tmp_path: Path) -> None:
    hierarchy = V1({name: str(tmp_path / name) for name in ("memory", "pids", "cpu")})
    for stem, _ in hierarchy._distinct[:2]:
        group = Path(f"{stem}cell-1")
        group.mkdir(parents=True)
        (group / "tasks").touch()
    before = descriptors()

    with pytest.raises(FileNotFoundError):
        hierarchy.doors("cell-1")

    assert descriptors() == before


@needs_root
def test_who_stood_aside_has_the_share_again_that_a_cell_is_made_with() -> None:
    """By the kernel's own files: who is idle no more has 1024 there, as much as the whole server has."""
    if _cpu_group(os.getpid()) is None:
        pytest.skip("on cgroup v2 the kernel gives the weight back that a cell is made with")
    hierarchy = find(f"petri-test-{os.getpid()}")
    try:
        hierarchy.make("cell-1", Limits(cpus=1, memory_bytes=GIB, processes=64), aside=False)
        as_made = _shares(hierarchy)
        hierarchy.stand_aside("cell-1")
        aside = _shares(hierarchy)
        hierarchy.come_first("cell-1")
        first = _shares(hierarchy)
    finally:
        for base in hierarchy.bases():
            sweep(base)

    assert aside < as_made
    assert first == as_made


def _shares(hierarchy: Hierarchy) -> int:
    assert isinstance(hierarchy, V1)
    folder, at = hierarchy._group("cpu", "cell-1")
    assert at is None, "nobody has had it hold its folders"
    return int(Path(folder, "cpu.shares").read_text())


@needs_root
def test_who_waits_stands_aside_for_the_server_and_not_for_other_cells_alone(server: Server) -> None:
    """A group that is idle is so to its siblings: the server must be one of them."""
    assert server.process is not None
    pid, launcher = server.process.pid, launcher_of(server.process.pid)
    if (own := _cpu_group(pid)) is None:
        pytest.skip("on cgroup v2 one group holds all cells, for all that is bounded")
    with server.client() as http:
        run(http, create(http), code="print(1)", language="python")
        eventually(lambda: _inits(launcher) != [])
        group = _cpu_group(_inits(launcher)[0])

    assert group is not None
    assert group.parent == own


def _cpu_group(pid: int) -> Path | None:
    """Return where a process is in the hierarchy of processors alone; None where there is none."""
    lines = (line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    return next((Path(path) for _, names, path in lines if "cpu" in names.split(",")), None)


def _inits(launcher: int) -> list[int]:
    return [pid for pid in standing(launcher) if _name(pid) == "init"]


def _name(pid: int) -> str:
    with suppress(OSError):  # it may have ended since
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def test_a_sweep_takes_what_is_in_a_base_and_beside_it_and_leaves_another_server_s(tmp_path: Path) -> None:
    for name in ("petri-a/cell-1", "petri-a-cell-2", "petri-ab-cell-3", "petri-b/cell-4"):
        (tmp_path / name).mkdir(parents=True)

    sweep(str(tmp_path / "petri-a"))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["petri-ab-cell-3", "petri-b"]


@needs_root
def test_a_run_that_has_been_going_on_makes_way_for_a_new_one(new_server: Callable[..., Server]) -> None:
    """Measured in shares and not in time: the old one was told, the young one was not."""
    server = new_server(PETRI_PARKED_BYTES="0")  # what stands ready has a share of its own
    bases = [line for line in _remembered(server) if "/cpu" in line]
    if not bases:
        pytest.skip("this host has cgroup v2, which the test above reads")
    with server.client() as http, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, http, create(http), command="sleep 3")
        seen: set[str] = set()
        while not waiting.done():
            for group in groups_of(bases[0]):
                with suppress(OSError):  # it is over
                    if (group / "tasks").read_text():  # it has its share before it has anybody
                        seen.add((group / "cpu.shares").read_text().strip())

    assert seen == {"256", "32"}


def _remembered(server: Server) -> list[str]:
    return (server.home / "petri" / "engine" / "cgroups").read_text().split()
