"""A workspace that is watched: the same found as by looking everywhere, at less cost."""

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.workspace import indexes as indexes_module
from petri.workspace import versions
from petri.workspace.index import Index
from petri.workspace.indexes import QUICK, WHOLE, Indexes
from petri.workspace.looking import Reading, TooMuch
from petri.workspace.watching import Watches
from tests.test_workspace_index import FREE, _settle, look, opened, top, tree_of

__all__ = ["top"]


class Project:
    """A workspace large enough to be watched, and somebody who does things to it."""

    def __init__(self, top: Path, seed: int) -> None:
        self.top = top
        self._random = random.Random(seed)
        for number in range(30):
            folder = top / f"d{number % 6}" / f"e{number}"
            folder.mkdir(parents=True)
            for name in range(10):
                (folder / f"f{name}").write_text(f"{number} {name}")

    def act(self) -> None:
        """Do one of the things a program does to files."""
        do = self._random.choice(
            [
                *(self._write, self._write, self._append, self._add, self._delete, self._move_file),
                *(self._move_folder, self._add_folder, self._delete_folder, self._link),
                *(self._chmod, self._swap),
            ]
        )
        do()

    def _files(self) -> list[Path]:
        return sorted(path for path in self.top.rglob("*") if path.is_file() and not path.is_symlink())

    def _folders(self) -> list[Path]:
        return sorted(path for path in self.top.rglob("*") if path.is_dir() and not path.is_symlink())

    def _pick(self, paths: list[Path]) -> Path:
        return self._random.choice(paths)

    def _name(self, folder: Path) -> Path:
        return folder / f"n{self._random.randrange(10**9)}"

    def _write(self) -> None:
        self._pick(self._files()).write_text(str(self._random.random()))

    def _append(self) -> None:
        with self._pick(self._files()).open("a") as out:
            out.write("+")

    def _add(self) -> None:
        self._name(self._pick(self._folders())).write_text("new")

    def _delete(self) -> None:
        self._pick(self._files()).unlink()

    def _move_file(self) -> None:
        self._pick(self._files()).rename(self._name(self._pick(self._folders())))

    def _move_folder(self) -> None:
        source, target = self._pick(self._folders()), self._name(self._pick(self._folders()))
        if not target.is_relative_to(source):
            source.rename(target)

    def _add_folder(self) -> None:
        folder = self._name(self._pick(self._folders()))
        folder.mkdir()
        (folder / "inner").mkdir()
        (folder / "inner" / "f").write_text("deep")

    def _delete_folder(self) -> None:
        if len(self._folders()) > 10:
            shutil.rmtree(self._pick(self._folders()))

    def _link(self) -> None:
        self._name(self._pick(self._folders())).symlink_to("nowhere")
        source = self._pick(self._files())
        os.link(source, self._name(self._pick(self._folders())))

    def _chmod(self) -> None:
        self._pick(self._files()).chmod(self._random.choice([0o600, 0o700]))

    def _swap(self) -> None:
        file = self._pick(self._files())
        new = self._name(file.parent)
        new.write_text("swapped in")
        new.rename(file)


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[Indexes]:
    indexes = Indexes(tmp_path / "indexes")
    yield indexes
    indexes.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_who_watches_finds_the_same_as_who_looks_everywhere(
    tmp_path: Path, indexes: Indexes, seed: int
) -> None:
    project = Project(tmp_path / "workspace", seed)
    with opened(project.top) as fd:
        indexes.look("sb-x", fd, FREE, restless=False)
        for _ in range(40):
            before = tree_of(project.top)
            indexes.mark("sb-x")
            for _ in range(project._random.randrange(4)):
                project.act()

            found = indexes.look("sb-x", fd, FREE, restless=False)

            assert found.tree == tree_of(project.top)
            assert bool(indexes.changes("sb-x")) == (found.tree != before)
    assert indexes._watches.is_watching("sb-x")


def test_a_watched_workspace_that_did_not_change_is_not_listed(tmp_path: Path, indexes: Indexes) -> None:
    project = Project(tmp_path / "workspace", 1)
    with opened(project.top) as fd:
        indexes.look("sb-x", fd, FREE, restless=False)
        tree = indexes.look("sb-x", fd, FREE, restless=False).tree
    with opened(tmp_path) as elsewhere:  # where none of its folders could be found
        assert indexes.look("sb-x", elsewhere, FREE, restless=False).tree == tree


