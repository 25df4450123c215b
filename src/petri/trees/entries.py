"""A folder as canonical bytes: one folder has one encoding, so its BLAKE3 is its address.

    b"petri-folder-1\\n", then the entries, sorted by the bytes of their names, each one of

        b"f"  mode: 1 byte   size: 8 bytes   digest: 32 bytes      length of the name: 1 byte   name
        b"l"  length of the target: 2 bytes                        length of the name: 1 byte   name   target
        b"d"  address: 32 bytes                                    length of the name: 1 byte   name

Numbers are little-endian. `decode` takes nothing that `encode` would have written otherwise.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from blake3 import blake3

from petri.errors import Invalid

MAGIC = b"petri-folder-1\n"
ADDRESS_BYTES = 32
LONGEST_NAME = 255
"""What every file system of Linux allows, and one byte counts."""
LONGEST_TARGET = 4095
"""What `symlink` allows."""
LARGEST_SIZE = 2**63 - 1
"""What `off_t` holds."""
LARGEST_MODE = 0o7

_FILE, _LINK, _FOLDER = b"fld"
_AS_FILE = struct.Struct("<BBQ32sB")
_AS_LINK = struct.Struct("<BHB")
_AS_FOLDER = struct.Struct("<B32sB")
_FORBIDDEN = frozenset({b"", b".", b".."})


class File(NamedTuple):
    """A regular file: the BLAKE3 of its content, how long that is, and the owner's `rwx` as 0 to 7."""

    digest: bytes
    size: int
    mode: int


class Link(NamedTuple):
    """A symbolic link, never followed."""

    target: bytes

    # A tuple is equal to any other with the same parts: a link to the 32 bytes of an address would be
    # the folder with that address.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Link) and self[0] == other[0]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((_LINK, self[0]))


class Folder(NamedTuple):
    """A folder, by the address of its own object."""

    address: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folder) and self[0] == other[0]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((_FOLDER, self[0]))


Entry = File | Link | Folder
FolderObject = Mapping[bytes, Entry]
"""What is in one folder, by name. Names and targets are bytes, as the kernel has them."""


def address(encoded: bytes) -> bytes:
    """Return the name of what is encoded, a folder object or the content of a file: its BLAKE3."""
    return blake3(encoded).digest()


def encode(entries: FolderObject) -> bytes:
    """Return the one encoding of a folder; `Invalid` if there can be no such folder."""
    _check_names(entries)
    parts = [MAGIC]
    for name in sorted(entries):
        entry = entries[name]
        if isinstance(entry, File):
            digest, size, mode = entry
            if len(digest) != ADDRESS_BYTES or not (0 <= size <= LARGEST_SIZE and 0 <= mode <= LARGEST_MODE):
                _no_such_file(name, entry)
            parts += (_AS_FILE.pack(_FILE, mode, size, digest, len(name)), name)
        elif isinstance(entry, Link):
            _check_target(name, entry.target)
            parts += (_AS_LINK.pack(_LINK, len(entry.target), len(name)), name, entry.target)
        else:
            _check_address(name, entry.address)
            parts += (_AS_FOLDER.pack(_FOLDER, entry.address, len(name)), name)
    return b"".join(parts)


def decode(encoded: bytes) -> dict[bytes, Entry]:
    """Return the folder that `encoded` is, in the order of names; `Invalid` if it is not canonical."""
    if not encoded.startswith(MAGIC):
        raise Invalid(f"a folder object begins with {MAGIC!r}, this one with {encoded[: len(MAGIC)]!r}")
    try:
        entries = _decoded(encoded)
    except struct.error:
        raise Invalid(f"the folder object ends within an entry, after {len(encoded)} bytes") from None
    _check_names(entries)
    return entries


def _decoded(encoded: bytes) -> dict[bytes, Entry]:
    entries: dict[bytes, Entry] = {}
    at, end, last = len(MAGIC), len(encoded), b""
    while at < end:
        begin, kind, rest = at, encoded[at], 0
        if kind == _FILE:
            _, mode, size, digest, length = _AS_FILE.unpack_from(encoded, at)
            if mode > LARGEST_MODE or size > LARGEST_SIZE:
                _malformed(at, f"a mode is 0 to {LARGEST_MODE} and a size 0 to {LARGEST_SIZE}")
            entry: Entry = File(digest, size, mode)
            at += _AS_FILE.size
        elif kind == _FOLDER:
            _, digest, length = _AS_FOLDER.unpack_from(encoded, at)
            entry = Folder(digest)
            at += _AS_FOLDER.size
        else:
            entry, length = _link(encoded, at)
            rest = len(entry.target)
            at += _AS_LINK.size
        name = encoded[at : at + length]
        at += length + rest
        if at > end:
            raise struct.error
        if name <= last:
            _malformed(begin, f"the name {name!r} does not sort behind {last!r}")
        entries[name] = entry
        last = name
    return entries


def _link(encoded: bytes, at: int) -> tuple[Link, int]:
    """Return the link encoded here, and the length of its name; the end of `encoded` may cut it short."""
    if encoded[at] != _LINK:
        _malformed(at, f"an entry is b'f', b'l' or b'd', not {encoded[at : at + 1]!r}")
    _, size, length = _AS_LINK.unpack_from(encoded, at)
    begin = at + _AS_LINK.size + length
    target = encoded[begin : begin + size]
    if len(target) != size:
        raise struct.error
    if not 0 < size <= LONGEST_TARGET or b"\0" in target:
        _malformed(at, f"the target of a link is 1 to {LONGEST_TARGET} bytes without NUL")
    return Link(target), length


def _check_names(entries: FolderObject) -> None:
    # All at once: this is done for every folder of every tree.
    together = b"".join(entries)
    if b"/" in together or b"\0" in together or not _FORBIDDEN.isdisjoint(entries):
        wrong = next(name for name in entries if b"/" in name or b"\0" in name or name in _FORBIDDEN)
        raise Invalid(f"a name is not empty, '.' or '..' and has no '/' and no NUL; this one is {wrong!r}")
    if max(map(len, entries), default=0) > LONGEST_NAME:
        longest = max(entries, key=len)
        raise Invalid(f"a name has at most {LONGEST_NAME} bytes; {longest[:40]!r}… has {len(longest)}")


def _no_such_file(name: bytes, file: File) -> NoReturn:
    _check_address(name, file.digest)
    raise Invalid(
        f"the mode of a file is 0 to {LARGEST_MODE} and its size 0 to {LARGEST_SIZE}; "
        f"{name!r} has {file.mode} and {file.size}"
    )


def _check_target(name: bytes, target: bytes) -> None:
    if not 0 < len(target) <= LONGEST_TARGET or b"\0" in target:
        raise Invalid(
            f"the target of a link is 1 to {LONGEST_TARGET} bytes without NUL; not that of {name!r}"
        )


def _check_address(name: bytes, digest: bytes) -> None:
    if len(digest) != ADDRESS_BYTES:
        raise Invalid(f"a digest has {ADDRESS_BYTES} bytes; that of {name!r} has {len(digest)}")


def _malformed(at: int, right: str) -> NoReturn:
    raise Invalid(f"the folder object is malformed at byte {at}: {right}")


EMPTY = address(encode({}))
"""The tree with nothing in it. No store need hold it."""
