"""What a store keeps apart and refuses: tenants, wrong digests, other processes; and many threads at once."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from petri.errors import Conflict, Invalid, NotFound, Unavailable
from petri.store import Store
from petri.store.cutting import pieces
from petri.store.layout import BLOB
from petri.trees import Link, address, encode
from tests.test_store import MIB, again, harvest, noise, planted, put, read, store, then_and_later

__all__ = ["again", "store"]


def test_tenants_never_see_each_others_objects(store: Store, again: Callable[[], Store]) -> None:
    mine, theirs = put(store, b"mine")[0], put(store, b"theirs", tenant="umbrella")[0]

    for each in then_and_later(store, again):
        assert each.has("acme", [mine, theirs]) == {mine}
        assert each.has("umbrella", [mine, theirs]) == {theirs}
        assert each.has("nobody", [mine, theirs]) == set()
        for tenant, digest in (("acme", theirs), ("umbrella", mine), ("nobody", mine)):
            with pytest.raises(NotFound):
                each.get(tenant, digest)


def test_what_one_tenant_has_another_stores_again(store: Store) -> None:
    put(store, noise(100_000))

    put(store, noise(100_000), tenant="umbrella")

    assert store.usage("umbrella") == store.usage("acme")


@pytest.mark.parametrize("name", ["../acme", "/etc", "", ".", "a" * 5000, "\0", "\udcff", "ACME"])
def test_a_tenants_name_is_no_path(name: str, store: Store, tmp_path: Path) -> None:
    put(store, b"x")
    [digest] = put(store, b"content", tenant=name)

    assert read(store, digest, tenant=name) == b"content"
    assert store.has("acme", [digest]) == set()
    assert len(list((tmp_path / "store").iterdir())) == 3  # two tenants and the lock
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_digest_that_is_not_that_of_the_content_is_refused(store: Store, tmp_path: Path) -> None:
    wrong = address(b"wrong")
    (tmp_path / "file").write_bytes(noise(2 * MIB))
    with store.write("acme") as writing, (tmp_path / "file").open("rb") as file:
        with pytest.raises(Invalid):
            writing.put_blob(b"right", wrong)
        with pytest.raises(Invalid):
            writing.put_folder(encode({}), wrong)
        for size in (10, 2 * MIB):
            with pytest.raises(Invalid):
                writing.put_file(file.fileno(), size, wrong)
        writing.put_blob(b"right", address(b"right"))
        writing.commit()

    assert store.has("acme", [wrong]) == set()
    assert store.fsck("acme", deep=True) == []


@pytest.mark.parametrize("digest", [b"", b"short", address(b"x")[:-1], address(b"x") + b"x"])
def test_what_cannot_be_a_digest_is_refused(digest: bytes, store: Store) -> None:
    put(store, b"x")
    attempts: list[Callable[[], object]] = [
        lambda: store.has("acme", [digest]),
        lambda: store.get("acme", digest),
        lambda: store.open_blob("acme", digest),
        lambda: store.size("acme", digest),
        lambda: store.gc("acme", [digest], 0),
    ]
    for attempt in attempts:
        with pytest.raises(Invalid):
            attempt()


def test_a_malformed_folder_object_is_refused(store: Store) -> None:
    with store.write("acme") as writing, pytest.raises(Invalid):
        writing.put_folder(b"petri-folder-1\n?")


def test_a_file_that_is_shorter_than_said_is_a_conflict(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"short")

    with store.write("acme") as writing, (tmp_path / "file").open("rb") as file:
        for size in (6, 2 * MIB):
            with pytest.raises(Conflict):
                writing.put_file(file.fileno(), size)


def test_a_file_whose_piece_is_a_large_folder_object_is_read_as_it_was(store: Store) -> None:
    """One digest, and the folder object is stored in pieces itself."""
    folder = encode({b"%04d" % number: Link(b"x" * (4087 + (number < 49))) for number in range(64)})
    content = folder + noise(2 * MIB)
    assert next(pieces(BLOB, [content])) == folder

    with store.write("acme") as writing:
        writing.put_folder(folder)
        digest = writing.put_blob(content)
        writing.commit()
    tree = planted(store, {b"file": content})

    assert read(store, digest) == b"".join(store.open_blob("acme", digest)) == content
    assert store.fsck("acme", deep=False) == []
    store.gc("acme", [tree], -60)  # whatever is needed by no tree, even if it was put just now
    assert store.fsck("acme", deep=True) == []
    assert harvest(store, tree) == {b"file": content}


def test_another_process_or_store_is_kept_out(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        Store(tmp_path / "store")

    store.close()
    store.close()
    Store(tmp_path / "store").close()


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()

    with pytest.raises(Unavailable):
        store.has("acme", [])


def test_an_idle_tenant_is_released_and_found_again(store: Store) -> None:
    [digest] = put(store, b"content")
    with store.write("busy") as writing:
        other = writing.put_blob(b"other")
        before = open_files()

        store.release(0)

        assert open_files() == before - 1
        writing.commit()
    assert read(store, digest) == b"content"
    assert read(store, other, tenant="busy") == b"other"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.long
def test_full_packs_are_sealed_and_closed(tmp_path: Path) -> None:
    contents = [noise(2000, seed) for seed in range(200)]
    store = Store(tmp_path / "store", pack_bytes=3000)
    before = open_files()
    digests = [put(store, content)[0] for content in contents]
    packs = sorted((tmp_path / "store").glob("*/*.pack"))

    assert len(packs) == 100
    assert len(list((tmp_path / "store").glob("*/*.index"))) == 99
    assert [read(store, digest) for digest in digests] == contents
    assert open_files() - before < 40

    store.close()
    store = Store(tmp_path / "store")
    assert [read(store, digest) for digest in digests] == contents
    assert store.fsck("acme", deep=True) == []
    store.close()


@pytest.mark.long
def test_many_threads_write_and_read_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", pack_bytes=200_000)
    shared = noise(3 * MIB, 99)

    def work(seed: int) -> None:
        for number in range(20):
            content = noise(random.Random(seed).randrange(20_000), seed * 100 + number)
            [digest, *_] = put(store, content, shared if number == 10 else b"shared")
            assert read(store, digest) == content

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))

    assert store.fsck("acme", deep=True) == []
    assert read(store, address(shared)) == shared
    store.close()


def test_a_first_use_by_many_threads_loads_once(store: Store, again: Callable[[], Store]) -> None:
    digests = put(store, *(b"%d" % number for number in range(100)))
    store = again()
    start = threading.Barrier(8)

    def look(_: int) -> set[bytes]:
        start.wait()
        return store.has("acme", digests)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(look, range(8))) == [set(digests)] * 8


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 5 * MIB])
def test_a_content_may_come_piece_by_piece(store: Store, size: int) -> None:
    content = random.Random(size).randbytes(size)
    parts = (content[at : at + 70_000] for at in range(0, size, 70_000))
    with store.write("acme") as writing:
        digest = writing.put_stream(parts, address(content))
        writing.commit()

    assert digest == address(content)
    assert b"".join(store.open_blob("acme", digest)) == content
    with store.write("acme") as writing, pytest.raises(Invalid, match="digest"):
        writing.put_stream([content, b"more"], address(content))


@pytest.mark.parametrize("size", [0, 1000, 3 * MIB])
def test_any_part_of_a_content_can_be_read(store: Store, size: int) -> None:
    content = random.Random(size).randbytes(size)
    (digest,) = put(store, content)
    opened = store.open_at("acme", digest)

    assert opened.size == size
    for offset, length in [
        (0, 10),
        (size // 2, 200_000),
        (size - 5, 5),
        (size - 5, 50),
        (size, 9),
        (0, size),
    ]:
        if offset >= 0:
            assert opened.read(offset, length) == content[offset : offset + length]
    with pytest.raises(NotFound):
        store.open_at("other", digest)
