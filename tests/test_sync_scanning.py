"""Looking through a folder: everything is seen, and little is read twice."""

import os
import shutil
from pathlib import Path

import pytest

from petri.errors import Invalid
from petri.sdk.folder import scanning
from petri.sdk.folder.contents import Contents, Opened, Restless
from petri.sdk.folder.index import TICK_NS, Index, Rows, settled
from petri.sdk.folder.scanning import Scan
from petri.trees import EMPTY, File, Folder, FolderObject, Link, address, decode, find, walk


class Looker:
    """Looks through a folder again and again, as a sync does, and says what it read."""

    def __init__(self, folder: Path) -> None:
        self.top = os.fsencode(folder)
        self.index = Index()
        self.objects: dict[bytes, bytes] = {}
        self.read: list[bytes] = []

    def look(self, touched: list[str] | None = None) -> bytes:
        """Return the tree; `read` has the paths that were read for it."""
        contents = _Watched(self.top)
        scan = Scan(self.top, self.index, contents)
        tree = scan.run(None if touched is None else [os.fsencode(path) for path in touched])
        self.objects.update(scan.objects)
        self.read = contents.read
        self.scan = scan
        return tree

    def fetch(self, wanted: bytes) -> FolderObject:
        return decode(self.objects[wanted])

    def paths(self, tree: bytes) -> set[str]:
        return {os.fsdecode(path) for path, _ in walk(self.fetch, tree)}

    def kept(self) -> "Looker":
        """Return another one, which remembers what this one wrote down."""
        other = Looker(Path(os.fsdecode(self.top)))
        other.index = Index.from_bytes(self.index.to_bytes())
        other.objects = self.objects
        return other


class _Watched(Contents):
    def __init__(self, top: bytes) -> None:
        super().__init__(top)
        self.read: list[bytes] = []

    def examine(self, path: bytes, old: bytes | None = None):  # type: ignore[no-untyped-def]
        self.read.append(path)
        return super().examine(path, old)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Some files, written an hour ago."""
    for path in ("a", "pkg/b", "pkg/deep/c", "other/d"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.fixture
def looker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Looker:
    """One who looked already, at a time when everything was old."""
    looker = Looker(folder)
    later(monkeypatch, 3600)
    looker.look()
    return looker


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have it be later, for what decides whether a file may have changed in the moment it was read."""
    from time import time_ns

    def now() -> int:
        return time_ns() + int(seconds * 1e9)

    for module in ("contents", "scanning"):
        monkeypatch.setattr(f"petri.sdk.folder.{module}.now_ns", now)


def test_a_folder_is_a_tree(folder: Path) -> None:
    looker = Looker(folder)

    tree = looker.look()

    assert looker.paths(tree) == {
        *("a", "empty", "other", "other/d", "pkg", "pkg/b", "pkg/deep", "pkg/deep/c")
    }
    assert find(looker.fetch, tree, b"a") == File(address(b"a"), 1, 6)
    assert find(looker.fetch, tree, b"empty") == Folder(EMPTY)


def test_what_did_not_change_is_not_read_again(looker: Looker) -> None:
    tree = looker.index.tree

    assert looker.look() == tree
    assert looker.read == []
    assert not looker.scan.is_new
    other = looker.kept()
    assert other.look() == tree
    assert other.read == []
    assert not other.scan.is_new


