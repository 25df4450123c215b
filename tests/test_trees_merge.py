"""Two trees that come from one: what is untouched stays, what is clear is taken, what is not is said."""

from typing import TypeAlias

import pytest
from hypothesis import assume, given

from petri.trees import Entry, File, Folder, Link, PathConflict, apply, diff, flatten, merge
from petri.trees.merge import Merged
from tests.forests import DEEP, PLANS, Forest, Plan, a_file, related

Three: TypeAlias = tuple[Plan, Plan, Plan]
At: TypeAlias = Plan | File | Link | None
BASE, ONE, TWO = a_file(b"base"), a_file(b"one"), a_file(b"two")


def merged(base: Plan, ours: Plan, theirs: Plan) -> tuple[Forest, bytes, Merged]:
    """Merge, apply, and return all there is to look at."""
    forest = Forest()
    trees = [forest.plant(plan) for plan in (base, ours, theirs)]
    outcome = merge(forest.fetch, *trees)
    return forest, apply(forest.fetch, forest.put, trees[1], outcome.changes), outcome


def conflicts(base: Plan, ours: Plan, theirs: Plan) -> dict[bytes, str]:
    return {conflict.path: conflict.reason for conflict in merged(base, ours, theirs)[2].conflicts}


def result(base: Plan, ours: Plan, theirs: Plan, expected: Plan) -> bool:
    """Say if the merge is clean and gives `expected`."""
    forest, tree, outcome = merged(base, ours, theirs)
    return not outcome.conflicts and tree == forest.plant(expected)


def covers(path: bytes, other: bytes) -> bool:
    """Say if `other` is `path`, or in it."""
    return other == path or other.startswith(path + b"/")


# -------------------------------------------------------------------------------------------- the clear


def test_what_only_one_side_changed_is_taken() -> None:
    assert result(
        {b"a": BASE, b"b": BASE}, {b"a": ONE, b"b": BASE}, {b"a": BASE, b"b": TWO}, {b"a": ONE, b"b": TWO}
    )
    assert result({b"a": BASE}, {b"a": BASE, b"o": ONE}, {b"t": TWO}, {b"o": ONE, b"t": TWO})


def test_the_same_change_on_both_sides_is_no_conflict() -> None:
    assert result(
        {b"a": BASE, b"b": BASE}, {b"a": ONE, b"c": TWO}, {b"a": ONE, b"c": TWO}, {b"a": ONE, b"c": TWO}
    )


def test_both_may_add_to_one_new_folder() -> None:
    assert result({}, {b"d": {b"o": ONE}}, {b"d": {b"t": TWO}}, {b"d": {b"o": ONE, b"t": TWO}})


def test_both_may_change_what_is_in_one_folder() -> None:
    assert result(
        {b"d": {b"a": BASE, b"b": BASE}},
        {b"d": {b"a": ONE, b"b": BASE}},
        {b"d": {b"a": BASE, b"b": TWO}},
        {b"d": {b"a": ONE, b"b": TWO}},
    )


def test_one_may_change_the_content_and_the_other_the_mode() -> None:
    edited, executable = a_file(b"edited", mode=6), a_file(b"base", mode=7)

    assert result({b"f": BASE}, {b"f": edited}, {b"f": executable}, {b"f": a_file(b"edited", mode=7)})
    assert result({b"f": BASE}, {b"f": executable}, {b"f": edited}, {b"f": a_file(b"edited", mode=7)})
    assert result(
        {b"f": a_file(b"x", mode=6)},
        {b"f": a_file(b"x", mode=7)},
        {b"f": a_file(b"x", mode=4)},
        {b"f": a_file(b"x", mode=5)},
    )


def test_a_folder_one_side_deleted_and_the_other_only_deleted_from_is_gone() -> None:
    base: Plan = {b"d": {b"x": BASE, b"y": BASE}, b"k": BASE}

    assert result(base, {b"k": BASE}, {b"d": {b"x": BASE}, b"k": BASE}, {b"k": BASE})
    assert result(base, {b"d": {b"x": BASE}, b"k": BASE}, {b"k": BASE}, {b"k": BASE})


