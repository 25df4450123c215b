"""What is left after thousands of mixed cycles: descriptors, mounts, cgroups, processes, threads, memory.

A cycle is a sandbox's whole life: created, written to, run in, deleted; how its run ends differs from one to
the next, and in every second one a cell stands ready for it. Four go on at a time. Every so often all rest,
and the host is looked at. What leaks, even one descriptor in a hundred runs, shows as a slope.
"""

import contextlib
import functools
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException

from benchmarks.bench import Row, Served, progress, served
from benchmarks.footprint import NETWORK, Footprint, footprint

CYCLES = 4000
LOOKS = 40
AT_ONCE = 4
_SETTLE_S = 10
_STANDS_S = 0.05
"""By then the next cell of a sandbox stands, unless the machine is busy."""
_MEMORY = {"limits": {"memory_bytes": 64 << 20}}
_DISK = {"limits": {"disk_bytes": 16 << 20}}

# ------------------------------------------------------------------------------------------------ endings


class Life:
    """One sandbox, from its creation to its deletion, over one connection."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._line = server.connect()
        self.sandbox = self.ask("POST", "/v1/sandboxes", {})["id"]

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Ask for something that must work."""
        self._line.request(method, path, None if body is None else json.dumps(body))
        answer = self._line.getresponse()
        said = answer.read()
        assert answer.status < 300, (method, path, answer.status, said)
        return json.loads(said) if said else {}

    def put(self, name: str, content: bytes) -> None:
        """Write a file."""
        self._line.request("PUT", f"/v1/sandboxes/{self.sandbox}/files/{name}", content)
        assert self._line.getresponse().read()

    def run(self, command: str | list[str], **more: object) -> dict[str, object]:
        """Run something to its end, whatever that is."""
        return self.ask("POST", f"/v1/sandboxes/{self.sandbox}/exec", {"command": command, **more})

    def have_one_stand(self) -> None:
        """Run something, so that a cell stands ready for what comes next."""
        self.run("true")
        time.sleep(_STANDS_S)

    def begin(self, command: str) -> tuple[HTTPConnection, str]:
        """Begin to follow a run; return its line and its id."""
        line = self._server.connect()
        body = json.dumps({"command": command})
        accept = {"Accept": "text/event-stream"}
        line.request("POST", f"/v1/sandboxes/{self.sandbox}/exec", body, accept)
        answer = line.getresponse()
        while not (said := answer.readline()).startswith(b"data: "):
            assert said, "the stream ended before it began"
        return line, json.loads(said.removeprefix(b"data: "))["run_id"]

    def end(self) -> None:
        """Delete it."""
        self.ask("DELETE", f"/v1/sandboxes/{self.sandbox}")
        self._line.close()


def _well(life: Life) -> None:
    life.put("main.py", b"print(sum(range(1000)))")
    assert life.run(["python3", "main.py"])["stdout"] == "499500\n"


def _badly(life: Life) -> None:
    assert life.run("exit 7")["exit_code"] == 7


def _by_a_signal(life: Life) -> None:
    assert life.run("kill -SEGV $$")["signal"] == 11


def _too_late(life: Life) -> None:
    assert life.run("trap '' TERM; sleep 60 & sleep 60", timeout_s=0.2)["timed_out"]


def _for_its_memory(life: Life) -> None:
    assert life.run(["python3", "-c", "x = bytearray(1 << 28)"], **_MEMORY)["oom_killed"]


def _for_its_disk(life: Life) -> None:
    script = "for n in $(seq 400); do head -c 4194304 /dev/zero > f$n; done; sleep 5"
    assert life.run(script, **_DISK)["disk_full"]


def _cancelled(life: Life) -> None:
    line, run_id = life.begin("sleep 60 & sleep 60")
    with contextlib.closing(line):
        assert life.ask("POST", f"/v1/runs/{run_id}/cancel")["state"] == "cancelled"


def _deleted_meanwhile(life: Life) -> None:
    line, _ = life.begin("sleep 60")
    line.close()


def _alone(life: Life) -> None:
    """Its client goes away without a word, and it ends by itself."""
    line, run_id = life.begin("sleep 0.1; echo done")
    line.close()
    deadline = time.monotonic() + _SETTLE_S
    while life.ask("GET", f"/v1/runs/{run_id}")["state"] != "done":
        assert time.monotonic() < deadline, run_id
        time.sleep(0.02)


def _talking(life: Life) -> None:
    life.run("head -c 20000000 /dev/zero; head -c 3000000 /dev/zero >&2")


def _leaving_a_daemon(life: Life) -> None:
    life.run("(setsid sh -c 'trap \"\" TERM HUP; while :; do date > beat; done' &) ; true")


