"""Trees as folders that cells read: what is there, what it costs, and what hostile trees cannot do."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petri.errors import Busy, Conflict, NotFound, StorageFull, Unavailable
from petri.trees import EMPTY, File, Folder, FolderObject, Link, address, encode
from petri.workspace import Checkouts
from tests.examples import examples
from tests.forests import Forest, Plan

pytestmark = pytest.mark.long

CONTENTS = [b"", b"one\n", b"two\n", b"\0" * 70_000, b"x" * 200_000]
FILES = st.builds(
    lambda number, mode: File(address(CONTENTS[number]), len(CONTENTS[number]), mode),
    st.integers(0, 4),
    st.sampled_from([6, 7]),
)
LINKS = st.sampled_from([Link(b"/etc/passwd"), Link(b"../../.."), Link(b"a"), Link(b"nowhere")])
NAMES = st.sampled_from([b"a", b"b", b"c", b"\xff odd\n", b"-rf"])
PLANS = st.recursive(
    st.dictionaries(NAMES, FILES | LINKS, max_size=4),
    lambda inner: st.dictionaries(NAMES, FILES | LINKS | inner, max_size=4),
    max_leaves=8,
)


class Wood(Forest):
    """Trees and the contents of their files, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.blobs = {address(content): content for content in CONTENTS}
        self.read: list[bytes] = []

    def folder(self, address: bytes) -> FolderObject:
        return self.fetch(address)

    def content(self, digest: bytes) -> Iterator[bytes]:
        if digest not in self.blobs:
            raise NotFound("no such object")
        self.read.append(digest)
        content = self.blobs[digest]
        return iter([content[at : at + 65_536] for at in range(0, len(content), 65_536)])

    def file(self, content: bytes, mode: int = 6) -> File:
        self.blobs[address(content)] = content
        return File(address(content), len(content), mode)

    def told(self, tree: bytes) -> dict[bytes, object]:
        """Return a tree's paths, and what a reader finds at each."""
        found: dict[bytes, object] = {}
        for path, entry in self.paths(tree).items():
            if isinstance(entry, File):
                found[path] = (self.blobs[entry.digest], bool(entry.mode & 1))
            else:
                found[path] = entry.target if isinstance(entry, Link) else None
        return found


def seen(folder: Path) -> dict[bytes, object]:
    """Return what lies in a folder, in the same words."""
    found: dict[bytes, object] = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.fsencode(path.readlink())
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o111))
    return found


@pytest.fixture
def wood() -> Wood:
    return Wood()


@pytest.fixture
def checkouts(tmp_path: Path) -> Checkouts:
    return Checkouts(tmp_path / "checkouts", 2**30, 0)


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=st.lists(st.tuples(PLANS, st.booleans()), min_size=1, max_size=5))
def test_every_tree_of_a_history_is_exactly_there_while_it_is_used(
    tmp_path: Path, plans: list[tuple[Plan, bool]]
) -> None:
    wood, checkouts = Wood(), Checkouts(tmp_path / "checkouts", 2**30, 0)
    held = []
    for plan, is_held in plans:
        tree = wood.plant(plan)
        checkout = checkouts.borrow("acme", wood, "sb-a", tree)
        assert seen(checkout.folder) == wood.told(tree)
        if is_held:
            held.append(checkout)
        else:
            checkouts.give_back(checkout)

    for checkout in held:  # whatever was made of them since
        assert seen(checkout.folder) == wood.told(checkout.tree)


def test_only_what_changed_is_read_and_the_rest_shared(wood: Wood, checkouts: Checkouts) -> None:
    same = {b"%d" % number: wood.file(b"file %d" % number) for number in range(50)}
    first = checkouts.borrow("acme", wood, "sb-a", wood.plant({b"d": same, b"x": wood.file(b"old")}))
    wood.read.clear()
    second = checkouts.borrow("acme", wood, "sb-a", wood.plant({b"d": same, b"x": wood.file(b"new")}))

    assert wood.read == [address(b"new")]
    assert (first.folder / "d/7").stat().st_ino == (second.folder / "d/7").stat().st_ino
    assert [(each.folder / "x").read_bytes() for each in (first, second)] == [b"old", b"new"]


