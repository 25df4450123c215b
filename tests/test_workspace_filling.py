"""Files that are copied from a workspace like it: only what is the same, and not read again."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from petri.trees import EMPTY
from petri.workspace import kernel, looking, versions
from tests.test_workspace_becoming import SB, Ground, Kept, ground, picture, some_files
from tests.test_workspace_index import tree_of

__all__ = ["ground"]


@dataclass
class Counted(Kept):
    """What the store has, and how often somebody wanted it."""

    contents: int = 0

    def content(self, digest: bytes) -> Iterator[bytes]:
        self.contents += 1
        return super().content(digest)


def forked(ground: Ground, tree: bytes) -> tuple[Path, int]:
    """Have a second workspace be `tree`, like the first; return where it is and what came from the store."""
    source = Counted(ground.store)
    ground.workspaces.create("sb-y", None)
    ground.workspaces.become("sb-y", tree, None, source, ground.workspaces.errand(), SB)
    return ground.workspaces.folder("sb-y"), source.contents


def test_what_a_like_workspace_holds_is_copied_from_there(ground: Ground) -> None:
    some_files(ground.top)
    time.sleep(versions.RACY_NS / 1e9 * 1.2)
    before, tree = ground.picture(), ground.keep()

    top, from_store = forked(ground, tree)

    assert picture(top) == before
    assert from_store == 3, "all but the large one"


@pytest.mark.parametrize("change", ["content", "replaced", "gone", "link", "fifo"])
def test_what_has_changed_since_it_was_looked_at_is_not_copied(
    ground: Ground, change: str, tmp_path: Path
) -> None:
    some_files(ground.top)
    time.sleep(versions.RACY_NS / 1e9 * 1.2)
    before, tree = ground.picture(), ground.keep()
    large = ground.top / "pkg" / "deep" / "large"
    if change == "content":
        with large.open("r+b") as file:
            file.write(b"changed")
    else:
        large.unlink()
    if change == "replaced":
        large.write_bytes(bytes(3 << 20))
    elif change == "link":
        large.symlink_to(tmp_path)
    elif change == "fifo":
        os.mkfifo(large)

    top, from_store = forked(ground, tree)

    assert picture(top) == before
    assert from_store == 4


def test_what_changes_while_it_is_copied_comes_from_the_store(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_files(ground.top)
    time.sleep(versions.RACY_NS / 1e9 * 1.2)
    before, tree = ground.picture(), ground.keep()
    copy = os.copy_file_range

    def meddling(source: int, destination: int, count: int) -> int:
        with (ground.top / "pkg" / "deep" / "large").open("r+b") as file:
            file.write(b"by a run of the parent's")
        return copy(source, destination, count)

    monkeypatch.setattr(os, "copy_file_range", meddling)
    top, from_store = forked(ground, tree)

    assert picture(top) == before
    assert from_store == 4


def test_a_filled_workspace_is_not_read_again_by_the_next_look(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_files(ground.top)
    tree = ground.keep()
    ground.become(EMPTY)
    syncfs = kernel.syncfs

    def slow(fd: int) -> None:
        syncfs(fd)
        time.sleep(versions.RACY_NS / 1e9 * 1.2)

    monkeypatch.setattr(kernel, "syncfs", slow)
    ground.become(tree)

    def never(*_: object) -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(looking.Looking, "_digest", never)
    assert ground.workspaces.look(SB) == tree


def test_a_file_that_is_changed_right_after_it_was_filled_is_seen(ground: Ground) -> None:
    some_files(ground.top)
    tree = ground.keep()
    ground.become(EMPTY)
    ground.become(tree)

    (ground.top / "main.py").write_text("print(3)\n")  # as long as it was

    assert ground.workspaces.look(SB) == tree_of(ground.top) != tree


@pytest.mark.long
def test_a_large_fork_is_not_read_again_however_quickly_it_was_copied(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ground.top / "large").write_bytes(bytes(33 << 20))
    time.sleep(versions.RACY_NS / 1e9 * 1.2)
    tree = ground.keep()
    monkeypatch.setattr(kernel, "syncfs", lambda _: None)  # on some disks it takes no time at all

    def never(*_: object) -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(looking.Looking, "_digest", never)
    top, from_store = forked(ground, tree)

    assert (top / "large").stat().st_size == 33 << 20
    assert from_store == 0
