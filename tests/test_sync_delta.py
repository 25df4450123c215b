"""Deltas: whatever the old and the new content are, what is rebuilt is the new one."""

import os
import random

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as some
from pyfastcdc import FastCDC

from petri.errors import Invalid
from petri.syncing import delta
from petri.syncing.delta import Copy, Signature
from tests.examples import examples


def reader(content: bytes) -> delta.Read:
    return lambda offset, length: content[offset : offset + length]


def rebuilt(old: bytes, new: bytes) -> delta.Delta:
    made = delta.compare(delta.sign(reader(old), len(old)), reader(new), len(new))
    payload = b"".join(made.payload(reader(new)))

    assert len(payload) == made.payload_length()
    assert made.digest == blake3(new).digest()
    for step in (1 + len(payload) // 7, len(payload) + 1):
        pieces = [payload[at : at + step] for at in range(0, len(payload), step)]
        assert b"".join(delta.rebuild(pieces, reader(old), len(new))) == new
    assert sum(made.signature.lengths) == made.signature.size == len(new)
    return made


_contents = some.builds(
    lambda seed, size: random.Random(seed).randbytes(size), some.integers(), some.integers(0, 2**17)
)
_edits = some.lists(
    some.tuples(some.floats(0, 1), some.integers(0, 3000), some.binary(max_size=2000)), max_size=4
)


@given(_contents, _edits)
@examples(60)
def test_any_edits_are_rebuilt(old: bytes, edits: list[tuple[float, int, bytes]]) -> None:
    new = old
    for where, removed, inserted in edits:
        at = int(where * len(new))
        new = new[:at] + inserted + new[at + removed :]

    made = rebuilt(old, new)

    again = delta.compare(made.signature, reader(new), len(new))
    assert again.fresh_bytes == 0, "a signature that grew out of a delta is as good as a new one"


@given(some.binary(max_size=3000), some.binary(max_size=3000))
def test_any_two_contents_are_rebuilt(old: bytes, new: bytes) -> None:
    rebuilt(old, new)


@pytest.mark.parametrize("where", ["begin", "middle", "end"])
@pytest.mark.parametrize("how", ["insert", "replace", "remove"])
def test_a_kilobyte_changed_in_megabytes_costs_kilobytes(where: str, how: str) -> None:
    old = random.Random(1).randbytes(8 * 2**20)
    at = {"begin": 0, "middle": len(old) // 2, "end": len(old) - 1024}[where]
    kilobyte = random.Random(2).randbytes(1024)

    new = old[:at] + (b"" if how == "remove" else kilobyte) + old[at if how == "insert" else at + 1024 :]

    assert rebuilt(old, new).payload_length() < 16 * 1024


def test_edits_all_over_cost_what_they_touch() -> None:
    old = random.Random(1).randbytes(4 * 2**20)
    new = b"".join(old[at : at + 2**18] + b"+" for at in range(0, len(old), 2**18))

    assert rebuilt(old, new).fresh_bytes < 2**18


def test_a_block_that_moved_is_not_sent_again() -> None:
    old = random.Random(1).randbytes(4 * 2**20)
    new = old[3 * 2**20 :] + old[: 3 * 2**20]

    assert rebuilt(old, new).fresh_bytes < 2**16


def test_windows_do_not_show_in_a_signature() -> None:
    content = random.Random(1).randbytes(10 * 2**20)

    signature = delta.sign(reader(content), len(content))

    assert list(signature.lengths) == [chunk.length for chunk in FastCDC(1024).cut_buf(content)]


@given(_contents)
@examples(20)
def test_a_signature_survives_being_kept(content: bytes) -> None:
    signature = delta.sign(reader(content), len(content))

    assert Signature.from_bytes(signature.to_bytes()) == signature


@given(some.binary(max_size=300), some.data())
def test_a_torn_signature_is_none(noise: bytes, data: some.DataObject) -> None:
    content = random.Random(1).randbytes(5000)
    kept = delta.sign(reader(content), len(content)).to_bytes()

    assert Signature.from_bytes(noise) is None
    assert Signature.from_bytes(kept[: data.draw(some.integers(0, len(kept) - 1))]) is None


@given(some.binary(max_size=60), some.integers(0, 5000))
def test_a_malformed_payload_is_rebuilt_or_refused(payload: bytes, size: int) -> None:
    old = bytes(2000)
    try:
        content = b"".join(delta.rebuild([payload], reader(old), size))
    except Invalid as error:
        assert error.message
    else:
        assert len(content) == size


def test_a_delta_may_not_make_more_than_it_says() -> None:
    copies = b"".join([bytes((0xD0, 0x0F)), bytes((0,))]) * 10
    assert list(delta.instructions([copies])) == [Copy(0, 1000)] * 10
    taken = 0

    with pytest.raises(Invalid, match="more than the 1500"):
        for piece in delta.rebuild([copies], reader(bytes(1000)), 1500):
            taken += len(piece)
    assert taken == 1000


def test_a_delta_may_not_copy_what_is_not_there() -> None:
    with pytest.raises(Invalid, match="beyond the end"):
        list(delta.rebuild([bytes((0xD0, 0x0F, 10))], reader(bytes(1000)), 1000))


def test_a_content_that_becomes_shorter_is_noticed() -> None:
    content = os.urandom(100_000)

    with pytest.raises(EOFError):
        delta.sign(reader(content[:50_000]), len(content))
    with pytest.raises(EOFError):
        delta.compare(delta.sign(reader(content), len(content)), reader(content[:50_000]), len(content))
