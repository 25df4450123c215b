"""A home on a full disk: said as 507, deleting works and frees, nothing is damaged, no restart is needed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from petri.errors import StorageFull
from petri.ledger import Ledger
from petri.ledger.ballast import PIECE_BYTES, WHOLE_BYTES, Ballast
from petri.model import Event, Limits, Sandbox
from tests.calls import ask, create, eventually, files_url, put, refused, run, sh
from tests.conftest import Server
from tests.package_index import PackageIndex, wheel
from tests.test_api_environments import script
from tests.test_builds import source

pytestmark = pytest.mark.long


@pytest.fixture
def server(on_small_disk: Callable[..., Server]) -> Server:
    """A server with everything on one small disk."""
    return on_small_disk()


def home(server: Server) -> Path:
    """Return the server's home, as it sees it."""
    assert server.process is not None
    return Path(f"/proc/{server.process.pid}/root{server.home}/petri")


FILL = "cat /dev/zero > big 2>/dev/null; cat /dev/zero > more 2>/dev/null; echo full"


def fill(folder: Path) -> None:
    """Take every last block of the disk that `folder` is on."""
    for number in range(3):
        with (folder / f"fill-{number}").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(512))


def folder_of(server: Server, sandbox: str) -> Path:
    return home(server) / "workspaces" / sandbox


def test_files_that_cannot_go_back_for_want_of_room_stay_what_they_are(server: Server) -> None:
    with server.client() as http:
        greedy, sandbox = create(http), create(http)
        put(http, sandbox, "a", os.urandom(5_000_000))
        run(http, sandbox, command="rm a; echo b > b")
        [child] = http.post(f"/v1/sandboxes/{sandbox}/fork").json()["sandboxes"]
        tree = http.get(f"/v1/sandboxes/{sandbox}").json()["tree"]
        fill(folder_of(server, greedy))

        for path in ("undo", "fork"):
            answer = http.post(f"/v1/sandboxes/{sandbox}/{path}")
            assert refused(answer, 507)["code"] == "storage_full"
        assert http.get(files_url(sandbox, "b")).text == "b\n"
        assert http.get(f"/v1/sandboxes/{sandbox}").json()["tree"] == tree

        assert http.delete(f"/v1/sandboxes/{greedy}").status_code == 204
        eventually(lambda: http.post(f"/v1/sandboxes/{sandbox}/undo").status_code == 200)
        assert len(http.get(files_url(sandbox, "a")).content) == 5_000_000
        assert http.get(files_url(sandbox, "b")).status_code == 404
        assert sh(http, child["id"], "cat b") == "b\n"
        assert "ERROR" not in server.log()


def test_a_snapshot_that_cannot_be_kept_is_not_on_record(server: Server) -> None:
    with server.client() as http:
        greedy, sandbox = create(http), create(http)
        links = [folder_of(server, sandbox) / f"{number}" for number in range(200)]
        put(http, sandbox, "a", b"a")
        run(http, sandbox, command="for n in $(seq 0 199); do ln -s to $n; done")
        fill(folder_of(server, greedy))
        for link in links:  # they need no block of the disk, and what is kept of them does
            link.unlink()
            link.symlink_to(os.urandom(20).hex())

        answer = http.post(f"/v1/sandboxes/{sandbox}/snapshots")

        assert refused(answer, 507)["code"] == "storage_full"
        assert http.get("/v1/snapshots").json()["snapshots"] == []
        assert http.delete(f"/v1/sandboxes/{greedy}").status_code == 204
        eventually(lambda: http.post(f"/v1/sandboxes/{sandbox}/snapshots").status_code == 201)
        (taken,) = http.get("/v1/snapshots").json()["snapshots"]
        other = create(http, from_snapshot=taken["id"])
        assert sh(http, other, "ls | wc -l; cat a") == "201\na"
        assert "ERROR" not in server.log()


