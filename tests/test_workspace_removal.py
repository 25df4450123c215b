"""Deleting: at once and for good for the caller, however the tree was built to prevent it."""

import os
import resource
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import pytest
from blake3 import blake3

from petri.errors import Invalid, NotFound, PreconditionFailed
from petri.workspace import Bounds, Workspaces
from petri.workspace.removal import Trash

SANDBOX = "sb-one"


@pytest.fixture
def root() -> Iterator[Path]:
    """A root in memory where there is one: thousands of folders are slow on a busy disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder) / "root"


@pytest.fixture
def workspaces(root: Path) -> Workspaces:
    made = Workspaces(root, Bounds(max_upload_bytes=1 << 20, max_files=100))
    made.create(SANDBOX, None)
    return made


@pytest.fixture
def folder(workspaces: Workspaces) -> Path:
    return workspaces.folder(SANDBOX)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Leave room for a dozen more files than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def trash(workspaces: Workspaces) -> list[str]:
    return [path.name for path in (workspaces.folder(SANDBOX).parent / ".trash").iterdir()]


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


def dig(folder: Path, levels: int) -> None:
    fd = os.open(folder, os.O_PATH)
    for level in range(levels):
        os.mkdir("d", dir_fd=fd)
        if level % 500 == 0:
            os.symlink("/", "link", dir_fd=fd)
            os.mkfifo("fifo", dir_fd=fd)
        inner = os.open("d", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


@pytest.mark.long
def test_a_tree_five_thousand_levels_deep_goes_with_few_descriptors(
    workspaces: Workspaces, folder: Path, few_descriptors: None
) -> None:
    dig(folder, 5000)

    workspaces.remove(SANDBOX)

    assert not folder.exists()
    assert trash(workspaces) == []


def test_folders_with_every_right_taken_away_go(workspaces: Workspaces, folder: Path) -> None:
    for mode in (0o000, 0o555, 0o333, 0o111):
        inner = folder / f"outer{mode:o}" / "inner" / "core"
        inner.mkdir(parents=True)
        (inner / "file").touch(mode=0)
        for path in (inner, inner.parent, inner.parent.parent):
            path.chmod(mode)
    workspaces.delete(SANDBOX, "outer0", if_match=None)
    assert not (folder / "outer0").exists()
    folder.chmod(0)

    workspaces.remove(SANDBOX)

    assert not folder.exists()
    assert trash(workspaces) == []


def test_removal_follows_no_link_and_touches_no_target(
    workspaces: Workspaces, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "inside").mkdir(parents=True)
    (outside / "inside" / "canary").touch()
    outside.chmod(0o500)
    (folder / "d").mkdir()
    (folder / "d" / "out").symlink_to(outside)
    (folder / "out").symlink_to(outside)

    workspaces.delete(SANDBOX, "out", if_match=None)
    workspaces.delete(SANDBOX, "d", if_match=None)
    workspaces.remove(SANDBOX)

    assert (outside / "inside" / "canary").exists()
    assert outside.stat().st_mode & 0o777 == 0o500
    outside.chmod(0o700)


def test_names_of_any_bytes_go(workspaces: Workspaces, folder: Path) -> None:
    odd = os.fsdecode(b"\xff\n\x1b")
    (folder / odd).mkdir()
    (folder / odd / odd).touch()
    (folder / "file\n").touch()

    workspaces.delete(SANDBOX, odd, if_match=None)
    workspaces.delete(SANDBOX, "file\n", if_match=None)

    assert list(folder.iterdir()) == []


def test_removing_and_creating_may_be_repeated(workspaces: Workspaces, folder: Path) -> None:
    (folder / "a").touch()
    workspaces.remove(SANDBOX)
    workspaces.remove(SANDBOX)
    workspaces.create(SANDBOX, None)

    assert list(folder.iterdir()) == []


def test_deleting_takes_the_link_and_leaves_what_it_points_to(workspaces: Workspaces, folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "a").write_text("kept")
    (folder / "alias").symlink_to("real")
    (folder / "real" / "b").touch()

    workspaces.delete(SANDBOX, "alias/b", if_match=None)
    workspaces.delete(SANDBOX, "alias", if_match=None)

    assert (folder / "real" / "a").read_text() == "kept"
    assert sorted(path.name for path in folder.rglob("*")) == ["a", "real"]


def test_what_cannot_be_deleted_is_said_to_be_so(workspaces: Workspaces, folder: Path) -> None:
    (folder / "file").touch()

    for path in ("", ".", "./"):
        with pytest.raises(Invalid, match="delete the sandbox"):
            workspaces.delete(SANDBOX, path, if_match=None)
    for path in ("none", "none/below", "file/below"):
        with pytest.raises(NotFound):
            workspaces.delete(SANDBOX, path, if_match=None)
    with pytest.raises(Invalid):
        workspaces.delete(SANDBOX, "../sb-two", if_match=None)


def test_a_file_is_deleted_only_in_the_version_the_caller_names(workspaces: Workspaces, folder: Path) -> None:
    (folder / "a").write_text("new")
    with pytest.raises(PreconditionFailed):
        workspaces.delete(SANDBOX, "a", if_match=blake3(b"old").hexdigest())
    assert (folder / "a").exists()

    workspaces.delete(SANDBOX, "a", if_match=blake3(b"new").hexdigest())

    assert not (folder / "a").exists()
    with pytest.raises(PreconditionFailed):
        workspaces.delete(SANDBOX, "a", if_match="*")


def keep_filling(inside: int, stop: Callable[[], bool]) -> None:
    """What code does that stands in a folder and will not let it go."""
    number = 0
    while not stop():
        with suppress(OSError):
            os.mkdir(f"{number}", dir_fd=inside)
            os.mkfifo(f"{number}/fifo", dir_fd=inside)
        number += 1


@pytest.mark.long
def test_code_that_keeps_filling_a_folder_does_not_hold_its_deletion(
    workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.workspace._DELETE_S", 0.3)
    (folder / "busy").mkdir()
    inside = os.open(folder / "busy", os.O_PATH)
    stop = threading.Event()
    filler = threading.Thread(target=keep_filling, args=(inside, stop.is_set))
    filler.start()
    while not (folder / "busy" / "50").exists():
        time.sleep(0.001)
    begun = time.monotonic()

    workspaces.delete(SANDBOX, "busy", if_match=None)
    took_s = time.monotonic() - begun
    stop.set()
    filler.join()
    os.close(inside)

    assert took_s < 3
    assert list(folder.iterdir()) == []
    assert workspaces.empty_trash(within_s=60)
    assert trash(workspaces) == []


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs code as another user")
def test_code_of_another_user_cannot_fill_what_root_deletes(workspaces: Workspaces) -> None:
    owner = 123_456
    workspaces.create("sb-two", owner)
    folder = workspaces.folder("sb-two")
    (folder / "busy").mkdir()
    os.chown(folder / "busy", owner, owner)
    inside = os.open(folder / "busy", os.O_PATH)
    could_fill: list[bool] = []

    def hostile(call: str) -> None:
        if call == "scandir":
            could_fill.append(can_make_folder(inside, owner))

    assert can_make_folder(inside, owner)
    with watching(hostile):
        workspaces.delete("sb-two", "busy", if_match=None)
    os.close(inside)

    # Once for the folder, once for what it made at first.
    assert could_fill == [False, False]


def can_make_folder(inside: int, user: int) -> bool:
    code = os.fork()
    if code == 0:
        status = 1
        try:
            os.setresuid(user, user, user)
            os.mkdir(secrets.token_hex(8), dir_fd=inside)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(code, 0)[1] == 0


def test_what_is_made_and_deleted_is_durable_before_it_is_said(workspaces: Workspaces, folder: Path) -> None:
    (folder / "a").touch()
    (folder / "d").mkdir()
    calls: list[str] = []

    with watching(calls.append):
        workspaces.create("sb-two", None)
        workspaces.delete(SANDBOX, "a", if_match=None)
        workspaces.delete(SANDBOX, "d", if_match=None)
        workspaces.remove(SANDBOX)

    changes = [call for call in calls if call in ("mkdir", "unlink", "rename", "rmdir", "fsync")]
    create, file, subfolder, whole = (
        ["mkdir", "fsync"],
        ["unlink", "fsync"],
        ["rename", "fsync", "rmdir"],
        ["rename", "fsync", "unlink", "rmdir"],  # the unlinked one is its index
    )
    assert changes == [*create, *file, *subfolder, *whole]


@pytest.mark.long
def test_a_deletion_that_runs_out_of_patience_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    place = tmp_path / "trash"
    for number in range(500):
        (place / "thrown" / str(number)).mkdir(parents=True)

    Trash(place, threading.Event()).burn("thrown", patience_s=0.001)

    assert len(list((place / "thrown").iterdir())) > 250
    Trash(place, threading.Event()).empty(patience_s=60)
    assert list(place.iterdir()) == []
