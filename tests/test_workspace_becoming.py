"""A workspace is kept, and becomes what was kept: byte for byte, from whatever is there."""

import os
import random
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from petri import workspace
from petri.errors import Conflict, NotFound, StorageFull
from petri.operations import becoming
from petri.store import Store
from petri.trees import EMPTY, Entry
from petri.workspace import Bounds, Workspaces, differing, keeping, versions
from tests.test_workspace_index import tree_of

SB, TENANT = "sb-x", "acme"
IS_ROOT = os.geteuid() == 0


@dataclass
class Ground:
    """One workspace, and a store to keep it in."""

    workspaces: Workspaces
    store: Store
    top: Path

    def keep(self) -> bytes:
        with self.store.write(TENANT) as writing:
            tree = self.workspaces.keep(SB, writing)
            writing.commit()
        return tree

    def become(self, tree: bytes) -> None:
        self.workspaces.become(SB, tree, None, Kept(self.store), self.workspaces.errand(), None)

    def picture(self) -> dict[str, tuple[str, int, bytes]]:
        return picture(self.top)


@dataclass
class Kept:
    """What the store has, for a workspace to become."""

    store: Store

    def folder(self, address: bytes) -> Mapping[bytes, Entry]:
        return self.store.get_folder(TENANT, address)

    def content(self, digest: bytes) -> Iterator[bytes]:
        return self.store.open_blob(TENANT, digest, verify=True)

    def changed(self, old: bytes, new: bytes) -> Iterator[tuple[int, int, int | bytes]]:
        return becoming.Kept(self.store, TENANT).changed(old, new)


