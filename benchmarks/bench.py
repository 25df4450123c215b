"""A server to measure, a way to take turns, and a table to print."""

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

PETRI = Path(sys.executable).parent / "petri"


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, its value in words, and against what."""

    what: str
    value: str
    against: str = ""


@dataclass(frozen=True)
class Served:
    """A running server."""

    pid: int
    home: Path
    address: tuple[str, int]

    def connect(self) -> HTTPConnection:
        """Return a kept-alive connection to it."""
        return HTTPConnection(*self.address, timeout=120)

    def rest(self, most_s: float = 10.0) -> None:
        """Wait until the server has done what it does behind its answers: that is nobody else's cost."""
        deadline, quiet, last = time.monotonic() + most_s, 0, -1
        while quiet < 3 and time.monotonic() < deadline:
            now = self.cpu_ticks()
            quiet, last = (quiet + 1 if now == last else 0), now
            time.sleep(0.05)

    def cpu_ticks(self) -> int:
        """Return how long the server has used processors, in hundredths of a second."""
        told = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(told[11]) + int(told[12])

    def resident_bytes(self) -> int:
        """Return the memory the server process holds."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@contextmanager
def served(home: Path | None = None, **settings: str) -> Iterator[Served]:
    """Run a server of its own, on a home that goes with it unless one is given."""
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch:
        where = home or Path(scratch)
        env = {**os.environ, "PETRI_HOME": str(where), "PETRI_PORT": "0", **settings}
        process = subprocess.Popen([PETRI, "serve"], env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "ready at" in line)
            host, port = line.rpartition("//")[2].strip().rsplit(":", 1)
            yield Served(process.pid, where, (host, int(port)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            if process.stdout is not None:
                process.stdout.close()


def interleaved(variants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Time each variant once a round, in ms, so that whatever the machine does strikes all alike."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 3):
        for name, work in variants.items():
            begun = time.perf_counter()
            work()
            took = (time.perf_counter() - begun) * 1e3
            if number >= 3:  # the first rounds only warm caches
                times[name].append(took)
        progress(number + 1, rounds + 3)
    return times


def progress(done: int, of: int) -> None:
    """Show how far we are, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r  {done}/{of}", end="\n" if done == of else "", file=sys.stderr, flush=True)


def p50(times: list[float]) -> float:
    """Return the median."""
    return statistics.median(times)


def p95(times: list[float]) -> float:
    """Return the 95th percentile."""
    return sorted(times)[int(len(times) * 0.95)]


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| what | value | against |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.what} | {row.value} | {row.against} |" for row in rows)])