def test_on_a_full_disk_new_work_is_507_and_deleting_makes_room(server: Server) -> None:
    with server.client() as http:
        greedy, other = create(http), create(http)
        resting = create(http, idle_s=10)
        for sandbox in (other, resting):
            put(http, sandbox, "kept", "kept")
        rests_since = time.monotonic()
        ended = run(http, greedy, command=FILL)
        assert ended["state"] == "done", "how it ended is on record though there is no room"
        fill(folder_of(server, greedy))

        for answer in (
            ask(http, other, command="true"),
            http.post("/v1/sandboxes", json={}),
            http.post("/v1/exec", json={"command": "true"}),
            http.put(files_url(other, "new"), content=os.urandom(100_000)),
            http.post(f"/v1/sandboxes/{other}/files", files={"file": ("new", os.urandom(100_000))}),
        ):
            assert refused(answer, 507)["code"] == "storage_full"
        eventually(lambda: time.monotonic() > rests_since + 1)  # its use is noted again: a tenth of `idle_s`
        for sandbox in (other, resting):
            assert http.get(files_url(sandbox, "kept")).text == "kept"
        assert http.get(f"/v1/runs/{ended['run_id']}").json()["state"] == "done"
        assert http.get("/health").json()["status"] == "ok"

        assert http.delete(files_url(greedy, "more")).status_code == 204
        assert http.delete(f"/v1/sandboxes/{greedy}").status_code == 204

        eventually(lambda: http.post("/v1/sandboxes", json={}).status_code == 201)
        assert sh(http, other, "cat kept") == "kept"
        assert put(http, other, "new", os.urandom(100_000))["size"] == 100_000
        assert http.get(f"/v1/sandboxes/{greedy}").json()["state"] == "deleted"
        assert (home(server) / "ledger.db-ballast").stat().st_size == WHOLE_BYTES
        assert integrity(server) == "ok"
        assert "ERROR" not in server.log()


def test_a_server_that_was_killed_on_a_full_disk_starts_and_deletes(server: Server) -> None:
    with server.client() as http:
        greedy, other = create(http), create(http)
        put(http, other, "kept", "kept")
        fill(folder_of(server, greedy))
    server.stop(signal.SIGKILL)
    server.start()

    with server.client() as http:
        assert http.get(files_url(other, "kept")).text == "kept"
        assert http.delete(f"/v1/sandboxes/{greedy}").status_code == 204
        eventually(lambda: ask(http, other, command="true").status_code == 200)
        assert integrity(server) == "ok"


@pytest.mark.slow
def test_room_that_somebody_else_makes_is_found(on_small_disk: Callable[..., Server], tmp_path: Path) -> None:
    """The workspaces are on another disk: it is the ledger alone that has no room."""
    server = on_small_disk(PETRI_WORKSPACE_ROOT=str(tmp_path / "workspaces"))
    with server.client() as http:
        sandbox, other = create(http), create(http)
        fill(home(server))
        assert http.delete(f"/v1/sandboxes/{other}").status_code == 204
        new = files_url(sandbox, "new")
        assert "the ledger is full" in refused(http.put(new, content=b"x"), 507)["detail"]
        assert os.listdir(tmp_path / "workspaces" / sandbox) == []  # noqa: PTH208 - the names are wanted

        for path in home(server).glob("fill-*"):
            path.unlink()

        eventually(lambda: http.put(new, content=b"x").status_code == 201, within_s=30)


def test_a_server_starts_on_a_disk_that_was_filled_while_it_was_off(server: Server) -> None:
    with server.client() as http:
        sandbox = create(http)
        put(http, sandbox, "kept", "kept")
    server.stop()
    filling = 'mount -o loop "$0" "$1"; for name in a b c; do cat /dev/zero > "$1/$name"; done; true'
    argv = [*server.prefix[:-1], filling, server.env["IMAGE"], str(server.home / "petri")]
    subprocess.run(argv, check=True, capture_output=True)
    server.start()

    with server.client() as http:
        assert http.get(files_url(sandbox, "kept")).text == "kept"
        assert ask(http, sandbox, command="true").status_code in (200, 507)
        assert http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204
        assert integrity(server) == "ok"


