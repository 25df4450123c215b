"""Clocks that are wrong, times that are odd: whatever they say, every change is found, and nothing else."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from petri.sdk import Mirror, Synced
from petri.sdk.folder.index import COARSE_TICK_NS, TICK_NS, settled
from petri.trees import File, address, find
from petri.workspace.index import Index
from petri.workspace.versions import RACY_NS, is_young
from tests.conftest import Server
from tests.real_syncs import RealSyncs
from tests.test_sync_scanning import Looker
from tests.test_workspace_index import look

SECOND = 10**9
HOUR, YEAR = 3600 * SECOND, 365 * 86_400 * SECOND
AT_REST_S = 1.5 * RACY_NS / SECOND
"""From then on, an index takes a file's times for what they are."""


def rewrite(file: Path, content: bytes) -> None:
    """Change a file as one who hides it would: in place, and with the times it had."""
    seen = file.stat()
    with file.open("r+b") as out:
        out.write(content)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def moved(synced: Synced) -> tuple[list[str], list[str]]:
    """Return what went to the sandbox, and what came from it."""
    sent, received = (
        [path for each in (went.added, went.modified, went.deleted) for path in each]
        for went in (synced.sent, synced.received)
    )
    return sent, received


# ------------------------------------------------------------------------------- times that files have


@pytest.mark.long
@pytest.mark.parametrize(
    "modified_ns",
    [0, -YEAR, time.time_ns() + HOUR, time.time_ns() + YEAR],
    ids=["1970", "1969", "soon", "late"],
)
def test_files_of_any_year_are_kept_in_step(folder: Path, server: Server, modified_ns: int) -> None:
    syncs = RealSyncs(server)
    box = syncs.create()
    here, there = folder / "f", syncs.top(box) / "f"
    here.write_bytes(b"pushed 0")

    def age() -> None:
        for each in (here, there):
            os.utime(each, ns=(modified_ns, modified_ns))
        time.sleep(AT_REST_S)

    with Mirror(folder, box, server.url, retries=0) as mirror:
        mirror.push()
        for number in range(1, 3):
            age()
            assert moved(mirror.sync()) == ([], [])
            rewrite(here, b"pushed %d" % number)
            assert moved(mirror.push()) == (["f"], [])
            assert there.read_bytes() == b"pushed %d" % number
            age()
            assert moved(mirror.sync()) == ([], [])
            rewrite(there, b"pulled %d" % number)
            assert moved(mirror.pull()) == ([], ["f"])
            assert here.read_bytes() == b"pulled %d" % number
            age()
            assert moved(mirror.pull()) == ([], [])
            rewrite(here, b"synced %d" % number)
            assert moved(mirror.sync()) == (["f"], [])
            assert there.read_bytes() == b"synced %d" % number
    syncs.close()


# --------------------------------------------------------------------------- clocks of file systems


def test_a_time_in_whole_seconds_is_trusted_when_the_second_is_over() -> None:
    key = (0o100644, 1, 5 * SECOND, 5 * SECOND, 7)

    assert settled(key, 5 * SECOND + TICK_NS + 1)[3] == 0
    assert settled(key, 5 * SECOND + COARSE_TICK_NS + 1) == key
    assert is_young(5 * SECOND, 5 * SECOND + RACY_NS + 1)
    assert not is_young(5 * SECOND, 7 * SECOND + RACY_NS + 1)


def test_a_time_to_come_is_never_trusted() -> None:
    for ahead in (1, HOUR, YEAR):
        assert is_young(7 + ahead, 7)
        assert settled((0o100644, 1, 7, 7 + ahead, 7), 7)[3] == 0


