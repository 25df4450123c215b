"""A workspace as a tree: every change is seen, nothing else is read, watched or not."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from petri.trees import Change, Entry, File, Folder, Link, address, encode
from petri.workspace import versions
from petri.workspace.index import Index
from petri.workspace.looking import Reading, TooMuch

FREE = Reading(1 << 40, leaves_rest=False)


def tree_of(folder: Path) -> bytes:
    """Return the address by the plainest way there is."""
    entries: dict[bytes, Entry] = {}
    for each in folder.iterdir():
        name = os.fsencode(each.name)
        if each.is_symlink():
            entries[name] = Link(os.fsencode(each.readlink()))
        elif each.is_dir():
            entries[name] = Folder(tree_of(each))
        elif each.is_file():
            content = each.read_bytes()
            entries[name] = File(address(content), len(content), (each.stat().st_mode >> 6) & 7)
    return address(encode(entries))


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def look(index: Index, top: Path, dirty: set[bytes] | None = None) -> tuple[bytes, list[Change]]:
    with opened(top) as fd:
        found = index.look(fd, dirty, FREE)
    return found.tree, sorted(found.changes, key=lambda change: change.path)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "workspace"
    (top / "pkg" / "deep").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "main.py").write_text("import pkg\n")
    (top / "pkg" / "m.py").write_text("x = 1\n")
    (top / "pkg" / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (top / "pkg" / "deep" / "run.sh").chmod(0o755)
    (top / "link").symlink_to("pkg/m.py")
    return top


def test_the_tree_is_that_of_what_is_there(top: Path) -> None:
    tree, changes = look(Index(), top)

    assert tree == tree_of(top)
    assert [change.path for change in changes] == [
        *(b"empty", b"link", b"main.py", b"pkg", b"pkg/deep", b"pkg/deep/run.sh", b"pkg/m.py"),
    ]


def test_a_second_look_at_the_same_reads_nothing(top: Path) -> None:
    index = Index()
    before, _ = look(index, top)
    _settle()
    look(index, top)  # what was racy is read once more

    with opened(top) as fd:
        again = index.look(fd, None, Reading(0, leaves_rest=False))

    assert (again.tree, again.changes) == (before, ())


def _settle() -> None:
    time.sleep(versions.RACY_NS / 1e9 * 1.2)


def test_each_kind_of_change_is_told_with_what_was_and_what_is(top: Path) -> None:
    index = Index()
    look(index, top)
    (top / "main.py").write_text("changed")
    (top / "pkg" / "m.py").unlink()
    (top / "new").mkdir()
    (top / "new" / "f").write_text("")
    (top / "empty").rmdir()
    (top / "pkg" / "deep" / "run.sh").chmod(0o644)
    (top / "link").unlink()
    (top / "link").symlink_to("elsewhere")

    tree, changes = look(index, top)

    assert tree == tree_of(top)
    kinds = {
        change.path: "+" if change.old is None else "-" if change.new is None else "~" for change in changes
    }
    assert kinds == {
        b"main.py": "~",
        b"pkg/m.py": "-",
        b"new": "+",
        b"new/f": "+",
        b"empty": "-",
        b"pkg/deep/run.sh": "~",
        b"link": "~",
    }


def test_same_size_same_mtime_other_content_is_seen(top: Path) -> None:
    index = Index()
    file = top / "main.py"
    look(index, top)
    _settle()
    look(index, top)
    status = file.stat()
    with file.open("r+") as out:
        out.write("IMPORT")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    tree, changes = look(index, top)

    assert tree == tree_of(top)
    assert [change.path for change in changes] == [b"main.py"]


def test_a_write_within_the_clocks_tick_is_seen(top: Path) -> None:
    index = Index()
    file = top / "main.py"
    for number in range(50):
        file.write_text(f"{number:04}")
        look(index, top)
        file.write_text(f"{number + 5000:04}")  # as long, and likely within the same tick

        assert look(index, top)[0] == tree_of(top)


def test_a_folder_that_became_a_link_is_a_link_and_never_entered(top: Path, tmp_path: Path) -> None:
    index = Index()
    look(index, top)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("s")
    shutil.rmtree(top / "pkg")
    (top / "pkg").symlink_to(tmp_path / "outside")

    tree, changes = look(index, top)

    assert tree == tree_of(top)
    assert not any(b"secret" in change.path for change in changes)


def test_what_is_no_file_is_skipped_and_named(top: Path) -> None:
    before, _ = look(Index(), top)
    os.mkfifo(top / "pkg" / "fifo")

    with opened(top) as fd:
        found = Index().look(fd, None, FREE)

    assert found.tree == before
    assert found.skipped == (b"pkg/fifo",)


def test_more_than_may_be_read_changes_nothing_and_can_be_asked_again(top: Path) -> None:
    index = Index()
    before, _ = look(index, top)
    (top / "pkg" / "m.py").write_text("small")
    (top / "big").write_bytes(b"b" * 1000)

    with opened(top) as fd, pytest.raises(TooMuch):
        index.look(fd, None, Reading(500, leaves_rest=False))
    tree, changes = look(index, top)

    assert tree == tree_of(top) != before
    assert [change.path for change in changes] == [b"big", b"pkg/m.py"]


def test_a_file_too_large_to_read_is_known_by_its_times_until_it_changes(top: Path) -> None:
    index = Index()
    with (top / "sparse").open("wb") as out:
        out.truncate(1 << 42)
    reading = Reading(1 << 20, leaves_rest=True)

    with opened(top) as fd:
        first = index.look(fd, None, reading).tree
        again = index.look(fd, None, reading).tree
        os.utime(top / "sparse", (1, 1))
        touched = index.look(fd, None, reading).tree

    assert first == again != touched


def test_what_was_frozen_is_known_again(top: Path) -> None:
    index = Index()
    before, _ = look(index, top)
    _settle()
    look(index, top)
    thawed = Index.thawed(index.frozen())

    with opened(top) as fd:
        again = thawed.look(fd, None, Reading(0, leaves_rest=False))

    assert (again.tree, again.changes) == (before, ())


@pytest.mark.parametrize("damage", [b"", b"x", b"\xe9" * 40])
def test_a_damaged_index_is_none(damage: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Index.thawed(damage)
