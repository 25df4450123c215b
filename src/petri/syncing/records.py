"""What is said in a sync, record by record, and each record as bytes.

    kind: 1 byte   length of the fields: varint   fields   payload, if the record has one

A field is a varint, a mode of 1 byte, a digest of 32 bytes, or bytes behind their length. One record has one
encoding: `decode` takes nothing that `encode` would have written otherwise. Paths are bytes, relative to the
folder that is synced, and speak of what the records before have made of it.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from petri.errors import Invalid

NOTHING = bytes(32)
"""A tree of nobody's: as `Base`, it stands for the empty folder, which everybody knows."""
LONGEST_FIELDS = 64 * 1024
LONGEST_PATH = 4096
LONGEST_NAME = 255
LONGEST_TARGET = 4095
LARGEST_NUMBER = 2**63 - 1
LARGEST_MODE = 0o7

_DIGEST_BYTES = 32
_LONGEST_VARINT = 9
"""Bytes of the largest number."""


class Base(NamedTuple):
    """What follows starts from this tree, which the receiver has; `NOTHING` is the empty one."""

    tree: bytes


class Agreed(NamedTuple):
    """What the records have made so far is the tree last agreed on. Unless said, it is the first `Base`."""

    tree: bytes


class Move(NamedTuple):
    """A file, a link or a whole folder is now at another path, where nothing was."""

    source: bytes
    target: bytes


class Delete(NamedTuple):
    """What is there is gone, with all that is in it."""

    path: bytes


class MakeFolder(NamedTuple):
    """An empty folder is where nothing was. Folders around other things come by themselves."""

    path: bytes


class MakeLink(NamedTuple):
    """A symbolic link is where nothing, a file or a link was."""

    path: bytes
    target: bytes


class SetMode(NamedTuple):
    """The file has other rights: the owner's `rwx`, 0 to 7."""

    path: bytes
    mode: int


class WholeFile(NamedTuple):
    """A file is where nothing, a file or a link was. Payload: its content from `offset` on.

    What precedes the offset arrived in an earlier request that broke; `have` said how much.
    """

    path: bytes
    mode: int
    size: int
    digest: bytes
    offset: int


class KnownFile(NamedTuple):
    """As `WholeFile`, but the receiver has the content."""

    path: bytes
    mode: int
    size: int
    digest: bytes


class ChangedFile(NamedTuple):
    """As `WholeFile`, but made from an old content that the receiver has. Payload: see `delta.py`."""

    path: bytes
    mode: int
    size: int
    digest: bytes
    old: bytes
    length: int


class Clash(NamedTuple):
    """Both sides changed this path, each in its own way; neither was touched. Part of an answer."""

    path: bytes
    reason: bytes


class Said(NamedTuple):
    """The answer in short, as a JSON object; its first record."""

    json: bytes


class End(NamedTuple):
    """That was all, and it makes this tree. Without it, nothing happens."""

    tree: bytes


Record = (
    Base
    | Agreed
    | Move
    | Delete
    | MakeFolder
    | MakeLink
    | SetMode
    | WholeFile
    | KnownFile
    | ChangedFile
    | Clash
    | Said
    | End
)

_FIELDS: Mapping[type[Record], tuple[int, str]] = {
    Base: (ord("B"), "d"),
    Agreed: (ord("A"), "d"),
    Move: (ord("M"), "pp"),
    Delete: (ord("D"), "p"),
    MakeFolder: (ord("F"), "p"),
    MakeLink: (ord("L"), "pt"),
    SetMode: (ord("X"), "pm"),
    WholeFile: (ord("W"), "pmndn"),
    KnownFile: (ord("K"), "pmnd"),
    ChangedFile: (ord("C"), "pmnddn"),
    Clash: (ord("!"), "pb"),
    Said: (ord("S"), "b"),
    End: (ord("E"), "d"),
}
"""The letter of each record, and what its fields are: digest, path, target, mode, number, bytes."""
_BY_KIND: Mapping[int, tuple[type[Record], str]] = {
    kind: (record, fields) for record, (kind, fields) in _FIELDS.items()
}