def integrity(server: Server) -> str:
    """Return what SQLite thinks of the ledger, asked where the server's disk is mounted."""
    assert server.process is not None
    check = "sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone()"
    look = f"import sqlite3, sys; print(*{check})"
    inside = ["nsenter", "--mount", "--target", str(server.process.pid)]
    argv = [*inside, sys.executable, "-c", look, str(server.home / "petri/ledger.db")]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes, in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(disk)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("this host does not let us mount")
    try:
        yield disk
    finally:
        subprocess.run(
            ["umount", "--lazy", str(disk)], check=True
        )  # lazily: a test that fails may hold files


async def test_a_ledger_is_opened_on_a_full_disk_and_takes_endings_only(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk / 'ledger.db'}"
    ledger = Ledger.open(url)
    sandbox = await ledger.add_sandbox(SANDBOX)
    await ledger.close()
    with (small_disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))

    ledger = Ledger.open(url)
    with pytest.raises(StorageFull):
        ledger.require_room()
    with pytest.raises(StorageFull, match="delete what is not needed"):
        await ledger.add_sandbox(replace(SANDBOX, id="sb-two"))
    for event in (Event.DELETE, Event.REMOVED):
        sandbox = await ledger.advance(sandbox, event)
    (small_disk / "fill").unlink()
    await ledger.restore_ballast()

    ledger.require_room()
    assert (await ledger.add_sandbox(replace(SANDBOX, id="sb-two"))).number > sandbox.number
    await ledger.close()


SANDBOX = Sandbox(
    id="sb-one",
    tenant="default",
    language="python",
    engine="fake",
    lifetime="persistent",
    limits=Limits(cpus=1, memory_bytes=2**28, processes=64, timeout_s=60),
    created_at=1.0,
    last_active_at=1.0,
)


def test_ballast_is_let_go_in_pieces_and_filled_up_again(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast")
    assert not ballast.is_whole
    ballast.restore()
    assert ballast.is_whole

    sizes = []
    while ballast.release():
        sizes.append((tmp_path / "ballast").stat().st_size)

    assert sizes == list(range(WHOLE_BYTES - PIECE_BYTES, -1, -PIECE_BYTES))
    assert not ballast.is_whole
    ballast.restore()
    assert (ballast.is_whole, (tmp_path / "ballast").stat().st_size) == (True, WHOLE_BYTES)
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= WHOLE_BYTES, "it really holds the space"


# ---------------------------------------------------------------------------------------------- packages


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    """An index of what does not fit on a small disk, once it is unpacked or while it is built."""
    index = PackageIndex()
    index.add("alpha", "1.0")
    index.put("heavy", "1.0", wheel("heavy", "1.0", files={"heavy.py": "#" * (256 << 20)}))
    greedy = "for number in range(400): open(str(number), 'wb').write(bytes(1 << 20))"
    index.put_sdist("greedy", "1.0", source("greedy", before=greedy))
    yield index
    index.stop()


@pytest.mark.slow  # 256 MiB in one piece: on a busy machine the installer loses its patience first
@pytest.mark.parametrize("name", ["heavy", "greedy"])
def test_packages_that_do_not_fit_are_said_and_the_run_starts(
    on_small_disk: Callable[..., Server], index: PackageIndex, name: str
) -> None:
    server = on_small_disk(PETRI_INDEX_URL=index.url)
    with server.client() as http:
        sandbox = create(http)
        answer = run(http, sandbox, code=script(name, body="print('started')"))
        other = run(http, sandbox, code=script("alpha", body="import alpha; print(alpha.version)"))

    assert answer["stdout"] == "started\n"
    assert [each["name"] for each in answer["not_installed"]] == [name]
    assert "no space is left" in answer["not_installed"][0]["why"]
    assert other["stdout"] == "1.0\n", other
    left = [
        *home(server).glob("environments/staging/*"),
        *home(server).glob("environments/shelf/.building/*"),
    ]
    assert left == []
