"""A thousand sandboxes that do nothing: processes, memory, and how soon a restart is ready."""

import json
import time
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.bench import Row, progress, served

SANDBOXES = 1000


def measure() -> list[Row]:
    """Return what a thousand idle sandboxes cost."""
    with TemporaryDirectory(prefix="petri-bench-") as scratch:
        home = Path(scratch) / "home"
        with served(home) as server:
            _create(server.connect(), 50)  # whatever the first of anything loads is not their cost
            processes, before = _processes(server.pid), server.resident_bytes()
            _create(server.connect(), SANDBOXES)
            after, now = server.resident_bytes(), _processes(server.pid)
        begun = time.perf_counter()
        with served(home) as server:
            ready_s = time.perf_counter() - begun
            rest = server.resident_bytes()
    return [
        Row(f"{SANDBOXES} idle sandboxes, processes", str(now - processes), "bar: 0"),
        Row(f"{SANDBOXES} idle sandboxes, server memory", f"{(after - before) / 2**20:.2f} MiB", "bar: 1 MB"),
        Row("server at rest, resident", f"{rest / 2**20:.0f} MiB"),
        Row(f"start with {SANDBOXES} sandboxes, ready after", f"{ready_s:.2f} s", "bar: 2 s"),
    ]


def _create(connection: HTTPConnection, count: int) -> None:
    for number in range(count):
        connection.request("POST", "/v1/sandboxes", "{}")
        assert json.loads(connection.getresponse().read())["state"] == "ready"
        progress(number + 1, count)


def _processes(pid: int) -> int:
    """Return how many processes a server has begotten, itself included."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return 1 + sum(_processes(int(child)) for child in children)
