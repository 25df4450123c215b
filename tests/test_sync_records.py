"""Records and their stream: one encoding each, bounded, and an error for everything else."""

import io
import os
from collections.abc import Iterable, Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as some

from petri.errors import Invalid, TooLarge
from petri.syncing import records, stream
from petri.syncing.records import NOTHING, Base, End, Record, Said, WholeFile
from tests.examples import examples

PLENTY = 2**40

_digests = some.binary(min_size=32, max_size=32)
_names = some.binary(min_size=1, max_size=12).filter(
    lambda name: name not in (b".", b"..") and not set(name) & set(b"/\0")
)
_paths = some.lists(_names, min_size=1, max_size=4).map(b"/".join)
_numbers = some.integers(0, records.LARGEST_NUMBER)
_modes = some.integers(0, 7)
_targets = some.binary(min_size=1, max_size=60).filter(lambda target: b"\0" not in target)
_payloads = some.binary(max_size=400)

_plain: some.SearchStrategy[Record] = some.one_of(
    some.builds(records.Base, _digests),
    some.builds(records.Agreed, _digests),
    some.builds(records.Move, _paths, _paths),
    some.builds(records.Delete, _paths),
    some.builds(records.MakeFolder, _paths),
    some.builds(records.MakeLink, _paths, _targets),
    some.builds(records.SetMode, _paths, _modes),
    some.builds(records.KnownFile, _paths, _modes, _numbers, _digests),
    some.builds(records.Clash, _paths, some.binary(max_size=50)),
    some.builds(records.Said, some.binary(max_size=50)),
)


@some.composite
def _with_payload(draw: some.DrawFn) -> tuple[Record, bytes]:
    payload = draw(_payloads)
    path, mode, digest = draw(_paths), draw(_modes), draw(_digests)
    if draw(some.booleans()):
        offset = draw(some.integers(0, 2**40))
        return WholeFile(path, mode, offset + len(payload), digest, offset), payload
    return records.ChangedFile(path, mode, draw(_numbers), digest, draw(_digests), len(payload)), payload


_messages = some.lists(
    some.one_of(_plain.map(lambda record: (record, b"")), _with_payload()), max_size=8
).flatmap(lambda message: _digests.map(lambda digest: [*message, (End(digest), b"")]))


def written(message: Iterable[tuple[Record, bytes]], level: int = 1) -> bytes:
    sent = bytearray()
    out = stream.Outgoing(sent.extend, level=level)
    for record, payload in message:
        out.add(record, [payload[i : i + 100] for i in range(0, len(payload), 100)])
    out.end()
    assert out.bytes_out == len(sent)
    return bytes(sent)


def read(sent: bytes, most_bytes: int = PLENTY) -> Iterator[tuple[Record, bytes]]:
    incoming = stream.Incoming(io.BytesIO(sent), most_bytes=most_bytes)
    for record in incoming:
        yield record, b"".join(incoming.payload())


