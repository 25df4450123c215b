"""Going through a tree: everything once and in order, however deep, and bombs are measured, not walked."""

import pytest
from hypothesis import given

from petri.errors import NotFound
from petri.trees import EMPTY, Folder, Link, Totals, encode, find, measure, walk
from tests.forests import DEEP, PLANS, Forest, Plan, a_file


@pytest.fixture
def forest() -> Forest:
    return Forest()


def test_a_walk_is_in_the_order_of_names_folder_by_folder(forest: Forest) -> None:
    tree = forest.plant({b"a": {b"z": a_file(), b"e": {}}, b"a-b": a_file(), b"Z": Link(b"a")})

    assert [path for path, _ in walk(forest.fetch, tree)] == [b"Z", b"a", b"a/e", b"a/z", b"a-b"]


def test_a_walk_stays_out_of_folders_it_is_told_to(forest: Forest) -> None:
    tree = forest.plant({b"a": {b"b": {b"c": a_file()}}, b"d": {b"e": a_file()}})

    seen = [path for path, _ in walk(forest.fetch, tree, lambda path: path != b"a")]

    assert seen == [b"a", b"d", b"d/e"]
    assert forest.fetched == 2


@given(PLANS)
def test_whatever_a_walk_yields_is_found_there(plan: Plan) -> None:
    forest = Forest()
    tree = forest.plant(plan)

    for path, entry in walk(forest.fetch, tree):
        assert find(forest.fetch, tree, path) == entry


def test_nothing_is_found_where_nothing_is(forest: Forest) -> None:
    tree = forest.plant({b"a": {b"f": a_file()}})

    assert [find(forest.fetch, tree, path) for path in (b"b", b"a/g", b"a/f/x", b"f", b"a//f")] == [None] * 5
    assert find(forest.fetch, tree, b"") == Folder(tree)


def test_the_empty_tree_needs_no_store(forest: Forest) -> None:
    assert list(walk(forest.fetch, EMPTY)) == []
    assert measure(forest.fetch, EMPTY) == Totals()
    assert forest.fetched == 0


@given(PLANS)
def test_a_tree_is_measured_as_it_is_walked(plan: Plan) -> None:
    forest = Forest()
    tree = forest.plant(plan)
    paths = forest.paths(tree)
    kinds = [type(entry).__name__ for entry in paths.values()]

    assert measure(forest.fetch, tree) == Totals(
        files=kinds.count("File"),
        links=kinds.count("Link"),
        folders=kinds.count("Folder"),
        size=sum(getattr(entry, "size", 0) for entry in paths.values()),
        depth=max((path.count(b"/") + 1 for path in paths), default=0),
    )


def test_few_objects_that_are_many_paths_are_measured_at_once(forest: Forest) -> None:
    inner: Plan = {b"f": a_file(b"x")}
    tree = forest.plant(inner)
    for _ in range(60):
        tree = forest.put(encode({b"a": Folder(tree), b"b": Folder(tree)}))

    totals = measure(forest.fetch, tree)

    assert totals.files == totals.size == 2**60
    assert totals.depth == 61
    assert forest.fetched == 61


def test_what_was_measured_before_is_not_fetched_again(forest: Forest) -> None:
    known: dict[bytes, Totals] = {}
    big: Plan = {b"%d" % number: {b"f": a_file(b"%d" % number)} for number in range(100)}
    measure(forest.fetch, forest.plant(big), known)
    forest.fetched = 0

    totals = measure(forest.fetch, forest.plant({**big, b"new": a_file(b"new")}), known)

    assert totals.files == 101
    assert forest.fetched == 1


@pytest.mark.long
def test_no_depth_is_too_deep(forest: Forest) -> None:
    tree = forest.dig(DEEP, b"bottom")

    assert measure(forest.fetch, tree).depth == DEEP + 1
    path, entry = list(walk(forest.fetch, tree))[-1]
    assert entry == a_file(b"bottom")
    assert find(forest.fetch, tree, path) == entry


def test_a_folder_object_that_is_missing_is_said_to_be(forest: Forest) -> None:
    tree = forest.plant({b"a": {b"b": a_file()}})
    del forest.kept[forest.plant({b"b": a_file()})]

    with pytest.raises(NotFound):
        list(walk(forest.fetch, tree))
    with pytest.raises(NotFound):
        measure(forest.fetch, tree)
