"""A thousand sandboxes that do nothing: processes, memory, and how soon a restart is ready."""

import contextlib
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.bench import Row, Served, progress, served

SANDBOXES = 1000


def measure() -> list[Row]:
    """Return what a thousand idle sandboxes cost."""
    with TemporaryDirectory(prefix="petri-bench-") as scratch:
        home = Path(scratch) / "home"
        with served(home) as server:
            processes, memory_bytes = cost(server)
        begun = time.perf_counter()
        with served(home) as server:
            ready_s = time.perf_counter() - begun
            rest = server.resident_bytes()
    return [
        Row(f"{SANDBOXES} idle sandboxes, processes", str(processes), "bar: 0"),
        Row(f"{SANDBOXES} idle sandboxes, server memory", f"{memory_bytes / 2**20:.2f} MiB", "bar: 1 MB"),
        Row("server at rest, resident", f"{rest / 2**20:.0f} MiB"),
        Row(f"start with {SANDBOXES} sandboxes, ready after", f"{ready_s:.2f} s", "bar: 2 s"),
    ]


def cost(server: Served) -> tuple[int, int]:
    """Create a thousand; return the processes and the bytes of memory that a server then has more."""
    _create(server, 50)  # whatever the first of anything loads is not their cost
    processes, before = _processes(server.pid), server.resident_bytes()
    _create(server, SANDBOXES)
    return _processes(server.pid) - processes, server.resident_bytes() - before


def _create(server: Served, count: int) -> None:
    with contextlib.closing(server.connect()) as connection:
        for number in range(count):
            connection.request("POST", "/v1/sandboxes", "{}")
            assert json.loads(connection.getresponse().read())["state"] == "ready"
            progress(number + 1, count)


def _processes(pid: int) -> int:
    """Return how many processes a server has begotten, itself included."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return 1 + sum(_processes(int(child)) for child in children)
