"""Real parts for every test: a server process with a home of its own, and clients for it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from petri.sdk.folder.mirror import Mirror
from tests.sync_server import SyncServer

PETRI = Path(sys.executable).parent / "petri"
READY_S = 20
SCRAPS_S = 60


@dataclass
class Server:
    """A real `petri serve`, with its own home and port."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    url: str = ""
    prefix: list[str] = field(default_factory=list)
    """What to start it by, such as a program that first mounts a disk for it."""

    def start(self) -> "Server":
        """Start it and wait until it answers."""
        log = (self.home / "server.log").open("ab")
        # Without root there may be no cgroups to limit anything with; every other layer stays on.
        cgroups = "required" if os.geteuid() == 0 else "optional"
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PETRI_")},
            "PETRI_HOME": str(self.home / "petri"),
            "PETRI_PORT": "0",
            "PETRI_CGROUPS": cgroups,
            **self.env,
        }
        with log:
            argv = [*self.prefix, str(PETRI), "serve"]
            self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=log)
        self.url = self._read_url()
        return self

    def _read_url(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + READY_S
        for line in self.process.stdout:
            if found := re.search(rb"ready at (http://\S+)", line):
                return found[1].decode()
            if time.monotonic() > deadline:
                break
        raise AssertionError(f"the server did not start:\n{self.log()}")

    def log(self) -> str:
        """Return what it said so far."""
        return (self.home / "server.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal and return its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end."""
        assert self.process is not None
        assert self.process.stdout is not None
        status = self.process.wait(40)
        self.process.stdout.close()
        self.process = None
        return status

    def client(self) -> httpx.Client:
        """Return a plain HTTP client for it."""
        return httpx.Client(base_url=self.url, timeout=60, verify=False, trust_env=False)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not need to kill it."""
    server = Server(tmp_path_factory.mktemp("server")).start()
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Make servers of one's own, to kill or to configure."""
    made: list[Server] = []

    def make(**env: str) -> Server:
        home = tmp_path / f"server-{len(made)}"
        home.mkdir()
        made.append(Server(home, env))
        return made[-1].start()

    yield make
    for server in made:
        if server.process is not None:
            server.stop(signal.SIGKILL)


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """A plain HTTP client."""
    with server.client() as client:
        yield client


@pytest.fixture
def sandbox(http: httpx.Client) -> Iterator[str]:
    """A fresh sandbox's id."""
    made = http.post("/v1/sandboxes", json={})
    assert made.status_code == 201, made.text
    yield made.json()["id"]
    http.delete(f"/v1/sandboxes/{made.json()['id']}")


@pytest.fixture
def harmless(server: Server, http: httpx.Client) -> Iterator[None]:
    """Whatever a test sends: the server still works, calls nothing its own fault, and keeps no scraps."""
    http.get("/v1/languages")  # a server begins with a cell of its own, to ask for these
    before = len(server.log())
    yield
    assert "ERROR" not in server.log()[before:], server.log()[before:]
    kept = server.home / "petri" / "workspaces"
    # A large folder is gone at once, and its space a little later.
    deadline = time.monotonic() + SCRAPS_S
    while scraps := [*(kept / ".staging").iterdir(), *(kept / ".trash").iterdir()]:
        assert time.monotonic() < deadline, scraps
        time.sleep(0.05)
    assert http.get("/health").status_code == 200


# ---------------------------------------------------------------------------------------------- syncs


@pytest.fixture
def syncs() -> Iterator[SyncServer]:
    """A server that does nothing but syncs, in memory, with faults on demand."""
    syncs = SyncServer()
    yield syncs
    syncs.stop()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to sync, whose state is kept beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def box(syncs: SyncServer) -> str:
    """A sandbox of that server."""
    return syncs.create("crawler")


@pytest.fixture
def mirror(folder: Path, box: str, syncs: SyncServer) -> Iterator[Mirror]:
    """The folder and the sandbox, to be kept in step."""
    with Mirror(folder, box, syncs.url, retries=0) as mirror:
        yield mirror
