"""Keeping a folder in step with a sandbox, against `rsync` to a daemon, all on this machine.

Bytes are those of both streams of a connection, counted by a relay in a run of its own. Times are of whole
commands, interpreter and all, taken in turn, each tool with a destination of its own and the same change.
Both sides lie in memory where there is some (`/dev/shm`): rsync makes nothing durable, Petri all, and that
would be a comparison of disks. `PETRI_BENCH_DIR` has it done elsewhere. After each command the server is left
to finish what it does behind its answers, so that nobody else is timed together with that.
"""

import compileall
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import petri
from benchmarks.bench import PETRI, Row, Served, served
from benchmarks.relay import Relay
from petri.sdk import Client

ROUNDS = 7
BIG_BYTES = 200 * 10**6
_DAEMON = """
use chroot = no
port = {port}
address = 127.0.0.1
log file = {folder}/rsyncd.log
lock file = {folder}/rsyncd.lock
[to]
path = {folder}/to
read only = no
uid = {uid}
gid = {gid}
"""


@dataclass
class Ground:
    """Where everything lies, and how both servers are reached."""

    folder: Path
    server: Served
    rsync_port: int

    @property
    def petri_port(self) -> int:
        """Where the server listens."""
        return self.server.address[1]

    def client(self) -> Client:
        """Return a client of the server."""
        return Client(f"http://127.0.0.1:{self.petri_port}")

    def new_box(self) -> str:
        """Return a new sandbox's id."""
        with self.client() as client:
            return client.create().id


@dataclass
class Case:
    """One tree, in step with one destination of each tool."""

    ground: Ground
    source: Path
    box: str
    state: Path

    def push(self, port: int | None = None) -> None:
        """Have the sandbox as the folder is."""
        # The state is of a server's address, and a relay is another.
        home = self.state / ("direct" if port is None else "counted")
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {
            "PETRI_URL": f"http://127.0.0.1:{port or self.ground.petri_port}",
            "XDG_STATE_HOME": str(home),
        }
        command = [str(PETRI), "push", str(self.source), self.box]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)

    def rsync(self, options: str, name: str, port: int | None = None) -> None:
        """Have rsync's destination as the folder is."""
        where = f"rsync://127.0.0.1:{port or self.ground.rsync_port}/to/{name}/"
        subprocess.run(["rsync", options, "--delete", f"{self.source}/", where], check=True)


@dataclass
class Work:
    """Something to measure: what happens to the tree before, and what the bar is."""

    what: str
    change: Callable[[Path, int], object]
    most_bytes: int | None
    most_ratio: float
    against: str = "-a"


def measure() -> list[Row]:
    """Return bytes and times of every kind of work."""
    if shutil.which("rsync") is None:
        sys.exit("the benchmark `sync` compares with rsync: install it, `apt install rsync`")
    compileall.compile_dir(Path(petri.__file__).parent, quiet=2)
    rows: list[Row] = []
    with _ground() as ground:
        small = _case(ground, "small", lambda top: copy_sources(top, 2_000, 30 * 10**6))
        rows += _first_upload(ground)
        rows += _compared(small, Work("no-op, 2,000 files", _nothing, 1_500, 0.8))
        rows += _compared(small, Work("one file edited, of 2,000", _edit, 8_000, 1.0))
        rows += _second_sandbox(small)
        rows += _watched(small)
        many = _case(ground, "many", many_files)
        rows += _compared(many, Work("no-op, 20,000 files", _nothing, 1_500, 0.8))
        rows += _compared(many, Work("one file edited, of 20,000", _edit, 8_000, 1.0))
        rows += _compared(many, Work("folder of 5,000 files renamed", _rename, 2_000, 0.6))
        big = _case(
            ground, "big", lambda top: (top / "big").write_bytes(random.Random(1).randbytes(BIG_BYTES))
        )
        rows += _compared(big, Work("200 MB, 1 KB changed in the middle", _change_middle, 8_000, 1.0))
        rows += _compared(big, Work("200 MB, 1 KB inserted at the start", _insert, 8_000, 1.0))
    return rows


# ------------------------------------------------------------------------------------- what happens to trees


def copy_sources(top: Path, count: int, size: int) -> None:
    """Fill `top` with source files of this interpreter and its packages."""
    number, total = 0, 0
    roots = [Path(os.__file__).parent, *(Path(each) for each in sys.path if each.endswith("site-packages"))]
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            if number >= count or total >= size:
                return
            target = top / root.name / path.relative_to(root)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                number += 1
                total += target.stat().st_size


