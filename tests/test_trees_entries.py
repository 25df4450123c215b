"""One folder has one encoding, and nothing else is taken for one."""

import doctest
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petri import trees
from petri.errors import Invalid
from petri.trees import ADDRESS_BYTES, EMPTY, Entry, File, Folder, Link, address, decode, encode
from tests.forests import a_file

DIGEST = bytes(range(32))
names = st.binary(min_size=1, max_size=255).filter(
    lambda name: name not in (b".", b"..") and not {0, ord("/")} & set(name)
)
targets = st.binary(min_size=1, max_size=300).map(lambda target: target.replace(b"\0", b"0"))
digests = st.binary(min_size=ADDRESS_BYTES, max_size=ADDRESS_BYTES)
entries = st.one_of(
    st.builds(File, digests, st.integers(0, 2**63 - 1), st.integers(0, 7)),
    st.builds(Link, targets),
    st.builds(Folder, digests),
)
folders = st.dictionaries(names, entries, max_size=8)


def record(
    name: bytes, *, kind: bytes = b"f", mode: int = 6, size: int = 1, length: int | None = None
) -> bytes:
    """Return a file's entry as bytes, as wrong as one likes."""
    return kind + struct.pack("<BQ32sB", mode, size, DIGEST, len(name) if length is None else length) + name


def folder_object(*records: bytes) -> bytes:
    return b"petri-folder-1\n" + b"".join(records)


@given(folders)
def test_what_was_encoded_is_decoded(folder: dict[bytes, Entry]) -> None:
    assert decode(encode(folder)) == folder


@given(folders)
def test_the_order_in_which_a_folder_was_filled_does_not_matter(folder: dict[bytes, Entry]) -> None:
    backwards = dict(reversed(folder.items()))

    assert encode(backwards) == encode(folder)
    assert list(decode(encode(backwards))) == sorted(folder)


@given(folders, st.data())
def test_whatever_is_taken_is_canonical(folder: dict[bytes, Entry], data: st.DataObject) -> None:
    encoded = bytearray(encode(folder))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    mangled = bytes(encoded)

    try:
        taken = decode(mangled)
    except Invalid:
        return
    assert encode(taken) == mangled


@given(folders)
def test_a_folder_object_that_was_cut_short_is_refused(folder: dict[bytes, Entry]) -> None:
    whole = encode(folder)
    shorter = {
        encode({name: folder[name] for name in sorted(folder)[:count]}) for count in range(len(folder))
    }

    for end in range(len(whole)):
        if whole[:end] not in shorter:
            with pytest.raises(Invalid):
                decode(whole[:end])


def test_the_format_stays_as_it_was() -> None:
    folder: dict[bytes, Entry] = {
        b"run": File(DIGEST, 0x1234, 7),
        b"now": Link(b"run"),
        b"\xff\xfe": Folder(DIGEST),
    }

    encoded = encode(folder)

    assert encoded == (
        b"petri-folder-1\n"
        b"l\x03\x00\x03nowrun"
        b"f\x07\x34\x12\x00\x00\x00\x00\x00\x00" + DIGEST + b"\x03run"
        b"d" + DIGEST + b"\x02\xff\xfe"
    )
    assert address(encoded).hex() == "3c6b144f2085c0fd3dfbaefa5a323d04f9ce19f79ad7390af91167a31b7e518d"
    assert EMPTY.hex() == "0041d93d8f11646e3359bd022c55e3aad2a2ce72960d5527ede1e86dd2c2270c"


@pytest.mark.parametrize(
    ("said", "encoded"),
    [
        ("begins with", b""),
        ("begins with", b"petri-folder-2\n"),
        ("begins with", b"petri-folder-1"),
        ("does not sort behind b'b'", folder_object(record(b"b"), record(b"a"))),
        ("does not sort behind b'a'", folder_object(record(b"a"), record(b"a"))),
        ("does not sort behind", folder_object(record(b""))),
        ("'.'", folder_object(record(b"."))),
        ("'..'", folder_object(record(b".."))),
        ("no '/'", folder_object(record(b"a/b"))),
        ("no NUL", folder_object(record(b"a\0"))),
        ("not b'x'", folder_object(record(b"a", kind=b"x"))),
        ("a mode is 0 to 7", folder_object(record(b"a", mode=8))),
        ("a size 0 to", folder_object(record(b"a", size=2**63))),
        ("ends within", folder_object(record(b"a", length=2))),
        ("ends within", folder_object(record(b"a"), b"f")),
        ("ends within", folder_object(b"l\x03\x00\x01axx")),
        ("1 to 4095 bytes", folder_object(b"l\x00\x00\x01a")),
        ("1 to 4095 bytes", folder_object(b"l\x00\x10\x01a" + b"x" * 4096)),
        ("without NUL", folder_object(b"l\x01\x00\x01a\x00")),
    ],
)
def test_a_malformed_folder_object_is_refused_and_told_why(said: str, encoded: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        decode(encoded)

    assert said in refused.value.message


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        (b"", a_file()),
        (b".", a_file()),
        (b"..", Folder(DIGEST)),
        (b"a/b", a_file()),
        (b"a\0b", Link(b"x")),
        (b"x" * 256, a_file()),
        (b"a", File(DIGEST[:-1], 1, 6)),
        (b"a", File(DIGEST, -1, 6)),
        (b"a", File(DIGEST, 2**63, 6)),
        (b"a", File(DIGEST, 1, 8)),
        (b"a", File(DIGEST, 1, -1)),
        (b"a", Link(b"")),
        (b"a", Link(b"x" * 4096)),
        (b"a", Link(b"x\0")),
        (b"a", Folder(DIGEST + b"x")),
    ],
)
def test_a_folder_that_cannot_be_is_not_encoded(name: bytes, entry: Entry) -> None:
    with pytest.raises(Invalid):
        encode({name: entry})


def test_a_link_is_never_the_folder_it_spells() -> None:
    link: Entry = Link(DIGEST)
    folder: Entry = Folder(DIGEST)

    assert link != folder
    assert folder != link
    assert [folder].count(link) == 0  # which asks `==`
    assert len({link, folder}) == 2
    assert (link, folder) == (Link(DIGEST), Folder(DIGEST))


def test_the_longest_name_and_target_are_kept() -> None:
    folder = {b"\xff" * 255: Link(b"t" * 4095)}

    assert decode(encode(folder)) == folder


def test_the_example_at_the_front_door_is_true() -> None:
    assert doctest.testmod(trees).failed == 0
    assert doctest.testmod(trees).attempted > 5
