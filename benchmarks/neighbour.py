"""What one sandbox at its limits costs its neighbour: hello world beside it, against hello world alone.

Each bully does its worst in a sandbox with the default limits and is begun anew whenever it is ended. Alone
and beside it take turns, block by block, so that whatever else the machine does strikes both alike.
"""

import json
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

from benchmarks.bench import Row, Served, p50, p95, progress, served

BLOCKS, EXECS = 3, 12
BAR = 2.0
HELLO = {"command": ["python3", "-c", "print('hello world')"]}
BULLIES = {
    "eight spinning processes": """
        import os
        for _ in range(3):
            os.fork()
        while True:
            pass
    """,
    "a fork bomb": """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
    """,
    "processes killed for their memory, again and again": """
        import subprocess, sys
        while True:
            subprocess.run([sys.executable, "-c", "x = bytearray(1 << 31)"])
    """,
    "a disk filled until the run is ended": """
        n = 0
        while True:
            n += 1
            with open(f"f{n % 64}", "wb") as file:
                for _ in range(100):
                    file.write(bytes(1 << 20))
    """,
    "files made until the run is ended": """
        n = 0
        while True:
            n += 1
            open(f"f{n}", "w").close()
    """,
    "a disk written and synced": """
        import os
        while True:
            with open("f", "wb") as file:
                file.write(bytes(64 << 20))
                os.fsync(file.fileno())
    """,
    "output as fast as it goes": """
        import os
        block = bytes(1 << 16)
        while True:
            os.write(1, block)
    """,
    "output in single bytes, here and there": """
        import os
        while True:
            os.write(1, b"x")
            os.write(2, b"y")
    """,
    "all the open files there may be": """
        import os
        for _ in range(200):
            if os.fork() == 0:
                break
        while True:
            held = []
            try:
                while True:
                    held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                for descriptor in held:
                    os.close(descriptor)
    """,
}


def measure() -> list[Row]:
    """Return, for each bully, what its neighbour's exec took beside it and alone."""
    rows = []
    with served() as server:
        neighbour = _Neighbour(server)
        for number, (name, source) in enumerate(BULLIES.items()):
            alone, beside = _blocks(server, neighbour, textwrap.dedent(source))
            rows.append(_row(name, alone, beside))
            progress(number + 1, len(BULLIES))
    return rows


def _row(name: str, alone: list[float], beside: list[float]) -> Row:
    ratio = p50(beside) / p50(alone)
    took = f"{p50(alone):.1f} → {p50(beside):.1f} ms (p95 {p95(alone):.1f} → {p95(beside):.1f})"
    return Row(f"beside {name}", f"{ratio:.2f} x", f"{took}; bar: {BAR:g} x")


def _blocks(server: Served, neighbour: "_Neighbour", source: str) -> tuple[list[float], list[float]]:
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(BLOCKS):
        alone += [neighbour.exec() for _ in range(EXECS)]
        with _bullied(server, source):
            beside += [neighbour.exec() for _ in range(EXECS)]
    return alone, beside


class _Neighbour:
    def __init__(self, server: Served) -> None:
        self._connection = server.connect()
        sandbox = _ask(self._connection, "POST", "/v1/sandboxes", {})["id"]
        self._path = f"/v1/sandboxes/{sandbox}/exec"
        for _ in range(5):  # the first of anything loads what the others find
            self.exec()

    def exec(self) -> float:
        """Run hello world; return how long that took, in ms."""
        begun = time.perf_counter()
        answer = _ask(self._connection, "POST", self._path, HELLO)
        took_ms = (time.perf_counter() - begun) * 1e3
        assert answer["stdout"] == "hello world\n", answer
        return took_ms


@contextmanager
def _bullied(server: Served, source: str) -> Iterator[None]:
    """Have a bully at work, in a sandbox of its own, that is gone afterwards."""
    sandbox = _ask(server.connect(), "POST", "/v1/sandboxes", {})["id"]
    stopping = threading.Event()
    thread = threading.Thread(target=_bully, args=(server, sandbox, source, stopping))
    thread.start()
    time.sleep(1)
    try:
        yield
    finally:
        stopping.set()
        connection = server.connect()
        connection.request("DELETE", f"/v1/sandboxes/{sandbox}")
        connection.getresponse().read()
        thread.join()


def _bully(server: Served, sandbox: str, source: str, stopping: threading.Event) -> None:
    connection = server.connect()
    while not stopping.is_set():
        _ask(connection, "POST", f"/v1/sandboxes/{sandbox}/exec", {"code": source, "timeout_s": 60})
        if not stopping.is_set():  # it was ended: with an empty workspace it goes on
            _ask(connection, "POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "rm -rf /workspace/*"})


def _ask(connection: HTTPConnection, method: str, path: str, body: object) -> dict[str, str]:
    connection.request(method, path, json.dumps(body))
    answer: dict[str, str] = json.loads(connection.getresponse().read())
    return answer
