"""A folder sent to a sandbox, over real HTTP: only what changed moves, and it arrives as it was."""

import os
import shutil
from pathlib import Path

import pytest

from petri.errors import Invalid, NotFound
from petri.sdk.folder.mirror import Mirror
from petri.syncing.records import Move
from petri.trees import EMPTY, File, Folder, Link, find
from tests.sync_server import SyncServer, noise


def test_everything_a_folder_holds_arrives(folder: Path, mirror: Mirror, syncs: SyncServer, box: str) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "pkg" / "run.sh").chmod(0o755)
    (folder / "empty").mkdir()
    (folder / "to").symlink_to("pkg/run.sh")
    (folder / "dangling").symlink_to("/nowhere")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n")).write_bytes(b"odd")

    done = mirror.push()

    tree = syncs.sandboxes[box]
    assert syncs.files(box) == {b"pkg/run.sh": b"#!/bin/sh\n", b"\xff\n": b"odd"}
    assert find(syncs.fetch, tree, b"pkg/run.sh") == File(find_digest(syncs, tree, b"pkg/run.sh"), 10, 7)
    assert find(syncs.fetch, tree, b"empty") == Folder(EMPTY)
    assert find(syncs.fetch, tree, b"to") == Link(b"pkg/run.sh")
    assert find(syncs.fetch, tree, b"dangling") == Link(b"/nowhere")
    assert sorted(done.sent.added) == ["dangling", "empty", "pkg/run.sh", "to", "\udcff\n"]
    assert done.tree == done.sandbox_tree == tree.hex()


def find_digest(syncs: SyncServer, tree: bytes, path: bytes) -> bytes:
    entry = find(syncs.fetch, tree, path)
    assert isinstance(entry, File)
    return entry.digest


def test_nothing_changed_is_one_small_request(folder: Path, mirror: Mirror, syncs: SyncServer) -> None:
    (folder / "main.py").write_text("print(1)")
    mirror.push()
    syncs.requests.clear()

    done = mirror.push()

    assert len(syncs.requests) == 1
    assert syncs.kinds() == ["Base", "End"]
    assert done.sent.is_nothing
    assert done.bytes_sent + done.bytes_received < 600


def test_only_what_changed_is_sent(folder: Path, mirror: Mirror, syncs: SyncServer, box: str) -> None:
    for number in range(50):
        (folder / f"{number}.py").write_bytes(noise(500, number))
    mirror.push()
    (folder / "7.py").write_text("new")
    (folder / "8.py").unlink()
    (folder / "9.py").chmod(0o755)

    done = mirror.push()

    assert done.sent.modified == ("7.py", "9.py")
    assert done.sent.deleted == ("8.py",)
    assert syncs.kinds() == ["Base", "WholeFile", "Delete", "SetMode", "End"]
    assert b"8.py" not in syncs.files(box)
    assert done.bytes_sent < 600


def test_a_renamed_folder_is_one_record(folder: Path, mirror: Mirror, syncs: SyncServer) -> None:
    (folder / "src").mkdir()
    for number in range(200):
        (folder / "src" / f"{number}").write_bytes(noise(300, number))
    mirror.push()
    (folder / "src").rename(folder / "lib")

    done = mirror.push()

    assert syncs.received[1:-1] == [Move(b"src", b"lib")]
    assert done.sent.renamed == (("src", "lib"),)
    assert done.bytes_sent < 500


def test_a_copy_of_what_is_there_is_not_sent_again(folder: Path, mirror: Mirror, syncs: SyncServer) -> None:
    (folder / "a").write_bytes(noise(100_000))
    mirror.push()
    (folder / "b").write_bytes(noise(100_000))

    done = mirror.push()

    assert syncs.kinds() == ["Base", "KnownFile", "End"]
    assert done.bytes_sent < 500


def test_the_same_new_content_twice_is_sent_once(folder: Path, mirror: Mirror, syncs: SyncServer) -> None:
    (folder / "a").write_bytes(noise(100_000))
    (folder / "b").write_bytes(noise(100_000))

    mirror.push()

    assert syncs.kinds() == ["Base", "WholeFile", "KnownFile", "End"]


@pytest.mark.parametrize("where", [0, 2**20, 2 * 2**20 - 1024])
def test_a_kilobyte_in_megabytes_costs_kilobytes(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str, where: int
) -> None:
    content = bytearray(noise(2 * 2**20))
    (folder / "big").write_bytes(content)
    mirror.push()
    content[where : where + 1024] = noise(1024, 2)
    (folder / "big").write_bytes(content)

    done = mirror.push()

    assert syncs.kinds() == ["Base", "ChangedFile", "End"]
    assert syncs.files(box)[b"big"] == content
    assert done.bytes_sent < 10_000
    content[where:where] = b"inserted"
    (folder / "big").write_bytes(content)
    assert mirror.push().bytes_sent < 10_000
    assert syncs.files(box)[b"big"] == content


def test_a_second_sandbox_gets_everything_for_almost_nothing(
    folder: Path, mirror: Mirror, syncs: SyncServer
) -> None:
    for number in range(20):
        (folder / f"{number}").write_bytes(noise(100_000, number))
    mirror.push()
    second = syncs.create()

    with Mirror(folder, second, syncs.url) as other:
        done = other.push()

    assert len(syncs.files(second)) == len(done.sent.added) == 20
    assert done.bytes_sent < 500


def test_a_folder_nobody_remembers_is_not_sent_again(
    folder: Path, mirror: Mirror, syncs: SyncServer, tmp_path: Path
) -> None:
    for number in range(20):
        (folder / f"{number}").write_bytes(noise(100_000, number))
    mirror.push()
    shutil.rmtree(tmp_path / "state")

    with Mirror(folder, mirror.sandbox_id(), syncs.url) as anew:
        done = anew.push()

    assert "have" in syncs.requests[-2]
    assert set(syncs.kinds()) == {"Base", "KnownFile", "End"}
    assert done.bytes_sent < 4000


def test_a_sandbox_may_be_named(folder: Path, syncs: SyncServer, box: str) -> None:
    (folder / "main.py").write_text("print(1)")

    with Mirror(folder, "crawler", syncs.url) as mirror:
        assert mirror.push().sandbox == box
        mirror.push()

    assert [each.split("?")[0] for each in syncs.requests].count("GET /v1/sandboxes") == 1


def test_a_name_is_looked_up_again_once_its_sandbox_is_gone(folder: Path, syncs: SyncServer) -> None:
    (folder / "f").write_text("1")
    first = syncs.create("worker")
    with Mirror(folder, "worker", syncs.url, retries=0) as mirror:
        assert mirror.push().sandbox == first
        syncs.delete(first)
        second = syncs.create("worker")

        assert mirror.push().sandbox == second

    assert syncs.files(second) == {b"f": b"1"}


@pytest.mark.parametrize("name", ["nope", "no/pe", "sb-aaaaaaaaaaaaaaaaaaab", "é"])
def test_a_sandbox_that_is_not_there_is_not_found(folder: Path, syncs: SyncServer, name: str) -> None:
    with Mirror(folder, name, syncs.url) as mirror, pytest.raises(NotFound, match="no sandbox"):
        mirror.push()


def test_a_folder_that_is_not_there_cannot_be_pushed(folder: Path, box: str, syncs: SyncServer) -> None:
    (folder / "file").write_text("")
    for path in (folder / "nope", folder / "file"):
        with Mirror(path, box, syncs.url) as mirror, pytest.raises(Invalid, match="there is no folder"):
            mirror.push()