@pytest.fixture
def coarse_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk whose files have times in whole seconds."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(8 << 20)
    for argv in (
        ["mkfs.ext4", "-q", "-I", "128", str(image)],
        ["mount", "-o", "loop", str(image), str(disk)],
    ):
        try:
            subprocess.run(argv, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("only root can mount a disk, and mkfs.ext4 makes it")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.long
def test_two_changes_in_one_second_of_a_coarse_clock_are_both_seen(coarse_disk: Path) -> None:
    top = coarse_disk / "top"
    top.mkdir()
    looker, index = Looker(top), Index()
    time.sleep(1 - time.time() % 1 + 0.05)  # the beginning of a second
    (top / "f").write_bytes(b"1")
    time.sleep(3 * AT_REST_S)
    looker.look()
    look(index, top)
    rewrite(top / "f", b"2")

    assert find(looker.fetch, looker.look(), b"f") == File(address(b"2"), 1, 6)
    assert [change.path for change in look(index, top)[1]] == [b"f"]


# ------------------------------------------------------------------------------------ clocks of hosts


@pytest.mark.parametrize("ahead_ns", [-YEAR, -HOUR, HOUR, YEAR])
def test_a_client_whose_clock_is_wrong_finds_every_change(
    folder: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, ahead_ns: int
) -> None:
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + ahead_ns)
    (folder / "f").write_bytes(b"0")
    mirror.push()
    for number in range(1, 4):
        time.sleep(TICK_NS / SECOND)
        assert moved(mirror.push()) == ([], [])
        rewrite(folder / "f", b"%d" % number)
        assert moved(mirror.push()) == (["f"], [])


def test_a_client_whose_clock_is_set_between_looks_finds_every_change(
    folder: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time_ns
    (folder / "f").write_bytes(b"0")
    mirror.push()
    for number, ahead_ns in enumerate((HOUR, -HOUR, YEAR, -YEAR, 0)):
        monkeypatch.setattr(time, "time_ns", lambda ahead_ns=ahead_ns: clock() + ahead_ns)
        time.sleep(TICK_NS / SECOND)
        assert moved(mirror.sync()) == ([], [])
        rewrite(folder / "f", b"%d" % (number + 1))
        assert moved(mirror.sync()) == (["f"], [])


OTHER_CLOCK = """
import os, time
_ahead, _time, _time_ns = int(os.environ["AHEAD_NS"]), time.time, time.time_ns
time.time, time.time_ns = lambda: _time() + _ahead / 1e9, lambda: _time_ns() + _ahead
"""


def made_at(server: Server) -> float:
    """Return when a sandbox was made that is made now, by the server's clock."""
    with server.client() as http:
        made = http.post("/v1/sandboxes", json={}).json()
        http.delete(f"/v1/sandboxes/{made['id']}")
    return datetime.fromisoformat(made["created_at"]).timestamp()


def test_a_server_that_comes_back_with_another_clock_is_still_in_step(
    folder: Path, tmp_path: Path, new_server: Callable[..., Server]
) -> None:
    """Its clock is the file system's first, then an hour and a year ahead of that, or behind."""
    (tmp_path / "sitecustomize.py").write_text(OTHER_CLOCK)
    server = new_server(PYTHONPATH=str(tmp_path), AHEAD_NS="0", PETRI_GC_S="0.1")
    server.env["PETRI_PORT"] = server.url.rpartition(":")[2]  # what was agreed on is of an address
    syncs = RealSyncs(server)
    box = syncs.create()
    (folder / "f").write_bytes(b"here 0")
    (folder / "same").write_bytes(b"same")
    with Mirror(folder, box, server.url, retries=3) as mirror:
        mirror.push()
        for number, ahead_ns in enumerate((HOUR, -HOUR, YEAR, -YEAR, 0), 1):
            assert server.stop() == 0
            server.env["AHEAD_NS"] = str(ahead_ns)
            server.start()
            assert abs(made_at(server) - time.time() - ahead_ns / SECOND) < 60

            assert moved(mirror.sync()) == ([], [])
            rewrite(folder / "f", b"here %d" % number)
            assert moved(mirror.push()) == (["f"], [])
            assert (syncs.top(box) / "f").read_bytes() == b"here %d" % number
            time.sleep(AT_REST_S)
            mirror.sync()
            assert syncs.exec(box, f"printf 'ran! {number}' > f").json()["exit_code"] == 0
            assert moved(mirror.pull()) == ([], ["f"])
            assert (folder / "f").read_bytes() == b"ran! %d" % number
            assert syncs.files(box) == {b"f": b"ran! %d" % number, b"same": b"same"}
    syncs.leave()
    assert "ERROR" not in server.log()
