"""A tree told as records: what is told of two trees makes one of the other, and nothing else is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from petri.errors import Invalid, NotFound
from petri.syncing import records
from petri.syncing.growing import Growing
from petri.syncing.records import (
    NOTHING,
    Delete,
    KnownFile,
    MakeFolder,
    MakeLink,
    Move,
    Record,
    SetMode,
    WholeFile,
)
from petri.syncing.telling import NewFile, steps
from petri.trees import EMPTY, File
from tests.examples import examples
from tests.forests import NAMES, Forest, Plan, a_file, related


def told(forest: Forest, old: bytes, new: bytes) -> list[Record]:
    return [
        KnownFile(step.path, step.file.mode, step.file.size, step.file.digest)
        if isinstance(step, NewFile)
        else step
        for step in steps(forest.fetch, old, new)
    ]


def grown(forest: Forest, tree: bytes, changes: list[Record]) -> bytes:
    growing = Growing(forest.fetch, tree)
    for record in changes:
        growing.apply(record)
    return growing.tree(forest.put)


@given(related(1))
@examples(400)
def test_what_is_told_of_two_trees_makes_one_of_the_other(plans: tuple[Plan, ...]) -> None:
    forest = Forest()
    old, new = map(forest.plant, plans)

    assert grown(forest, old, told(forest, old, new)) == new
    assert grown(forest, new, told(forest, new, old)) == old


_paths = some.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
_any_record: some.SearchStrategy[Record] = some.one_of(
    some.builds(Move, _paths, _paths),
    some.builds(Delete, _paths),
    some.builds(MakeFolder, _paths),
    some.builds(MakeLink, _paths, some.just(b"a")),
    some.builds(SetMode, _paths, some.integers(0, 7)),
    some.builds(WholeFile, _paths, some.just(6), some.just(3), some.just(bytes(32)), some.just(0)),
)


@given(related(0), some.lists(_any_record, max_size=8))
@examples(400)
def test_any_records_are_taken_or_refused_with_the_tree_as_it_was(
    plans: tuple[Plan], changes: list[Record]
) -> None:
    forest = Forest()
    growing = Growing(forest.fetch, forest.plant(plans[0]))
    for record in changes:
        before = growing.tree(forest.put)
        try:
            growing.apply(record)
        except Invalid as error:
            assert error.message
            assert growing.tree(forest.put) == before


A = a_file(b"one")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (Delete(b"nope"), "is not there"),
        (Delete(b"d/nope"), "is not there"),
        (Delete(b"f/x"), "is not there"),
        (SetMode(b"nope", 7), "is not there"),
        (SetMode(b"d", 7), "not a file"),
        (MakeFolder(b"d"), "already"),
        (MakeFolder(b"f"), "already"),
        (MakeFolder(b"f/x"), "within a file"),
        (MakeLink(b"d", b"t"), "is a folder"),
        (KnownFile(b"d", 6, 0, NOTHING), "is a folder"),
        (KnownFile(b"f/deep/x", 6, 0, NOTHING), "within a file"),
        (Move(b"nope", b"n"), "is not there"),
        (Move(b"f", b"d"), "already"),
        (Move(b"d", b"d/inside"), "into itself"),
        (Move(b"d", b"d"), "into itself"),
        (Move(b"d", b"f/x"), "within a file"),
        (records.Said(b"{}"), "does not belong"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record: Record, why: str) -> None:
    forest = Forest()
    growing = Growing(forest.fetch, forest.plant({b"f": A, b"d": {b"x": A}}))

    with pytest.raises(Invalid, match=why):
        growing.apply(record)


def test_folders_around_a_new_file_come_by_themselves_and_stay_when_it_goes() -> None:
    forest = Forest()
    growing = Growing(forest.fetch, NOTHING)
    growing.apply(KnownFile(b"a/b/c", A.mode, A.size, A.digest))
    assert growing.tree(forest.put) == forest.plant({b"a": {b"b": {b"c": A}}})

    growing.apply(Delete(b"a/b/c"))
    assert growing.tree(forest.put) == forest.plant({b"a": {b"b": {}}})
    growing.apply(Delete(b"a"))
    assert growing.tree(forest.put) == EMPTY


def test_an_unknown_tree_is_not_found() -> None:
    with pytest.raises(NotFound):
        Growing(Forest().fetch, bytes(31) + b"x")


def _many(count: int, prefix: str = "") -> dict[bytes, File]:
    return {f"{prefix}{number}".encode(): a_file(str(number).encode()) for number in range(count)}


def test_a_folder_that_moved_is_one_record() -> None:
    forest = Forest()
    old = forest.plant({b"src": {b"pkg": _many(50)}, b"f": A})
    new = forest.plant({b"lib": {b"pkg": _many(50)}, b"f": A})

    assert told(forest, old, new) == [Move(b"src", b"lib")]


def test_a_folder_that_moved_and_then_changed_is_moved_and_then_changed() -> None:
    forest = Forest()
    old = forest.plant({b"src": {b"pkg": _many(50), b"x": A}})
    new = forest.plant({b"lib": {b"pkg": {**_many(50), b"7": A}, b"x": A}})

    assert told(forest, old, new) == [
        Move(b"src", b"lib"),
        KnownFile(b"lib/pkg/7", A.mode, A.size, A.digest),
    ]


def test_folders_with_little_in_common_are_not_taken_for_each_other() -> None:
    forest = Forest()
    old = forest.plant({b"src": {**_many(10), b"x": A}})
    new = forest.plant({b"lib": {**_many(10, "other"), b"x": A}})

    assert not any(isinstance(record, Move) for record in told(forest, old, new))


def test_a_mode_alone_is_no_new_file() -> None:
    forest = Forest()
    old, new = forest.plant({b"f": A}), forest.plant({b"f": A._replace(mode=7)})

    assert told(forest, old, new) == [SetMode(b"f", 7)]


def test_telling_a_change_costs_what_changed() -> None:
    forest = Forest()
    rest = {f"d{number}".encode(): _many(20) for number in range(50)}
    old, new = forest.plant({**rest, b"d7": _many(20)}), forest.plant({**rest, b"d7": {**_many(20), b"x": A}})
    forest.fetched = 0

    assert len(told(forest, old, new)) == 1
    assert forest.fetched == 4


def test_thousands_of_levels_are_no_trouble() -> None:
    forest = Forest()
    path = b"/".join([b"d"] * 2000)

    tree = grown(forest, NOTHING, [KnownFile(path, A.mode, A.size, A.digest), Move(path, b"top")])

    assert set(forest.leaves(tree)) == {b"top", path[:-2]}


def test_a_tree_far_deeper_than_any_path_is_refused_before_anybody_goes_through_it() -> None:
    forest = Forest()
    growing = Growing(forest.fetch, NOTHING)
    growing.apply(MakeFolder(b"d"))
    for _ in range(4):
        growing.apply(Move(b"d", b"e/" + b"d/" * 1999 + b"d"))
        growing.apply(Move(b"e", b"d"))

    with pytest.raises(Invalid, match="4096 is the most"):
        growing.tree(forest.put)
