"""Which contents a server has already: digests one behind the other, and the answer to them.

The answer is a bit for each digest, lowest first, then, for contents of which only the beginning arrived in a
request that broke, the number of the digest and how many bytes there are, as varints.
"""

from collections.abc import Mapping, Sequence

from petri.errors import Invalid
from petri.syncing.records import read_varint, varint

MOST_DIGESTS = 100_000
"""In one question."""
_DIGEST_BYTES = 32


def asked_digests(question: bytes) -> list[bytes]:
    """Return the digests asked for; `Invalid` if the question is not a row of them, or too long."""
    if len(question) % _DIGEST_BYTES:
        raise Invalid(f"the digests, of {_DIGEST_BYTES} bytes each, end within one")
    if len(question) > MOST_DIGESTS * _DIGEST_BYTES:
        raise Invalid(f"at most {MOST_DIGESTS} digests can be asked for at a time")
    return [question[at : at + _DIGEST_BYTES] for at in range(0, len(question), _DIGEST_BYTES)]


def encode_held(whole: Sequence[bool], begun: Mapping[int, int]) -> bytes:
    """Return the answer: which contents are there, and how much of those that have only begun to arrive."""
    bits = bytearray(-(-len(whole) // 8))
    for number, is_there in enumerate(whole):
        bits[number // 8] |= is_there << number % 8
    return bytes(bits) + b"".join(varint(number) + varint(count) for number, count in begun.items())


def decode_held(answer: bytes, asked: int) -> tuple[list[bool], dict[int, int]]:
    """Return what `encode_held` was given; `Invalid` if that cannot be, for so many digests."""
    at = -(-asked // 8)
    if len(answer) < at:
        raise Invalid(f"an answer about {asked} digests has {at} bytes or more, not {len(answer)}")
    whole = [bool(answer[number // 8] >> number % 8 & 1) for number in range(asked)]
    begun = {}
    try:
        while at < len(answer):
            number, at = read_varint(answer, at)
            begun[number], at = read_varint(answer, at)
    except IndexError:
        raise Invalid("an answer about digests ends within a number") from None
    return whole, {number: count for number, count in begun.items() if number < asked}
