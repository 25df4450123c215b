"""What lies between two trees: nothing else, nothing less, and found by looking only there."""

import random
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petri.errors import Conflict, Invalid
from petri.trees import EMPTY, Change, Folder, Link, Move, apply, diff, flatten, renames
from tests.forests import DEEP, Forest, Plan, a_file, related

Two: TypeAlias = tuple[Plan, Plan]
ONE, TWO = a_file(b"one"), a_file(b"two")
WIDE: Plan = {
    b"%03d" % outer: {b"%03d" % inner: {b"f": a_file(b"%d %d" % (outer, inner))} for inner in range(20)}
    for outer in range(100)
}
"""Two thousand files in as many folders."""


@pytest.fixture
def forest() -> Forest:
    return Forest()


@given(related(1))
def test_the_changes_applied_to_the_one_give_the_other(plans: Two) -> None:
    forest = Forest()
    old, new = map(forest.plant, plans)

    assert apply(forest.fetch, forest.put, old, diff(forest.fetch, old, new)) == new


@given(related(1), st.randoms(use_true_random=False))
def test_the_order_in_which_changes_are_applied_does_not_matter(plans: Two, order: random.Random) -> None:
    forest = Forest()
    old, new = map(forest.plant, plans)
    changes = list(diff(forest.fetch, old, new))
    order.shuffle(changes)

    assert apply(forest.fetch, forest.put, old, changes) == new


@given(related(1))
def test_a_path_changes_once_and_no_change_lies_within_another(plans: Two) -> None:
    forest = Forest()
    old, new = map(forest.plant, plans)
    changes = list(diff(forest.fetch, old, new))
    paths = [change.path.split(b"/") for change in changes]

    assert paths == sorted(paths)
    for first, second in pairwise(paths):
        assert second[: len(first)] != first
    assert all(change.old != change.new for change in changes)


@given(related(1))
def test_backwards_the_same_paths_change_back(plans: Two) -> None:
    forest = Forest()
    old, new = map(forest.plant, plans)

    there, back = diff(forest.fetch, old, new), diff(forest.fetch, new, old)

    assert [(path, new, old) for path, old, new in there] == list(back)


@given(related(1))
def test_flat_changes_are_the_difference_of_what_the_trees_hold(plans: Two) -> None:
    forest = Forest()
    old, new = map(forest.plant, plans)
    was, is_now = forest.leaves(old), forest.leaves(new)

    flat = list(flatten(forest.fetch, diff(forest.fetch, old, new)))

    changed = {path for path in was.keys() | is_now.keys() if was.get(path) != is_now.get(path)}
    # A folder that only one of the trees has empty says nothing: what is in the other one's does.
    stayed = set(forest.folders(old)) & set(forest.folders(new))
    expected = changed - stayed
    assert {change.path for change in flat} == expected
    assert len(flat) == len(expected)
    for path, one, other in flat:
        assert (one, other) == (was.get(path), is_now.get(path))


def test_a_folder_that_came_or_went_is_one_change(forest: Forest) -> None:
    inside = forest.plant({b"x": ONE, b"empty": {}})
    with_it, without = forest.plant({b"d": {b"x": ONE, b"empty": {}}, b"k": ONE}), forest.plant({b"k": ONE})

    assert list(diff(forest.fetch, without, with_it)) == [Change(b"d", None, Folder(inside))]
    assert list(diff(forest.fetch, with_it, without)) == [Change(b"d", Folder(inside), None)]


def test_a_file_that_became_a_folder_is_one_change(forest: Forest) -> None:
    old, new = forest.plant({b"p": ONE}), forest.plant({b"p": {b"x": TWO, b"y": {}}})

    changes = list(diff(forest.fetch, old, new))

    assert [(change.path, change.old) for change in changes] == [(b"p", ONE)]
    assert list(flatten(forest.fetch, changes)) == [
        Change(b"p", ONE, None),
        Change(b"p/x", None, TWO),
        Change(b"p/y", None, Folder(EMPTY)),
    ]


def test_a_mode_and_a_target_are_changes(forest: Forest) -> None:
    old = forest.plant({b"f": a_file(b"x", mode=6), b"l": Link(b"f")})
    new = forest.plant({b"f": a_file(b"x", mode=7), b"l": Link(b"g")})

    assert [change.path for change in diff(forest.fetch, old, new)] == [b"f", b"l"]


def test_a_folder_that_was_emptied_is_not_one_that_is_gone(forest: Forest) -> None:
    full, empty, gone = forest.plant({b"d": {b"x": ONE}}), forest.plant({b"d": {}}), EMPTY

    assert [change.path for change in diff(forest.fetch, full, empty)] == [b"d/x"]
    assert [change.path for change in diff(forest.fetch, empty, gone)] == [b"d"]