# ---------------------------------------------------------------------------------------- the conflicts


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "we", "they"),
    [
        (BASE, ONE, TWO, "changed the file", "changed the file"),
        (BASE, ONE, None, "changed the file", "deleted the file"),
        (None, ONE, TWO, "added a file", "added a file"),
        (None, ONE, {b"x": TWO}, "added a file", "added a folder"),
        (None, ONE, Link(b"x"), "added a file", "added a link"),
        (Link(b"x"), Link(b"y"), Link(b"z"), "changed the link", "changed the link"),
        (BASE, {}, TWO, "replaced the file by a folder", "changed the file"),
        ({b"x": BASE}, {b"x": ONE}, TWO, "changed the folder", "replaced the folder by a file"),
        ({b"x": BASE}, ONE, None, "replaced the folder by a file", "deleted the folder"),
    ],
)
def test_what_both_sides_changed_is_a_conflict_with_its_reason(
    base: At, ours: At, theirs: At, we: str, they: str
) -> None:
    was, our, their = ({} if at is None else {b"p": at} for at in (base, ours, theirs))

    assert conflicts(was, our, their) == {b"p": f"ours {we}, theirs {they}"}
    assert conflicts(was, their, our) == {b"p": f"ours {they}, theirs {we}"}


def test_a_folder_that_is_gone_on_one_side_and_lived_in_on_the_other_is_a_conflict_where_it_was() -> None:
    base: Plan = {b"d": {b"x": BASE, b"y": BASE, b"s": {b"z": BASE}}}
    lived: Plan = {b"d": {b"x": ONE, b"y": BASE, b"s": {b"z": BASE, b"new": {b"n": ONE}}}}

    assert conflicts(base, {}, lived) == {
        b"d/s/new": "ours deleted the folder around it, theirs added a folder",
        b"d/x": "ours deleted the folder around it, theirs changed the file",
    }
    assert conflicts(base, lived, {}) == {
        b"d/s/new": "ours added a folder, theirs deleted the folder around it",
        b"d/x": "ours changed the file, theirs deleted the folder around it",
    }


def test_around_a_conflict_a_deleted_folder_is_deleted() -> None:
    base: Plan = {b"d": {b"x": BASE, b"y": BASE, b"s": {b"z": BASE, b"w": BASE}, b"t": {b"u": BASE}}}
    ours: Plan = {b"d": {b"x": BASE, b"y": BASE, b"s": {b"z": ONE, b"w": BASE}, b"t": {b"u": BASE}}}

    forest, tree, outcome = merged(base, ours, {})

    assert tree == forest.plant({b"d": {b"s": {b"z": ONE}}})
    assert [change.path for change in outcome.changes] == [b"d/s/w", b"d/t", b"d/x", b"d/y"]


def test_an_empty_folder_that_one_deleted_and_the_other_filled_is_a_conflict() -> None:
    assert list(conflicts({b"d": {}}, {}, {b"d": {b"x": ONE}})) == [b"d/x"]
    assert list(conflicts({b"d": {}}, {b"d": {b"x": ONE}}, {})) == [b"d/x"]


def test_a_conflict_names_all_three() -> None:
    [conflict] = merged({b"p": BASE}, {b"p": ONE}, {b"p": TWO})[2].conflicts

    assert conflict[:4] == (b"p", BASE, ONE, TWO)


# ----------------------------------------------------------------------------------------------- always


@given(PLANS, PLANS)
def test_with_no_change_of_theirs_nothing_happens(base: Plan, ours: Plan) -> None:
    forest, tree, outcome = merged(base, ours, base)

    assert outcome == ([], [])
    assert merged(base, ours, ours)[2] == ([], [])
    assert tree == forest.plant(ours)


@given(PLANS, PLANS)
def test_with_no_change_of_ours_theirs_is_the_outcome(base: Plan, theirs: Plan) -> None:
    forest, tree, outcome = merged(base, base, theirs)

    assert tree == forest.plant(theirs)
    assert outcome.conflicts == []
    assert outcome.changes == list(diff(forest.fetch, forest.plant(base), forest.plant(theirs)))


@given(related(2))
def test_the_same_paths_are_in_conflict_from_either_side(plans: Three) -> None:
    base, ours, theirs = plans
    _, tree, outcome = merged(base, ours, theirs)
    _, swapped_tree, swapped = merged(base, theirs, ours)

    def mirrored(conflict: PathConflict) -> tuple[object, ...]:
        return conflict.path, conflict.base, conflict.theirs, conflict.ours

    assert [mirrored(conflict) for conflict in outcome.conflicts] == [one[:4] for one in swapped.conflicts]
    if not outcome.conflicts:
        assert tree == swapped_tree


