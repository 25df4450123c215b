"""The store's promises: what is committed is there, whole, for its tenant and for nobody else."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from petri.errors import NotFound, Unavailable
from petri.store import Store, Writing
from petri.trees import EMPTY, Change, Entry, File, Folder, Link, address, apply, diff, encode, walk
from tests.forests import a_file

MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store")
    yield store
    store.close()


@pytest.fixture
def again(tmp_path: Path, store: Store) -> Iterator[Callable[[], Store]]:
    """Close the store and open it anew, as often as one likes."""
    made = [store]

    def reopen() -> Store:
        made[-1].close()
        made.append(Store(tmp_path / "store"))
        return made[-1]

    yield reopen
    made[-1].close()


def then_and_later(store: Store, again: Callable[[], Store]) -> Iterator[Store]:
    """Yield the store as it is, and after it was opened anew."""
    yield store
    yield again()


def put(store: Store, *contents: bytes, tenant: str = "acme") -> list[bytes]:
    with store.write(tenant) as writing:
        digests = [writing.put_blob(content) for content in contents]
        writing.commit()
    return digests


def read(store: Store, digest: bytes, tenant: str = "acme") -> bytes:
    return b"".join(store.open_blob(tenant, digest, verify=True))


def plant(writing: Writing, files: dict[bytes, bytes]) -> bytes:
    """Put a tree with one folder that has `files`, and return its address."""
    inside = {name: File(writing.put_blob(content), len(content), 6) for name, content in files.items()}
    return writing.put_folder(encode({b"d": Folder(writing.put_folder(encode(inside)))}))


def planted(store: Store, files: dict[bytes, bytes]) -> bytes:
    with store.write("acme") as writing:
        tree = plant(writing, files)
        writing.commit()
    return tree


def harvest(store: Store, tree: bytes) -> dict[bytes, bytes]:
    """Return the content of every file in `tree`."""
    paths = walk(store.fetch("acme"), tree)
    return {path[2:]: read(store, entry.digest) for path, entry in paths if isinstance(entry, File)}


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def disk_usage(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*.pack"))


CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "text": b"print('hello')\n" * 300,
    "incompressible": noise(5000),
    "as large as stays whole": noise(MIB),
    "a byte more": noise(MIB + 1),
    "large": noise(3 * MIB) + bytes(3 * MIB),
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_what_was_put_is_read(content: bytes, store: Store, again: Callable[[], Store]) -> None:
    [digest] = put(store, content)

    assert digest == address(content)
    for each in then_and_later(store, again):
        assert read(each, digest) == content
        assert each.get("acme", digest) == content
        assert each.size("acme", digest) == len(content)
        assert each.has("acme", [digest, address(b"other")]) == {digest}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_a_file_is_put_as_its_content_is(content: bytes, store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content + b"what came later")

    with store.write("acme") as writing, (tmp_path / "file").open("rb") as file:
        digest = writing.put_file(file.fileno(), len(content))
        assert digest == writing.put_blob(content)
        writing.commit()

    assert digest == address(content)
    assert read(store, digest) == content


def test_a_folder_is_put_and_fetched(store: Store, again: Callable[[], Store]) -> None:
    inner: dict[bytes, Entry] = {b"main.py": a_file(b"x"), b"\xff": Link(b"main.py")}
    with store.write("acme") as writing:
        inside = writing.put_folder(encode(inner))
        tree = writing.put_folder(encode({b"src": Folder(inside)}))
        writing.commit()

    for each in then_and_later(store, again):
        assert each.get_folder("acme", inside) == inner
        assert [path for path, _ in walk(each.fetch("acme"), tree)] == [b"src", b"src/main.py", b"src/\xff"]


def test_a_tree_is_changed_in_a_session(store: Store) -> None:
    wide: dict[bytes, Entry] = {b"%05d" % number: a_file(b"%d" % number) for number in range(5000)}
    with store.write("acme") as writing:
        old = writing.put_folder(encode(wide))
        writing.commit()
    before = store.usage("acme").stored_bytes

    with store.write("acme") as writing:
        changed = apply(store.fetch("acme"), writing.put_folder, old, [Change(b"new", None, a_file(b"new"))])
        writing.commit()

    assert [change.path for change in diff(store.fetch("acme"), old, changed)] == [b"new"]
    # Large folders share what did not change.
    assert store.usage("acme").stored_bytes - before < len(encode(wide)) / 5


def test_the_empty_tree_is_always_there(store: Store) -> None:
    assert store.get_folder("acme", EMPTY) == {}


def test_until_the_commit_only_the_session_sees_what_it_put(store: Store) -> None:
    with store.write("acme") as writing, store.write("acme") as other:
        small, large = writing.put_blob(b"small"), writing.put_blob(noise(3 * MIB))

        assert writing.has([small, large]) == {small, large}
        assert store.has("acme", [small, large]) == other.has([small, large]) == set()
        with pytest.raises(NotFound):
            store.open_blob("acme", large)

        writing.commit()
        assert store.has("acme", [small, large]) == other.has([small, large]) == {small, large}


def test_a_session_left_without_commit_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.write("acme") as writing:
        digests = [writing.put_blob(b"small"), writing.put_blob(noise(3 * MIB))]
        raise ZeroDivisionError

    assert store.has("acme", digests) == set()
    assert store.usage("acme").stored_bytes < 100
    assert store.fsck("acme", deep=True) == []
    with pytest.raises(Unavailable):
        writing.put_blob(b"late")
    with pytest.raises(Unavailable):
        writing.commit()


def test_what_another_session_did_not_commit_is_not_counted_on(store: Store) -> None:
    content = noise(2 * MIB)
    with store.write("acme") as first:
        first.put_blob(content)
        [digest] = put(store, content)

    assert read(store, digest) == content


def test_a_session_may_commit_again(store: Store) -> None:
    with store.write("acme") as writing:
        first = writing.put_blob(b"first")
        writing.commit()
        second = writing.put_blob(b"second")
        third = writing.put_blob(b"first")
        writing.commit()
        writing.commit()

    assert first == third
    assert [read(store, digest) for digest in (first, second)] == [b"first", b"second"]


def test_the_same_content_is_stored_once(store: Store) -> None:
    content = noise(100_000)
    put(store, content, content)
    before = store.usage("acme")

    put(store, content)

    assert store.usage("acme") == before
    assert before.objects == 1


@pytest.mark.long
@pytest.mark.parametrize("where", ["in the middle", "at the start", "at the end"])
def test_versions_of_a_large_file_share_what_did_not_change(where: str, store: Store) -> None:
    content = noise(20 * MIB)
    put(store, content)
    before = store.usage("acme").stored_bytes
    changed = {
        "in the middle": content[: 9 * MIB] + noise(1024, 1) + content[9 * MIB + 1024 :],
        "at the start": noise(1024, 1) + content,
        "at the end": content + noise(1024, 1),
    }[where]

    [digest] = put(store, changed)

    assert read(store, digest) == changed
    assert store.usage("acme").stored_bytes - before < MIB


def test_text_is_stored_compressed(store: Store) -> None:
    put(store, b"the same line again and again\n" * 10_000)

    assert store.usage("acme").stored_bytes < 10_000
