"""Random lives of workspaces: edits, snapshots, restores, forks, sweeps, crashes. What is kept comes back."""

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from petri.store import Store
from petri.workspace import Bounds, Workspaces
from petri.workspace.commit import Site
from petri.workspace.ground import Ground
from petri.workspace.rework import Rework
from tests.test_store import Clock, noise
from tests.test_workspace_becoming import Kept, picture
from tests.test_workspace_index import tree_of

GRACE_S = 100
NAMES = st.sampled_from(["a", "b", "ä", os.fsdecode(b"\xff\n"), "-x", "é".encode().decode("latin1")])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.sampled_from([b"", b"x", b"text " * 300, noise(700), noise((1 << 20) + 5000, 2)])
TENANT = "acme"


class Crash(BaseException):
    """What a kill -9 looks like from inside."""


class Lives(RuleBasedStateMachine):
    """Two workspaces, one of them a fork now and then, and every snapshot that must come back."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self.clock = Clock()
        self.kept: dict[bytes, dict[str, tuple[str, int, bytes]]] = {}
        """Every tree that somebody may go back to, and what it looked like."""
        self.open()
        for name in ("sb-0", "sb-1"):
            self.workspaces.create(name, None)
        self.here = "sb-0"

    def open(self) -> None:
        self.workspaces = Workspaces(self.folder / "workspaces", Bounds(1 << 30, 10_000), reserve_bytes=0)
        self.store = Store(self.folder / "store", clock=self.clock, pack_bytes=100_000)

    def teardown(self) -> None:
        self.store.close()
        self.workspaces.close()
        for path in self.folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(self.folder)

    @property
    def top(self) -> Path:
        return self.workspaces.folder(self.here)

    # ------------------------------------------------------------------------------------------ edits

    def clear(self, path: Path) -> bool:
        """Make room for something at `path`; say if there is a folder for it."""
        if any(not is_folder(each) for each in self.above(path)):
            return False
        if is_folder(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        return True

    def above(self, path: Path) -> list[Path]:
        """Return what is there of the folders that `path` is in."""
        above = (each for each in path.parents if self.top in each.parents)
        return [each for each in above if os.path.lexists(each)]

    @rule(path=PATHS, content=CONTENTS, mode=st.sampled_from([0o644, 0o755, 0o444, 0o600]))
    def write(self, path: str, content: bytes, mode: int) -> None:
        if self.clear(self.top / path):
            (self.top / path).write_bytes(content)
            (self.top / path).chmod(mode)

    @rule(path=PATHS, leads_to=st.sampled_from(["a", "../..", "/etc/passwd", "nowhere"]))
    def link(self, path: str, leads_to: str) -> None:
        if self.clear(self.top / path):
            (self.top / path).symlink_to(leads_to)

    @rule(path=PATHS)
    def make_folder(self, path: str) -> None:
        if self.clear(self.top / path):
            (self.top / path).mkdir()

    @rule(path=PATHS)
    def make_fifo(self, path: str) -> None:
        if self.clear(self.top / path):
            os.mkfifo(self.top / path)

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.clear(self.top / path)

    @rule(source=PATHS, destination=PATHS)
    def move(self, source: str, destination: str) -> None:
        old, new = self.top / source, self.top / destination
        inside = old == new or old in new.parents or new in old.parents
        if not inside and os.path.lexists(old) and self.clear(new) and os.path.lexists(old):
            old.rename(new)

    @rule(name=st.sampled_from(["sb-0", "sb-1"]))
    def go(self, name: str) -> None:
        self.here = name

    # ---------------------------------------------------------------------------------------- history

    def become(self, name: str, tree: bytes, like: str | None = None) -> None:
        self.workspaces.become(name, tree, None, Kept(self.store), self.workspaces.errand(), like)

    @rule()
    def snapshot(self) -> None:
        with self.store.write(TENANT) as writing:
            tree = self.workspaces.keep(self.here, writing)
            writing.commit()
        self.kept[tree] = seen(self.top)

    @rule()
    def look(self) -> None:
        assert self.workspaces.look(self.here) == tree_of(self.top)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        tree = data.draw(st.sampled_from(sorted(self.kept)))
        self.become(self.here, tree)
        assert seen(self.top) == self.kept[tree]

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), at=st.integers(0, 12))
    def crash_in_a_restore(self, data: st.DataObject, at: int) -> None:
        """Die at some step; the next life finishes what was on record."""
        tree = data.draw(st.sampled_from(sorted(self.kept)))

        def dying(rework: Rework, site: Site) -> None:
            rework._write(site.staging)
            Rework(rework.sandbox_id, rework.owner, rework.steps[:at]).roll_forward(site)
            raise Crash

        with pytest.MonkeyPatch.context() as patch, suppress(Crash):
            patch.setattr(Rework, "carry_out", dying)
            patch.setattr(Ground, "discard", lambda *_: None)  # whoever is dead tidies nothing up
            self.become(self.here, tree)
        self.start_again()
        self.become(self.here, tree)
        assert seen(self.top) == self.kept[tree]

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        tree = data.draw(st.sampled_from(sorted(self.kept)))
        other = "sb-1" if self.here == "sb-0" else "sb-0"
        self.workspaces.remove(other)
        self.workspaces.create(other, None)
        self.become(other, tree, like=self.here)
        assert seen(self.workspaces.folder(other)) == self.kept[tree]

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def forget_some_and_sweep(self, data: st.DataObject) -> None:
        for tree in data.draw(st.lists(st.sampled_from(sorted(self.kept)), max_size=2)):
            self.kept.pop(tree, None)
        self.clock.now += GRACE_S + 1
        swept = self.store.gc(TENANT, list(self.kept), GRACE_S)
        assert swept.missing == []

    @rule()
    def start_again(self) -> None:
        self.store.close()
        self.workspaces.close()
        self.open()
        self.workspaces.tidy()
        self.workspaces.empty_trash(within_s=10)

    @invariant()
    def nothing_is_left_lying(self) -> None:
        assert list((self.folder / "workspaces" / ".staging").iterdir()) == []

    @invariant()
    def the_store_is_whole(self) -> None:
        assert self.store.fsck(TENANT, deep=False) == []
        assert self.store.missing(TENANT, list(self.kept)) == []


def is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def seen(top: Path) -> dict[str, tuple[str, int, bytes]]:
    """Return what a tree knows of the files below `top`."""
    return {path: what for path, what in picture(top).items() if what[1] != stat.S_IFIFO}


@pytest.mark.long
def test_whatever_happens_what_is_kept_comes_back() -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(max_examples=15, stateful_step_count=25, deadline=None, derandomize=True),
    )


@pytest.mark.slow
def test_whatever_happens_what_is_kept_comes_back_at_length() -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=200,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