def _with_files(life: Life) -> None:
    for number in range(8):
        life.put(f"d{number % 2}/f{number}", b"x" * 70_000)
    life.run("mkdir -p e; cp -r d0 d1 e; rm -r d0")
    life.ask("GET", f"/v1/sandboxes/{life.sandbox}/files?recursive=true")


def _refused(life: Life) -> None:
    with contextlib.closing(life._server.connect()) as line:
        line.request("POST", f"/v1/sandboxes/{life.sandbox}/exec", '{"command": 7, "nonsense": 1}')
        assert line.getresponse().status == 422


ENDINGS: Sequence[Callable[[Life], None]] = (
    *(_well, _well, _badly, _by_a_signal, _too_late, _for_its_memory, _for_its_disk, _cancelled),
    *(_deleted_meanwhile, _alone, _talking, _leaving_a_daemon, _with_files, _refused),
)


# ------------------------------------------------------------------------------------------------- looking


def soak(server: Served, cycles: int, looks: int) -> list[Footprint]:
    """Go through so many cycles; return what the host showed at rest, after each part of them."""
    lives = (*ENDINGS, *(_in_one_that_stands(ending) for ending in ENDINGS))
    plan = [lives[number % len(lives)] for number in range(cycles)]
    random.Random(cycles).shuffle(plan)
    seen = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for look in range(looks):
            part = plan[look * cycles // looks : (look + 1) * cycles // looks]
            list(pool.map(lambda ending: _live(server, ending), part))
            seen.append(_at_rest(server))
            progress(look + 1, looks)
    return seen


def _in_one_that_stands(ending: Callable[[Life], None]) -> Callable[[Life], None]:
    @functools.wraps(ending)
    def in_one_that_stands(life: Life) -> None:
        life.have_one_stand()
        ending(life)

    return in_one_that_stands


def _live(server: Served, ending: Callable[[Life], None]) -> None:
    try:
        life = Life(server)
        ending(life)
        life.end()
    except (HTTPException, OSError) as error:
        raise AssertionError(f"a cycle ending {ending.__name__} broke: {error!r}") from error


def _at_rest(server: Served) -> Footprint:
    """Look once nothing is under way: folders of deleted sandboxes gone, and networks that nobody is in."""
    deadline = time.monotonic() + _SETTLE_S
    seen = footprint(server.pid, server.home)
    while not _is_at_rest(seen) and time.monotonic() < deadline:
        time.sleep(0.1)
        seen = footprint(server.pid, server.home)
    return seen


def _is_at_rest(seen: Footprint) -> bool:
    networks = seen.launcher_descriptors.count(NETWORK)  # the one that the launcher is in is always there
    return not (seen.processes or seen.groups or seen.scraps) and networks <= 1


def cells_that_stood(server: Served) -> int:
    """Return how many runs had a cell that stood ready."""
    with contextlib.closing(server.connect()) as line:
        line.request("GET", "/metrics")
        said = line.getresponse().read().decode()
    return int(float(said.rpartition("\npetri_parked_cells_used_total ")[2].split()[0]))


def slope(values: Sequence[float], cycles: int) -> float:
    """Return by how much a value grows in a thousand cycles; the first fifth only warms caches."""
    settled = values[len(values) // 5 :]
    at = [number * cycles / len(values) for number in range(len(settled))]
    return statistics.linear_regression(at, settled).slope * 1000


MEASURES: dict[str, Callable[[Footprint], float]] = {
    "processes of cells": lambda seen: len(seen.processes),
    "cgroups of cells": lambda seen: len(seen.groups),
    "mounts on the host": lambda seen: seen.host_mounts,
    "mounts of the launcher": lambda seen: seen.launcher_mounts,
    "descriptors of the server": lambda seen: len(seen.server_descriptors),
    "descriptors of the launcher": lambda seen: len(seen.launcher_descriptors),
    "threads of the server": lambda seen: seen.server_threads,
    "threads of the launcher": lambda seen: seen.launcher_threads,
    "shared memory": lambda seen: len(seen.shared_memory),
    "files under way": lambda seen: len(seen.scraps),
    "memory of the server, MiB": lambda seen: seen.server_bytes / 2**20,
    "memory of the launcher, MiB": lambda seen: seen.launcher_bytes / 2**20,
}


def measure() -> list[Row]:
    """Return each measure at the first look, at the last, and its slope."""
    with served() as server:
        seen = soak(server, CYCLES, LOOKS)
        stood = cells_that_stood(server)
    rows = [Row("runs in cells that stood ready", f"{stood:,}", f"of {CYCLES:,} lives")]
    for name, of in MEASURES.items():
        values = [of(each) for each in seen]
        shown = (
            f"{values[0]:g} → {values[-1]:g}" if "MiB" not in name else f"{values[0]:.1f} → {values[-1]:.1f}"
        )
        rows.append(Row(name, shown, f"{slope(values, CYCLES):+.2f} in 1,000 of {CYCLES} cycles"))
    return rows
