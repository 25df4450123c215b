"""The digest of a content that comes piece by piece, with and without a second thread."""

import threading

import pytest
from blake3 import blake3

from petri.trees.hashing import WORTH_A_THREAD, Hashing

PIECES = [bytes([number % 251]) * 300_000 for number in range(70)]


def helpers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "petri-hashing"]


@pytest.mark.parametrize("size", [0, WORTH_A_THREAD, 2 * WORTH_A_THREAD])
def test_the_digest_is_that_of_the_whole_whatever_was_expected(size: int) -> None:
    with Hashing(size) as hashing:
        assert bool(helpers()) == (size >= WORTH_A_THREAD)
        for piece in PIECES:
            hashing.update(piece)
        found = hashing.digest()

    assert found == blake3(b"".join(PIECES)).digest()
    assert helpers() == []


def test_parts_of_a_larger_buffer_can_be_hashed() -> None:
    buffer = memoryview(b"".join(PIECES))
    with Hashing(len(buffer)) as hashing:
        for at in range(0, len(buffer), 77_777):
            hashing.update(buffer[at : at + 77_777])

        assert hashing.digest() == blake3(buffer).digest()


def test_whoever_gives_up_leaves_no_thread() -> None:
    with pytest.raises(EOFError), Hashing(WORTH_A_THREAD) as hashing:
        hashing.update(PIECES[0])
        raise EOFError
    assert helpers() == []