def test_where_nothing_changed_nothing_is_gone_through_one_by_one(
    folder: Path, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pkg" / "__pycache__").mkdir()
    (folder / "pkg" / "b.pyc").write_text("")
    (folder / "pkg" / "link").symlink_to("b")
    (folder / "other" / "new").write_text("")
    looker.look()
    gone_through: list[bytes] = []
    compared = scanning._compared

    def comparing(present: dict[bytes, os.DirEntry[bytes]], known: Rows) -> object:
        gone_through.extend(present)
        return compared(present, known)

    monkeypatch.setattr(scanning, "_compared", comparing)

    other = looker.kept()
    assert other.look() == looker.index.tree
    assert (gone_through, other.scan.is_new) == ([], False)
    (folder / "pkg" / "deep" / "c").write_text("changed")
    other.look()
    assert gone_through == [b"c"]


@pytest.mark.parametrize("by", ["a file", "a link", "a folder", "an ignored file"])
def test_what_takes_the_place_of_something_else_is_seen(folder: Path, looker: Looker, by: str) -> None:
    (folder / "pkg" / "__pycache__").mkdir()
    looker.look()
    other = looker.kept()
    (folder / "pkg" / "__pycache__").rmdir()
    shutil.rmtree(folder / "pkg" / "deep")
    if by == "a file":
        (folder / "pkg" / "deep").write_text("")
    elif by == "a link":
        (folder / "pkg" / "deep").symlink_to("../other")
    elif by == "a folder":
        (folder / "pkg" / "deep").mkdir()
    else:
        (folder / "pkg" / "__pycache__").write_text("")

    assert other.look() == looker.look() == Looker(folder).look()


def test_an_index_keeps_what_was_found(folder: Path, looker: Looker) -> None:
    (folder / "pkg" / "__pycache__").mkdir()
    (folder / "pkg" / "b.pyc").write_text("")
    for number in range(3):
        (folder / "pkg" / f"link {number}").symlink_to(f"to {number}")
        (folder / f"link {number}").symlink_to(f"from the top to {number}")
    looker.look()
    kept = Index.from_bytes(looker.index.to_bytes())

    assert kept.to_bytes() == looker.index.to_bytes()
    assert kept.folders.keys() == looker.index.folders.keys()
    for path, listing in looker.index.folders.items():
        found = kept.folders[path]
        assert list(found.rows) == list(listing.rows)
        assert found.entries() == listing.entries()
        assert found.rest.keys() == listing.rest.keys()
        assert (found.is_empty, found.address) == (listing.is_empty, listing.address)


def test_only_what_changed_is_read(folder: Path, looker: Looker) -> None:
    (folder / "pkg" / "b").write_text("changed")

    tree = looker.look()

    assert looker.read == [b"pkg/b"]
    assert find(looker.fetch, tree, b"pkg/b") == File(address(b"changed"), 7, 6)
    assert set(looker.scan.objects) == {tree, find(looker.fetch, tree, b"pkg")[0]}  # type: ignore[index]


def test_a_change_that_leaves_size_and_time_is_seen(folder: Path, looker: Looker) -> None:
    before = (folder / "a").stat()
    (folder / "a").write_text("b")
    os.utime(folder / "a", ns=(before.st_atime_ns, before.st_mtime_ns))

    assert find(looker.fetch, looker.look(), b"a") == File(address(b"b"), 1, 6)


def test_what_was_read_in_the_tick_it_was_written_in_is_read_again(folder: Path) -> None:
    looker = Looker(folder)
    (folder / "a").write_text("x")
    looker.look()

    looker.look()

    assert b"a" in looker.read


def test_a_time_in_the_future_is_never_trusted(folder: Path, looker: Looker) -> None:
    soon = (folder / "a").stat().st_mtime_ns + 10**15
    os.utime(folder / "a", ns=(soon, soon))

    for _ in range(2):
        looker.look()
        assert looker.read == [b"a"]


def test_a_key_is_trusted_once_a_tick_has_passed() -> None:
    key = (0o100644, 1, 1000, 2000, 7)

    assert settled(key, 2000 + TICK_NS + 1) == key
    assert settled(key, 2000 + TICK_NS)[3] == 0
    assert settled(key, 0)[3] == 0


def test_a_moved_folder_is_not_read_again(folder: Path, looker: Looker) -> None:
    (folder / "pkg").rename(folder / "lib")

    tree = looker.look()

    assert looker.read == []
    assert {"lib/b", "lib/deep/c"} <= looker.paths(tree)
    assert "pkg" not in looker.paths(tree)


def test_what_is_gone_is_gone(folder: Path, looker: Looker) -> None:
    (folder / "a").unlink()
    (folder / "other" / "d").unlink()
    (folder / "other").rmdir()

    assert looker.paths(looker.look()) == {"empty", "pkg", "pkg/b", "pkg/deep", "pkg/deep/c"}
    assert looker.kept().look() == looker.index.tree


def test_a_file_that_became_a_folder_or_a_link_is_that_now(folder: Path, looker: Looker) -> None:
    (folder / "a").unlink()
    (folder / "a").mkdir()
    (folder / "pkg" / "b").unlink()
    (folder / "pkg" / "b").symlink_to("c")
    (folder / "empty").rmdir()
    (folder / "empty").write_text("full")

    tree = looker.look()

    assert find(looker.fetch, tree, b"a") == Folder(EMPTY)
    assert find(looker.fetch, tree, b"pkg/b") == Link(b"c")
    assert isinstance(find(looker.fetch, tree, b"empty"), File)


def test_rules_that_change_count_at_once_and_below(folder: Path, looker: Looker) -> None:
    (folder / ".gitignore").write_text("b\ndeep/\n")
    assert looker.paths(looker.look()) == {".gitignore", "a", "empty", "other", "other/d", "pkg"}
    looker = looker.kept()
    looker.look()
    assert not looker.scan.is_new

    (folder / "pkg" / ".gitignore").write_text("!b\n")
    assert "pkg/b" in looker.paths(looker.look())
    (folder / "pkg" / ".gitignore").unlink()
    assert "pkg/b" not in looker.paths(looker.look())
    (folder / ".gitignore").unlink()
    assert {"pkg/b", "pkg/deep/c"} <= looker.paths(looker.look())


def test_what_is_ignored_is_not_asked_about_again(folder: Path, looker: Looker) -> None:
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "pkg" / "x.log").write_text("")
    (folder / "node_modules" / "m").mkdir(parents=True)
    looker.look()
    looker = looker.kept()

    looker.look()

    assert not looker.scan.is_new
    assert looker.scan.ignoring._levels == {b"": looker.scan.ignoring._levels[b""]}, "no rule was needed"
    (folder / "pkg" / "x.log").unlink()
    (folder / "pkg" / "x.log").mkdir()
    assert "pkg/x.log" not in looker.paths(looker.look())