def test_a_tree_nobody_looks_at_any_more_becomes_the_next(wood: Wood, checkouts: Checkouts) -> None:
    same = {b"a": wood.file(b"same")}
    first = checkouts.borrow("acme", wood, "sb-a", wood.plant({b"d": same, b"x": wood.file(b"old")}))
    inode = (first.folder / "d").stat().st_ino
    checkouts.give_back(first)
    second = checkouts.borrow("acme", wood, "sb-a", wood.plant({b"d": same, b"y": wood.file(b"new")}))

    assert (second.folder / "d").stat().st_ino == inode
    assert seen(second.folder).keys() == {b"d", b"d/a", b"y"}
    assert len(list(checkouts.trees.iterdir())) == 1


def test_one_tree_is_one_folder_for_all_of_a_tenant_and_nobody_else(wood: Wood, checkouts: Checkouts) -> None:
    tree = wood.plant({b"a": wood.file(b"a")})
    ours = [checkouts.borrow("acme", wood, kin, tree) for kin in ("sb-a", "sb-b")]
    theirs = checkouts.borrow("other", wood, "sb-a", tree)

    assert ours[0] is ours[1]
    assert theirs.folder != ours[0].folder
    assert (theirs.folder / "a").stat().st_ino != (ours[0].folder / "a").stat().st_ino


def test_many_who_want_a_tree_at_once_get_the_same(wood: Wood, checkouts: Checkouts) -> None:
    tree = wood.plant({b"%d" % number: wood.file(b"%d" % number) for number in range(300)})
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(checkouts.borrow("acme", wood, "sb-a", tree)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(each) for each in got}) == 1
    assert got[0].users == 8
    assert len(list(checkouts.trees.iterdir())) == 1


def test_only_the_server_may_enter_and_inside_everybody_may_read(
    wood: Wood, checkouts: Checkouts, tmp_path: Path
) -> None:
    umask = os.umask(0o077)
    try:
        made = checkouts.borrow(
            "acme", wood, "sb-a", wood.plant({b"d": {b"x": wood.file(b"x", 7), b"y": wood.file(b"y", 6)}})
        )
    finally:
        os.umask(umask)

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.lstat().st_mode)

    assert mode(tmp_path / "checkouts") == 0o700
    assert mode(checkouts.trees) == 0o711
    assert [mode(made.folder), mode(made.folder / "d")] == [0o755, 0o755]
    assert [mode(made.folder / "d/x"), mode(made.folder / "d/y")] == [0o555, 0o444]


