"""The table that finds objects: as a dictionary would, in a seventh of the room."""

import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petri.store.contents import NOTHING, Contents
from petri.store.manifest import Dead
from petri.store.table import BUCKETS, ENTRY, Place, Table, bucket_of, entry
from petri.trees import address
from tests.examples import examples

DIGESTS = [bytes([0, number]) + bytes(29) + bytes([number]) for number in range(12)]
"""Several in one bucket, and one that is all zeros, as much of an entry is."""
digests = st.sampled_from(DIGESTS)
places = st.builds(
    Place, st.integers(1, 3), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.just(1), st.just(2)
)


def filled(objects: dict[bytes, Place], time: int = 5) -> Table:
    table = Table()
    for digest, place in objects.items():
        table.put(digest, place, time)
    return table


def shown(table: Table) -> dict[bytes, Place]:
    return {found.digest: found.place for found in table}


def contents(*entries: bytes) -> Contents:
    counts = array("I", bytes(4 * BUCKETS))
    for one in entries:
        counts[bucket_of(one)] += 1
    return Contents(b"".join(sorted(entries)), counts)


@examples(30)
@given(st.dictionaries(digests, places))
def test_what_was_put_is_found_and_nothing_else(objects: dict[bytes, Place]) -> None:
    table = filled(objects)

    assert {digest: table.find(digest) for digest in DIGESTS} == {
        digest: objects.get(digest) for digest in DIGESTS
    }
    assert shown(table) == objects
    assert len(table) == len(objects)


@examples(30)
@given(st.dictionaries(digests, places, min_size=1), places)
def test_an_object_stays_where_it_was_first_put(objects: dict[bytes, Place], other: Place) -> None:
    table = filled(objects)
    for digest in objects:
        table.put(digest, other, 9)

    assert shown(table) == objects
    assert {found.time for found in table} == {9}


@examples(30)
@given(st.dictionaries(digests, places), digests, st.sets(st.integers(1, 3)), places)
def test_an_object_is_moved_from_where_it_is_said_to_be(
    objects: dict[bytes, Place], digest: bytes, sources: set[int], place: Place
) -> None:
    table = filled(objects)
    is_there = digest in objects and objects[digest].pack in sources

    assert table.move(digest, sources, place) is is_there

    assert shown(table) == (objects | {digest: place} if is_there else objects)


@pytest.mark.long
@examples(30)
@given(st.dictionaries(digests, places), st.dictionaries(digests, places), st.dictionaries(digests, places))
def test_what_was_loaded_twice_is_there_once_as_it_was_first(
    first: dict[bytes, Place], second: dict[bytes, Place], third: dict[bytes, Place]
) -> None:
    table = Table()
    for objects in (first, second, third):
        table.load(*contents(*(entry(digest, place, 1) for digest, place in objects.items())))

    table.unify()

    assert shown(table) == third | second | first
    assert len(table) == len(third | second | first)


@pytest.mark.long
@examples(30)
@given(st.dictionaries(digests, st.tuples(places, st.integers(0, 9), st.integers(0, 3))), st.integers(0, 9))
def test_a_sweep_takes_what_is_old_unmarked_and_in_the_packs_that_are_swept(
    objects: dict[bytes, tuple[Place, int, int]], young: int
) -> None:
    table = Table()
    for digest, (place, time, mark) in objects.items():
        table.put(digest, place, time)
        assert table.mark(digest, mark) == 0
        assert table.mark(digest, 0) == mark

    dropped = table.sweep({1, 2}, young)

    kept = {
        digest: place
        for digest, (place, time, mark) in objects.items()
        if mark or time >= young or place.pack == 3
    }
    assert shown(table) == kept
    assert dropped == len(objects) - len(kept)
    table.unmark()
    assert {found.mark for found in table} <= {0}


def test_what_is_not_there_cannot_be_touched_marked_or_forgotten() -> None:
    table = filled({DIGESTS[1]: Place(1, 2, 3, 1, 0)})

    assert not table.touch(DIGESTS[2], 7)
    assert table.mark(DIGESTS[2], 1) is None
    table.forget(DIGESTS[2])
    assert len(table) == 1
    table.forget(DIGESTS[1])
    assert len(table) == 0


def test_a_part_of_an_entry_is_not_taken_for_a_digest() -> None:
    table = filled({DIGESTS[1]: Place(1, 0, 0, 0, 0), DIGESTS[2]: Place(1, 0, 0, 0, 0)})
    whole = entry(DIGESTS[1], Place(1, 0, 0, 0, 0), 5) + entry(DIGESTS[2], Place(1, 0, 0, 0, 0), 5)
    inner = [whole[at : at + 32] for at in range(1, len(whole) - 32) if at % ENTRY.size]

    assert [table.find(part) for part in inner if bucket_of(part) == 0] == [None] * sum(
        bucket_of(part) == 0 for part in inner
    )


@pytest.mark.parametrize("dead", range(5))
def test_contents_without_what_is_dead(dead: int) -> None:
    entries = sorted(entry(address(b"%d" % number), Place(1, number, 1, 1, 0), 1) for number in range(4))
    bits = Dead(4, bytes([1 << dead])) if dead < 4 else Dead()

    left = contents(*entries).without(bits)

    assert left.entries == b"".join(one for number, one in enumerate(entries) if number != dead)
    assert sum(left.counts) == len(left) == (3 if dead < 4 else 4)


def test_bits_for_another_index_are_not_used() -> None:
    assert contents(entry(DIGESTS[1], Place(1, 1, 1, 1, 0), 1)).without(Dead(2, b"\xff")).entries
    assert len(NOTHING) == 0


@pytest.mark.long
def test_a_hundred_thousand_objects_fit_in_seven_megabytes() -> None:
    tracemalloc.start()
    try:
        table = Table()
        for number in range(100_000):
            table.put(address(b"%d" % number), Place(1, number, 1, 1, 0), 1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(table) == 100_000
    assert most < 7_000_000
