"""Real parts for every test: a server process with a home of its own, and clients for it."""

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from hypothesis import settings

from tests.examples import FEW, WHOLE
from tests.programs import put_programs

if TYPE_CHECKING:  # each brings half of Petri, and whoever hands out tests to others reads this file first
    from petri.sdk.folder.mirror import Mirror
    from tests.package_index import PackageIndex
    from tests.sync_server import SyncServer

# Whoever starts the tests in the background, or by `nohup`, has some ignored, and every server and command
# with them. Python itself ignores two.
for _number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

PETRI = Path(sys.executable).parent / "petri"
READY_S = 20
SCRAPS_S = 60
ANY_TLS = httpx.create_ssl_context(verify=False)
"""Made once: most tests have a client of their own, and making this takes most of making one."""
OWN_SERVER = frozenset({"new_server", "on_small_disk", "battlefield", "index", "locked", "team"})
"""Fixtures that start servers for one test, or one file of tests, alone."""

QUICK = "not slow and not long"
"""What `make check` asks for."""
NONE_OF_IT_IS_QUICK = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(long|slow)\b", re.MULTILINE)

settings.load_profile(WHOLE)  # unless `--hypothesis-profile` says otherwise, later
gc.disable()  # until all tests are collected: there is no garbage yet, and ever more to look through


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Have `make check` not even read a file all of whose tests it leaves out: a quarter of them."""
    if config.option.markexpr != QUICK or not collection_path.name.startswith("test_"):
        return None
    return NONE_OF_IT_IS_QUICK.search(collection_path.read_text(encoding="utf-8")) is not None or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out of `make check` whatever has a server of its own: a second each, and there are many.

    And of what a server is asked with many values, all but a few: as of the examples of a property.
    """
    tables: dict[object, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and OWN_SERVER & set(item.fixturenames):
            item.add_marker(pytest.mark.long)
        elif isinstance(item, pytest.Function) and "server" in item.fixturenames:
            tables[item.parent, item.originalname].append(item)
    for table in tables.values():
        for number, item in enumerate(table):
            if number * FEW % len(table) >= FEW:  # so those that stay are spread over it
                item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Have no collection of garbage look at the thousands of tests again: they stay to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


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
        if not (self.home / "petri").exists() and not self.prefix:
            (self.home / "petri").mkdir(mode=0o700)
            put_programs(self.home / "petri" / "engine")
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

    def log(self, since: int = 0) -> str:
        """Return what it said so far, or since it had said so many bytes."""
        with (self.home / "server.log").open("rb") as log:
            log.seek(since)
            return log.read().decode()

    def logged_bytes(self) -> int:
        """Return how much that is."""
        return (self.home / "server.log").stat().st_size

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
        return httpx.Client(base_url=self.url, timeout=60, verify=ANY_TLS, trust_env=False)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not need to kill it."""
    server = Server(tmp_path_factory.mktemp("server")).start()
    with server.client() as client:
        client.get("/v1/languages")  # it begins with a cell of its own, to ask for these
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


SMALL_DISK_BYTES = 64 << 20
MOUNT = 'mount -o loop "$IMAGE" "$PETRI_HOME" && exec "$0" "$@"'


@pytest.fixture
def on_small_disk(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server whose home is a disk of 64 MiB, in a mount namespace that ends with it."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("only root can mount a small disk, and mkfs.ext4 makes it")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(SMALL_DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
    (tmp_path / "petri").mkdir()
    private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT]
    made = Server(tmp_path, {"IMAGE": str(image)}, prefix=private)

    def start(**env: str) -> Server:
        made.env |= env
        return made.start()

    yield start
    if made.process is not None:
        made.stop(signal.SIGKILL)


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
    before = server.logged_bytes()
    yield
    assert "ERROR" not in server.log(before), server.log(before)
    kept = server.home / "petri" / "workspaces"
    # A large folder is gone at once, and its space a little later.
    deadline = time.monotonic() + SCRAPS_S
    while scraps := [*(kept / ".staging").iterdir(), *(kept / ".trash").iterdir()]:
        assert time.monotonic() < deadline, scraps
        time.sleep(0.05)
    assert http.get("/health").status_code == 200


# ---------------------------------------------------------------------------------------------- syncs


@pytest.fixture(params=["in memory", pytest.param("real", marks=pytest.mark.long)])
def syncs(request: pytest.FixtureRequest) -> "Iterator[SyncServer]":
    """A server that does nothing but syncs, in memory, with faults on demand; and then the real one."""
    from tests.sync_server import SyncServer

    if request.param == "real":
        from tests.real_syncs import RealSyncs

        real = RealSyncs(request.getfixturevalue("server"))
        yield real  # type: ignore[misc] # for all that most tests ask
        real.close()
        return
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
def box(syncs: "SyncServer") -> str:
    """A sandbox of that server."""
    return syncs.create("crawler")


@pytest.fixture
def mirror(folder: Path, box: str, syncs: "SyncServer") -> "Iterator[Mirror]":
    """The folder and the sandbox, to be kept in step."""
    from petri.sdk.folder.mirror import Mirror

    with Mirror(folder, box, syncs.url, retries=0) as mirror:
        yield mirror


@pytest.fixture
def index() -> "Iterator[PackageIndex]":
    """An index of our own: `alpha` needs `beta` below 2."""
    from tests.package_index import PackageIndex

    index = PackageIndex()
    index.add("alpha", "1.0", "beta<2")
    index.add("beta", "1.0")
    index.add("beta", "2.0")
    yield index
    index.stop()