@given(related(2))
def test_every_path_is_as_the_three_say_or_in_conflict(plans: Three) -> None:
    base, ours, theirs = plans
    forest, tree, outcome = merged(base, ours, theirs)
    was, our, their, now = (forest.leaves(each) for each in (*map(forest.plant, (base, ours, theirs)), tree))
    disputed = [conflict.path for conflict in outcome.conflicts]

    for path in (was.keys() | our.keys() | their.keys() | now.keys()) - _empty_somewhere(
        was, our, their, now
    ):
        is_disputed = any(covers(conflict, path) for conflict in disputed)
        if is_disputed or their.get(path) in (our.get(path), was.get(path)):
            assert now.get(path) == our.get(path)
        elif our.get(path) == was.get(path):
            assert now.get(path) == their.get(path)
        else:
            assert now[path] == _file_of_both(was[path], our[path], their[path])


def _empty_somewhere(*trees: dict[bytes, Entry]) -> set[bytes]:
    """Whether an empty folder is there follows from what is in it, where something is."""
    return {path for tree in trees for path, entry in tree.items() if isinstance(entry, Folder)}


def _file_of_both(base: Entry, ours: Entry, theirs: Entry) -> Entry:
    content = ours if ours[0] != base[0] else theirs
    mode = ours[2] if ours[2] != base[2] else theirs[2]  # type: ignore[misc]
    return (content[0], content[1], mode)  # type: ignore[return-value, misc]


@given(related(2))
def test_neither_side_is_lost(plans: Three) -> None:
    """Whatever a side added or changed is in the outcome, or in a conflict that names it."""
    base, ours, theirs = plans
    forest, tree, outcome = merged(base, ours, theirs)
    root, our, their = (forest.plant(plan) for plan in (base, ours, theirs))
    now = forest.paths(tree)

    for path, _, new in flatten(forest.fetch, diff(forest.fetch, root, their)):
        in_conflict = any(covers(conflict.path, path) for conflict in outcome.conflicts)
        both = forest.paths(our).get(path)
        if new is not None and not in_conflict and not isinstance(new, Folder):
            assert now[path][0] in (new[0], both and both[0])
    for path, _, new in flatten(forest.fetch, diff(forest.fetch, root, our)):
        if new is not None and not isinstance(new, Folder):
            assert path in now
    for conflict in outcome.conflicts:
        assert forest.paths(their).get(conflict.path) == conflict.theirs
        assert forest.paths(our).get(conflict.path) == conflict.ours == now.get(conflict.path)


@given(related(2))
def test_untouched_paths_are_in_no_conflict(plans: Three) -> None:
    base, ours, theirs = plans
    forest, _, outcome = merged(base, ours, theirs)
    root, our, their = (forest.plant(plan) for plan in (base, ours, theirs))
    touched = [
        change.path
        for side in (our, their)
        for change in flatten(forest.fetch, diff(forest.fetch, root, side))
    ]

    for conflict in outcome.conflicts:
        assert any(covers(conflict.path, path) or covers(path, conflict.path) for path in touched)


@pytest.mark.long
@given(related(3))
def test_three_sides_without_conflicts_merge_in_any_order(plans: tuple[Plan, ...]) -> None:
    forest = Forest()
    root, *sides = (forest.plant(plan) for plan in plans)

    def together(ours: bytes, theirs: bytes) -> bytes:
        outcome = merge(forest.fetch, root, ours, theirs)
        assume(not outcome.conflicts)
        return apply(forest.fetch, forest.put, ours, outcome.changes)

    left = together(together(sides[0], sides[1]), sides[2])
    right = together(sides[0], together(sides[1], sides[2]))

    assert left == right


def test_only_what_theirs_changed_is_looked_at() -> None:
    wide: Plan = {b"%03d" % number: {b"f": a_file(b"%d" % number)} for number in range(500)}
    forest = Forest()
    base, ours = forest.plant(wide), forest.plant({**wide, b"007": {b"f": ONE}})
    theirs = forest.plant({**wide, b"400": {b"f": TWO}})
    forest.fetched = 0

    outcome = merge(forest.fetch, base, ours, theirs)

    assert [change.path for change in outcome.changes] == [b"400/f"]
    assert forest.fetched == 5


@pytest.mark.long
def test_no_depth_is_too_deep() -> None:
    forest = Forest()
    base, ours, theirs = (forest.dig(DEEP, content) for content in (b"base", b"ours", b"theirs"))

    [conflict] = merge(forest.fetch, base, ours, theirs).conflicts

    assert conflict.path == b"d/" * DEEP + b"f"
    assert len(merge(forest.fetch, base, ours, forest.plant({})).conflicts) == 1