def test_only_the_way_to_a_change_is_looked_at(forest: Forest) -> None:
    old = forest.plant(WIDE)
    new = forest.plant({**WIDE, b"050": {**WIDE[b"050"], b"new": TWO}})  # type: ignore[dict-item]
    forest.fetched = forest.has_put = 0

    changes = list(diff(forest.fetch, old, new))
    assert (len(changes), forest.fetched) == (1, 4)

    assert apply(forest.fetch, forest.put, old, changes) == new
    assert (forest.fetched, forest.has_put) == (4 + 2, 2)


def test_equal_trees_are_not_looked_at(forest: Forest) -> None:
    assert list(diff(forest.fetch, b"?" * 32, b"?" * 32)) == []
    assert apply(forest.fetch, forest.put, b"?" * 32, []) == b"?" * 32


def test_a_folder_of_thousands_is_renamed_in_two_changes(forest: Forest) -> None:
    old, new = forest.plant({b"src": WIDE, b"k": ONE}), forest.plant({b"lib": WIDE, b"k": ONE})
    forest.fetched = 0

    renamed = renames(diff(forest.fetch, old, new))

    assert renamed == ([Move(b"src", b"lib", Folder(forest.plant(WIDE)))], [])
    assert forest.fetched == 2


def test_of_files_alike_those_with_the_same_name_moved_to_each_other(forest: Forest) -> None:
    old = forest.plant({b"a": ONE, b"b": ONE, b"gone": TWO})
    new = forest.plant({b"d": {}, b"e": {b"b": ONE}, b"f": {b"x": ONE}, b"kept": a_file(b"new")})
    old = apply(forest.fetch, forest.put, old, [Change(name, None, Folder(EMPTY)) for name in (b"e", b"f")])

    renamed = renames(diff(forest.fetch, old, new))

    assert renamed.moves == [Move(b"b", b"e/b", ONE), Move(b"a", b"f/x", ONE)]
    assert [change.path for change in renamed.rest] == [b"d", b"gone", b"kept"]


def test_what_is_empty_and_what_changed_on_the_way_did_not_move(forest: Forest) -> None:
    old = forest.plant({b"a": a_file(b""), b"d": {}, b"x": a_file(b"x", mode=6), b"l": Link(b"x")})
    new = forest.plant({b"b": a_file(b""), b"e": {}, b"y": a_file(b"x", mode=7), b"m": Link(b"x")})

    assert renames(diff(forest.fetch, old, new)).moves == []


@given(related(1))
def test_moves_and_the_rest_are_the_changes(plans: Two) -> None:
    forest = Forest()
    old, new = map(forest.plant, plans)
    changes = list(diff(forest.fetch, old, new))

    moves, rest = renames(changes)

    gone = [Change(move.source, move.entry, None) for move in moves]
    come = [Change(move.destination, None, move.entry) for move in moves]
    assert sorted(gone + come + rest, key=lambda change: change.path) == sorted(
        changes, key=lambda change: change.path
    )


def test_a_change_to_what_is_not_there_is_a_conflict(forest: Forest) -> None:
    tree = forest.plant({b"f": ONE, b"d": {b"x": ONE}})
    put = forest.has_put

    for change in (
        Change(b"f", TWO, None),
        Change(b"f", None, TWO),
        Change(b"g", ONE, TWO),
        Change(b"d/y", ONE, None),
        Change(b"f/x", None, ONE),
        Change(b"new/x", None, ONE),
    ):
        with pytest.raises(Conflict):
            apply(forest.fetch, forest.put, tree, [change])
    assert forest.has_put == put


def test_changes_that_cannot_be_together_are_refused(forest: Forest) -> None:
    tree = forest.plant({b"d": {b"x": ONE}})
    folder = Folder(forest.plant({b"x": ONE}))

    for changes in (
        [Change(b"d", folder, None), Change(b"d/x", ONE, TWO)],
        [Change(b"d/x", ONE, TWO), Change(b"d", folder, None)],
        [Change(b"d/x", ONE, TWO), Change(b"d/x", ONE, None)],
    ):
        with pytest.raises(Invalid):
            apply(forest.fetch, forest.put, tree, changes)


@pytest.mark.parametrize("path", [b"", b".", b"d/..", b"d/", b"/d", b"d/a\0b"])
def test_a_change_at_no_path_is_refused(forest: Forest, path: bytes) -> None:
    tree = forest.plant({b"d": {b"x": ONE}})

    with pytest.raises((Invalid, Conflict)):
        apply(forest.fetch, forest.put, tree, [Change(path, None, ONE)])


@pytest.mark.long
def test_no_depth_is_too_deep(forest: Forest) -> None:
    old, new = forest.dig(DEEP, b"old"), forest.dig(DEEP, b"new")

    changes = list(diff(forest.fetch, old, new))

    assert changes == [Change(b"d/" * DEEP + b"f", a_file(b"old"), a_file(b"new"))]
    assert apply(forest.fetch, forest.put, old, changes) == new
    assert len(list(flatten(forest.fetch, diff(forest.fetch, EMPTY, new)))) == 1


def test_a_tree_is_made_from_nothing_in_one_go(forest: Forest) -> None:
    assert apply(forest.fetch, forest.put, EMPTY, [Change(b"f", None, ONE)]) == forest.plant({b"f": ONE})