def many_files(top: Path) -> None:
    """Fill `top` with 20,000 small files, 5,000 of them in the folder `a`."""
    words = random.Random(2)
    for number in range(20_000):
        folder = top / "abcd"[number % 4] / f"{number // 80 % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.py").write_text(f"value = {words.getrandbits(2000)}\n")


def _nothing(_: Path, __: int) -> None: ...


def _edit(top: Path, number: int) -> None:
    files = sorted(top.rglob("*.py"))
    with files[number * 37 % len(files)].open("a") as file:
        file.write(f"\n# edited {number} {time.time_ns()}\n")


def _rename(top: Path, number: int) -> None:
    old = top / ("a" if (top / "a").exists() else "renamed")
    old.rename(top / ("renamed" if old.name == "a" else "a"))


def _change_middle(top: Path, number: int) -> None:
    with (top / "big").open("r+b") as file:
        file.seek(BIG_BYTES // 2 + number * 100_000)
        file.write(os.urandom(1024))


def _insert(top: Path, _: int) -> None:
    content = (top / "big").read_bytes()
    with (top / "big").open("wb") as file:
        file.write(os.urandom(1024))
        file.write(content)


def _make_unlike(top: Path) -> None:
    """Have no file of the tree be one that anybody has seen."""
    mark = f"# {time.time_ns()}\n".encode()
    for path in top.rglob("*.py"):
        content = path.read_bytes()
        path.write_bytes(mark + content.partition(b"\n")[2] if content.startswith(b"# 1") else mark + content)


# ------------------------------------------------------------------------------------------------ measuring


def _compared(case: Case, work: Work) -> list[Row]:
    """Measure the three in turn, each after the same change."""
    case.push()
    case.rsync("-a", f"{case.source.name}-a")
    case.rsync("-az", f"{case.source.name}-az")
    ways: dict[str, Callable[[], None]] = {
        "rsync -a": lambda: case.rsync("-a", f"{case.source.name}-a"),
        "rsync -az": lambda: case.rsync("-az", f"{case.source.name}-az"),
        "petri push": case.push,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        work.change(case.source, number)
        time.sleep(0.1)  # what was written in this very moment is read again, by rsync and by us
        names = list(ways)
        for name in names[number % 3 :] + names[: number % 3]:
            took = _timed(ways[name])
            case.ground.server.rest()
            if number:  # the first round only warms caches
                times[name].append(took)
    return _rows(work, times, _counted(case, work))


def _counted(case: Case, work: Work) -> dict[str, int]:
    """Return what each of them sends and receives for the same change."""
    sent = {}
    with Relay(case.ground.petri_port) as relay:
        case.push(relay.port)
        work.change(case.source, ROUNDS + 1)
        time.sleep(0.1)
        relay.forget()
        case.push(relay.port)
        sent["petri push"] = relay.count()
    case.push()
    with Relay(case.ground.rsync_port) as relay:
        for options in ("-a", "-az"):
            relay.forget()
            case.rsync(options, f"{case.source.name}{options}", relay.port)
            sent[f"rsync {options}"] = relay.count()
    return sent


def _first_upload(ground: Ground) -> list[Row]:
    """Measure uploads of a tree that neither server has seen."""
    top = ground.folder / "fresh"
    top.mkdir()
    copy_sources(top, 100_000, 30 * 10**6)
    times: dict[str, list[float]] = {"rsync -a": [], "rsync -az": [], "petri push": []}
    in_place: list[float] = []
    sent: dict[str, int] = {}
    for number in range(ROUNDS):
        _make_unlike(top)
        time.sleep(0.1)
        case = Case(ground, top, ground.new_box(), ground.folder / f"state-fresh-{number}")
        times["petri push"].append(_timed(case.push))
        with ground.client() as client:
            in_place.append(times["petri push"][-1] + _timed(partial(client.list_files, case.box)))
        ground.server.rest()
        for options in ("-a", "-az"):
            sending = partial(case.rsync, options, f"fresh{options}-{number}")
            times[f"rsync {options}"].append(_timed(sending))
    _make_unlike(top)
    with Relay(ground.petri_port) as relay:
        Case(ground, top, ground.new_box(), ground.folder / "state-fresh").push(relay.port)
        sent["petri push"] = relay.count()
    with Relay(ground.rsync_port) as relay:
        for options in ("-a", "-az"):
            relay.forget()
            case.rsync(options, f"fresh{options}-counted", relay.port)
            sent[f"rsync {options}"] = relay.count()
    work = Work("first upload, 30 MB of source", _nothing, int(sent["rsync -az"] * 1.05), 1.0, "-az")
    return [
        *_rows(work, times, sent),
        Row("first upload, 30 MB of source, until the files are in place", f"{min(in_place):.0f} ms"),
    ]


def _second_sandbox(case: Case) -> list[Row]:
    """Measure the same tree into one more sandbox, by a client that is running already."""
    os.environ["XDG_STATE_HOME"] = str(case.state / "live")
    times, ready = [], []
    with Relay(case.ground.petri_port) as relay, Client(f"http://127.0.0.1:{relay.port}") as client:
        client.push(case.source, case.ground.new_box())
        for _ in range(ROUNDS):
            box = case.ground.new_box()
            relay.forget()
            times.append(_timed(partial(client.push, case.source, box)))
            sent = relay.count()
            ready.append(_timed(partial(client.list_files, box)))
            case.ground.server.rest()
    return [
        Row("second sandbox, same tree, bytes", f"{sent:,}", _against(sent, 2_000)),
        Row("second sandbox, same tree, answered", f"{min(times):.0f} ms", _against(min(times), 50, " ms")),
        Row("second sandbox, files in place after that", f"{min(ready):.0f} ms"),
    ]


def _watched(case: Case) -> list[Row]:
    """Measure how long a save takes to be in the sandbox, while somebody watches."""
    box = case.ground.new_box()
    there = case.ground.server.home / "workspaces" / box
    env = {**os.environ, "PETRI_URL": f"http://127.0.0.1:{case.ground.petri_port}"}
    command = [str(PETRI), "watch", str(case.source), box]
    times = []
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as watching:
        for number in range(ROUNDS + 1):
            saved = case.source / f"saved {number}"
            begun = time.perf_counter()
            saved.write_text(f"{number}")
            while not (there / saved.name).exists():
                time.sleep(0.0005)
            if number:  # before the first, everything had to arrive
                times.append((time.perf_counter() - begun) * 1e3)
            time.sleep(1.5 if not number else 0.2)
        watching.send_signal(signal.SIGINT)
    return [
        Row("a save is in the sandbox, watched, least", f"{min(times):.0f} ms"),
        Row(
            "a save is in the sandbox, watched, most",
            f"{max(times):.0f} ms",
            _against(max(times), 100, " ms"),
        ),
    ]


def _rows(work: Work, times: dict[str, list[float]], sent: dict[str, int]) -> list[Row]:
    ours, theirs = min(times["petri push"]), min(times[f"rsync {work.against}"])
    most = work.most_bytes
    others = ", ".join(f"{name} {sent[name]:,}" for name in ("rsync -a", "rsync -az"))
    all_times = ", ".join(f"{name} {min(each):.0f} ms" for name, each in times.items())
    ratio = ours / theirs
    return [
        Row(
            f"{work.what}, bytes",
            f"{sent['petri push']:,}",
            f"{others}; {_against(sent['petri push'], most)}",
        ),
        Row(f"{work.what}, time", f"{ratio:.2f} x", f"{all_times}; {_against(ratio, work.most_ratio, ' x')}"),
    ]


def _against(value: float, most: float | None, unit: str = "") -> str:
    if most is None:
        return ""
    return f"bar {most:,}{unit}: {'held' if value <= most else 'MISSED'}"


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


# ------------------------------------------------------------------------------------------------- the ground


@contextmanager
def _ground() -> Iterator[Ground]:
    base = os.environ.get("PETRI_BENCH_DIR") or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="petri-bench-", dir=base)))
        home = folder / "home"
        home.mkdir()
        server = stack.enter_context(served(home))
        port = stack.enter_context(_daemon(folder))
        yield Ground(folder, server, port)


def _case(ground: Ground, name: str, fill: Callable[[Path], object]) -> Case:
    top = ground.folder / name
    top.mkdir()
    fill(top)
    return Case(ground, top, ground.new_box(), ground.folder / f"state-{name}")


@contextmanager
def _daemon(folder: Path) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "to").mkdir()
    config = folder / "rsyncd.conf"
    config.write_text(_DAEMON.format(port=port, folder=folder, uid=os.getuid(), gid=os.getgid()))
    daemon = subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--config={config}"])
    try:
        _wait_for(port)
        yield port
    finally:
        daemon.terminate()
        daemon.wait(10)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
