"""kill -9 at any moment, then start: what was acknowledged is there, and nothing of the earlier life is."""

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from benchmarks.footprint import groups_of

from tests.calls import ask, create, eventually, files_url, put, run, scraps, sh, workspaces
from tests.conftest import Server

pytestmark = pytest.mark.slow

ROUNDS = 8
FIRST_UID = 0x7000_0000


@dataclass
class Told:
    """What the server acknowledged, and what was on its way when it died."""

    versions: dict[tuple[str, str], int] = field(default_factory=dict)
    """(sandbox, path) → the newest version acknowledged."""
    tried: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """(sandbox, path) → versions sent since then: any of them may be there."""
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Run id → (sandbox, the word it wrote)."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """For versions and words: none comes twice, so that an old one is never taken for a new one."""
    deleted: set[str] = field(default_factory=set)
    asked_to_delete: set[str] = field(default_factory=set)


def content(path: str, version: int) -> bytes:
    """Return a version of a file, of a size that only the version decides; a torn one is no version."""
    size = random.Random(f"{path} {version}").randrange(70, 1_400_000)
    word = f"{path} {version} ".encode()
    return (word * (size // len(word) + 1))[:size]


def write(http: httpx.Client, told: Told, sandbox: str, writer: int, stop: threading.Event) -> None:
    while not stop.is_set():
        version = next(told.numbers)
        path = random.choice([f"w{writer}", f"deep/er/w{writer}"])
        told.tried.setdefault((sandbox, path), set()).add(version)
        if http.put(files_url(sandbox, path), content=content(path, version)).status_code == 201:
            told.versions[sandbox, path] = version
            told.tried[sandbox, path] = {version}


def execute(http: httpx.Client, told: Told, sandbox: str, pause: float, stop: threading.Event) -> None:
    while not stop.is_set():
        word = f"{pause}-{next(told.numbers)}"
        script = f"echo {word} > out-{word}; sync out-{word}; sleep {pause}; echo {word}"
        answer = ask(http, sandbox, command=script)
        if answer.status_code == 200 and answer.json()["exit_code"] == 0:
            told.runs[answer.json()["run_id"]] = (sandbox, word)


def come_and_go(http: httpx.Client, told: Told, stop: threading.Event) -> None:
    while not stop.is_set():
        sandbox = create(http)
        put(http, sandbox, "a/b", b"x" * 10_000)
        told.asked_to_delete.add(sandbox)
        if http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204:
            told.deleted.add(sandbox)


def until_it_dies(work: Callable[[], object]) -> None:
    try:
        work()
    except (httpx.TransportError, AssertionError):
        return


def live_through(server: Server, told: Told, sandboxes: list[str], seconds: float) -> None:
    """Keep the server busy with everything at once, and kill it in the middle."""
    assert server.process is not None
    stop = threading.Event()
    with server.client() as http, ThreadPoolExecutor(12) as pool:
        for writer in range(4):
            sandbox = sandboxes[writer % 2]
            pool.submit(until_it_dies, lambda s=sandbox, w=writer: write(http, told, s, w, stop))  # type: ignore[misc]
        for number, pause in enumerate((0, 0.3, 3)):
            sandbox = sandboxes[2 + number]
            pool.submit(until_it_dies, lambda s=sandbox, p=pause: execute(http, told, s, p, stop))  # type: ignore[misc]
        pool.submit(until_it_dies, lambda: come_and_go(http, told, stop))
        time.sleep(seconds)
        server.process.send_signal(signal.SIGKILL)
        stop.set()
    server.wait()


def check_files(http: httpx.Client, told: Told) -> None:
    for (sandbox, path), version in told.versions.items():
        found = http.get(files_url(sandbox, path)).content
        possible = {version, *told.tried[sandbox, path]}
        assert found in {content(path, each) for each in possible}, f"{path} is not {version} or later"
    for (sandbox, path), versions in told.tried.items():
        if (sandbox, path) not in told.versions:
            answer = http.get(files_url(sandbox, path))
            assert answer.status_code == 404 or answer.content in {content(path, each) for each in versions}


def check_runs(http: httpx.Client, told: Told, sandboxes: list[str]) -> int:
    for run_id, (sandbox, word) in told.runs.items():
        shown = http.get(f"/v1/runs/{run_id}").json()
        assert (shown["state"], shown["exit_code"]) == ("done", 0)
        assert http.get(f"/v1/runs/{run_id}/stdout").text == f"{word}\n"
        assert http.get(files_url(sandbox, f"out-{word}")).text == f"{word}\n"
    interrupted = 0
    for sandbox in sandboxes:
        for shown in http.get(f"/v1/sandboxes/{sandbox}/runs", params={"limit": 200}).json()["runs"]:
            assert shown["state"] in ("done", "interrupted"), shown
            if shown["state"] == "interrupted":
                interrupted += 1
                assert (shown["exit_code"], shown["cancelled"]) == (None, False)
                assert http.get(f"/v1/runs/{shown['run_id']}/stdout").status_code == 200
    return interrupted


def check_nothing_is_left(server: Server, http: httpx.Client, told: Told) -> None:
    http.get("/v1/languages")  # a new life begins with a cell of its own, to ask for these
    eventually(lambda: scraps(server) == [])
    for sandbox in told.deleted:
        assert http.get(f"/v1/sandboxes/{sandbox}").json()["state"] == "deleted"
    eventually(lambda: http.get("/v1/metrics").json()["sandboxes"]["deleting"] == 0)
    for sandbox in told.asked_to_delete:
        state = http.get(f"/v1/sandboxes/{sandbox}").json()["state"]
        assert (workspaces(server) / sandbox).exists() == (state == "ready"), (sandbox, state)
    assert cells(server) == []
    assert processes(server) == []


def cells(server: Server) -> list[str]:
    """Return the cgroups of cells of this server."""
    remembered = server.home / "petri" / "engine" / "cgroups"
    bases = remembered.read_text().split() if remembered.exists() else []
    return [str(group) for base in bases for group in groups_of(base)]


def processes(server: Server) -> list[str]:
    """Return the command lines of what still runs for some sandbox of this server."""
    if os.geteuid() != 0:
        return []
    root = str(workspaces(server))
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                if each.stat().st_uid >= FIRST_UID and root in (each / "mountinfo").read_text():
                    found.append((each / "cmdline").read_text())
            except OSError:
                continue  # it ended while we looked
    return found


def test_kill_9_loses_nothing_acknowledged_and_leaves_nothing_running(
    new_server: Callable[..., Server],
) -> None:
    server = new_server()
    told = Told()
    interrupted = 0
    with server.client() as http:
        sandboxes = [create(http) for _ in range(5)]

    for round_number in range(ROUNDS):
        live_through(server, told, sandboxes, random.Random(round_number).uniform(0.5, 2.5))
        server.start()
        with server.client() as http:
            check_nothing_is_left(server, http, told)
            check_files(http, told)
            interrupted += check_runs(http, told, sandboxes)
            assert sh(http, sandboxes[0], "echo works") == "works\n"

    assert (len(told.versions), len(told.deleted) > 5, len(told.runs) > 10) == (8, True, True), "it was busy"
    assert interrupted > 0, "something was cut off"


def test_output_of_an_interrupted_run_is_kept_as_far_as_it_came(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with server.client() as http, ThreadPoolExecutor(1) as pool:
        sandbox = create(http)
        asked = pool.submit(
            until_it_dies, lambda: run(http, sandbox, command="echo begun; sleep 60") and None
        )
        eventually(lambda: http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"] != [])
        run_id = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"][0]["run_id"]
        eventually(lambda: http.get(f"/v1/runs/{run_id}/stdout").content == b"begun\n")
        if os.geteuid() == 0:
            assert (len(cells(server)) > 0, len(processes(server)) > 0) == (True, True)
        server.stop(signal.SIGKILL)
        asked.result()
    server.start()

    with server.client() as http:
        http.get("/v1/languages")
        assert (cells(server), processes(server)) == ([], [])
        assert http.get(f"/v1/runs/{run_id}").json()["state"] == "interrupted"
        assert http.get(f"/v1/runs/{run_id}/stdout").content == b"begun\n"
        with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
            heard = response.read().decode()
        assert "event: done" in heard
        assert '"state":"interrupted"' in heard


def test_a_thousand_sandboxes_are_back_within_two_seconds(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with server.client() as http, ThreadPoolExecutor(16) as pool:
        made = set(pool.map(lambda _: create(http), range(1000)))
    assert len(made) == 1000
    server.stop(signal.SIGKILL)

    begun = time.monotonic()
    server.start()
    took = time.monotonic() - begun

    with server.client() as http:
        assert http.get("/v1/metrics").json()["sandboxes"]["ready"] == 1000
        assert sh(http, made.pop(), "echo works") == "works\n"
    assert took < 2, f"ready after {took:.1f} s"


# ----------------------------------------------------------------------------------------- power loss


@contextmanager
def traced(server: Server, trace: Path) -> Iterator[None]:
    """Have what the server does to files and sockets written down, in the order it happens."""
    if shutil.which("strace") is None:
        pytest.skip("no strace on this host")
    assert server.process is not None
    pid = server.process.pid
    calls = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,sendto,sendmsg,writev,link,linkat"
    argv = ["strace", "-f", "-y", "-s", "4200", "-e", f"trace={calls}", "-o", str(trace), "-p", str(pid)]
    tracing = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text())
        yield
    finally:
        tracing.send_signal(signal.SIGINT)
        tracing.wait(10)


def assert_in_order(said: str, steps: dict[str, str]) -> None:
    """Fail unless each step of a trace comes somewhere behind the one before."""
    at = -1
    for name, pattern in steps.items():
        places = [found.start() for found in re.finditer(pattern, said)]
        assert any(place > at for place in places), f"no {name} where it must be:\n{said[-6000:]}"
        at = min(place for place in places if place > at)


def test_an_upload_is_on_the_disk_before_it_is_acknowledged(
    new_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = new_server()
    with server.client() as http:
        sandbox = create(http)
        with traced(server, tmp_path / "trace"):
            put(http, sandbox, "pkg/precious", "precious words")

    steps = {
        "write": r'write\(\d+<[^>]*\.staging/[^>]*>, "precious words"',
        "fsync": r"f(data)?sync\(\d+<[^>]*\.staging/[^>/]*/\d+>",
        "rename": r"rename\w*\([^\n]*\.staging[^\n]*\"precious\"",
        "fsync of the folder": r"fsync\(\d+<[^>]*/pkg>",
        "the ledger": r"f(data)?sync\(\d+<[^>]*ledger\.db-wal>",
        "201": r"(write|sendto|writev|sendmsg)\([^\n]*HTTP/1\.1 201",
    }
    assert_in_order((tmp_path / "trace").read_text(), steps)


ANSWERED = r"(write|sendto|writev|sendmsg)\([^\n]*HTTP/1\.1 200"
LEDGER = r"f(data)?sync\(\d+<[^>]*ledger\.db-wal>"


def traced_run(new_server: Callable[..., Server], trace: Path, command: str) -> str:
    """Return what a server did while it ran `command`."""
    server = new_server()
    with server.client() as http:
        sandbox = create(http)
        sh(http, sandbox, "true")  # whatever is done once is done by now
        with traced(server, trace):
            sh(http, sandbox, command)
    return trace.read_text()


def test_output_and_outcome_are_on_the_disk_before_anybody_is_told(
    new_server: Callable[..., Server], tmp_path: Path
) -> None:
    said = traced_run(new_server, tmp_path / "trace", "echo precious words")

    written = r"pwrite64\(\d+<[^>]*ledger\.db-wal>, [^\n]*precious words\\n"
    assert_in_order(said, {"its beginning": LEDGER, "write": written, "its end": LEDGER, "200": ANSWERED})
    assert "/runs/" not in said, "so little needs no file"


def test_much_output_is_on_the_disk_before_anybody_is_told(
    new_server: Callable[..., Server], tmp_path: Path
) -> None:
    said = traced_run(new_server, tmp_path / "trace", "yes precious words | head -n 10000")

    written = r'write\(\d+<[^>]*/runs/[^>]*>, "[^"]*precious words'
    file, folder = r"fsync\(\d+<[^>]*/runs/./run-[^>]*>", r"fsync\(\d+<[^>]*/runs/.>"
    assert_in_order(said, {"write": written, "fsync": file, "200": ANSWERED})
    assert_in_order(said, {"write": written, "fsync of its folder": folder, "200": ANSWERED})
    assert_in_order(said, {"its beginning": LEDGER, "its end": LEDGER, "200": ANSWERED})
