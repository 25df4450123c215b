"""Garbage collection: what a tree needs stays, what nobody needs goes, and not before its time."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from petri.errors import NotFound, Unavailable
from petri.store import Spare, Store
from petri.trees import EMPTY, Entry, File, Folder, address, encode
from tests.test_store import MIB, Clock, disk_usage, harvest, noise, planted, put, read

pytestmark = pytest.mark.long

GRACE_S = 3600


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = Store(tmp_path / "store", clock=clock)
    yield store
    store.close()


@pytest.fixture
def reopened(tmp_path: Path, clock: Clock) -> Iterator[Callable[[Store], Store]]:
    made: list[Store] = []

    def reopen(old: Store) -> Store:
        old.close()
        made.append(Store(tmp_path / "store", clock=clock))
        return made[-1]

    yield reopen
    for store in made:
        store.close()


OLD = {b"a": b"only in old", b"b": b"in both", b"large": noise(2 * MIB)}
NEW = {b"b": b"in both", b"c": b"only in new", b"large": noise(2 * MIB) + b"x"}


def test_what_a_tree_needs_stays_and_the_rest_goes(store: Store, clock: Clock) -> None:
    old, new = planted(store, OLD), planted(store, NEW)
    [loose] = put(store, b"in no tree")
    clock.now += GRACE_S + 1

    swept = store.gc("acme", [new], GRACE_S)

    assert harvest(store, new) == NEW
    gone = [old, loose, address(b"only in old"), address(OLD[b"large"])]
    assert store.has("acme", gone) == set()
    assert swept.dropped > 4
    assert swept.missing == []
    assert store.fsck("acme", deep=True) == []


def test_what_was_swept_stays_away_after_a_start(
    store: Store, clock: Clock, reopened: Callable[[Store], Store]
) -> None:
    old, new = planted(store, OLD), planted(store, NEW)
    clock.now += GRACE_S + 1
    store.gc("acme", [new], GRACE_S)

    store = reopened(store)

    assert store.has("acme", [old, address(b"only in old")]) == set()
    assert harvest(store, new) == NEW
    assert store.fsck("acme", deep=True) == []


def test_what_was_in_pieces_is_not_back_when_only_its_pieces_are_off_the_disk(
    tmp_path: Path, clock: Clock
) -> None:
    """The list of the pieces stays in a pack that is mostly alive; the pieces lay in one that is gone."""
    store = Store(tmp_path / "store", clock=clock, pack_bytes=3 * MIB)
    put(store, noise(MIB, 1), noise(MIB, 2))
    large = noise(MIB + 500_000, 3)
    [digest] = put(store, large)
    kept = {b"%d" % number: noise(MIB, 10 + number) for number in range(9)}
    store.close()
    store = Store(tmp_path / "store", clock=clock)  # so that all the rest goes into one pack
    tree = planted(store, kept)
    assert len(list(tmp_path.rglob("*.pack"))) == 2
    clock.now += GRACE_S + 1

    swept = store.gc("acme", [tree], GRACE_S)

    assert swept.freed_bytes > 3 * MIB
    [pack] = tmp_path.rglob("*.pack")
    assert digest in pack.read_bytes()
    for _ in range(2):
        assert store.has("acme", [digest]) == set()
        assert harvest(store, tree) == kept
        assert store.fsck("acme", deep=True) == []
        store.close()
        store = Store(tmp_path / "store", clock=clock)
    put(store, large)
    assert read(store, digest) == large
    store.close()


def test_the_disk_gets_back_what_is_dead(tmp_path: Path, clock: Clock) -> None:
    store = Store(tmp_path / "store", clock=clock, pack_bytes=100_000)
    trees = [planted(store, {b"f": noise(20_000, number)}) for number in range(40)]
    before = disk_usage(tmp_path)
    clock.now += GRACE_S + 1

    swept = store.gc("acme", trees[::10], GRACE_S)

    assert before - disk_usage(tmp_path) == swept.freed_bytes
    assert disk_usage(tmp_path) < before / 5
    assert [harvest(store, tree) for tree in trees[::10]] == [
        {b"f": noise(20_000, n)} for n in range(0, 40, 10)
    ]
    assert store.usage("acme").stored_bytes == disk_usage(tmp_path)
    store.close()


def test_a_sweep_with_nothing_to_do_writes_nothing(store: Store, clock: Clock, tmp_path: Path) -> None:
    tree = planted(store, OLD)
    clock.now += GRACE_S + 1
    store.gc("acme", [tree], GRACE_S)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    assert store.gc("acme", [tree], GRACE_S) == (0, 0, [], [])

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_sweeping_often_leaves_few_packs(store: Store, clock: Clock, tmp_path: Path) -> None:
    trees = []
    for number in range(10):
        trees.append(planted(store, {b"f": b"%d" % number}))
        clock.now += GRACE_S + 1
        store.gc("acme", trees, GRACE_S)

    assert len(list(tmp_path.rglob("*.pack"))) == 1
    assert [harvest(store, tree)[b"f"] for tree in trees] == [b"%d" % number for number in range(10)]


def test_a_tenant_without_objects_is_swept(store: Store, tmp_path: Path) -> None:
    assert store.gc("nobody", [EMPTY], 0) == (0, 0, [], [])
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["lock"]


def test_another_tenants_objects_are_not_swept(store: Store, clock: Clock) -> None:
    [digest] = put(store, b"theirs", tenant="umbrella")
    put(store, b"mine")
    clock.now += GRACE_S + 1

    store.gc("acme", [], GRACE_S)

    assert read(store, digest, tenant="umbrella") == b"theirs"


# ----------------------------------------------------------------------------------------- what is amiss


def test_what_a_tree_needs_and_the_store_lacks_is_reported(store: Store, clock: Clock) -> None:
    nowhere = File(address(b"too large to be kept"), 1 << 40, 6)
    absent = Folder(address(b"lost"))
    entries: dict[bytes, Entry] = {b"f": nowhere, b"g": absent}
    with store.write("acme") as writing:
        tree = writing.put_folder(encode(entries))
        writing.commit()
    clock.now += GRACE_S + 1

    swept = store.gc("acme", [tree, address(b"no such tree"), EMPTY], GRACE_S)

    assert set(swept.missing) == {nowhere.digest, absent.address, address(b"no such tree")}
    assert store.get_folder("acme", tree) == entries


def test_a_tree_that_calls_a_file_a_folder_is_swept_around(store: Store, clock: Clock) -> None:
    with store.write("acme") as writing:
        digest = writing.put_blob(b"no folder object")
        tree = writing.put_folder(encode({b"d": Folder(digest)}))
        writing.commit()
    clock.now += GRACE_S + 1

    assert store.gc("acme", [tree], GRACE_S) == (0, 0, [digest], [])
    assert read(store, digest) == b"no folder object"


def test_a_folder_object_that_cannot_be_read_stops_the_sweep(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    """What it refers to is not known, and must not be dropped for that."""
    inner = planted(store, OLD)
    with store.write("acme") as writing:
        tree = writing.put_folder(encode({b"%d" % number: Folder(inner) for number in range(3)}))
        writing.commit()
    clock.now += GRACE_S + 1
    [pack] = tmp_path.rglob("*.pack")
    content = bytearray(pack.read_bytes())
    content[-20] ^= 1
    pack.write_bytes(content)

    with pytest.raises(Unavailable):
        store.gc("acme", [tree], GRACE_S)

    assert harvest(store, inner) == OLD


def test_a_file_that_looks_like_a_folder_object_does_not_hide_it(store: Store, clock: Clock) -> None:
    inner = encode({b"x": File(address(b"content"), 7, 6)})
    with store.write("acme") as writing:
        writing.put_blob(b"content")
        digest = writing.put_blob(inner)
        assert writing.put_folder(inner) == digest
        tree = writing.put_folder(encode({b"a": File(digest, len(inner), 6), b"b": Folder(digest)}))
        writing.commit()
    clock.now += GRACE_S + 1

    store.gc("acme", [tree], GRACE_S)

    assert read(store, address(b"content")) == b"content"


# ------------------------------------------------------------------------------------ while others work


def test_reading_and_writing_go_on_during_sweeps(tmp_path: Path, clock: Clock) -> None:
    store = Store(tmp_path / "store", clock=clock, pack_bytes=50_000)
    always = planted(store, {b"f": noise(30_000), b"large": noise(2 * MIB, 1)})
    roots, done = [always], threading.Event()

    def write() -> None:
        for number in range(60):
            clock.now += 1
            tree = planted(store, {b"f": noise(10_000, number), b"g": noise(100, number)})
            if number % 2:
                roots.append(tree)

    def look() -> None:
        while not done.is_set():
            assert harvest(store, always) == {b"f": noise(30_000), b"large": noise(2 * MIB, 1)}
            assert all(harvest(store, tree) for tree in roots.copy())

    with ThreadPoolExecutor(3) as threads:
        writer, *readers = (threads.submit(work) for work in (write, look, look))
        while not writer.done():
            store.gc("acme", roots.copy(), 5)
        done.set()
        for each in (writer, *readers):
            each.result()

    clock.now += 100
    store.gc("acme", roots, 5)
    assert [len(harvest(store, tree)) for tree in roots] == [2] * len(roots)
    assert store.fsck("acme", deep=True) == []
    store.close()


def test_a_reader_of_an_object_in_no_tree_is_told_when_it_is_gone(store: Store, clock: Clock) -> None:
    [digest] = put(store, noise(2 * MIB))
    content = store.open_blob("acme", digest)
    next(content)
    clock.now += GRACE_S + 2
    store.gc("acme", [], GRACE_S)

    with pytest.raises(NotFound):
        list(content)


# ---------------------------------------------------------------------------------------------- a budget


def test_spare_trees_stay_while_they_fit_the_first_before_the_others(store: Store, clock: Clock) -> None:
    contents = [{b"own": noise(100_000, seed), b"shared": noise(200_000)} for seed in range(1, 5)]
    first, second, third, needed = (planted(store, content) for content in contents)
    clock.now += GRACE_S + 1

    swept = store.gc("acme", [needed], GRACE_S, Spare([first, second, third], 250_000))

    assert harvest(store, needed) == contents[3]
    assert (harvest(store, first), harvest(store, second)) == (contents[0], contents[1])
    assert swept.let_go == [third]
    assert store.has("acme", [third, address(contents[2][b"own"])]) == set()
    assert store.fsck("acme", deep=True) == []


def test_what_is_too_large_for_the_budget_costs_the_smaller_ones_nothing(store: Store, clock: Clock) -> None:
    large, small = planted(store, {b"l": noise(300_000, 1)}), planted(store, {b"s": noise(1000, 2)})
    clock.now += GRACE_S + 1

    swept = store.gc("acme", [], GRACE_S, Spare([large, small], 100_000))

    assert swept.let_go == [large]
    assert harvest(store, small) == {b"s": noise(1000, 2)}
    assert store.has("acme", [large, address(noise(300_000, 1))]) == set()


def test_missing_says_what_a_tree_lacks_and_drops_nothing(store: Store) -> None:
    whole = planted(store, NEW)
    lost = File(address(b"nobody put this"), 15, 6)
    with store.write("acme") as writing:
        half = writing.put_folder(encode({b"lost": lost}))
        writing.commit()

    assert store.missing("acme", [whole]) == []
    assert store.missing("acme", [whole, half]) == [lost.digest]
    assert harvest(store, whole) == NEW


def test_what_a_store_takes_is_told_without_loading_it(store: Store) -> None:
    assert (store.disk_bytes("acme"), store.disk_bytes()) == (0, 0)

    planted(store, {b"n": noise(100_000)})

    assert 100_000 < store.disk_bytes("acme") < 110_000
    assert store.disk_bytes("other") == 0
    assert store.disk_bytes() == store.disk_bytes("acme")


@pytest.mark.parametrize("roots", [[], [EMPTY]])
def test_an_empty_folder_that_somebody_put_does_not_hold_up_a_sweep(
    store: Store, clock: Clock, roots: list[bytes]
) -> None:
    with store.write("acme") as writing:
        writing.put_folder(encode({}))
        writing.commit()

    sweeping = threading.Thread(target=store.gc, args=("acme", roots, GRACE_S), daemon=True)
    sweeping.start()
    sweeping.join(20)

    assert not sweeping.is_alive()
    clock.now += GRACE_S + 1
    assert store.gc("acme", roots, GRACE_S).missing == []
    assert store.get_folder("acme", EMPTY) == {}
