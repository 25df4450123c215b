"""What is damaged is said to be, and what is not is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.errors import Unavailable
from petri.store import Store
from petri.trees import address
from tests.test_store import MIB, Clock, noise, put, read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    store = Store(root, pack_bytes=1000)
    yield store
    store.close()


def flip(path: Path, at: int) -> None:
    """Have one bit of a file otherwise."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def packs(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.pack"))


def test_a_store_that_is_well_has_no_findings(store: Store) -> None:
    put(store, b"small", noise(2 * MIB), b"text" * 1000)

    assert (
        store.fsck("acme", deep=False)
        == store.fsck("acme", deep=True)
        == store.fsck("nobody", deep=True)
        == []
    )


def test_a_bit_that_changed_is_found_by_a_deep_look_and_by_a_verified_read(store: Store, root: Path) -> None:
    [digest] = put(store, noise(800))
    put(store, b"other")
    flip(packs(root)[0], 500)

    assert store.fsck("acme", deep=False) == []
    [batch, content] = store.fsck("acme", deep=True)
    assert "pack 1 is damaged between byte 16 and" in batch
    assert digest.hex() in content
    assert b"".join(store.open_blob("acme", digest)) != noise(800)
    with pytest.raises(Unavailable):
        read(store, digest)
    with pytest.raises(Unavailable):
        store.get("acme", digest)
    assert read(store, address(b"other")) == b"other"


def test_a_compressed_object_that_is_damaged_is_never_given_out(store: Store, root: Path) -> None:
    content = b"the same line again and again\n" * 100
    [digest] = put(store, content)
    size = packs(root)[0].stat().st_size

    for at in range(16 + 28 + 44, size - 16):
        flip(packs(root)[0], at)
        with pytest.raises(Unavailable):
            read(store, digest)
        flip(packs(root)[0], at)
    assert read(store, digest) == content


def test_a_piece_that_is_damaged_is_found(store: Store, root: Path) -> None:
    [digest] = put(store, noise(2 * MIB))
    flip(packs(root)[0], 5000)

    findings = store.fsck("acme", deep=True)

    assert any(digest.hex() in finding for finding in findings)
    with pytest.raises(Unavailable):
        read(store, digest)


def test_a_pack_that_was_cut_short_is_found(store: Store, root: Path) -> None:
    [digest] = put(store, noise(800))
    put(store, b"other")
    packs(root)[0].write_bytes(packs(root)[0].read_bytes()[:500])

    findings = store.fsck("acme", deep=False)

    assert any("pack 1 is damaged at byte 16" in finding for finding in findings)
    with pytest.raises(Unavailable):
        read(store, digest)


def test_a_pack_that_is_gone_is_found(root: Path, store: Store) -> None:
    digests = [put(store, noise(1000, number))[0] for number in range(60)]
    packs(root)[0].unlink()  # one that is not held open

    findings = store.fsck("acme", deep=False)

    assert any("pack 1 cannot be opened" in finding for finding in findings)
    with pytest.raises(Unavailable):
        read(store, digests[0])
    assert read(store, digests[1]) == noise(1000, 1)


@pytest.mark.parametrize("at", [3, 20, 70_000, -5])
def test_an_index_that_is_damaged_is_found_and_does_no_harm(at: int, store: Store, root: Path) -> None:
    digests = [put(store, noise(1000, number))[0] for number in range(3)]
    store.close()
    index = sorted(root.glob("*/*.index"))[0]
    good = index.read_bytes()
    flip(index, at if at < len(good) else len(good) // 2)

    store = Store(root)

    assert [read(store, digest) for digest in digests] == [noise(1000, number) for number in range(3)]
    assert index.read_bytes() == good  # made anew
    flip(index, 3)
    [finding] = store.fsck("acme", deep=False)
    assert "the index of pack 1 is damaged" in finding
    store.close()


def test_a_pack_that_does_not_begin_as_one_is_left_alone(store: Store, root: Path) -> None:
    put(store, b"first", b"x" * 100)
    store.close()
    flip(packs(root)[0], 2)
    before = packs(root)[0].read_bytes()

    store = Store(root)
    put(store, b"second")

    assert store.has("acme", [address(b"first"), address(b"second")]) == {address(b"second")}
    assert any("pack 1 does not begin" in finding for finding in store.fsck("acme", deep=False))
    assert packs(root)[0].read_bytes() == before
    store.close()


def test_a_manifest_that_is_damaged_costs_no_object_and_lets_nothing_half_back(root: Path) -> None:
    clock = Clock()
    store = Store(root, clock=clock, pack_bytes=3 * MIB)
    live = [put(store, noise(MIB, number))[0] for number in range(3)]
    dead = put(store, noise(MIB + 300_000, 9))
    store.close()
    manifest = packs(root)[0].parent / "manifest"
    store = Store(root, clock=clock)
    clock.now += 100
    store.has("acme", live)
    clock.now += 10
    store.gc("acme", [], 50)
    store.close()
    assert manifest.exists()
    flip(manifest, 70)

    store = Store(root, clock=clock)

    assert "the manifest is damaged" in store.fsck("acme", deep=True)[0]
    assert [read(store, digest) for digest in live] == [noise(MIB, number) for number in range(3)]
    for digest in store.has("acme", dead):
        assert read(store, digest) == noise(MIB + 300_000, 9)
    clock.now += 10
    store.gc("acme", [], 500)
    store.close()
    store = Store(root, clock=clock)
    assert store.fsck("acme", deep=True) == []
    store.close()


@pytest.mark.parametrize("at", [0, 3, 30, 500, -10], ids=["magic", "length", "record", "content", "seal"])
def test_a_bit_that_changed_in_the_last_batch_is_no_crash(root: Path, at: int) -> None:
    store = Store(root)
    [first] = put(store, noise(800))
    store.close()
    begin = packs(root)[0].stat().st_size
    store = Store(root)
    [last] = put(store, noise(900, 1))
    store.close()
    flip(packs(root)[0], at if at < 0 else begin + at)
    size = packs(root)[0].stat().st_size

    store = Store(root)

    [finding] = store.fsck("acme", deep=False)
    assert f"pack 1 is damaged {'at' if at in (0, 3) else 'between'} byte {begin}" in finding
    assert store.has("acme", [first, last]) == {first}
    assert packs(root)[0].stat().st_size == size, "it is still there for somebody to look at"
    put(store, noise(900, 1))
    assert read(store, last) == noise(900, 1)
    assert read(store, first) == noise(800)
    store.close()


@pytest.mark.parametrize("left", ["short", "unwritten"])
def test_what_a_crash_leaves_of_the_last_batch_is_nothing_wrong(root: Path, left: str) -> None:
    store = Store(root)
    [first] = put(store, noise(800))
    store.close()
    begin = packs(root)[0].stat().st_size
    store = Store(root)
    put(store, noise(9000, 1))
    store.close()
    content = packs(root)[0].read_bytes()
    cut = begin + 5000
    packs(root)[0].write_bytes(content[:cut] + bytes(len(content) - cut if left == "unwritten" else 0))

    store = Store(root)

    assert store.fsck("acme", deep=True) == []
    assert store.has("acme", [first]) == {first}
    assert packs(root)[0].stat().st_size == begin
    store.close()
