"""How an upload becomes visible: preconditions, the order on disk, and all or nothing."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.errors import Conflict, Invalid, PetriError, PreconditionFailed
from petri.workspace import Bounds, Workspaces, kernel
from tests.test_workspace_intake import SANDBOX, folder, scraps, tree, upload, watching, workspaces

__all__ = ["folder", "workspaces"]


def test_preconditions_decide_whether_a_file_is_written(workspaces: Workspaces, folder: Path) -> None:
    [first] = upload(workspaces, {"a": b"1"}, if_none_match="*")
    with pytest.raises(PreconditionFailed):
        upload(workspaces, {"a": b"2"}, if_none_match="*")
    [second] = upload(workspaces, {"a": b"2"}, if_match=f'"{first.digest}"')
    with pytest.raises(PreconditionFailed):
        upload(workspaces, {"a": b"3"}, if_match=first.digest)
    with pytest.raises(PreconditionFailed):
        upload(workspaces, {"a": b"3"}, if_none_match=second.digest)
    with pytest.raises(PreconditionFailed):
        upload(workspaces, {"none": b"3"}, if_match="*")
    upload(workspaces, {"a": b"4"}, if_match="*", if_none_match=first.digest)

    assert tree(folder) == {"a": "4"}
    assert scraps(workspaces) == []


def test_something_that_is_no_file_is_still_something_there(workspaces: Workspaces, folder: Path) -> None:
    (folder / "dangling").symlink_to("/nowhere")

    with pytest.raises(PreconditionFailed):
        upload(workspaces, {"dangling": b""}, if_none_match="*")


def test_preconditions_are_for_one_file(workspaces: Workspaces) -> None:
    with pytest.raises(Invalid, match="one file"):
        upload(workspaces, {"a": b"", "b": b""}, if_match="*")
    with pytest.raises(Invalid, match="one file"):
        upload(workspaces, {}, if_none_match="*")


def test_content_is_durable_before_it_is_visible_and_visible_before_it_is_said(
    workspaces: Workspaces,
) -> None:
    calls: list[str] = []
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("a").write(b"x")
        with watching(calls.append):
            intake.commit()

    assert [call for call in calls if call in ("fsync", "rename")] == ["fsync", "rename", "fsync"]


def test_many_files_are_journaled_between_content_and_renames(workspaces: Workspaces) -> None:
    calls: list[str] = []
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("a").write(b"x")
        intake.file("b").write(b"y")
        with watching(calls.append):
            intake.commit()

    # Both files; then the journal, its name, its folder and that one's name; at last the workspace.
    order = ["fsync", "fsync", "fsync", "rename", "fsync", "fsync", "fsync"]
    assert [call for call in calls if call in ("fsync", "rename")] == order


@pytest.mark.parametrize("late", ["b", "z"])
def test_a_folder_made_during_the_commit_undoes_all_of_it(
    workspaces: Workspaces, folder: Path, late: str
) -> None:
    upload(workspaces, {"b": b"old b", "m": b"old m"})
    (folder / "m2").symlink_to("m")
    acted: list[str] = []

    def hostile(call: str) -> None:
        # The first rename is the journal's: the survey is over, nothing has moved.
        if call == "rename" and not acted:
            acted.append(call)
            (folder / late).unlink(missing_ok=True)
            (folder / late).mkdir()
            (folder / late / "mine").write_text("hostile")

    with workspaces.receive(SANDBOX, None) as intake:
        for path in ("a", "b", "m", "m2", "new/deep/c", "z"):
            intake.file(path).write(b"new")
        intake.folder("new/empty")
        with watching(hostile), pytest.raises(Conflict):
            intake.commit()
        # Were we killed now, nothing may roll forward what the caller was told has failed.
        assert list(folder.parent.glob(".staging/*/journal")) == []

    expected = {"b": "old b", "m": "old m", "m2": "→ m"} | {late: "folder", f"{late}/mine": "hostile"}
    assert tree(folder) == expected
    assert scraps(workspaces) == []


def test_without_renames_that_exchange_many_files_still_arrive(
    workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "RENAME_NOREPLACE", 1 << 30)  # no kernel knows this flag: EINVAL
    (folder / "a").write_text("old")
    (folder / "e").mkdir()
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("a").write(b"new")
        intake.folder("e")
        intake.folder("f")
        intake.commit()

    assert tree(folder) == {"a": "new", "e": "folder", "f": "folder"}


@pytest.fixture
def quick_root() -> Iterator[Path]:
    """A root in memory where there is one, so that it is our time that is measured."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder) / "root"


@pytest.mark.long
def test_ten_thousand_files_arrive_in_one_commit_in_reasonable_time(quick_root: Path) -> None:
    workspaces = Workspaces(quick_root, Bounds(max_upload_bytes=1 << 30, max_files=10_000))
    workspaces.create(SANDBOX, None)
    begun = time.monotonic()
    written = upload(workspaces, {f"d{number % 97}/{number}": b"%d" % number for number in range(10_000)})
    took_s = time.monotonic() - begun

    assert len(written) == 10_000
    assert (workspaces.folder(SANDBOX) / "d0/9991").read_text() == "9991"
    assert workspaces.list(SANDBOX, "", recursive=True, limit=99_999).truncated is False
    assert took_s < 10
    workspaces.remove(SANDBOX)


def test_uploads_leave_no_descriptor_open(workspaces: Workspaces, folder: Path) -> None:
    (folder / "file").touch()
    before = len(list(Path("/proc/self/fd").iterdir()))

    upload(workspaces, {"a/b": b"1", "c": b"2"})
    for bad in ({"file/x": b""}, {"c": b"", "file/x": b""}, {"a": b"", "a/b": b""}):
        with pytest.raises(PetriError):
            upload(workspaces, bad)

    assert len(list(Path("/proc/self/fd").iterdir())) == before
