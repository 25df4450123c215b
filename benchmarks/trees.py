"""Forks, snapshots and what runs changed, by how much there is, on each kind of file system."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.bench import Row, p50, served

ROUNDS = 7
IMAGE_BYTES = 12 << 30
KINDS = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}
"""Kinds of file systems, and the packages of Debian whose `mkfs` makes them."""
FILES = """
import os, sys
for i in range(int(sys.argv[1])):
    folder = f"d{i % 100}"
    os.makedirs(folder, exist_ok=True)
    open(f"{folder}/f{i}", "w").write(f"{i} " * 300)
"""
LARGE = """
import os
for i in range(4):
    with open(f"large{i}", "wb") as file:
        for _ in range(256): file.write(os.urandom(1 << 20))
"""


class _Petri:
    """A server, asked as little as possible between two looks at the clock."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Return the answer, which must be a good one."""
        self._connection.request(method, path, json.dumps(body) if method == "POST" else None)
        response = self._connection.getresponse()
        content = response.read()
        assert response.status < 300, content
        return json.loads(content) if content else None

    def sandbox(self) -> str:
        """Return a new one."""
        found: str = self.ask("POST", "/v1/sandboxes", limits={"disk_bytes": 6 << 30})["id"]
        return found

    def exec(self, sandbox: str, **command: Any) -> Any:
        """Run something."""
        return self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", timeout_s=600, **command)

    def settled(self, sandbox: str) -> str:
        """Wait until the tree of a sandbox is kept, as it is a moment after a run."""
        while not (tree := self.ask("GET", f"/v1/sandboxes/{sandbox}")["tree"]):
            time.sleep(0.01)
        self.ask("POST", f"/v1/sandboxes/{sandbox}/snapshots")
        found: str = tree
        return found


def measure() -> list[Row]:
    """Return a table over the kinds of file systems that this host can make."""
    rows: list[Row] = []
    for kind in KINDS:
        if why := _why_not(kind):
            rows.append(Row(kind, "not measured", why))
            continue
        with _disk(kind) as home, served(home) as server:
            rows += _on(kind, _Petri(server.connect()), home)
    return rows


def _why_not(kind: str) -> str:
    """Return what is missing to make and mount a file system; nothing if nothing is."""
    if os.geteuid() != 0:
        return "only root can mount it"
    if shutil.which(f"mkfs.{kind}") is None:
        return f"mkfs.{kind} makes it: install {KINDS[kind]}"
    known = Path("/proc/filesystems").read_text().split()
    if kind not in known and subprocess.run(["modprobe", kind], check=False, capture_output=True).returncode:
        return "this kernel does not know it"
    return ""


@contextmanager
def _disk(kind: str) -> Iterator[Path]:
    """Hold a file system of its own."""
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch:
        image, top = Path(scratch) / "image", Path(scratch) / "top"
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
        top.mkdir()
        subprocess.run(["mount", "-o", "loop", str(image), str(top)], check=True)
        try:
            yield top
        finally:
            subprocess.run(["umount", str(top)], check=True)


def _on(kind: str, petri: _Petri, home: Path) -> list[Row]:
    rows = []
    for what, script, args in (
        ("100 files", FILES, ["100"]),
        ("10,000 files", FILES, ["10000"]),
        ("1 GiB in 4 files", LARGE, []),
    ):
        parent = petri.sandbox()
        petri.exec(parent, code=script, args=args)
        petri.settled(parent)
        rows += _forks(f"{kind}, {what}", petri, parent)
        petri.ask("DELETE", f"/v1/sandboxes/{parent}")
    return [*rows, *_changes(kind, petri)]


def _forks(what: str, petri: _Petri, parent: str) -> list[Row]:
    answers, first_runs, snapshots, restores = [], [], [], []
    for number in range(ROUNDS):
        petri.exec(parent, command=f"echo {number} > changed")
        petri.settled(parent)
        snapshots.append(_timed(lambda: petri.ask("POST", f"/v1/sandboxes/{parent}/snapshots")))
        begun = time.perf_counter()
        [child] = petri.ask("POST", f"/v1/sandboxes/{parent}/fork")["sandboxes"]
        answers.append((time.perf_counter() - begun) * 1e3)
        petri.exec(child["id"], command="true")
        first_runs.append((time.perf_counter() - begun) * 1e3)
        restores.append(_timed(lambda: petri.ask("POST", f"/v1/sandboxes/{parent}/undo")))
        petri.ask("DELETE", f"/v1/sandboxes/{child['id']}")
    return [
        Row(f"{what}: fork, answered", f"{p50(answers):.1f} ms", "bar: 50 ms"),
        Row(f"{what}: fork, until its first exec has ended", f"{p50(first_runs):.0f} ms"),
        Row(f"{what}: snapshot", f"{p50(snapshots):.1f} ms"),
        Row(f"{what}: undo of one file", f"{p50(restores):.1f} ms"),
    ]


def _changes(kind: str, petri: _Petri) -> list[Row]:
    """Return what a run takes longer with 20,000 files around it than with one."""
    small, large = petri.sandbox(), petri.sandbox()
    petri.exec(large, code=FILES, args=["20000"])
    petri.settled(large)
    times: dict[str, list[float]] = {small: [], large: []}
    for _ in range(4 * ROUNDS):
        for sandbox, taken in times.items():
            taken.append(_timed(lambda sandbox=sandbox: petri.exec(sandbox, command="echo x >> changed")))  # type: ignore[misc]
            time.sleep(0.2)  # an agent thinks between two runs, and what it left is kept meanwhile
    added = p50(times[large]) - p50(times[small])
    return [
        Row(f"{kind}: a run that changes a file, alone", f"{p50(times[small]):.1f} ms"),
        Row(f"{kind}: the same among 20,000 files, more", f"{added:.1f} ms", "bar: 5 ms"),
    ]


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3
