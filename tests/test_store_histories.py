"""Random lives of a store: put, commit, give up, crash, sweep, start again. What is needed stays there."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from petri.errors import NotFound
from petri.store import Store
from petri.trees import File, Folder, address, encode, walk
from tests.examples import examples
from tests.test_store import MIB, Clock, noise, plant
from tests.test_store_crash import killed_before

GRACE_S = 100
CONTENTS = {
    "empty": b"",
    "tiny": b"x",
    "text": b"text " * 300,
    "noise": noise(700),
    "other": noise(900, 1),
    "large": noise(MIB + 5000, 2),
    "changed": noise(MIB + 5000, 2)[1:],
}
FILES = st.dictionaries(
    st.sampled_from([b"a", b"b", b"c"]), st.sampled_from(list(CONTENTS)), min_size=1, max_size=3
)
Files = Mapping[bytes, str]
"""What of `CONTENTS` is where."""


class Lives(RuleBasedStateMachine):
    """A store, and what must be in it."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self.clock = Clock()
        self.store = self.open()
        self.roots: dict[bytes, Files] = {}
        """Trees that are needed."""
        self.others: dict[bytes, Files] = {}
        """Trees that may be there: given up, no longer needed, or put by one who was killed."""

    def open(self) -> Store:
        return Store(self.folder / "store", clock=self.clock, pack_bytes=3000)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(files=FILES)
    def commit(self, files: Files) -> None:
        with self.store.write("acme") as writing:
            tree = plant(writing, contents(files))
            writing.commit()
        self.roots[tree] = files

    @rule(files=FILES)
    def give_up(self, files: Files) -> None:
        with self.store.write("acme") as writing:
            self.others[plant(writing, contents(files))] = files

    @rule(first=FILES, second=FILES)
    def interleave(self, first: Files, second: Files) -> None:
        """One session gives up while another goes on."""
        with self.store.write("acme") as one:
            with self.store.write("acme") as other:
                self.others[plant(other, contents(first))] = first
                tree = plant(one, contents(second))
            one.commit()
        self.roots[tree] = second

    @rule(data=st.data())
    def need_no_more(self, data: st.DataObject) -> None:
        if self.roots:
            tree = data.draw(st.sampled_from(sorted(self.roots)))
            self.others[tree] = self.roots.pop(tree)

    @rule(seconds=st.sampled_from([1, GRACE_S, 10 * GRACE_S]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule()
    def sweep(self) -> None:
        assert self.store.gc("acme", self.roots, GRACE_S).missing == []

    @rule()
    def sweep_during_a_session(self) -> None:
        with self.store.write("acme") as writing:
            tree = plant(writing, contents({b"a": "text"}))
            self.clock.now += 10 * GRACE_S
            self.store.gc("acme", self.roots, GRACE_S)
            writing.commit()
        self.roots[tree] = {b"a": "text"}

    @rule()
    def start_again(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule(files=FILES, step=st.integers(0, 40))
    def be_killed_while_writing(self, files: Files, step: int) -> None:
        def write() -> None:
            store = self.open()
            with store.write("acme") as writing:
                plant(writing, contents(files))
                writing.commit()

        self.store.close()
        done = killed_before(step, write)
        self.store = self.open()
        (self.roots if done else self.others)[tree_of(files)] = files

    @rule(step=st.integers(0, 60))
    def be_killed_while_sweeping(self, step: int) -> None:
        self.store.close()
        killed_before(step, lambda: self.open().gc("acme", self.roots, GRACE_S) and None)
        self.store = self.open()

    @rule(torn=st.binary(min_size=1, max_size=100))
    def be_torn(self, torn: bytes) -> None:
        """Have something behind the last batch of the pack that grew, as a power cut may leave it."""
        self.store.close()
        packs = sorted(self.folder.rglob("*.pack"))
        if packs and not packs[-1].with_suffix(".index").exists():
            with packs[-1].open("ab") as pack:
                pack.write(torn)
        self.store = self.open()

    @invariant()
    def what_is_needed_is_there(self) -> None:
        for tree, files in self.roots.items():
            assert self.harvest(tree) == contents(files)

    @invariant()
    def what_is_there_is_whole(self) -> None:
        assert self.store.fsck("acme", deep=True) == []
        for tree, files in self.others.items():
            try:
                self.store.get_folder("acme", tree)
            except NotFound:
                continue
            assert self.harvest(tree) == contents(files)

    def harvest(self, tree: bytes) -> dict[bytes, bytes]:
        """Return the files of `tree`, touching nothing."""
        paths = walk(self.store.fetch("acme"), tree)
        return {
            path[2:]: self.store.get("acme", entry.digest) for path, entry in paths if isinstance(entry, File)
        }


def contents(files: Files) -> dict[bytes, bytes]:
    return {name: CONTENTS[which] for name, which in files.items()}


def tree_of(files: Files) -> bytes:
    every = contents(files).items()
    inside = encode({name: File(address(content), len(content), 6) for name, content in every})
    return address(encode({b"d": Folder(address(inside))}))


@pytest.mark.long
@pytest.mark.parametrize("lives", [12, pytest.param(30, marks=pytest.mark.slow)])
def test_whatever_happens_what_is_needed_is_there_and_whole(lives: int) -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            examples(lives),
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
