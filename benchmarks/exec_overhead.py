"""One HTTP exec of hello world, cold path, against bare bubblewrap and against no sandbox at all.

Two bare bubblewraps: a plain one, as one would type it, and one with exactly the walls of a Petri cell.
What is left between the latter and the whole HTTP exec is Petri itself: HTTP, ledger, accounting, uid.
"""

import json
import os
import subprocess
import tempfile
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.bench import Row, Served, interleaved, p50, p95, served
from petri.engine import rootfs, seccomp
from petri.engine.brief import brief, word
from petri.engine.confine import INIT, MASKED, Walls, confine, readable
from petri.engine.wiring import filled
from petri.model import Command

ROUNDS = 100
HELLO = 'print("hello world")\n'
PYTHON = "/usr/bin/python3"
_HELLO_COMMAND = Command((PYTHON, "main.py"), "/workspace", 0, {"PATH": "/usr/bin:/bin"})
PLAIN = [
    *("bwrap", "--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
    *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
    *("--clearenv", "--setenv", "PATH", "/usr/bin"),
]


def measure() -> list[Row]:
    """Return the medians and what Petri adds."""
    with (
        tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch,
        served(PETRI_PARKED_BYTES="0") as server,
    ):
        folder = Path(scratch) / "workspace"
        folder.mkdir()
        (folder / "main.py").write_text(HELLO)
        rootfs.build(Path(scratch) / "rootfs")
        walled = _Walled(folder, Path(scratch) / "rootfs")
        petri = HelloSandbox(server)
        plain = [*PLAIN, "--bind", str(folder), "/workspace", "--chdir", "/workspace", PYTHON, "main.py"]
        times = interleaved(
            {
                "bare python3 main.py": lambda: _run([PYTHON, str(folder / "main.py")]),
                "bare bwrap, plain": lambda: _run(plain),
                "bare bwrap, walls of a cell": walled.run,
                "Petri, whole HTTP exec": petri.exec,
            },
            ROUNDS,
        )
    return _rows(times)


def _rows(times: dict[str, list[float]]) -> list[Row]:
    python = p50(times["bare python3 main.py"])
    rows = [
        Row(
            f"{name}, p50 / p95",
            f"{p50(each):.1f} / {p95(each):.1f} ms",
            f"{p50(each) / python:.2f} x bare python3",
        )
        for name, each in times.items()
    ]
    whole = p50(times["Petri, whole HTTP exec"])
    for name in ("bare bwrap, plain", "bare bwrap, walls of a cell"):
        rows.append(Row(f"Petri adds to {name}", f"{whole - p50(times[name]):.1f} ms", "bar: 8 ms"))
    return rows


def _run(argv: list[str], **options: object) -> None:
    done = subprocess.run(argv, capture_output=True, check=True, **options)  # type: ignore[call-overload]
    assert done.stdout == b"hello world\n", done


class HelloSandbox:
    """A sandbox with hello world in it, and a kept-alive connection to run it by."""

    def __init__(self, server: Served) -> None:
        self._connection: HTTPConnection = server.connect()
        sandbox = self._ask("POST", "/v1/sandboxes", "{}")["id"]
        self._ask("PUT", f"/v1/sandboxes/{sandbox}/files/main.py", HELLO)
        self._path = f"/v1/sandboxes/{sandbox}/exec"

    def exec(self) -> None:
        """Run it, and see that it did."""
        assert self._ask("POST", self._path, '{"filename": "main.py"}')["stdout"] == "hello world\n"

    def _ask(self, method: str, path: str, body: str) -> dict[str, str]:
        self._connection.request(method, path, body)
        answer: dict[str, str] = json.loads(self._connection.getresponse().read())
        return answer


class _Walled:
    """bubblewrap with the arguments of a cell, started without Petri."""

    def __init__(self, folder: Path, root: Path) -> None:
        walls = Walls(
            str(folder), str(root), readable(path for path, _ in MASKED), tmp_bytes=2**26, devices=None
        )
        self._words = confine(walls, {})
        self._filter = seccomp.program()

    def run(self) -> None:
        filter_fd = os.memfd_create("seccomp")
        os.write(filter_fd, self._filter)
        os.lseek(filter_fd, 0, os.SEEK_SET)
        sink = os.open("/dev/null", os.O_WRONLY)
        go = filled(word(None))
        told = filled(brief(_HELLO_COMMAND))
        words = list(self._words)
        words[words.index("--seccomp") + 1] = str(filter_fd)
        words[words.index("--json-status-fd") + 1] = str(sink)
        init = [INIT[0], *map(str, (sink, go, told, sink, sink)), "0"]  # any number of processes
        _run(["bwrap", *words, "--", *init], pass_fds=(filter_fd, sink, go, told))
        for descriptor in (filter_fd, sink, go, told):
            os.close(descriptor)