def bare(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(plain)


@given(_messages)
def test_what_was_written_is_read(message: list[tuple[Record, bytes]]) -> None:
    assert list(read(written(message))) == message


@given(_messages)
def test_payloads_nobody_takes_are_passed_over(message: list[tuple[Record, bytes]]) -> None:
    incoming = stream.Incoming(io.BytesIO(written(message)), most_bytes=PLENTY)

    assert list(incoming) == [record for record, _ in message]


@given(_plain)
def test_a_record_has_one_encoding(record: Record) -> None:
    encoded = records.encode(record)
    length, begin = records.read_varint(encoded, 1)

    assert len(encoded) == begin + length
    assert records.decode(encoded[0], encoded[begin:]) == record


@given(some.integers(0, 255), some.binary(max_size=120))
def test_whatever_is_taken_for_a_record_is_encoded_alike(kind: int, fields: bytes) -> None:
    try:
        record = records.decode(kind, fields)
    except Invalid:
        return

    assert records.encode(record) == bytes((kind,)) + records.varint(len(fields)) + fields


@given(_messages, some.data())
def test_a_stream_cut_anywhere_is_refused(message: list[tuple[Record, bytes]], data: some.DataObject) -> None:
    plain = _inflated(written(message))
    cut = data.draw(some.integers(0, len(plain) - 1))

    with pytest.raises(Invalid):
        list(read(bare(plain[:cut])))


@given(_messages, some.data())
@examples(300)
def test_a_stream_with_any_byte_changed_is_read_or_refused(
    message: list[tuple[Record, bytes]], data: some.DataObject
) -> None:
    plain = bytearray(_inflated(written(message)))
    plain[data.draw(some.integers(0, len(plain) - 1))] = data.draw(some.integers(0, 255))

    _read_or_refused(bare(bytes(plain)))


@given(_messages, some.data())
def test_a_compressed_stream_with_any_byte_changed_is_read_or_refused(
    message: list[tuple[Record, bytes]], data: some.DataObject
) -> None:
    sent = bytearray(written(message))
    sent[data.draw(some.integers(0, len(sent) - 1))] = data.draw(some.integers(0, 255))

    _read_or_refused(bytes(sent))


@given(some.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    _read_or_refused(noise)
    _read_or_refused(bare(noise))


def _read_or_refused(sent: bytes) -> None:
    try:
        found = list(read(sent, 2**30))
    except (Invalid, TooLarge) as error:
        assert error.message
    else:
        assert isinstance(found[-1][0], End)


def _inflated(sent: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(sent), read_across_frames=True).read()


@pytest.mark.parametrize(
    "path",
    [b"", b"/a", b"a/", b"a//b", b".", b"..", b"a/../b", b"./a", b"a\0b", b"a" * 256, b"a/" * 2048 + b"a"],
)
def test_a_path_that_leads_elsewhere_or_too_far_is_refused(path: bytes) -> None:
    with pytest.raises(Invalid):
        records.encode(records.Delete(path))
    with pytest.raises(Invalid):
        records.decode(ord("D"), records.varint(len(path)) + path)


def test_a_path_may_be_anything_else() -> None:
    for path in (b"\xff\xfe", b"...", b"a b\n", b"a" * 255, b"-rf", b"~", b"a\\b"):
        assert records.decode(ord("D"), records.varint(len(path)) + path) == records.Delete(path)


def test_fields_that_are_too_long_are_refused_before_they_are_read() -> None:
    announced = b"S" + records.varint(2**40)

    with pytest.raises(Invalid, match="more than 65536 bytes"):
        list(read(bare(announced + bytes(100))))
    with pytest.raises(Invalid, match="at most 65536"):
        records.encode(Said(bytes(70_000)))


def test_nothing_may_follow_the_end() -> None:
    end = records.encode(End(NOTHING))

    with pytest.raises(Invalid, match="behind the End"):
        list(read(bare(end + end)))


def test_a_payload_must_be_as_long_as_announced() -> None:
    out = stream.Outgoing(lambda _: None)

    with pytest.raises(Invalid, match="too short"):
        out.add(WholeFile(b"a", 6, 10, NOTHING, 0), [b"12345"])
    with pytest.raises(Invalid, match="too long"):
        out.add(WholeFile(b"a", 6, 10, NOTHING, 8), [b"123"])


def test_a_stream_may_not_inflate_beyond_its_bound() -> None:
    sent = written([(Base(NOTHING), b""), (WholeFile(b"a", 6, 10**6, NOTHING, 0), os.urandom(10**6))])

    with pytest.raises(TooLarge, match="500000"):
        list(read(sent, 500_000))


@pytest.mark.long
def test_a_bomb_is_refused_long_before_it_went_off() -> None:
    header = records.encode(WholeFile(b"a", 6, 2**29, NOTHING, 0))
    frames = zstandard.ZstdCompressor(level=1).compressobj()
    bomb = frames.compress(header) + b"".join(frames.compress(bytes(2**24)) for _ in range(2**5))
    incoming = stream.Incoming(io.BytesIO(bomb + frames.flush()), most_bytes=PLENTY)

    with pytest.raises(Invalid, match="1000 times"):
        list(incoming)
    assert incoming.bytes_out < 2**28


def test_a_window_that_needs_more_memory_than_we_give_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    with pytest.raises(Invalid, match="compressed"):
        list(read(frame.compress(bytes(2**20)) + frame.flush()))


@pytest.mark.long
def test_honest_zeros_are_no_bomb() -> None:
    sent: list[bytes] = []
    out = stream.Outgoing(sent.append)
    zeros = bytes(2**18)
    out.add(WholeFile(b"a", 6, 2**29, NOTHING, 0), (zeros for _ in range(2**11)))
    out.add(End(NOTHING))
    out.end()

    received = 0
    incoming = stream.Incoming(io.BytesIO(b"".join(sent)), most_bytes=PLENTY)
    for _ in incoming:
        received += sum(len(piece) for piece in incoming.payload())

    assert received == 2**29
    assert out.bytes_out < 2**29 / 200


def test_a_large_payload_is_handed_on_in_pieces() -> None:
    sent = written([(WholeFile(b"a", 6, 2**22, NOTHING, 0), bytes(2**22)), (End(NOTHING), b"")])
    incoming = stream.Incoming(io.BytesIO(sent), most_bytes=PLENTY)

    next(iter(incoming))

    assert max(len(piece) for piece in incoming.payload()) <= stream.PIECE_BYTES


def test_what_was_flushed_can_be_read_before_the_end() -> None:
    sent = bytearray()
    out = stream.Outgoing(sent.extend)
    out.add(Said(b"{}"))
    out.flush()

    assert next(read(bytes(sent))) == (Said(b"{}"), b"")
