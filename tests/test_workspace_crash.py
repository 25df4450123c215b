"""kill -9 at every step: after `tidy` an upload is there whole or not at all, and nothing else is left."""

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from petri.operations.becoming import Kept
from petri.store import Store
from petri.workspace import Bounds, Workspaces

pytestmark = pytest.mark.long

SANDBOX = "sb-one"
BOUNDS = Bounds(max_upload_bytes=1 << 20, max_files=1000)
OLD = {"a": "old a", "b": "old b", "kept": "kept", "l": "→ kept"}
NEW = {
    "a": "new a",
    "b": "new b",
    "d": "folder",
    "d/e": "folder",
    "d/e/c": "new c",
    "empty": "folder",
    "kept": "kept",
    "l": "→ a",
}


@pytest.fixture
def root() -> Iterator[Path]:
    """A root in memory where there is one: being killed, unlike losing power, loses no write."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder) / "root"


def prepare(root: Path) -> Workspaces:
    workspaces = Workspaces(root, BOUNDS)
    workspaces.remove(SANDBOX)
    workspaces.create(SANDBOX, None)
    for name in ("a", "b", "kept"):
        (workspaces.folder(SANDBOX) / name).write_text(OLD[name])
    (workspaces.folder(SANDBOX) / "l").symlink_to("kept")
    return workspaces


def upload_many(workspaces: Workspaces) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("a").write(b"new a")
        intake.file("d/e/c").write(b"new c")
        intake.file("b").write(b"new b")
        intake.folder("empty")
        intake.link("l", "a")
        intake.commit()


def upload_one(workspaces: Workspaces) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("a").write(b"new a")
        intake.commit()


def delete_folder(workspaces: Workspaces) -> None:
    workspaces.delete(SANDBOX, "folder", if_match=None)


def killed(when: Callable[[], bool], action: Callable[[], object]) -> bool:
    """Do `action` in a child, killed at the first C call for which `when()`; say if it got to the end."""
    child = os.fork()
    if child == 0:

        def profile(_: FrameType, event: str, __: object) -> None:
            if event == "c_call" and when():
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(profile)
            action()
            sys.setprofile(None)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status)


def killed_at(step: int, action: Callable[[], object]) -> bool:
    """Do `action` in a child that is killed at its C call number `step`; say if it got to the end."""
    calls = itertools.count()
    return killed(lambda: next(calls) >= step, action)


def tree(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        said = (
            f"→ {path.readlink()}" if path.is_symlink() else "folder" if path.is_dir() else path.read_text()
        )
        found[str(path.relative_to(folder))] = said
    return found


def tidy(root: Path) -> None:
    """Do what a new life of the server does first, and what it does when it listens."""
    workspaces = Workspaces(root, BOUNDS)
    workspaces.tidy()
    assert workspaces.empty_trash(within_s=60)


def scraps(root: Path) -> list[str]:
    return [path.name for place in (".staging", ".trash") for path in (root / place).iterdir()]


def test_an_upload_of_many_files_is_whole_or_absent_wherever_it_was_killed(root: Path) -> None:
    step, finished, seen = 0, False, {"old": 0, "new": 0}
    while not finished:
        workspaces = prepare(root)
        finished = killed_at(step, partial(upload_many, workspaces))
        step += 5

        tidy(root)

        after = tree(workspaces.folder(SANDBOX))
        assert after in (OLD, NEW), step
        assert not finished or after == NEW
        assert scraps(root) == []
        seen["new" if after == NEW else "old"] += 1
    # Some were killed after the journal, or rolling forward was never tried.
    assert seen["old"] > 10
    assert seen["new"] > 10


def versions(workspaces: Workspaces, store: Store) -> tuple[bytes, bytes]:
    """Keep what there is, and what is to come of it by moves, removals and changes; return both trees."""
    top = workspaces.folder(SANDBOX)
    old = kept(workspaces, store)
    for name in ("a", "b", "l"):
        (top / name).unlink()
    (top / "d" / "e").mkdir(parents=True)
    (top / "empty").mkdir()
    for name, content in (("a", "new a"), ("b", "new b"), ("d/e/c", "new c")):
        (top / name).write_text(content)
    (top / "l").symlink_to("a")
    return old, kept(workspaces, store)


def kept(workspaces: Workspaces, store: Store) -> bytes:
    with store.write("default") as writing:
        tree = workspaces.keep(SANDBOX, writing)
        writing.commit()
    return tree


@pytest.mark.parametrize("way", ["forth", "back"])
def test_a_sync_is_whole_or_absent_wherever_it_was_killed(root: Path, way: str) -> None:
    store = Store(root.with_name("store"))
    step, finished, seen = 0, False, {"old": 0, "new": 0}
    while not finished:
        workspaces = prepare(root)
        old, new = versions(workspaces, store)
        source = Kept(store, "default")
        if way == "back":
            old, new = new, old
        else:
            assert workspaces.step(SANDBOX, (new, old), None, source, restless=False)
        finished = killed_at(
            step,
            partial(workspaces.step, SANDBOX, (old, new), None, source, restless=True),
        )
        step += 7

        tidy(root)

        after = tree(workspaces.folder(SANDBOX))
        assert after in (OLD, NEW), step
        is_new = after == (OLD if way == "back" else NEW)
        assert not finished or is_new
        assert scraps(root) == []
        seen["new" if is_new else "old"] += 1
        workspaces.close()
    store.close()
    assert min(seen.values()) > 10, seen


def test_a_file_is_the_old_or_the_new_wherever_its_upload_was_killed(root: Path) -> None:
    step, finished = 0, False
    while not finished:
        workspaces = prepare(root)
        finished = killed_at(step, partial(upload_one, workspaces))
        step += 5

        tidy(root)

        after = tree(workspaces.folder(SANDBOX))
        assert after in ({**OLD, "a": "new a"}, OLD)
        assert not finished or after["a"] == "new a"
        assert scraps(root) == []


def test_a_folder_is_whole_or_gone_wherever_its_deletion_was_killed(root: Path) -> None:
    step, finished = 0, False
    while not finished:
        workspaces = prepare(root)
        (workspaces.folder(SANDBOX) / "folder/sub").mkdir(parents=True)
        (workspaces.folder(SANDBOX) / "folder/sub/file").write_text("x")
        whole = tree(workspaces.folder(SANDBOX))
        finished = killed_at(step, partial(delete_folder, workspaces))
        step += 5

        tidy(root)

        after = tree(workspaces.folder(SANDBOX))
        assert after in (OLD, whole)
        assert not finished or after == OLD
        assert scraps(root) == []


def crash_after_journal(root: Path) -> Workspaces:
    """Leave an upload that is committed but of which nothing has moved."""
    workspaces = prepare(root)
    killed(lambda: any((root / ".staging").glob("*/journal")), partial(upload_many, workspaces))
    assert tree(root / SANDBOX) == OLD
    return workspaces


def test_a_crash_while_rolling_forward_is_rolled_forward_again(root: Path) -> None:
    crash_after_journal(root)
    step, finished = 0, False
    while not finished:
        finished = killed_at(step, lambda: tidy(root))
        step += 7

    assert tree(root / SANDBOX) == NEW
    assert scraps(root) == []


def test_an_upload_to_a_sandbox_that_is_gone_is_forgotten(root: Path) -> None:
    crash_after_journal(root).remove(SANDBOX)

    tidy(root)

    assert scraps(root) == []
    assert not (root / SANDBOX).exists()


def test_rolling_forward_follows_no_link_out_and_completes_the_rest(root: Path, tmp_path: Path) -> None:
    crash_after_journal(root)
    (tmp_path / "e").mkdir()
    (root / SANDBOX / "d").symlink_to(tmp_path)

    tidy(root)

    assert list(tmp_path.rglob("*")) == [tmp_path / "e"]
    assert (root / SANDBOX / "b").read_text() == "new b"
    assert scraps(root) == []


def test_tidying_leaves_an_upload_alone_that_began_since(root: Path) -> None:
    workspaces = prepare(root)
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("late").write(b"fine")
        workspaces.tidy()
        intake.commit()

    assert (root / SANDBOX / "late").read_text() == "fine"


def test_a_journal_the_disk_has_lost_does_not_stop_the_start(root: Path) -> None:
    crash_after_journal(root)
    [journal] = (root / ".staging").glob("*/journal")
    journal.write_bytes(b"\0" * 100)

    tidy(root)

    assert tree(root / SANDBOX) == OLD
    assert scraps(root) == []
