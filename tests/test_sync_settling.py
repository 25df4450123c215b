"""Bringing a folder and a sandbox together: neither loses anything, and afterwards they agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from petri.errors import PathsConflict
from petri.syncing.ignoring import Ignoring
from petri.syncing.settling import CONFLICT, Meeting, Prefer, conflict_path, settle, visible_part
from petri.trees import Entry, find
from tests.examples import examples
from tests.forests import Forest, Plan, a_file, related

STAMP = b"20261116-120000"
A, B, C = a_file(b"one"), a_file(b"two"), a_file(b"three")


def ignoring(rules: bytes = b"") -> Ignoring:
    return Ignoring(lambda path: rules if path == b".gitignore" else None)


def meet(forest: Forest, *plans: Plan, rules: bytes = b"") -> Meeting:
    agreed, folder, sandbox = map(forest.plant, plans)
    return Meeting(forest.fetch, forest.put, agreed, folder, sandbox, ignoring(rules))


def seen(forest: Forest, plan: Plan, tree: bytes) -> Plan:
    """Return `plan`, if `tree` is that."""
    assert forest.leaves(tree) == forest.leaves(forest.plant(plan))
    assert forest.plant(plan) == tree
    return plan


@given(related(2))
@examples(500)
def test_after_a_sync_without_conflicts_all_are_the_same(plans: tuple[Plan, ...]) -> None:
    forest = Forest()
    met = meet(forest, *plans)

    settled = settle(met, "sync", None, STAMP)

    if not settled.conflicts:
        assert settled.sandbox == settled.folder == settled.agreed
    again = settle(
        met._replace(agreed=settled.agreed, folder=settled.folder, sandbox=settled.sandbox),
        "sync",
        None,
        STAMP,
    )
    assert again == settled


@given(related(2), some.sampled_from(["local", "sandbox"]))
@examples(500)
def test_with_a_preference_all_are_the_same_and_nothing_is_lost(
    plans: tuple[Plan, ...], prefer: Prefer
) -> None:
    forest = Forest()
    met = meet(forest, *plans)
    plain = settle(met, "sync", None, STAMP)

    settled = settle(met, "sync", prefer, STAMP)

    assert settled.conflicts == []
    assert settled.sandbox == settled.folder == settled.agreed
    sides = met.folder, met.sandbox
    winner, loser = sides if prefer == "local" else sides[::-1]
    for path, _ in plain.conflicts:
        assert _at(forest, settled.folder, path) == _at(forest, winner, path)
        lost = _at(forest, loser, path)
        assert lost is None or _at(forest, settled.folder, conflict_path(path, STAMP)) == lost


@given(related(2))
@examples(500)
def test_what_one_side_alone_changed_reaches_the_other_and_conflicts_touch_nothing(
    plans: tuple[Plan, ...],
) -> None:
    forest = Forest()
    met = meet(forest, *plans)

    settled = settle(met, "sync", None, STAMP)

    for path, _ in settled.conflicts:
        assert _at(forest, settled.folder, path) == _at(forest, met.folder, path)
        assert _at(forest, settled.sandbox, path) == _at(forest, met.sandbox, path)
        assert _at(forest, settled.agreed, path) == _at(forest, met.agreed, path)


@given(related(2))
@examples(300)
def test_a_push_then_a_pull_is_a_sync(plans: tuple[Plan, ...]) -> None:
    forest = Forest()
    met = meet(forest, *plans)
    both = settle(met, "sync", None, STAMP)
    try:
        pushed = settle(met, "push", None, STAMP)
    except PathsConflict as error:
        assert list(error.conflicts) == both.conflicts
        return

    assert not both.conflicts
    assert (pushed.folder, pushed.agreed) == (met.folder, met.folder)
    pulled = settle(met._replace(agreed=pushed.agreed, sandbox=pushed.sandbox), "pull", None, STAMP)
    assert pulled.conflicts == []
    assert pulled == both


@given(related(2))
@examples(300)
def test_a_pull_then_a_push_is_a_sync(plans: tuple[Plan, ...]) -> None:
    forest = Forest()
    met = meet(forest, *plans)
    both = settle(met, "sync", None, STAMP)
    pulled = settle(met, "pull", None, STAMP)
    assert pulled.sandbox == met.sandbox
    assert pulled.conflicts == both.conflicts
    assert pulled.folder == both.folder
    if pulled.conflicts:
        return

    pushed = settle(met._replace(agreed=pulled.agreed, folder=pulled.folder), "push", None, STAMP)
    assert pushed == both


IGNORED = b"c\n"
"""A name of the forests', so that a part of each tree is ignored."""


def _is_ignored(path: bytes) -> bool:
    return b"c" in path.split(b"/")


def _visible(forest: Forest, tree: bytes) -> dict[bytes, Entry]:
    return {path: each for path, each in forest.leaves(tree).items() if not _is_ignored(path)}


def _ignored(forest: Forest, tree: bytes) -> dict[bytes, Entry]:
    return {path: each for path, each in forest.leaves(tree).items() if _is_ignored(path)}


def _without_ignored(plan: Plan) -> Plan:
    return {
        name: each if not isinstance(each, dict) else _without_ignored(each)
        for name, each in plan.items()
        if name != b"c"
    }


