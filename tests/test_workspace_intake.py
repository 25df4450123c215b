"""Uploads: whole or not at all, where they belong, and durable before they are acknowledged."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from blake3 import blake3

from petri.errors import Conflict, Invalid, NotFound, TooLarge
from petri.workspace import Bounds, Workspaces, Written

SANDBOX = "sb-one"
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    made = Workspaces(tmp_path / "root", Bounds(max_upload_bytes=1 << 20, max_files=100))
    made.create(SANDBOX, None)
    return made


@pytest.fixture
def folder(workspaces: Workspaces) -> Path:
    return workspaces.folder(SANDBOX)


def upload(workspaces: Workspaces, files: dict[str, bytes], **conditions: str) -> list[Written]:
    with workspaces.receive(SANDBOX, None) as intake:
        for path, content in files.items():
            staged = intake.file(path)
            staged.write(content)
            staged.close()
        return intake.commit(**conditions)


def tree(folder: Path) -> dict[str, str]:
    """Return everything below `folder`, links by where they point."""
    found = {}
    for path in folder.rglob("*"):
        said = (
            f"→ {path.readlink()}" if path.is_symlink() else "folder" if path.is_dir() else path.read_text()
        )
        found[str(path.relative_to(folder))] = said
    return found


def scraps(workspaces: Workspaces) -> list[str]:
    root = workspaces.folder(SANDBOX).parent
    return [path.name for place in (".staging", ".trash") for path in (root / place).iterdir()]


@contextmanager
def watching(act: Callable[[str], None]) -> Iterator[None]:
    """Call `act` with the name of every function of the operating system just before it is called."""

    def profile(_: FrameType, event: str, called: object) -> None:
        if event == "c_call" and getattr(called, "__module__", None) == "posix":
            act(getattr(called, "__name__", ""))

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_a_file_arrives_with_its_folders_and_its_digest(workspaces: Workspaces, folder: Path) -> None:
    written = upload(workspaces, {"pkg/sub/mod.py": b"x = 1"})

    assert written == [Written("pkg/sub/mod.py", 5, blake3(b"x = 1").hexdigest())]
    assert (folder / "pkg/sub/mod.py").read_text() == "x = 1"
    assert stat.S_IMODE((folder / "pkg/sub/mod.py").stat().st_mode) == 0o644
    assert stat.S_IMODE((folder / "pkg/sub").stat().st_mode) == 0o755
    assert scraps(workspaces) == []


def test_modes_are_kept_but_nothing_becomes_setuid(workspaces: Workspaces, folder: Path) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("tool", mode=0o6755).close()
        intake.file("readonly", mode=0o444).close()
        intake.commit()

    assert stat.S_IMODE((folder / "tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "readonly").stat().st_mode) == 0o444


def test_files_folders_and_links_arrive_together(workspaces: Workspaces, folder: Path) -> None:
    (folder / "kept").mkdir()
    (folder / "kept/inside").write_text("still here")
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("a/b").write(b"new")
        intake.folder("empty")
        intake.folder("kept")
        intake.link("a/up", "../a/b")
        written = intake.commit()

    assert [file.path for file in written] == ["a/b"]
    assert tree(folder) == {
        "a": "folder",
        "a/b": "new",
        "a/up": "→ ../a/b",
        "empty": "folder",
        "kept": "folder",
        "kept/inside": "still here",
    }
    assert scraps(workspaces) == []


def test_a_path_sent_twice_is_the_later_one(workspaces: Workspaces, folder: Path) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        for content in (b"first", b"second"):
            staged = intake.file("a")
            staged.write(content)
            staged.close()
        assert [file.size for file in intake.commit()] == [6]

    assert tree(folder) == {"a": "second"}


def test_what_is_not_committed_vanishes(workspaces: Workspaces, folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), workspaces.receive(SANDBOX, None) as intake:
        intake.file("a").write(b"half")
        _ = 1 / 0

    assert tree(folder) == {}
    assert scraps(workspaces) == []


def test_more_bytes_than_allowed_are_refused_and_nothing_stays(workspaces: Workspaces, folder: Path) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        staged = intake.file("big")
        staged.write(bytes(1 << 20))
        with pytest.raises(TooLarge):
            staged.write(b"1")
        with pytest.raises(Invalid, match="refused"):
            intake.commit()

    assert tree(folder) == {}
    assert scraps(workspaces) == []


def test_more_files_or_folders_than_allowed_are_refused(workspaces: Workspaces) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        for number in range(100):
            intake.folder(str(number))
        with pytest.raises(TooLarge):
            intake.file("one more")
    with workspaces.receive(SANDBOX, None) as intake, pytest.raises(TooLarge):
        intake.file("d/" * 101 + "file")


def test_a_file_that_is_also_a_folder_makes_no_sense(workspaces: Workspaces, folder: Path) -> None:
    with pytest.raises(Invalid, match="both"):
        upload(workspaces, {"a": b"", "a/b": b""})

    assert tree(folder) == {}


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "a\0", "a\nb", "caf\udce9", "x" * 256])
def test_a_bad_path_is_refused(workspaces: Workspaces, path: str) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        for begin in (intake.file, intake.folder, lambda path: intake.link(path, "x")):
            with pytest.raises(Invalid):
                begin(path)


def test_an_upload_to_no_sandbox_is_not_found(workspaces: Workspaces) -> None:
    with pytest.raises(NotFound), workspaces.receive("sb-none", None):
        pass
    with pytest.raises(NotFound), workspaces.receive(SANDBOX, None) as intake:
        intake.file("a")
        workspaces.remove(SANDBOX)
        intake.commit()


def test_writing_replaces_a_link_and_never_what_it_points_to(
    workspaces: Workspaces, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "canary"
    outside.write_text("untouched")
    (folder / "inside").write_text("also untouched")
    for number, target in enumerate([str(outside), "inside", "nowhere"]):
        (folder / f"link{number}").symlink_to(target)

    upload(workspaces, {"link0": b"new"})
    upload(workspaces, {"link1": b"new", "link2": b"new"})

    assert outside.read_text() == "untouched"
    assert tree(folder) == {"inside": "also untouched", "link0": "new", "link1": "new", "link2": "new"}


def test_writing_replaces_a_fifo_without_waiting_for_it(workspaces: Workspaces, folder: Path) -> None:
    os.mkfifo(folder / "a")
    os.mkfifo(folder / "b")
    upload(workspaces, {"a": b"new"})
    upload(workspaces, {"a": b"newer", "b": b"new"})

    assert tree(folder) == {"a": "newer", "b": "new"}


def test_a_parent_that_is_a_link_is_followed_only_inside(
    workspaces: Workspaces, folder: Path, tmp_path: Path
) -> None:
    (folder / "real").mkdir()
    (folder / "alias").symlink_to("real")
    (folder / "out").symlink_to(tmp_path)
    (folder / "dangling").symlink_to("nothing")

    upload(workspaces, {"alias/sub/a": b"in"})
    for path, error in (("out/x", Invalid), ("out/sub/x", Invalid), ("dangling/x", Conflict)):
        with pytest.raises(error):
            upload(workspaces, {"fine": b"", path: b"escaped"})

    assert (folder / "real/sub/a").read_text() == "in"
    assert not (folder / "fine").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"root"}


@pytest.mark.parametrize("others", [{}, {"first": b"1", "zlast": b"2"}])
@pytest.mark.parametrize("path", ["folder", "file/below", "file/much/below"])
def test_what_is_in_the_way_is_a_conflict_and_nothing_is_written(
    workspaces: Workspaces, folder: Path, others: dict[str, bytes], path: str
) -> None:
    (folder / "folder/inside").mkdir(parents=True)
    (folder / "file").write_text("old")
    before = tree(folder)

    with pytest.raises(Conflict):
        upload(workspaces, {**others, path: b"new"})

    assert tree(folder) == before
    assert scraps(workspaces) == []


@pytest.mark.skipif(IS_ROOT, reason="root writes whatever the mode says")
@pytest.mark.parametrize("mode", [0o000, 0o555, 0o333, 0o600])
def test_a_folder_closed_by_its_mode_is_a_conflict_with_a_sentence(
    workspaces: Workspaces, folder: Path, mode: int
) -> None:
    (folder / "closed").mkdir()
    (folder / "closed").chmod(mode)
    calls: list[str] = []

    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("a").write(b"1")
        intake.file("closed/b").write(b"2")
        with watching(calls.append), pytest.raises(Conflict, match="permissions"):
            intake.commit()

    assert "rename" not in calls  # found before anything moved
    (folder / "closed").chmod(0o700)
    assert tree(folder) == {"closed": "folder"}


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_everything_belongs_to_the_owner_though_its_folders_are_closed(workspaces: Workspaces) -> None:
    owner = 123_456
    workspaces.create("sb-two", owner)
    folder = workspaces.folder("sb-two")
    folder.chmod(0)
    with workspaces.receive("sb-two", owner) as intake:
        intake.file("d/a").write(b"x")
        intake.folder("e")
        intake.link("d/l", "a")
        intake.commit()

    made = [folder, *folder.rglob("*")]
    assert len(made) == 5
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in made} == {(owner, owner)}


def test_a_workspace_is_closed_to_others_and_made_only_once(workspaces: Workspaces, folder: Path) -> None:
    upload(workspaces, {"a": b"kept"})
    workspaces.create(SANDBOX, None)

    assert tree(folder) == {"a": "kept"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o711
    assert stat.S_IMODE((folder.parent / ".staging").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.parent / ".trash").stat().st_mode) == 0o700


def test_the_root_may_be_reached_by_a_link_of_the_operator(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to("disk")
    workspaces = Workspaces(tmp_path / "data" / "root", Bounds(max_upload_bytes=100, max_files=10))
    workspaces.create(SANDBOX, None)
    upload(workspaces, {"a": b"1", "b": b"2"})

    assert (tmp_path / "disk/root" / SANDBOX / "a").read_text() == "1"
