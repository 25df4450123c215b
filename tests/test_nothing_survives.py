"""Nothing survives a run, however it ends and whatever it left: seen from the host, once the answer came."""

import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.footprint import NETWORK, Footprint, footprint, groups, launcher_of, shared_memory, standing

from tests.calls import ask, create, eventually, following, put, run
from tests.conftest import Server
from tests.ready import first_processes, have_one_stand, parked_cells_used

pytestmark = pytest.mark.slow

# Each leaves somebody, who leaves something: `leave(what)` has it done by a child that outlives its parent.
PRELUDE = """
import ctypes, mmap, os, pty, resource, signal, socket, subprocess, sys, tempfile, threading, time
libc = ctypes.CDLL(None)

def leave(do):
    reading, writing = os.pipe()
    if os.fork() == 0:
        do()
        os.write(writing, b".")
        os.close(writing)
        while True:
            time.sleep(60)
    os.close(writing)
    assert os.read(reading, 1) == b"."
"""

SURVIVORS = {
    "a daemon": """
        def daemon():
            os.setsid()
            if os.fork():
                os._exit(0)
            for name in (0, 1, 2):
                os.close(name)
            while True:
                with open("/workspace/beat", "a") as beat:
                    beat.write(".")
                time.sleep(0.01)
        if os.fork() == 0:
            daemon()
        while not os.path.exists("/workspace/beat"):
            time.sleep(0.01)
    """,
    "one that is stopped": """
        stopped = os.fork()
        if stopped == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)
        os.waitid(os.P_PID, stopped, os.WSTOPPED)
    """,
    "one that holds the pipes": """
        leave(lambda: (os.setsid(), os.dup(1), os.dup(2)))
    """,
    "one that no signal ends": """
        def deaf():
            for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
        leave(deaf)
    """,
    "one that is always another": """
        if os.fork() == 0:
            while True:
                if os.fork():
                    os._exit(0)
    """,
    "one whose end nobody would be told of": """
        # A child that is made like this is waited for by nobody who does not ask for its kind.
        if libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0, 0, 0, 0, 0) == 0:
            while True:
                with open("/workspace/beat", "a") as beat:
                    beat.write(".")
                time.sleep(0.01)
        while not os.path.exists("/workspace/beat"):
            time.sleep(0.01)
    """,
    "threads": """
        def many():
            for _ in range(20):
                threading.Thread(target=time.sleep, args=(60,)).start()
        leave(many)
        many()
    """,
    "shared memory of System V": """
        def share():
            libc.shmat.restype = ctypes.c_void_p
            at = libc.shmat(libc.shmget(0x7e57, 8 << 20, 0o1666), None, 0)
            ctypes.memset(at, 1, 8 << 20)
            assert libc.semget(0x7e57, 4, 0o1666) >= 0 and libc.msgget(0x7e57, 0o1666) >= 0
        leave(share)
    """,
    "shared memory of POSIX": """
        held = []
        def share():
            for folder in ("/dev/shm", "/tmp"):
                file = open(f"{folder}/left", "wb+")
                file.write(bytes(8 << 20))
                held.append(mmap.mmap(file.fileno(), 8 << 20))
            memory = os.memfd_create("left")
            os.write(memory, bytes(8 << 20))
        leave(share)
    """,
    "terminals": """
        def talk():
            for _ in range(8):
                pty.openpty()
            if pty.fork()[0] == 0:
                time.sleep(60)
        leave(talk)
    """,
    "sockets": """
        def listen():
            keep = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
            keep[1].bind("\\0left")
            keep[1].listen()
            pair = socket.socketpair()
            socket.send_fds(pair[0], [b"x"], [keep[0].fileno(), pair[1].fileno()])
            globals()["kept"] = keep, pair
        leave(listen)
    """,
    "questions at the door": """
        # Whoever names pip has a door.
        held = []
        def knock():
            for said in (b"", b"{", b'{"ask": "module", "language": "python", "want": ["os"]}\\n'):
                door = socket.socket(socket.AF_UNIX)
                door.connect("/environment/door")
                door.sendall(said)
                held.append(door)
        leave(knock)
    """,
    "files that have no name": """
        held = []
        def hide():
            for folder in ("/workspace", "/tmp"):
                file = tempfile.TemporaryFile(dir=folder)
                file.write(bytes(1 << 20))
                file.flush()
                held.append(file)
        leave(hide)
    """,
    "a mount namespace that is wanted": """
        for flags in (0x20000, 0x10000000, 0x10020000):
            assert libc.unshare(flags) == -1
        leave(lambda: os.open("/proc/self/ns/mnt", os.O_RDONLY))
    """,
}