@given(related(2))
@examples(500)
def test_what_is_ignored_stays_where_it_is(plans: tuple[Plan, ...]) -> None:
    forest = Forest()
    agreed, folder, sandbox = plans
    met = meet(forest, _without_ignored(agreed), _without_ignored(folder), sandbox, rules=IGNORED)
    try:
        settled = settle(met, "sync", None, STAMP)
    except PathsConflict as error:  # a file is to be where an ignored thing's folder is
        assert "ignore" in error.message
        return

    assert _ignored(forest, settled.sandbox) == _ignored(forest, met.sandbox)
    assert _ignored(forest, settled.folder) == {}
    again = settle(
        met._replace(agreed=settled.agreed, folder=settled.folder, sandbox=settled.sandbox),
        "sync",
        None,
        STAMP,
    )
    assert again == settled


def test_only_what_is_not_ignored_is_visible() -> None:
    forest = Forest()
    met = meet(
        forest,
        {b"old": {b"x": A}},
        {},
        {b"old": {b"x": A, b"c": B}, b"new": {b"c": A}, b"both": {b"c": A, b"y": B}, b"c": A, b"empty": {}},
        rules=IGNORED,
    )

    seen(forest, {b"old": {b"x": A}, b"both": {b"y": B}, b"empty": {}}, visible_part(met))


def test_a_folder_deleted_here_goes_there_but_for_what_is_ignored() -> None:
    forest = Forest()
    met = meet(
        forest, {b"d": {b"x": A}, b"k": B}, {b"k": B}, {b"d": {b"x": A, b"c": B}, b"k": B}, rules=IGNORED
    )

    settled = settle(met, "push", None, STAMP)

    seen(forest, {b"d": {b"c": B}, b"k": B}, settled.sandbox)
    pulled = settle(met._replace(agreed=settled.agreed, sandbox=settled.sandbox), "pull", None, STAMP)
    seen(forest, {b"k": B}, pulled.folder)


def test_a_push_never_replaces_what_is_ignored() -> None:
    forest = Forest()
    met = meet(forest, {}, {b"build": A}, {b"build": {b"x": B}}, rules=b"build/\n")

    with pytest.raises(PathsConflict, match="rules ignore"):
        settle(met, "push", None, STAMP)


def test_a_folder_that_is_there_with_something_ignored_takes_more() -> None:
    forest = Forest()
    met = meet(forest, {}, {b"d": {b"x": A}, b"e": {}}, {b"d": {b"c": B}, b"e": {b"c": B}}, rules=IGNORED)

    seen(forest, {b"d": {b"x": A, b"c": B}, b"e": {b"c": B}}, settle(met, "push", None, STAMP).sandbox)


def test_a_push_with_a_preference_keeps_the_other_version_in_the_sandbox() -> None:
    forest = Forest()
    met = meet(forest, {b"f": A}, {b"f": B}, {b"f": C})

    settled = settle(met, "push", "local", STAMP)

    seen(forest, {b"f": B, b"f" + CONFLICT + STAMP: C}, settled.sandbox)
    seen(forest, {b"f": B}, settled.agreed)


def test_a_pull_with_a_preference_keeps_the_other_version_in_the_folder() -> None:
    forest = Forest()
    met = meet(forest, {b"f": A}, {b"f": B}, {b"f": C})

    settled = settle(met, "pull", "sandbox", STAMP)

    seen(forest, {b"f": C, b"f" + CONFLICT + STAMP: B}, settled.folder)
    seen(forest, {b"f": C}, settled.agreed)
    seen(forest, {b"f": C}, settled.sandbox)


def test_what_is_agreed_on_after_a_pull_is_what_the_sandbox_has() -> None:
    forest = Forest()
    met = meet(forest, {b"f": A, b"g": A, b"h": A}, {b"f": B, b"g": A, b"h": B}, {b"f": B, b"g": C, b"h": A})

    settled = settle(met, "pull", None, STAMP)

    seen(forest, {b"f": B, b"g": C, b"h": B}, settled.folder)
    seen(forest, {b"f": B, b"g": C, b"h": A}, settled.agreed)


def test_a_reason_names_the_two_sides() -> None:
    forest = Forest()
    met = meet(forest, {b"f": A}, {}, {b"f": C})

    assert settle(met, "sync", None, STAMP).conflicts == [
        (b"f", "the sandbox changed the file, the folder deleted the file")
    ]


def test_a_conflict_in_a_folder_that_one_side_deleted_stays_one() -> None:
    forest = Forest()
    met = meet(forest, {b"d": {}}, {}, {b"d": {b"x": A}})

    settled = settle(met, "sync", None, STAMP)

    assert [path for path, _ in settled.conflicts] == [b"d/x"]
    seen(forest, {b"d": {}}, settled.agreed)


def test_the_name_of_what_lost_fits() -> None:
    name = conflict_path(b"d/" + b"x" * 255, STAMP)

    assert len(name) == 2 + 255
    assert name.endswith(STAMP)


def _at(forest: Forest, tree: bytes, path: bytes) -> Entry | None:
    return find(forest.fetch, tree, path)
