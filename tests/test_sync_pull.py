"""What runs changed, brought back to a folder: only what changed moves, and what is local stays."""

import os
import shutil
import stat
from pathlib import Path

from petri.sdk.folder.mirror import Mirror
from tests.sync_server import SyncServer, noise


def test_what_runs_changed_comes_back(folder: Path, mirror: Mirror, syncs: SyncServer, box: str) -> None:
    (folder / "keep.py").write_text("same")
    (folder / "old.py").write_text("old")
    (folder / "gone.py").write_text("")
    mirror.push()
    syncs.write(box, "old.py", b"new")
    syncs.write(box, "gone.py", None)
    syncs.write(box, "out/run.sh", b"#!/bin/sh\n", mode=7)
    syncs.link(box, "latest", "out/run.sh")

    done = mirror.pull()

    assert (folder / "old.py").read_bytes() == b"new"
    assert not (folder / "gone.py").exists()
    assert (folder / "out" / "run.sh").read_bytes() == b"#!/bin/sh\n"
    assert (folder / "out" / "run.sh").stat().st_mode & stat.S_IXUSR
    assert (folder / "latest").readlink() == Path("out/run.sh")
    assert (done.received.modified, done.received.deleted) == (("old.py",), ("gone.py",))
    assert sorted(done.received.added) == ["latest", "out/run.sh"]
    assert done.sent.is_nothing
    assert mirror.pull().received.is_nothing


def test_a_pull_into_nowhere_makes_the_folder(
    tmp_path: Path, folder: Path, syncs: SyncServer, box: str
) -> None:
    syncs.write(box, "a/b", b"x")

    with Mirror(tmp_path / "new" / "place", box, syncs.url) as mirror:
        mirror.pull()

    assert (tmp_path / "new" / "place" / "a" / "b").read_bytes() == b"x"


def test_a_pull_fetches_only_what_is_not_here_yet(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "big").write_bytes(noise(300_000))
    syncs.write(box, "big", noise(300_000))
    syncs.write(box, "elsewhere/big", noise(300_000))

    done = mirror.pull()

    assert (folder / "elsewhere" / "big").read_bytes() == noise(300_000)
    assert done.bytes_received < 1000


def test_a_kilobyte_changed_there_costs_kilobytes(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    content = bytearray(noise(2 * 2**20))
    (folder / "big").write_bytes(content)
    mirror.push()
    content[2**20 : 2**20 + 1024] = noise(1024, 2)
    syncs.write(box, "big", bytes(content))

    done = mirror.pull()

    assert (folder / "big").read_bytes() == content
    assert done.bytes_received < 10_000
    content[5:5] = b"inserted"
    (folder / "big").write_bytes(content)
    assert mirror.push().bytes_sent < 10_000, "what was fetched was signed"


def test_a_folder_renamed_there_is_renamed_here(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "src").mkdir()
    for number in range(30):
        (folder / "src" / f"{number}").write_bytes(noise(3000, number))
    mirror.push()
    inode = (folder / "src" / "7").stat().st_ino
    for number in range(30):
        syncs.write(box, f"src/{number}", None)
        syncs.write(box, f"lib/{number}", noise(3000, number))
    syncs.write(box, "src", None)
    syncs.write(box, "lib/7", b"edited")

    done = mirror.pull()

    assert done.received.renamed == (("src", "lib"),)
    assert done.received.modified == ("lib/7",)
    assert not (folder / "src").exists()
    assert (folder / "lib" / "8").read_bytes() == noise(3000, 8)
    assert (folder / "lib" / "7").read_bytes() == b"edited"
    assert (folder / "lib" / "7").stat().st_ino != inode, "a file is replaced, never written into"
    assert done.bytes_received < 1000


def test_a_local_change_is_not_undone_by_a_pull(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "mine").write_text("1")
    (folder / "theirs").write_text("1")
    mirror.push()
    (folder / "mine").write_text("22")
    syncs.write(box, "theirs", b"22")

    mirror.pull()

    assert (folder / "mine").read_text() == "22"
    assert (folder / "theirs").read_text() == "22"
    assert mirror.push().sent.modified == ("mine",)
    assert syncs.files(box) == {b"mine": b"22", b"theirs": b"22"}


def test_a_revert_after_a_pull_is_a_change(folder: Path, mirror: Mirror, syncs: SyncServer, box: str) -> None:
    (folder / "f").write_text("1")
    (folder / "g").write_text("1")
    mirror.push()
    (folder / "f").write_text("22")
    syncs.write(box, "f", b"22")
    (folder / "g").write_text("mine")
    syncs.write(box, "g", b"theirs")
    assert [each.path for each in mirror.pull().conflicts] == ["g"]
    (folder / "f").write_text("1")

    mirror.sync()

    assert syncs.files(box)[b"f"] == b"1", "both had agreed on 22, so 1 is news"


def test_private_files_stay_private_and_others_follow_the_umask(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "secret").write_text("1")
    (folder / "secret").chmod(0o600)
    mirror.push()
    syncs.write(box, "secret", b"2")
    syncs.write(box, "tool", b"2", mode=7)
    before = os.umask(0o027)
    try:
        mirror.pull()
    finally:
        os.umask(before)

    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "tool").stat().st_mode) == 0o750


def test_a_mode_changed_there_is_changed_here(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "tool").write_text("1")
    (folder / "tool").chmod(0o644)
    mirror.push()
    syncs.write(box, "tool", b"1", mode=7)

    mirror.pull()

    assert stat.S_IMODE((folder / "tool").stat().st_mode) == 0o755


def test_no_link_leads_a_pull_elsewhere(
    tmp_path: Path, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "d").mkdir()
    (folder / "d" / "x").write_text("1")
    mirror.push()
    syncs.write(box, "d/x", b"2")
    syncs.write(box, "d/y", b"2")
    shutil.rmtree(folder / "d")
    (folder / "d").symlink_to(outside)

    done = mirror.pull()

    assert list(outside.iterdir()) == []
    assert [each.path for each in done.conflicts] == ["d"]
    assert (folder / "d").is_symlink()
