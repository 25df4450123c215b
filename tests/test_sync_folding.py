"""A folder whose file system takes `Main` and `main` for one name, as on a Mac: a real one, by FUSE."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.errors import Invalid
from petri.sdk.folder.collisions import folding
from petri.sdk.folder.mirror import Mirror
from petri.sdk.folder.results import Synced
from tests.sync_server import SyncServer


class Folder:
    """A folder on such a disk, and the sandbox it is kept in step with."""

    def __init__(self, top: Path, server: SyncServer, box: str) -> None:
        self.top = top
        self._server = server
        self._box = box
        self._mirror = Mirror(top, box, server.url, retries=0)

    def there(self, **files: str | None) -> None:
        """Have files in the sandbox; `None` removes one."""
        for name, content in files.items():
            path = name.replace("__", "/")
            self._server.write(self._box, path, None if content is None else content.encode())

    def pull(self) -> Synced:
        return self._mirror.pull()

    def sync(self) -> Synced:
        return self._mirror.sync()

    def here(self) -> dict[str, str]:
        """Return every file, by its name as it is spelt."""
        found = [path for path in self.top.rglob("*") if path.is_file()]
        return {path.relative_to(self.top).as_posix(): path.read_text() for path in found}

    def is_in_step(self) -> bool:
        """Say whether there is nothing more to move, and both sides are the same."""
        done = self.sync()
        there = {path.decode(): content.decode() for path, content in self._server.files(self._box).items()}
        return done.sent.is_nothing and done.received.is_nothing and there == self.here()

    def close(self) -> None:
        self._mirror.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("only root can mount such a disk, and only with FUSE")
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = [sys.executable, "-m", "tests.folding_disk", str(disk)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stderr is not None
        if serving.stdout.readline() != "mounted\n":
            complaint = serving.stderr.read()
            if "Operation not permitted" in complaint:
                pytest.skip("this host does not let us mount")
            pytest.fail(complaint)
        try:
            yield disk
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
            assert serving.wait(10) == 0, serving.stderr.read()


@pytest.fixture
def folder(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: SyncServer
) -> Iterator[Folder]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = Folder(disk / "project", syncs, syncs.create())
    yield folder
    folder.close()


def test_such_a_disk_is_known_and_the_probe_is_gone(disk: Path) -> None:
    fd = os.open(disk, os.O_RDONLY)
    try:
        fold = folding(fd)
    finally:
        os.close(fd)
    assert fold is not None
    assert fold("Café".encode()) == fold("cafe\u0301".encode())
    assert list(disk.iterdir()) == []


def test_two_files_that_would_be_one_are_refused_and_nothing_is_written(folder: Folder) -> None:
    folder.there(f="1", pkg__main="one", pkg__Main="two")

    with pytest.raises(Invalid, match=r"'Main' and 'main' in pkg are one name"):
        folder.pull()
    assert folder.here() == {}

    folder.there(pkg__Main=None)
    folder.pull()
    assert folder.here() == {"f": "1", "pkg/main": "one"}


def test_two_new_folders_that_would_be_one_are_refused_too(folder: Folder) -> None:
    folder.there(deep__Pkg__a="a", deep__pkg__b="b")

    with pytest.raises(Invalid, match=r"'Pkg' and 'pkg' in deep are one name"):
        folder.pull()
    assert folder.here() == {}


def test_a_new_file_here_and_one_there_that_would_be_one_both_stay(folder: Folder) -> None:
    folder.there(f="1")
    folder.pull()
    folder.there(Both="theirs")
    (folder.top / "both").write_text("ours")

    with pytest.raises(Invalid, match="'Both' and 'both' in the top folder are one name"):
        folder.sync()
    assert folder.here() == {"f": "1", "both": "ours"}

    folder.there(Both=None, third="theirs")
    folder.sync()
    assert folder.here() == {"f": "1", "both": "ours", "third": "theirs"}
    assert folder.is_in_step()


def test_a_file_that_is_spelt_otherwise_in_the_sandbox_is_so_here(folder: Folder) -> None:
    folder.there(p__readme="1", x="x")
    folder.pull()
    (folder.top / "p" / ".gitignore").write_text("notes\n")
    (folder.top / "p" / "notes").write_text("mine")
    folder.sync()
    folder.there(p__readme=None, p__README="1")

    done = folder.pull()

    assert done.conflicts == ()
    assert folder.here() == {"p/.gitignore": "notes\n", "p/README": "1", "p/notes": "mine", "x": "x"}
    (folder.top / "p" / "notes").unlink()
    assert folder.is_in_step()


def test_a_folder_that_is_spelt_otherwise_takes_along_what_is_ignored_in_it(folder: Folder) -> None:
    folder.there(pkg__a="a", pkg__b="b", pkg__c="c")
    folder.pull()
    (folder.top / "pkg" / "__pycache__").mkdir()
    (folder.top / "pkg" / "__pycache__" / "a.pyc").write_text("mine")
    folder.there(pkg=None, Pkg__a="a", Pkg__b="b", Pkg__c="changed")

    done = folder.pull()

    assert done.conflicts == ()
    assert folder.here() == {"Pkg/a": "a", "Pkg/b": "b", "Pkg/c": "changed", "Pkg/__pycache__/a.pyc": "mine"}


def test_another_file_under_another_spelling_takes_the_place_of_the_first(folder: Folder) -> None:
    folder.there(other="1")
    folder.pull()
    folder.there(other=None, OTHER="2")

    done = folder.pull()

    assert done.conflicts == ()
    assert folder.here() == {"OTHER": "2"}
    assert folder.is_in_step()


def test_what_is_ignored_here_is_not_overwritten_by_another_spelling_of_it(folder: Folder) -> None:
    folder.there(f="1")
    folder.pull()
    (folder.top / ".gitignore").write_text("secret\n")
    (folder.top / "secret").write_text("mine")
    folder.sync()
    folder.there(Secret="theirs")

    done = folder.sync()

    assert [each.path for each in done.conflicts] == ["Secret"]
    assert folder.here()["secret"] == "mine"


@pytest.mark.parametrize("name", ["n" * 255, "n" * 236 + "é" * 9], ids=["letters", "letters of two bytes"])
def test_the_longest_name_there_is_can_be_spelt_otherwise(folder: Folder, name: str) -> None:
    folder.there(**{name: "1"})
    folder.pull()
    folder.there(**{name: None, name.upper(): "1"})

    folder.pull()

    assert folder.here() == {name.upper(): "1"}
    assert folder.is_in_step()


def test_a_name_that_cannot_be_spelt_otherwise_is_left_as_it_was(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.there(readme="1")
    folder.pull()
    folder.there(readme=None, README="1")
    rename = os.rename

    def refusing(old: bytes, new: bytes, **folders: int) -> None:
        if new == b"README":
            raise PermissionError(errno.EPERM, "no")
        rename(old, new, **folders)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refusing)
        with pytest.raises(PermissionError):
            folder.pull()

    assert folder.here() == {"readme": "1"}
    folder.pull()
    assert folder.here() == {"README": "1"}