def test_changes_are_told_from_the_mark_on_whoever_looked_in_between(
    tmp_path: Path, indexes: Indexes
) -> None:
    project = Project(tmp_path / "workspace", 1)
    with opened(project.top) as fd:
        indexes.look("sb-x", fd, WHOLE, restless=False)
        indexes.mark("sb-x")
        (project.top / "one").write_text("1")
        indexes.look("sb-x", fd, WHOLE, restless=True)
        (project.top / "one").unlink()
        (project.top / "two").write_text("2")
        indexes.look("sb-x", fd, WHOLE, restless=False)

    assert [change.path for change in indexes.changes("sb-x")] == [b"two"]
    indexes.unmark("sb-x")
    assert indexes.changes("sb-x") == []


def test_folders_with_long_paths_weigh_more(tmp_path: Path) -> None:
    weights = []
    for name in ("d", "d" * 250):
        top = tmp_path / name[:2]
        top.joinpath(*[name] * 12).mkdir(parents=True)
        index = Index()
        with opened(top) as fd:
            index.look(fd, None, WHOLE)
        weights.append(index.weight)

    assert weights == [13, 13 + sum((251 * depth - 1) // 400 for depth in range(1, 13))]


def test_a_look_that_could_not_read_enough_forgets_no_change(tmp_path: Path, indexes: Indexes) -> None:
    project = Project(tmp_path / "workspace", 1)
    with opened(project.top) as fd:
        indexes.look("sb-x", fd, WHOLE, restless=False)
        (project.top / "big").write_bytes(b"b" * (QUICK.most_bytes + 1))
        with pytest.raises(TooMuch):
            indexes.look("sb-x", fd, QUICK, restless=False)

        found = indexes.look("sb-x", fd, WHOLE, restless=False)

    assert found.tree == tree_of(project.top)


def test_an_index_survives_the_end_of_the_server(tmp_path: Path) -> None:
    project = Project(tmp_path / "workspace", 1)
    first = Indexes(tmp_path / "indexes")
    with opened(project.top) as fd:
        _settle()
        tree = first.look("sb-x", fd, WHOLE, restless=False).tree
        first.close()
        second = Indexes(tmp_path / "indexes")
        found = second.look("sb-x", fd, Reading(0, leaves_rest=False), restless=False)
        second.close()

    assert (found.tree, found.changes) == (tree, ())


@pytest.mark.long
def test_indexes_beyond_the_bound_go_to_disk(
    tmp_path: Path, indexes: Indexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes_module, "_MOST_WEIGHT", 400)
    projects = [Project(tmp_path / f"w{number}", number) for number in range(3)]
    for number, project in enumerate(projects):
        with opened(project.top) as fd:
            indexes.look(f"sb-{number}", fd, WHOLE, restless=False)

    # The last one is in use, and the one before fits beside it when it begins.
    assert [path.name for path in (tmp_path / "indexes").iterdir()] == ["sb-0"]


def test_what_is_in_a_folder_that_moved_is_not_read_again(tmp_path: Path) -> None:
    top = tmp_path / "workspace"
    (top / "old").mkdir(parents=True)
    for number in range(100):
        (top / "old" / f"{number}").write_bytes(bytes([number]) * 1000)
    index = Index()
    time.sleep(2 * versions.RACY_NS / 1e9)
    look(index, top)
    (top / "old").rename(top / "new")

    with opened(top) as fd:
        found = index.look(fd, None, Reading(most_bytes=20_000, leaves_rest=False))

    assert found.tree == tree_of(top)


@pytest.mark.long
def test_very_many_moves_are_gone_through_in_a_moment(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(7_000):
        (top / f"d{number}").mkdir(parents=True)
    watches = Watches()
    with opened(top) as fd:
        watches.watch("sb", fd, [b"", *(b"d%d" % number for number in range(7_000))])
    for number in range(7_000):
        (top / f"d{number}").rename(top / f"m{number}")

    begun = time.thread_time()
    dirty = watches.dirty("sb")

    assert time.thread_time() - begun < 1, "the event loop's own thread does this"
    assert dirty == {b""}
    with opened(top) as fd:
        assert watches.watch("sb", fd, [b"", b"m1"]) == {b"m1"}
    watches.close()
