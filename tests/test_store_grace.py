"""What a sweep leaves alone: what is young, what somebody asked for, and what a session still needs."""

from pathlib import Path

import pytest

from petri.store import Store
from petri.trees import Folder, address, encode
from tests.test_store import MIB, Clock, disk_usage, harvest, noise, plant, planted, put, read
from tests.test_store_gc import GRACE_S, OLD, clock, store

__all__ = ["clock", "store"]


pytestmark = pytest.mark.long


def test_what_is_younger_than_the_grace_period_stays(store: Store, clock: Clock) -> None:
    tree = planted(store, OLD)
    clock.now += GRACE_S - 1

    assert store.gc("acme", [], GRACE_S).dropped == 0
    assert harvest(store, tree) == OLD


def test_what_somebody_asked_for_stays_for_the_grace_period_with_all_it_needs(
    store: Store, clock: Clock
) -> None:
    tree = planted(store, OLD)
    clock.now += GRACE_S + 1
    assert store.has("acme", [tree]) == {tree}

    store.gc("acme", [], GRACE_S)
    assert harvest(store, tree) == OLD

    clock.now += GRACE_S + 2
    store.gc("acme", [], GRACE_S)
    assert store.has("acme", [tree, *map(address, OLD.values())]) == set()


def test_what_a_session_found_stays_while_it_goes_on_and_for_the_grace_period(
    store: Store, clock: Clock
) -> None:
    tree = planted(store, OLD)
    clock.now += 10 * GRACE_S

    with store.write("acme") as writing:
        large = writing.put_blob(OLD[b"large"])
        assert plant(writing, OLD) == tree
        clock.now += 10 * GRACE_S
        assert store.gc("acme", [], GRACE_S).dropped == 0
        writing.commit()
    clock.now += GRACE_S - 1
    assert store.gc("acme", [], GRACE_S).dropped == 0

    clock.now += 2
    store.gc("acme", [], GRACE_S)
    assert store.has("acme", [tree, large]) == set()


def test_what_a_new_folder_refers_to_stays_while_its_session_goes_on(store: Store, clock: Clock) -> None:
    """The session never put what is far below: it built on an old tree, which is no root any more."""
    with store.write("acme") as writing:
        inner = plant(writing, OLD)
        writing.commit()
    clock.now += 10 * GRACE_S

    with store.write("acme") as writing:
        outer = writing.put_folder(encode({b"old": Folder(inner)}))
        clock.now += 10 * GRACE_S
        store.gc("acme", [], GRACE_S)
        writing.commit()

    store.gc("acme", [outer], GRACE_S)
    assert harvest(store, inner) == OLD


def test_what_a_session_has_written_and_not_committed_is_not_swept(store: Store, clock: Clock) -> None:
    contents = [noise(MIB, seed) for seed in range(3)]
    with store.write("acme") as writing:
        digests = [writing.put_blob(content) for content in contents]
        clock.now += 10 * GRACE_S
        store.gc("acme", [], GRACE_S)
        digests.append(writing.put_blob(b"more"))
        writing.commit()

    assert [read(store, digest) for digest in digests] == [*contents, b"more"]


def test_what_a_session_gave_up_is_swept(store: Store, clock: Clock, tmp_path: Path) -> None:
    with store.write("acme") as writing:
        writing.put_blob(noise(3 * MIB))
        [behind] = put(store, b"behind")
    assert disk_usage(tmp_path) > 2 * MIB

    assert store.gc("acme", [], GRACE_S).freed_bytes > 2 * MIB
    assert disk_usage(tmp_path) < 1000
    assert read(store, behind) == b"behind"
