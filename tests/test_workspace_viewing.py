"""Looking around in a workspace that hostile code has arranged."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.workspace import Bounds, View, Workspaces

BOX = "sb-aaaaaaaaaaaaaaaaaaaa"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace's folder, beside a secret."""
    workspaces = Workspaces(tmp_path / "workspaces", Bounds(2**20, 100))
    workspaces.create(BOX, None)
    (tmp_path / "secret").write_text("secret")
    return workspaces.folder(BOX)


@pytest.fixture
def view(tmp_path: Path, folder: Path) -> Iterator[View]:
    """That workspace, to look around in."""
    with Workspaces(tmp_path / "workspaces", Bounds(2**20, 100)).view(folder.name) as view:
        yield view


def test_what_is_there_is_seen(folder: Path, view: View) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "a.py").write_text("import six")
    (folder / "link.py").symlink_to("pkg/a.py")

    assert view.read("pkg/a.py", 100) == b"import six"
    assert view.read("link.py", 100) == b"import six"
    assert (view.kind("pkg"), view.kind("pkg/a.py"), view.kind("")) == ("folder", "file", "folder")
    assert sorted(view.names("")) == ["link.py", "pkg"]


@pytest.mark.parametrize(
    "path", ["../../secret", "/etc/passwd", "out", "out/passwd", "pipe", "nothing", "a\0b", "x" * 5000]
)
def test_what_leads_out_or_is_no_file_is_not_there(folder: Path, view: View, path: str) -> None:
    (folder / "out").symlink_to("/etc")
    os.mkfifo(folder / "pipe")

    assert view.read(path, 10**6) is None
    assert view.kind(path) is None
    assert view.names(path) == []
    assert view.digest(path) is None


def test_more_than_was_asked_for_is_not_read(folder: Path, view: View) -> None:
    (folder / "a").write_bytes(b"x" * 101)

    assert view.read("a", 100) is None
    assert view.read("a", 101) == b"x" * 101


def test_a_digest_changes_with_the_content(folder: Path, view: View) -> None:
    long_ago = 10**9
    (folder / "a").write_text("one")
    assert view.digest("a") is None, "it may change once more within the same tick of the clock"

    while (before := view.digest("a")) is None:
        pass
    (folder / "a").write_text("two")
    os.utime(folder / "a", ns=(long_ago, long_ago))
    while (after := view.digest("a")) is None:
        pass

    assert before != after