BUNDLES = {
    "processes": tuple(SURVIVORS)[:6],
    "threads": ("threads",),
    "memory": tuple(name for name in SURVIVORS if name.startswith("shared memory")),
    "descriptors": (
        "terminals",
        "sockets",
        "questions at the door",
        "files that have no name",
        "a mount namespace that is wanted",
    ),
}


def test_every_kind_of_survivor_is_in_a_bundle() -> None:
    assert sorted(name for bundle in BUNDLES.values() for name in bundle) == sorted(SURVIVORS)


def program(*survivors: str, end: str) -> dict[str, str]:
    """Return a run that leaves `survivors` behind, says so, and then does `end`."""
    parts = [PRELUDE, *(SURVIVORS[name] for name in survivors), 'print("left", flush=True)', end]
    return {"code": "\n".join(textwrap.dedent(part) for part in parts), "language": "python"}


# --------------------------------------------------------------------------------------------- endings


def by_exit(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    told = run(http, sandbox, **program(*left, end="sys.stdout.flush(); os._exit(3)"))
    assert (told["stdout"], told["exit_code"]) == ("left\n", 3), told


def by_signal(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    told = run(http, sandbox, **program(*left, end="os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (told["stdout"], told["signal"]) == ("left\n", signal.SIGSEGV), told


def by_timeout(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    told = run(http, sandbox, timeout_s=1.5, **program(*left, end="time.sleep(60)"))
    assert (told["stdout"], told["timed_out"]) == ("left\n", True), told


def by_cancelling(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    with following(http, sandbox, **program(*left, end="time.sleep(60)")) as said:
        run_id = next(each for each in said if each.kind == "started").data["run_id"]
        next(each for each in said if each.kind == "stdout")
        assert http.post(f"/v1/runs/{run_id}/cancel").json()["state"] == "cancelled"


def by_memory(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    told = run(http, sandbox, **program(*left, end="x = bytearray(2 << 30)"))
    assert (told["stdout"], told["oom_killed"]) == ("left\n", True), told


def by_a_full_disk(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    fill = """
        for number in range(1000):
            with open(f"/workspace/{number}", "wb") as file:
                file.write(bytes(16 << 20))
    """
    told = run(http, sandbox, limits={"disk_bytes": 64 << 20}, **program(*left, end=fill))
    assert (told["stdout"], told["disk_full"]) == ("left\n", True), told


def by_deletion(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    with following(http, sandbox, **program(*left, end="time.sleep(60)")) as said:
        next(each for each in said if each.kind == "stdout")
        assert http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204


def by_itself_its_client_gone(http: httpx.Client, sandbox: str, left: tuple[str, ...]) -> None:
    with following(http, sandbox, **program(*left, end="time.sleep(0.5); os._exit(4)")) as said:
        run_id = next(each for each in said if each.kind == "started").data["run_id"]
        next(each for each in said if each.kind == "stdout")
    eventually(lambda: http.get(f"/v1/runs/{run_id}").json()["state"] == "done")
    assert http.get(f"/v1/runs/{run_id}").json()["exit_code"] == 4


ENDINGS = [
    *(by_exit, by_signal, by_timeout, by_cancelling),
    *(by_a_full_disk, by_deletion, by_itself_its_client_gone),
]
if os.geteuid() == 0:  # only a cgroup ends what takes too much memory
    ENDINGS.append(by_memory)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for us alone, with every thread and descriptor it will ever want, and no cell that stands."""
    yield from served(tmp_path_factory.mktemp("host"), PETRI_PARKED_BYTES="0")


@pytest.fixture(scope="module")
def ready_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that has cells stand ready."""
    yield from served(tmp_path_factory.mktemp("ready"))


def served(home: Path, **settings: str) -> Iterator[Server]:
    server = Server(home, settings).start()
    with server.client() as http:
        for ending in ENDINGS:
            ending(http, create(http), ("threads",))
        by_exit(http, create(http), BUNDLES["descriptors"])
    eventually(lambda: is_complete(server))
    yield server
    assert server.stop() == 0, server.log()


def is_complete(server: Server) -> bool:
    """Say whether the environment of those who ask at the door is compiled: a cell comes for that, later."""
    shelf = server.home / "petri" / "environments" / "shelf"
    built = [folder for folder in shelf.iterdir() if not folder.name.startswith(".")]
    return bool(built) and all((folder / "whole").exists() for folder in built) and look(server).groups == ()


def look(server: Server) -> Footprint:
    """Return what the host shows, memory left out."""
    assert server.process is not None
    found = footprint(server.process.pid, server.home / "petri")
    return replace(found, server_bytes=0, launcher_bytes=0, server_threads=0)


@pytest.mark.parametrize("left", BUNDLES.values(), ids=BUNDLES)
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
def test_nothing_survives(host: Server, ending: Callable[..., None], left: tuple[str, ...]) -> None:
    with host.client() as http:
        see_that_nothing_survives(host, http, create(http), ending, left)


WITH_NO_DOOR = {
    name: tuple(left for left in bundle if left != "questions at the door")
    for name, bundle in BUNDLES.items()
}
"""A run that has a door sees what no other may: there is never a cell that stands ready for it."""


@pytest.mark.parametrize("left", WITH_NO_DOOR.values(), ids=WITH_NO_DOOR)
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
def test_nothing_survives_in_a_cell_that_stood_ready(
    ready_host: Server, ending: Callable[..., None], left: tuple[str, ...]
) -> None:
    assert ready_host.process is not None
    launcher = launcher_of(ready_host.process.pid)
    with ready_host.client() as http:
        # A run with limits of its own would have a cell of its own.
        sandbox = create(http, limits={"disk_bytes": 64 << 20} if ending is by_a_full_disk else {})
        eventually(lambda: unused_networks(ready_host) == 0)  # of the sandbox before this one
        others, before = standing(launcher), look(ready_host)
        have_one_stand(ready_host, http, sandbox, code="pass", language="python")
        used = parked_cells_used(http)

        ending(http, sandbox, left)

        assert parked_cells_used(http) == used + 1
        assert look(ready_host).shared_memory == ()
        # The next cell is being made meanwhile: whatever is there, or comes, must be that one.
        eventually(lambda: (look(ready_host).processes, look(ready_host).groups) == ((), ()))
        beat = ready_host.home / "petri" / "workspaces" / sandbox / "beat"
        size = beat.stat().st_size if beat.exists() else None
        time.sleep(0.1)
        assert size is None or beat.stat().st_size == size
        http.delete(f"/v1/sandboxes/{sandbox}")
        assert standing(launcher) <= others
        eventually(lambda: but_for_descriptors(look(ready_host)) == but_for_descriptors(before))
        eventually(lambda: held_by_server(look(ready_host)) <= held_by_server(before))


def unused_networks(server: Server) -> int:
    """Return how many networks the launcher has that no cell is in."""
    return look(server).launcher_descriptors.count(NETWORK) - 1  # but for the one it is in itself


def but_for_descriptors(found: Footprint) -> Footprint:
    """Return a look without what the server holds open: cells that stand for others may go meanwhile."""
    return replace(found, server_descriptors=())


def held_by_server(found: Footprint) -> int:
    """Return how much the server holds open, but for its ledger, which it reads by one more when it needs."""
    return sum("ledger.db" not in each for each in found.server_descriptors)


def see_that_nothing_survives(
    host: Server, http: httpx.Client, sandbox: str, ending: Callable[..., None], left: tuple[str, ...]
) -> None:
    """End a run that leaves much behind, and look."""
    before = look(host)

    ending(http, sandbox, left)

    now = look(host)
    assert (now.processes, now.groups, now.shared_memory) == ((), (), ())
    assert (now.host_mounts, now.launcher_mounts) == (before.host_mounts, before.launcher_mounts)
    assert now.launcher_descriptors == before.launcher_descriptors
    assert now.launcher_threads == 1
    beat = host.home / "petri" / "workspaces" / sandbox / "beat"
    size = beat.stat().st_size if beat.exists() else None
    http.delete(f"/v1/sandboxes/{sandbox}")
    # A connection's end and a deleted folder's space come a moment later than the answer.
    eventually(lambda: len(look(host).server_descriptors) <= len(before.server_descriptors))
    eventually(lambda: look(host).scraps == ())
    assert size is None or not beat.exists()


def test_a_daemon_that_was_seen_to_beat_beats_no_more(host: Server) -> None:
    with host.client() as http:
        sandbox = create(http)
        by_exit(http, sandbox, ("a daemon",))
        beat = host.home / "petri" / "workspaces" / sandbox / "beat"
        size = beat.stat().st_size
        time.sleep(0.2)  # twenty beats of its own

        assert beat.stat().st_size == size > 0


# --------------------------------------------------------------- a server, or a launcher, that is killed


def all_at_once(server: Server, pool: ThreadPoolExecutor) -> list[Future[Any]]:
    """Have a run for each kind of survivor, all of which have left it by now."""

    def one(left: str) -> httpx.Response | None:
        with server.client() as http:
            try:
                return ask(http, create(http), **program(left, end="time.sleep(60)"))
            except httpx.TransportError:
                return None

    waiting = [pool.submit(one, left) for left in SURVIVORS]
    with server.client() as http:
        eventually(lambda: stdouts(http) == [b"left\n"] * len(SURVIVORS), within_s=30)
    return waiting


def stdouts(http: httpx.Client) -> list[bytes]:
    runs = [
        each
        for sandbox in http.get("/v1/sandboxes").json()["sandboxes"]
        for each in http.get(f"/v1/sandboxes/{sandbox['id']}/runs").json()["runs"]
    ]
    return [http.get(f"/v1/runs/{each['run_id']}/stdout").content for each in runs]


def cells_of(home: Path) -> list[int]:
    """Return the processes in the cgroups of a server's cells."""
    return [
        int(pid)
        for group in groups(home)
        if (Path(group) / "cgroup.procs").exists()
        for pid in (Path(group) / "cgroup.procs").read_text().split()
    ]


def is_gone(pid: int) -> bool:
    """Say whether a process is no more; whom only the host's own init has to bury is none either."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] in "ZX"
    except OSError:
        return True


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups to look into")


@pytest.fixture
def busy(new_server: Callable[..., Server]) -> Server:
    """A server that takes all of these runs at a time."""
    return new_server(PETRI_MAX_RUNS=str(len(SURVIVORS)), PETRI_PARKED_BYTES="0")


@needs_root
def test_a_server_that_is_killed_leaves_nothing_and_needs_no_next_life_for_it(busy: Server) -> None:
    home = busy.home / "petri"
    with ThreadPoolExecutor(len(SURVIVORS)) as pool:
        waiting = all_at_once(busy, pool)
        assert busy.process is not None
        launcher, inside = launcher_of(busy.process.pid), cells_of(home)
        assert len(set(inside)) > 2 * len(SURVIVORS)

        busy.stop(signal.SIGKILL)
        eventually(lambda: all(is_gone(pid) for pid in (launcher, *inside)))

        assert (groups(home), shared_memory()) == ((), ())
        assert [each.result() for each in waiting] == [None] * len(SURVIVORS)
    busy.start()
    with busy.client() as http:
        http.get("/v1/languages")  # a new life begins with a cell of its own, to ask for these
        assert (look(busy).processes, look(busy).groups, look(busy).scraps) == ((), (), ())


@needs_root
def test_a_launcher_that_is_killed_leaves_nothing_once_the_failure_is_told(busy: Server) -> None:
    home = busy.home / "petri"
    with ThreadPoolExecutor(len(SURVIVORS)) as pool:
        waiting = all_at_once(busy, pool)
        assert busy.process is not None
        launcher, inside = launcher_of(busy.process.pid), cells_of(home)

        os.kill(launcher, signal.SIGKILL)
        answers = [each.result() for each in waiting]

    assert [answer.status_code for answer in answers] == [503] * len(SURVIVORS), [a.text for a in answers]
    assert [pid for pid in inside if not is_gone(pid)] == []
    assert (groups(home), shared_memory()) == ((), ())
    with busy.client() as http:
        assert run(http, create(http), command="echo works")["stdout"] == "works\n"
    eventually(lambda: is_complete(busy))  # a cell of the server's own comes for that, not for a run
    assert (look(busy).processes, look(busy).groups) == ((), ())


@needs_root
def test_a_server_killed_with_its_launcher_leaves_nothing_to_its_next_life(busy: Server) -> None:
    with ThreadPoolExecutor(len(SURVIVORS)) as pool:
        all_at_once(busy, pool)
        assert busy.process is not None
        launcher, inside = launcher_of(busy.process.pid), cells_of(busy.home / "petri")

        os.kill(launcher, signal.SIGSTOP)  # so that it cannot tidy up
        busy.process.kill()
        os.kill(launcher, signal.SIGKILL)
        busy.wait()
    busy.start()

    with busy.client() as http:
        http.get("/v1/languages")
        assert [pid for pid in inside if not is_gone(pid)] == []
        assert (look(busy).processes, look(busy).groups, look(busy).scraps) == ((), (), ())
        put(http, create(http), "a", b"it works")


@needs_root
def test_a_server_that_is_told_to_stop_leaves_nothing(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_MAX_RUNS=str(len(SURVIVORS)), PETRI_DRAIN_S="0.5")
    home = server.home / "petri"
    with ThreadPoolExecutor(len(SURVIVORS)) as pool:
        all_at_once(server, pool)
        assert server.process is not None
        launcher, inside = launcher_of(server.process.pid), cells_of(home)

        assert server.stop() == 0

    assert [pid for pid in (launcher, *inside) if not is_gone(pid)] == []
    assert (groups(home), shared_memory()) == ((), ())


# ------------------------------------------------------------------------ cells that stand, and serve nobody


@pytest.fixture
def full(new_server: Callable[..., Server]) -> tuple[Server, list[int]]:
    """A server that does nothing, and the first processes of its cells that stand, of all three kinds."""
    server = new_server()
    kinds: tuple[dict[str, Any], ...] = (
        {"code": "pass", "language": "python"},
        {"filename": "main.py"},
        {"command": "true"},
    )
    with server.client() as http:
        sandboxes = [create(http) for _ in kinds]
        for sandbox, body in zip(sandboxes, kinds, strict=True):
            put(http, sandbox, "main.py", b"pass")
            have_one_stand(server, http, sandbox, **body)
        http.get("/v1/languages")
    time.sleep(0.5)  # an upload has one stand, too, which goes when another is wanted
    found = [pid for sandbox in sandboxes for pid in first_processes(server, sandbox)]
    assert len(found) >= len(kinds)
    return server, found


def ended_by_killing_the_server(server: Server, _: int) -> None:
    server.stop(signal.SIGKILL)


def ended_by_killing_the_launcher(_: Server, launcher: int) -> None:
    os.kill(launcher, signal.SIGKILL)


def ended_by_killing_both(server: Server, launcher: int) -> None:
    os.kill(launcher, signal.SIGSTOP)  # so that it cannot tidy up
    assert server.process is not None
    server.process.kill()
    os.kill(launcher, signal.SIGKILL)
    server.wait()


def ended_by_stopping_the_server(server: Server, _: int) -> None:
    assert server.stop() == 0


@needs_root
@pytest.mark.parametrize(
    "end",
    [
        *(ended_by_killing_the_server, ended_by_killing_the_launcher),
        *(ended_by_killing_both, ended_by_stopping_the_server),
    ],
    ids=lambda end: end.__name__,
)
def test_cells_that_stand_die_with_those_who_had_them_made(
    full: tuple[Server, list[int]], end: Callable[[Server, int], None]
) -> None:
    server, first = full
    assert server.process is not None
    launcher, inside = launcher_of(server.process.pid), cells_of(server.home / "petri")
    assert set(first) < set(inside)

    end(server, launcher)

    eventually(lambda: [pid for pid in (launcher, *inside) if not is_gone(pid)] == [])
    if server.process is None:
        server.start()
    with server.client() as http:  # the next life, or the next launcher, tidies up what could not be
        sandbox = create(http)
        assert run(http, sandbox, command="echo works")["stdout"] == "works\n"
        http.delete(f"/v1/sandboxes/{sandbox}")
        eventually(lambda: (groups(server.home / "petri"), shared_memory()) == ((), ()))