def encode(record: Record) -> bytes:
    """Return a record as bytes, without its payload; `Invalid` if there can be no such record."""
    kind, kinds = _FIELDS[type(record)]
    parts: list[bytes] = []
    values: tuple[bytes | int, ...] = record
    for what, value in zip(kinds, values, strict=True):
        if isinstance(value, int):
            _check_number(what, value)
            parts.append(varint(value))
        else:
            _check_bytes(what, value)
            parts += (value,) if what == "d" else (varint(len(value)), value)
    fields = b"".join(parts)
    if len(fields) > LONGEST_FIELDS:
        raise Invalid(f"a record has at most {LONGEST_FIELDS} bytes of fields; this one has {len(fields)}")
    return bytes((kind,)) + varint(len(fields)) + fields


def decode(kind: int, fields: bytes) -> Record:
    """Return the record that these fields are; `Invalid` if they are not exactly one."""
    if kind not in _BY_KIND:
        raise Invalid(f"there is no record of kind {bytes((kind,))!r}")
    record, kinds = _BY_KIND[kind]
    values: list[bytes | int] = []
    at = 0
    for what in kinds:
        value, at = _field(what, fields, at)
        values.append(value)
    if at != len(fields):
        raise Invalid(f"a {record.__name__} record has {len(fields) - at} bytes too many")
    found: Record = record(*values)  # type: ignore[arg-type]
    if isinstance(found, WholeFile) and found.offset > found.size:
        raise Invalid(f"{found.path!r} has {found.size} bytes; they cannot begin at {found.offset}")
    return found


def payload_length(record: Record) -> int:
    """Return how many bytes follow the fields."""
    if isinstance(record, WholeFile):
        return record.size - record.offset
    return record.length if isinstance(record, ChangedFile) else 0


def varint(number: int) -> bytes:
    """Return a number in as few bytes as it needs, seven bits each, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at` and where it ends; raises IndexError if `data` ends first."""
    if data[at] < 0x80:
        return data[at], at + 1
    number = shift = 0
    for place in range(at, at + _LONGEST_VARINT):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise Invalid("a number is written with more bytes than it needs")
            return number, place + 1
        shift += 7
    raise Invalid(f"a number is at most {LARGEST_NUMBER}")


@cache
def _path() -> re.Pattern[bytes]:
    """Return what matches a path as it should be. What is wrong with any other is found out by looking."""
    # On use: a sync with nothing to say names no path, and is to be quick.
    name = rb"(?!\.\.?(?:/|\Z))[^/\0]{1,%d}" % LONGEST_NAME
    return re.compile(name + rb"(?>/" + name + rb")*+")


def check_path(path: bytes) -> None:
    """Raise `Invalid` unless `path` is names joined by `/`, none of which leads elsewhere."""
    if len(path) <= LONGEST_PATH and _path().fullmatch(path):
        return
    if not 0 < len(path) <= LONGEST_PATH:
        raise Invalid(f"a path has 1 to {LONGEST_PATH} bytes; {path[:40]!r} has {len(path)}")
    if b"\0" in path:
        raise Invalid(f"a path has no NUL in it, as {path[:80]!r} has")
    for name in path.split(b"/"):
        if name in (b"", b".", b".."):
            raise Invalid(f"a path is relative, without '.', '..' and empty names; {path[:80]!r} is not")
        if len(name) > LONGEST_NAME:
            raise Invalid(f"a name has at most {LONGEST_NAME} bytes; {name[:40]!r}… has {len(name)}")


def _field(what: str, fields: bytes, at: int) -> tuple[bytes | int, int]:
    try:
        if what == "d":
            return _cut(fields, at, _DIGEST_BYTES)
        value, at = read_varint(fields, at)
        if what in "mn":
            _check_number(what, value)
            return value, at
        found, at = _cut(fields, at, value)
    except IndexError:
        raise Invalid("a record ends within its fields") from None
    _check_bytes(what, found)
    return found, at


def _cut(fields: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(fields):
        raise IndexError
    return fields[at : at + length], at + length


def _check_number(what: str, value: int) -> None:
    largest = LARGEST_MODE if what == "m" else LARGEST_NUMBER
    if not 0 <= value <= largest:
        raise Invalid(f"{'a mode' if what == 'm' else 'a number'} is 0 to {largest}, not {value}")


def _check_bytes(what: str, value: bytes) -> None:
    if what == "p":
        check_path(value)
    elif what == "t" and (not 0 < len(value) <= LONGEST_TARGET or b"\0" in value):
        raise Invalid(f"the target of a link has 1 to {LONGEST_TARGET} bytes, none of them NUL")
    elif what == "d" and len(value) != _DIGEST_BYTES:
        raise Invalid(f"a digest has {_DIGEST_BYTES} bytes, not {len(value)}")
