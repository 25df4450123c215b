"""A file of 200 MB up and down, against `cp` on the same disk and `curl` with a plain file server."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from benchmarks.bench import Row, interleaved, p50, served

SIZE = 200 * 10**6
ROUNDS = 5


class _PlainServer(BaseHTTPRequestHandler):
    """The simplest thing that keeps and gives a file: no digests, no fsync, no record."""

    protocol_version = "HTTP/1.1"
    folder: ClassVar[Path]

    def do_PUT(self) -> None:
        with (self.folder / "kept").open("wb") as out:
            left = int(self.headers["Content-Length"])
            while left:
                block = self.rfile.read(min(left, 1 << 20))
                out.write(block)
                left -= len(block)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        with (self.folder / "kept").open("rb") as source:
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(source.fileno()).st_size))
            self.end_headers()
            self.wfile.flush()
            self.connection.sendfile(source)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def measure() -> list[Row]:
    """Return the medians of each way."""
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch, served() as server:
        source, back = Path(scratch) / "source", Path(scratch) / "back"
        source.write_bytes(os.urandom(1 << 20) * (SIZE >> 20) + bytes(SIZE % (1 << 20)))
        host, port = server.address
        made = subprocess.run(
            ["curl", "-s", "-X", "POST", f"http://{host}:{port}/v1/sandboxes"],
            capture_output=True,
            check=True,
        )
        sandbox = made.stdout.decode().partition('"id":"')[2].partition('"')[0]
        petri = f"http://{host}:{port}/v1/sandboxes/{sandbox}/files/big"
        with _plain_server(Path(scratch)) as plain:
            times = interleaved(
                {
                    "cp, twice": lambda: _cp(source, back, Path(scratch) / "third"),
                    "plain file server, up": lambda: _curl("-T", str(source), plain),
                    "Petri, up": lambda: _curl("-T", str(source), petri),
                    "plain file server, down": lambda: _curl("-o", str(back), plain),
                    "Petri, down": lambda: _curl("-o", str(back), petri),
                },
                ROUNDS,
            )
        assert back.read_bytes() == source.read_bytes()
    return _rows(times)


def _rows(times: dict[str, list[float]]) -> list[Row]:
    rows = [Row(name, f"{p50(each):.0f} ms") for name, each in times.items()]
    for way in ("up", "down"):
        ratio = p50(times[f"Petri, {way}"]) / p50(times[f"plain file server, {way}"])
        rows.append(
            Row(f"Petri {way}, durable and hashed", f"{ratio:.2f} x", "a plain file server with curl")
        )
    both = p50(times["Petri, up"]) + p50(times["Petri, down"])
    rows.append(Row("Petri up and down", f"{both / p50(times['cp, twice']):.2f} x", "cp, twice"))
    return rows


@contextmanager
def _plain_server(folder: Path) -> Iterator[str]:
    _PlainServer.folder = folder
    with ThreadingHTTPServer(("127.0.0.1", 0), _PlainServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/kept"
        server.shutdown()
        thread.join()


def _cp(source: Path, *targets: Path) -> None:
    for target in targets:
        subprocess.run(["cp", str(source), str(target)], check=True)


def _curl(*words: str) -> None:
    subprocess.run(["curl", "-sSf", "-H", "Expect:", *words, "-w", ""], check=True, stdout=subprocess.DEVNULL)
