"""kill -9, torn tails and lost pages: what was committed is there, and what is there is whole."""

import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from petri.store import Store
from petri.trees import File, address, encode
from tests.test_store import MIB, Clock, disk_usage, harvest, noise, planted, put, read

pytestmark = pytest.mark.long

PAGE = 4096


CHANGING = frozenset({"fdatasync", "fsync", "ftruncate", "mkdir", "open", "pwrite", "rename", "unlink"})
"""System calls after which the disk may be another."""


def killed_before(step: int, action: Callable[[], None]) -> bool:
    """Do `action` in a child, killed before it changes the disk for the time `step`; say if it was done."""
    child = os.fork()
    if child == 0:
        calls = itertools.count()

        def profile(_: FrameType, event: str, called: Any) -> None:
            if event != "c_call" or called.__module__ != "posix" or called.__name__ not in CHANGING:
                return
            if next(calls) >= step:
                os.kill(os.getpid(), signal.SIGKILL)

        failed = 1
        try:
            sys.setprofile(profile)
            action()
            sys.setprofile(None)
            failed = 0
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFEXITED(status)


@pytest.fixture
def root() -> Iterator[Path]:
    """A root in memory where there is one: being killed, unlike losing power, loses no write."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder) / "store"


def only_pack(root: Path) -> Path:
    [pack] = root.glob("*/*.pack")
    return pack


def assert_sound(root: Path, there: dict[bytes, bytes], maybe: dict[bytes, bytes]) -> set[bytes]:
    """Open the store: it works, `there` is there, `maybe` is whole if it is; return what of that there is."""
    store = Store(root)
    try:
        assert store.fsck("acme", deep=True) == []
        assert store.has("acme", there) == set(there)
        found = store.has("acme", maybe)
        for digest, content in (there | {digest: maybe[digest] for digest in found}).items():
            assert read(store, digest) == content
        [digest] = put(store, b"after the crash")
        assert read(store, digest) == b"after the crash"
        return found
    finally:
        store.close()


def named(*contents: bytes) -> dict[bytes, bytes]:
    return {address(content): content for content in contents}


def test_a_pack_cut_anywhere_holds_what_was_committed_before(root: Path) -> None:
    store = Store(root)
    ends, commits = [], [named(b"%d" % number, b"x" * 100 + b"%d" % number) for number in range(3)]
    for commit in commits:
        put(store, *commit.values())
        ends.append(only_pack(root).stat().st_size)
    store.close()
    whole = only_pack(root).read_bytes()
    assert len(whole) == ends[-1]

    for length in range(len(whole) + 1):
        pack = only_pack(root)
        pack.write_bytes(whole[:length])
        survived = [commit for commit, end in zip(commits, ends, strict=True) if end <= length]
        lost = commits[len(survived) :]
        there = {digest: content for commit in survived for digest, content in commit.items()}

        found = assert_sound(
            root, there, {digest: content for commit in lost for digest, content in commit.items()}
        )

        assert found == set()


def test_what_is_behind_the_last_batch_is_cut_off(root: Path) -> None:
    store = Store(root)
    [digest] = put(store, b"content")
    store.close()
    size = only_pack(root).stat().st_size
    store = Store(root)
    put(store, noise(9000))
    store.close()
    os.truncate(only_pack(root), size + 4000)  # a batch that a crash has cut short

    store = Store(root)

    assert read(store, digest) == b"content"
    assert store.fsck("acme", deep=True) == []
    assert only_pack(root).stat().st_size == size
    store.close()


@pytest.mark.parametrize("seed", range(20))
def test_pages_that_a_power_cut_lost_lose_nothing_committed(seed: int, root: Path) -> None:
    """Of what was not synced, any page may be on the disk or not."""
    there = named(noise(3000), noise(2 * MIB, 1))
    store = Store(root)
    put(store, *there.values())
    synced = only_pack(root).stat().st_size
    maybe = named(*(noise(300_000, 10 + number) for number in range(20)))
    crashed = root.with_name("crashed")
    with store.write("acme") as writing:
        for content in maybe.values():
            writing.put_blob(content)
        shutil.copytree(root, crashed)
    store.close()
    chance = random.Random(seed)
    with only_pack(crashed).open("r+b") as pack:
        for page in range(synced // PAGE + 1, only_pack(crashed).stat().st_size // PAGE):
            if chance.random() < 0.002 * seed:
                pack.seek(page * PAGE)
                pack.write(bytes(PAGE))

    found = assert_sound(crashed, there, maybe)

    assert seed or len(found) > 5  # nothing was lost, so nothing need be sent again


def test_a_batch_that_is_not_whole_does_not_cost_the_one_behind_it(root: Path) -> None:
    store = Store(root)
    with store.write("acme") as writing:
        first = writing.put_blob(noise(MIB))  # a batch by itself, and not synced before the next
        at = only_pack(root).stat().st_size - 1000
        second = writing.put_blob(noise(MIB, 1))
        writing.commit()
    store.close()
    with only_pack(root).open("r+b") as pack:
        pack.seek(at)
        pack.write(b"lost")

    store = Store(root)

    assert store.has("acme", [first, second]) == {second}
    assert read(store, second) == noise(MIB, 1)
    store.close()


def syncs(action: Callable[[], object]) -> list[str]:
    """Do `action` and return which calls it made to have something on the disk."""
    made: list[str] = []

    def profile(_: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called in (os.fsync, os.fdatasync):
            made.append(called.__name__)

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return made


def test_a_commit_is_one_sync_and_a_new_pack_one_more_for_its_name(root: Path) -> None:
    store = Store(root)
    put(store, b"so that the tenant has a folder")
    store.gc("acme", [], 0)  # and its pack is set aside

    assert syncs(lambda: put(store, b"in a new pack", noise(10_000))) == ["fsync", "fdatasync"]
    assert syncs(lambda: put(store, b"in the same", noise(10_000, 1))) == ["fdatasync"]
    assert syncs(lambda: put(store, b"in the same")) == []  # nothing new, and what is there is on the disk
    store.close()


def test_a_start_does_not_count_on_what_may_be_in_memory_alone(root: Path) -> None:
    store = Store(root)
    put(store, b"content")
    store.close()
    store = Store(root)

    assert syncs(lambda: store.has("acme", [])) == ["fdatasync"]
    assert syncs(lambda: put(store, b"content")) == []
    store.close()


def test_committers_who_wait_share_a_sync(root: Path) -> None:
    """While one syncs the others write; whoever comes next syncs for all."""
    store = Store(root)
    put(store, b"first")
    with ExitStack() as stack:
        sessions = [stack.enter_context(store.write("acme")) for _ in range(5)]
        for number, session in enumerate(sessions):
            session.put_blob(noise(MIB, number))  # written, not synced

        made = [sync for session in sessions for sync in syncs(session.commit)]
    assert made == ["fdatasync"]
    store.close()


def test_what_a_crash_left_in_two_packs_is_there_once_and_swept_once(root: Path) -> None:
    """As when the crash came after a sweep had copied a pack and before it had dropped the old one."""
    store = Store(root)
    tree = planted(store, {b"a": b"content", b"large": noise(2 * MIB)})
    usage = store.usage("acme")
    store.close()
    shutil.copy(only_pack(root), only_pack(root).with_name("00000002.pack"))

    store = Store(root)

    assert store.usage("acme") == (usage.objects, 2 * usage.stored_bytes)
    assert store.gc("acme", [], 3600) == (0, usage.stored_bytes, [], [])
    assert harvest(store, tree) == {b"a": b"content", b"large": noise(2 * MIB)}
    assert store.usage("acme") == usage
    assert store.fsck("acme", deep=True) == []
    store.close()


BEFORE = named(b"before", noise(3000))
DURING = named(b"during", noise(5000, 1), noise(MIB + 100_000, 2), b"text " * 5000)


def test_a_commit_is_whole_or_absent_wherever_it_was_killed(root: Path) -> None:
    acknowledged = root.with_name("acknowledged")

    def write() -> None:
        store = Store(root, pack_bytes=MIB)  # so small that a pack is sealed on the way
        put(store, *DURING.values())
        acknowledged.touch()

    step, finished, seen = 0, False, {"all": 0, "not all": 0}
    while not finished:
        shutil.rmtree(root, ignore_errors=True)
        acknowledged.unlink(missing_ok=True)
        store = Store(root)
        put(store, *BEFORE.values())
        store.close()

        finished = killed_before(step, write)
        step += 1

        found = assert_sound(root, BEFORE, DURING)
        assert found >= set(DURING) or not acknowledged.exists()
        seen["all" if found >= set(DURING) else "not all"] += 1
    assert min(seen.values()) > 3, (step, seen)


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_sweep_loses_nothing_alive_wherever_it_was_killed(root: Path, stride: int) -> None:
    """Packs that are dead, half dead and alive; copied, swapped, unlinked; and killed."""
    live = named(*(noise(2000, number) for number in range(6)), noise(MIB + 300_000, 100))
    dead = named(*(noise(2000, 50 + number) for number in range(6)), noise(MIB + 300_000, 101))
    clock = Clock()

    def build() -> bytes:
        shutil.rmtree(root, ignore_errors=True)
        store = Store(root, clock=clock, pack_bytes=5000)
        for one, other in zip(live.values(), dead.values(), strict=True):
            put(store, one, other)
        files = {digest.hex().encode(): File(digest, len(content), 6) for digest, content in live.items()}
        with store.write("acme") as writing:
            tree = writing.put_folder(encode(files))
            writing.commit()
        store.close()
        return tree

    def collect() -> None:
        clock.now = 10_000
        store = Store(root, clock=clock, pack_bytes=5000)
        assert store.gc("acme", [tree], 60).missing == []
        store.close()

    tree = build()
    pristine = root.with_name("pristine")
    shutil.copytree(root, pristine)
    collect()
    clean = disk_usage(root)
    assert_sound(root, live, {})
    step, finished = 0, False
    while not finished:
        shutil.rmtree(root)
        shutil.copytree(pristine, root)

        finished = killed_before(step, collect)
        step += stride

        store = Store(root, clock=clock, pack_bytes=5000)
        assert store.fsck("acme", deep=True) == []
        assert {digest: read(store, digest) for digest in live} == live
        for digest in store.has("acme", dead):
            assert read(store, digest) == dead[digest]
        store.close()
        clock.now += 1000
        collect()
        assert disk_usage(root) <= clean
        assert_sound(root, live, {})