def test_links_are_made_and_never_followed(wood: Wood, checkouts: Checkouts, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    out = Link(os.fsencode(outside))
    first = checkouts.borrow("acme", wood, "sb-a", wood.plant({b"d": out, b"e": {b"secret": wood.file(b"")}}))
    checkouts.give_back(first)
    # What was a link is a folder now, and the other way round.
    second = checkouts.borrow(
        "acme", wood, "sb-a", wood.plant({b"e": out, b"d": {b"secret": wood.file(b"1")}})
    )
    checkouts.give_back(second)
    third = checkouts.borrow("acme", wood, "sb-a", wood.plant({b"z": wood.file(b"")}))

    assert seen(third.folder).keys() == {b"z"}
    assert seen(outside).keys() == {b"secret"}
    assert (outside / "secret").read_text() == "untouched"


def test_a_bomb_of_few_objects_and_many_paths_is_refused(wood: Wood, checkouts: Checkouts) -> None:
    tree = wood.plant({b"f": wood.file(b"x")})
    for _ in range(40):
        tree = wood.put(encode({b"a": Folder(tree), b"b": Folder(tree)}))

    with pytest.raises(Conflict, match="can be seen here"):
        checkouts.borrow("acme", wood, "sb-a", tree)
    assert list(checkouts.trees.iterdir()) == []


def test_a_hole_stays_a_hole(wood: Wood, checkouts: Checkouts) -> None:
    content = b"begin" + bytes(65_536 - 5) + bytes(8 << 20)
    made = checkouts.borrow("acme", wood, "sb-a", wood.plant({b"sparse": wood.file(content)}))

    status = (made.folder / "sparse").stat()
    assert (made.folder / "sparse").read_bytes() == content
    assert status.st_blocks * 512 < 1 << 20


def test_fifteen_hundred_levels_are_there_and_gone_again(wood: Wood, checkouts: Checkouts) -> None:
    wood.file(b"deep")
    made = checkouts.borrow("acme", wood, "sb-a", wood.dig(1500, b"deep"))
    assert (made.folder / ("d/" * 1500) / "f").read_bytes() == b"deep"
    checkouts.give_back(made)
    checkouts.sweep(0, 60)

    assert list(checkouts.trees.iterdir()) == []


def test_what_fails_halfway_leaves_nothing(wood: Wood, checkouts: Checkouts) -> None:
    tree = wood.plant({b"a": wood.file(b"a"), b"b": File(address(b"never kept"), 10, 6)})

    with pytest.raises(Conflict, match="too large to be kept"):
        checkouts.borrow("acme", wood, "sb-a", tree)
    assert list(checkouts.trees.iterdir()) == []
    with pytest.raises(Conflict, match="not kept any more"):
        checkouts.borrow("acme", wood, "sb-a", address(b"never was"))


def test_content_of_another_size_is_no_file(wood: Wood, checkouts: Checkouts) -> None:
    tree = wood.plant({b"a": File(wood.file(b"abc").digest, 4, 6)})

    with pytest.raises(Unavailable, match="fsck"):
        checkouts.borrow("acme", wood, "sb-a", tree)


def test_a_base_that_was_swept_from_the_store_is_no_base(wood: Wood, checkouts: Checkouts) -> None:
    old = wood.plant({b"a": wood.file(b"a")})
    checkouts.give_back(checkouts.borrow("acme", wood, "sb-a", old))
    new = wood.plant({b"b": wood.file(b"b")})
    del wood.kept[old]

    assert seen(checkouts.borrow("acme", wood, "sb-a", new).folder) == wood.told(new)


def test_a_full_disk_says_so(wood: Wood, tmp_path: Path) -> None:
    checkouts = Checkouts(tmp_path / "checkouts", 2**30, reserve_bytes=2**62)

    with pytest.raises(StorageFull):
        checkouts.borrow("acme", wood, "sb-a", wood.plant({b"a": wood.file(b"a")}))
    assert list(checkouts.trees.iterdir()) == []


def test_a_tenant_has_so_many_bytes_of_peers_and_what_is_idle_makes_way(wood: Wood, tmp_path: Path) -> None:
    checkouts = Checkouts(tmp_path / "checkouts", 100, 0)
    trees = [wood.plant({b"f": wood.file(b"%d" % number * 60)}) for number in range(3)]
    first = checkouts.borrow("acme", wood, "sb-a", trees[0])

    with pytest.raises(Busy, match="PETRI_PEERS_BYTES"):
        checkouts.borrow("acme", wood, "sb-b", trees[1])
    checkouts.borrow("other", wood, "sb-b", trees[1])
    checkouts.give_back(first)
    second = checkouts.borrow("acme", wood, "sb-b", trees[1])
    assert not first.folder.exists()
    assert second.folder.exists()
    with pytest.raises(Conflict, match="PETRI_PEERS_BYTES"):
        checkouts.borrow("acme", wood, "sb-c", wood.plant({b"f": wood.file(b"x" * 101)}))


def test_what_is_idle_goes_and_what_is_used_stays(wood: Wood, checkouts: Checkouts) -> None:
    used, idle = (
        checkouts.borrow("acme", wood, kin, wood.plant({b"f": wood.file(kin.encode())}))
        for kin in ("sb-a", "sb-b")
    )
    checkouts.give_back(idle)

    checkouts.sweep(3600, 60)
    assert idle.folder.exists()
    checkouts.sweep(0, 60)
    assert not idle.folder.exists()
    assert used.folder.exists()
    assert list((checkouts.trees.parent / "trash").iterdir()) == []


def test_what_an_earlier_life_left_is_gone(wood: Wood, checkouts: Checkouts, tmp_path: Path) -> None:
    checkouts.borrow("acme", wood, "sb-a", wood.plant({b"f": wood.file(b"f")}))

    assert list(Checkouts(tmp_path / "checkouts", 2**30, 0).trees.iterdir()) == []


def test_a_server_that_ends_waits_for_none(wood: Wood, checkouts: Checkouts) -> None:
    checkouts.stop()

    with pytest.raises(Unavailable, match="stopping"):
        checkouts.borrow("acme", wood, "sb-a", wood.plant({b"f": wood.file(b"f")}))


def test_the_empty_tree_is_an_empty_folder(wood: Wood, checkouts: Checkouts) -> None:
    assert seen(checkouts.borrow("acme", wood, "sb-a", EMPTY).folder) == {}