def picture(top: Path) -> dict[str, tuple[str, int, bytes]]:
    """Return everything there is to see of the files below `top`."""
    found = {}
    for path in top.rglob("*"):
        name, mode = str(path.relative_to(top)), path.lstat().st_mode
        if path.is_symlink():
            found[name] = ("link", 0, os.fsencode(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", 0, b"")
        elif path.is_file():
            found[name] = ("file", mode & 0o700, path.read_bytes())
        else:
            found[name] = ("other", stat.S_IFMT(mode), b"")
    return found


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    workspaces = Workspaces(tmp_path / "workspaces", Bounds(1 << 30, 10_000), reserve_bytes=0)
    workspaces.create(SB, None)
    store = Store(tmp_path / "store")
    yield Ground(workspaces, store, workspaces.folder(SB))
    store.close()
    workspaces.close()


def some_files(top: Path) -> None:
    (top / "pkg" / "deep").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "main.py").write_text("print(1)\n")
    (top / "main.py").chmod(0o755)
    (top / "pkg" / "m.py").write_text("m = 1\n")
    (top / "pkg" / "deep" / "large").write_bytes(random.Random(1).randbytes(3 << 20))
    (top / "link").symlink_to("pkg/m.py")
    (top / "dangling").symlink_to("/nowhere/at/all")
    (top / os.fsdecode(b"odd \xff\n name")).write_text("odd")


def test_a_kept_workspace_is_again_what_it_was_after_anything(ground: Ground) -> None:
    some_files(ground.top)
    before, tree = ground.picture(), ground.keep()
    (ground.top / "pkg").rename(ground.top / "moved")
    (ground.top / "main.py").write_text("print(2)\n")
    (ground.top / "link").unlink()
    (ground.top / "link").mkdir()
    (ground.top / "link" / "inside").write_text("x")
    (ground.top / "empty").rmdir()
    (ground.top / "empty").write_text("a file by now")
    (ground.top / "new").mkdir()

    ground.become(tree)

    assert ground.picture() == before
    assert tree_of(ground.top) == tree
    assert list((ground.top.parent / ".staging").iterdir()) == []


def test_what_does_not_differ_is_not_touched_and_what_only_moved_is_moved_back(ground: Ground) -> None:
    some_files(ground.top)
    tree = ground.keep()
    untouched = (ground.top / "pkg" / "m.py").stat()
    large = (ground.top / "pkg" / "deep" / "large").stat().st_ino
    (ground.top / "pkg" / "deep").rename(ground.top / "elsewhere")
    (ground.top / "main.py").unlink()

    ground.become(tree)

    assert (ground.top / "pkg" / "m.py").stat() == untouched
    assert (ground.top / "pkg" / "deep" / "large").stat().st_ino == large


def test_an_empty_workspace_becomes_a_tree_in_one_rename(ground: Ground, tmp_path: Path) -> None:
    some_files(ground.top)
    before, tree = ground.picture(), ground.keep()
    ground.become(EMPTY)
    assert ground.picture() == {}
    empty = ground.top.stat().st_ino

    ground.become(tree)

    assert ground.picture() == before
    assert ground.top.stat().st_ino != empty
    assert stat.S_IMODE(ground.top.stat().st_mode) == 0o700


def test_keeping_again_what_has_not_changed_writes_nothing(ground: Ground) -> None:
    some_files(ground.top)
    first = ground.keep()
    usage = ground.store.usage(TENANT)

    assert ground.keep() == first
    assert ground.store.usage(TENANT) == usage


def test_what_an_earlier_look_has_read_is_kept_all_the_same(ground: Ground) -> None:
    some_files(ground.top)
    before = ground.picture()
    tree = ground.workspaces.look(SB)

    assert ground.keep() == tree

    ground.become(EMPTY)
    ground.become(tree)
    assert ground.picture() == before


def test_a_file_that_changes_while_it_is_kept_is_kept_as_it_is_then(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_files(ground.top)
    time.sleep(versions.RACY_NS / 1e9 * 1.2)
    ground.workspaces.look(SB)  # from now on nothing is read by a look
    original, times = keeping.supply, 0

    def meddling(*args: Any) -> None:
        nonlocal times
        times += 1
        if times == 1:
            (ground.top / "main.py").write_text("changed in between\n")
        original(*args)

    monkeypatch.setattr(workspace, "supply", meddling)

    tree = ground.keep()

    assert tree == tree_of(ground.top)
    assert times == 2


def test_what_no_tree_knows_is_moved_out_of_the_way_and_left_alone_elsewhere(ground: Ground) -> None:
    some_files(ground.top)
    before, tree = ground.picture(), ground.keep()
    (ground.top / "main.py").unlink()
    os.mkfifo(ground.top / "main.py")
    os.mkfifo(ground.top / "pkg" / "fifo")
    (ground.top / "link").rename(ground.top / "link2")
    os.mkfifo(ground.top / "link")

    ground.become(tree)

    assert ground.picture() == {**before, "pkg/fifo": ("other", stat.S_IFIFO, b"")}


@pytest.mark.skipif(IS_ROOT, reason="root is closed out of nothing")
def test_folders_and_files_that_are_closed_to_us_are_no_obstacle(ground: Ground) -> None:
    some_files(ground.top)
    before, tree = ground.picture(), ground.keep()
    (ground.top / "pkg" / "deep" / "large").chmod(0)
    (ground.top / "pkg" / "deep").chmod(0)
    (ground.top / "pkg").chmod(0)
    (ground.top / "empty").chmod(0)
    (ground.top / "main.py").chmod(0)

    ground.become(tree)

    assert ground.picture() == before


def test_a_link_in_the_place_of_a_folder_leads_nowhere(ground: Ground, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "m.py").write_text("host's own")
    some_files(ground.top)
    before, tree = ground.picture(), ground.keep()
    (ground.top / "pkg").rename(ground.top / "kept")
    (ground.top / "pkg").symlink_to(outside)

    ground.become(tree)

    assert ground.picture() == before
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("m.py", "host's own")]


def test_a_tree_that_is_not_kept_changes_nothing(ground: Ground) -> None:
    some_files(ground.top)
    before = ground.picture()

    with pytest.raises(NotFound):
        ground.become(bytes(32))

    assert ground.picture() == before


def test_a_content_that_is_lost_changes_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    some_files(ground.top)
    tree = ground.keep()
    (ground.top / "main.py").write_text("other")
    (ground.top / "pkg" / "m.py").write_text("other")
    before = ground.picture()

    def lost(_: object, digest: bytes) -> Iterator[bytes]:
        raise NotFound(f"the store has no object {digest.hex()}")

    monkeypatch.setattr(Kept, "content", lost)
    with pytest.raises(NotFound):
        ground.become(tree)

    assert ground.picture() == before


def test_a_disk_that_fills_up_changes_nothing(ground: Ground) -> None:
    some_files(ground.top)
    tree = ground.keep()
    (ground.top / "main.py").write_text("other")
    before = ground.picture()
    ground.workspaces.reserve_bytes = 1 << 60

    with pytest.raises(StorageFull):
        ground.become(tree)

    assert ground.picture() == before


def test_an_upload_in_between_is_seen_and_the_tree_is_whole_in_the_end(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_files(ground.top)
    tree = ground.keep()
    (ground.top / "main.py").write_text("other")
    original = differing.Plan.steps
    uploads: list[Callable[[], None]] = [lambda: upload(ground, "main.py"), lambda: upload(ground, "fresh")]

    def meddling(self: differing.Plan, wanted: differing.Difference) -> object:
        steps = original(self, wanted)
        if uploads:
            uploads.pop(0)()
        return steps

    monkeypatch.setattr(differing.Plan, "steps", meddling)
    ground.become(tree)

    assert tree_of(ground.top) == tree
    assert not uploads


def upload(ground: Ground, path: str) -> None:
    with ground.workspaces.receive(SB, None) as intake:
        staged = intake.file(path)
        staged.write(b"uploaded")
        staged.close()
        intake.commit()


def test_files_that_never_come_to_rest_are_told_of(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    some_files(ground.top)
    tree = ground.keep()
    (ground.top / "main.py").write_text("other")
    original = differing.Plan.steps

    def meddling(self: differing.Plan, wanted: differing.Difference) -> object:
        steps = original(self, wanted)
        upload(ground, "main.py")
        return steps

    monkeypatch.setattr(differing.Plan, "steps", meddling)

    with pytest.raises(Conflict, match="changed"):
        ground.become(tree)
