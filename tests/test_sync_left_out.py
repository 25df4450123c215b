"""What a sync leaves out: ignored files stay where they are, and what cannot be sent is named."""

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from petri.errors import Invalid
from petri.sdk.folder.mirror import Mirror
from petri.sdk.folder.placing import OCCUPIED
from petri.trees import find, walk
from tests.sync_server import SyncServer


def test_what_is_ignored_is_neither_sent_nor_fetched_nor_deleted(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / ".gitignore").write_text("*.log\n/build/\n")
    (folder / "main.py").write_text("")
    (folder / "x.log").write_text("mine")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("")
    (folder / "build").mkdir()
    (folder / "build" / "out").write_text("mine")
    syncs.write(box, "y.log", b"theirs")
    syncs.write(box, "__pycache__/main.pyc", b"theirs")
    syncs.write(box, "made.txt", b"theirs")

    mirror.sync()

    assert set(syncs.files(box)) == {
        b".gitignore",
        b"main.py",
        b"y.log",
        b"__pycache__/main.pyc",
        b"made.txt",
    }
    assert {path.name for path in folder.iterdir()} == {
        *(".gitignore", "main.py", "x.log", ".git", "build", "made.txt")
    }
    assert mirror.sync().received.is_nothing


def test_what_git_obeys_never_comes_from_a_sandbox_whatever_ignore_files_it_writes(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    syncs.write(box, ".petriignore", b"!.git\n!.GIT\n!.git/hooks\n")
    syncs.write(box, "sub/.gitignore", b"!.git\n")
    mirror.sync()
    for path in (".git/hooks/pre-commit", "sub/.git/config", ".GIT/config"):
        syncs.write(box, path, b"#!/bin/sh\ntouch ~/got\n")

    for exchange in (mirror.pull, mirror.sync, mirror.pull):
        exchange()

    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == {
        *(".petriignore", "sub", "sub/.gitignore")
    }


def test_what_is_ignored_from_now_on_stays_in_the_sandbox(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "x.csv").write_text("1")
    (folder / "main.py").write_text("")
    mirror.push()
    (folder / ".petriignore").write_text("data/\n")

    done = mirror.push()

    assert done.sent.deleted == ()
    assert b"data/x.csv" in syncs.files(box)
    assert mirror.sync().received.is_nothing
    shutil.rmtree(folder / "data")
    assert mirror.push().sent.is_nothing
    assert b"data/x.csv" in syncs.files(box)


def test_what_is_not_ignored_any_more_is_sent(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / ".gitignore").write_text("*.csv\n")
    (folder / "x.csv").write_text("1")
    mirror.push()
    (folder / ".gitignore").write_text("")

    assert mirror.push().sent.added == ("x.csv",)
    assert b"x.csv" in syncs.files(box)


def test_a_folder_with_only_ignored_things_in_it_is_as_good_as_none(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "pkg" / "deep" / "__pycache__").mkdir(parents=True)
    (folder / "pkg" / "deep" / "__pycache__" / "x.pyc").write_text("")
    (folder / "kept").mkdir()

    mirror.push()
    assert find(syncs.fetch, syncs.sandboxes[box], b"pkg") is None
    assert find(syncs.fetch, syncs.sandboxes[box], b"kept") is not None

    (folder / "kept" / "__pycache__").mkdir()
    assert mirror.sync().sent.is_nothing


def test_what_became_a_folder_with_only_ignored_things_in_it_is_gone(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "was").write_text("a file")
    (folder / "link").symlink_to("was")
    mirror.push()
    for name in ("was", "link"):
        (folder / name).unlink()
        (folder / name / "deep" / "__pycache__").mkdir(parents=True)

    mirror.sync()

    tree = syncs.sandboxes[box]
    assert list(walk(syncs.fetch, tree)) == []
    assert mirror.sync().sent.is_nothing


def test_where_ignored_things_are_nothing_is_put_and_that_is_told(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "pkg" / "__pycache__").mkdir(parents=True)
    syncs.write(box, "pkg", b"a file")
    syncs.write(box, "other", b"theirs")

    done = mirror.pull()

    assert done.conflicts == (("pkg", OCCUPIED),)
    assert (folder / "other").read_text() == "theirs"
    assert mirror.sync().conflicts == done.conflicts
    shutil.rmtree(folder / "pkg")
    assert mirror.sync().conflicts == ()
    assert (folder / "pkg").read_text() == "a file"


def test_a_package_that_was_deleted_there_leaves_only_what_is_ignored_here(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "pkg" / "__pycache__").mkdir(parents=True)
    (folder / "pkg" / "__pycache__" / "x.pyc").write_text("")
    (folder / "pkg" / "x.py").write_text("")
    mirror.push()
    syncs.write(box, "pkg", None)

    mirror.sync()

    assert [path.name for path in (folder / "pkg").iterdir()] == ["__pycache__"]
    again = mirror.sync()
    assert again.sent.is_nothing
    assert find(syncs.fetch, syncs.sandboxes[box], b"pkg") is None


def test_sockets_and_fifos_are_skipped_with_a_word(folder: Path, mirror: Mirror, syncs: SyncServer) -> None:
    (folder / "main.py").write_text("")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "sock"))
        done = mirror.push()

    assert sorted(done.skipped) == [("pipe", "it is a FIFO"), ("sock", "it is a socket")]
    assert done.sent.added == ("main.py",)


def test_devices_are_skipped_with_a_word(folder: Path, mirror: Mirror) -> None:
    (folder / "main.py").write_text("")
    try:
        os.mknod(folder / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("we may not make a device")

    done = mirror.push()

    assert (done.skipped, done.sent.added) == ((("null", "it is a device"),), ("main.py",))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_cannot_be_read_stops_a_push_with_a_word(folder: Path, mirror: Mirror, what: str) -> None:
    if what == "file":
        (folder / "secret").write_text("")
    else:
        (folder / "secret").mkdir()
    (folder / "secret").chmod(0)
    try:
        with pytest.raises(Invalid, match=r"secret cannot be read: .*\.petriignore"):
            mirror.push()
    finally:
        (folder / "secret").chmod(0o700)


def test_our_own_memory_is_not_sent(tmp_path: Path, mirror: Mirror, syncs: SyncServer, box: str) -> None:
    with Mirror(tmp_path, box, syncs.url) as around:
        around.push()

    assert not any(b"petri/sync" in path for path in syncs.files(box))