def test_only_what_was_touched_is_looked_at(folder: Path, looker: Looker) -> None:
    (folder / "pkg" / "deep" / "c").write_text("seen")
    (folder / "other" / "d").write_text("not seen")
    (folder / "pkg" / "new" / "x").mkdir(parents=True)

    tree = looker.look(["pkg/deep/c", "pkg/new"])

    assert looker.read == [b"pkg/deep/c"]
    assert {"pkg/new/x"} <= looker.paths(tree)
    assert looker.look() != tree
    assert looker.read == [b"other/d"]


def test_a_folder_put_in_the_place_of_another_is_looked_at_whole(folder: Path, looker: Looker) -> None:
    (folder / "pkg").rename(folder.parent / "away")
    (folder / "pkg" / "deep").mkdir(parents=True)
    (folder / "pkg" / "deep" / "c").write_text("another")

    tree = looker.look(["pkg"])

    assert looker.paths(tree) == {"a", "empty", "other", "other/d", "pkg", "pkg/deep", "pkg/deep/c"}
    assert find(looker.fetch, tree, b"pkg/deep/c") == File(address(b"another"), 7, 6)


def test_a_folder_that_changes_all_the_time_is_said_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looker = Looker(folder)
    real = os.scandir

    def scandir(path: bytes) -> object:
        if path.endswith(b"/deep"):
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(Restless, match="vanished"):
        looker.look()


def test_a_log_that_grows_is_what_it_was_a_moment_ago(folder: Path) -> None:
    class Growing(Contents):
        def _digest(self, file: Opened, size: int, old: bytes | None) -> bytes:
            found = super()._digest(file, size, old)
            with (folder / "log").open("a") as log:
                log.write("more\n")
            return found

    (folder / "log").write_text("1\n")
    key, found = Growing(os.fsencode(folder)).examine(b"log")

    assert found == address(b"1\nmore\nmore\n")
    assert key[3] == 0, "and it is read again next time"


def test_a_path_too_long_for_the_wire_is_refused(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 220, dir_fd=here)
        inner = os.open("d" * 220, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)

    with pytest.raises((Invalid, OSError)) as refused:
        Looker(tmp_path).look()
    assert "too long" in str(refused.value)


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_a_damaged_index_is_an_empty_one(looker: Looker, damage: bytes | None) -> None:
    kept = bytearray(looker.index.to_bytes())
    if damage is None:
        kept[100] ^= 1
    else:
        kept[:] = damage

    assert Index.from_bytes(bytes(kept)).folders == {}


def test_an_index_of_nothing_is_kept(tmp_path: Path) -> None:
    looker = Looker(tmp_path)

    assert looker.look() == EMPTY
    other = looker.kept()
    assert other.look() == EMPTY
    assert not other.scan.is_new
