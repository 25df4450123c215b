"""Syncs and bad luck: kill -9 at any moment, and a disk that fills up. Old or new, never a mixture."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from petri.errors import PetriError, StorageFull
from petri.sdk import Mirror
from petri.store import Store
from tests.conftest import PETRI, Server
from tests.real_syncs import RealSyncs
from tests.test_full_disk import small_disk as small_disk

pytestmark = pytest.mark.slow

KILLS = 12
FILES = 150


def fill(folder: Path, version: int) -> dict[bytes, bytes]:
    """Have every file of the folder say the version, in other places than the last one; return them all."""
    shutil.rmtree(folder)
    for number in range(FILES):
        place = folder / f"v{version % 3}" / f"{number % 7}" / f"{number}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(f"{version} {number}\n".encode() * (number + 1))
    (folder / "large").write_bytes(os.urandom(3_000_000))
    (folder / "same").write_text("always")
    return {
        os.fsencode(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def push(folder: Path, box: str, url: str, done: list[bool]) -> None:
    with Mirror(folder, box, url, retries=0) as mirror:
        try:
            mirror.push()
        except PetriError:
            return
        done.append(True)


def test_a_server_killed_while_it_takes_a_push_has_the_old_tree_or_the_new(
    folder: Path, new_server: Callable[..., Server]
) -> None:
    server = new_server()
    server.env["PETRI_PORT"] = server.url.rpartition(":")[2]  # what was agreed on is of an address
    syncs = RealSyncs(server)
    box = syncs.create()
    old = fill(folder, 0)
    began = time.monotonic()
    push(folder, box, server.url, [])
    took_s = time.monotonic() - began
    for number in range(1, KILLS + 1):
        new, done = fill(folder, number), list[bool]()
        pushing = threading.Thread(target=push, args=(folder, box, server.url, done))
        pushing.start()
        time.sleep(took_s * 1.5 * number / KILLS)
        server.stop(signal.SIGKILL)
        pushing.join()
        syncs.leave()

        server.start()
        syncs = RealSyncs(server)
        found = syncs.files(box)

        assert found in ((new,) if done else (old, new)), f"after kill {number}"
        with Mirror(folder, box, server.url) as mirror:
            mirror.push()
        old = syncs.files(box)
        assert old == new
    syncs.leave()
    assert "ERROR" not in server.log()
    server.stop()
    store = Store(server.home / "petri" / "store")
    assert store.fsck("default", deep=True) == []
    store.close()


def told(folder: Path) -> dict[bytes, bytes]:
    """Return what every file of a folder holds, but for those still on their way."""
    return {
        os.fsencode(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".petri-sync" not in path.parts
    }


def test_a_client_killed_while_it_pulls_leaves_whole_files_and_the_next_one_ends_it(
    folder: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETRI_URL", server.url)
    syncs = RealSyncs(server)
    box, other = syncs.create(), tmp_path / "other"
    other.mkdir()
    old = fill(other, 0)
    pull = [str(PETRI), "pull", box, str(folder)]
    push(other, box, server.url, [])
    began = time.monotonic()
    subprocess.run(pull, check=True, stdout=subprocess.DEVNULL)
    took_s = time.monotonic() - began
    for number in range(1, KILLS + 1):
        new = fill(other, number)
        push(other, box, server.url, [])
        with subprocess.Popen(pull, stdout=subprocess.DEVNULL) as pulling:
            time.sleep(took_s * 1.2 * number / KILLS)
            pulling.kill()

        for path, content in told(folder).items():
            assert content in (old.get(path), new.get(path)), f"{path!r} after kill {number}"
        done = subprocess.run(pull, capture_output=True, text=True, check=False)
        assert (done.returncode, "!" in done.stdout) == (0, False), done.stdout
        assert told(folder) == new
        assert not (folder / ".petri-sync").exists()
        old = new
    syncs.close()


def test_a_pull_onto_a_full_disk_changes_nothing_and_works_once_there_is_room(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    syncs = RealSyncs(server)
    box = syncs.create()
    syncs.write(box, "small", b"small")
    folder = small_disk / "project"
    with Mirror(folder, box, server.url, retries=0) as mirror:
        mirror.pull()
        syncs.write(box, "small", b"changed")
        syncs.write(box, "large", os.urandom(20 << 20))

        with pytest.raises(StorageFull, match="no space is left here"):
            mirror.pull()

        assert told(folder) == {b"small": b"small"}
        assert not (folder / ".petri-sync").exists()
        syncs.write(box, "large", b"not so large")
        mirror.pull()
        assert told(folder) == {b"small": b"changed", b"large": b"not so large"}
    syncs.close()


def test_a_push_onto_a_disk_that_fills_up_changes_nothing_and_works_once_there_is_room(
    folder: Path, on_small_disk: Callable[..., Server]
) -> None:
    server = on_small_disk()
    assert server.process is not None
    home = Path(f"/proc/{server.process.pid}/root{server.home}/petri")
    with server.client() as http:
        box = http.post("/v1/sandboxes", json={}).json()["id"]
    workspace = home / "workspaces" / box
    (folder / "small").write_text("small")
    with Mirror(folder, box, server.url, retries=0) as mirror:
        mirror.push()
        (folder / "large").write_bytes(os.urandom(45 << 20))
        (folder / "small").write_text("changed")

        with pytest.raises(StorageFull):
            mirror.push()

        assert [(path.name, path.read_text()) for path in workspace.iterdir()] == [("small", "small")]
        (folder / "large").write_bytes(os.urandom(1 << 20))
        mirror.push()
        assert sorted(path.name for path in workspace.iterdir()) == ["large", "small"]
        assert (workspace / "small").read_text() == "changed"
    assert "ERROR" not in server.log()
