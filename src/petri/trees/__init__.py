"""Trees: a workspace's content at a moment, as addresses. Pure: no files, no clock, no store.

A *blob* is a file's content, named by its BLAKE3. A *folder object* is what is in one folder, as canonical
bytes, named by the BLAKE3 of those. A *tree* is the address of a root folder object. So two trees are the
same if their addresses are, and two that differ are compared by looking only where addresses differ.
Names, targets and paths are bytes; a path is names joined by `/`, the root's is empty.

Whoever asks brings the folder objects along: `Fetch` gives one by its address, `Put` keeps one.

    encode, decode, address          a folder object as bytes, strictly, and its name
    walk, find, measure              what is in a tree
    diff, flatten, renames           what lies between two
    apply                            one of them and the changes: the other
    merge                            two that come from one, brought together
    Hashing                          the digest of a content that comes piece by piece

    >>> kept: dict[bytes, bytes] = {}
    >>> def fetch(wanted: bytes) -> FolderObject:
    ...     return decode(kept[wanted])
    >>> def put(encoded: bytes) -> bytes:
    ...     kept[address(encoded)] = encoded
    ...     return address(encoded)
    >>> tree = put(encode({b"main.py": File(address(b"print()"), size=7, mode=6)}))
    >>> [change.path for change in diff(fetch, EMPTY, tree)]
    [b'main.py']
    >>> apply(fetch, put, EMPTY, diff(fetch, EMPTY, tree)) == tree
    True

Bytes and changes that cannot be raise `Invalid`; a change to what is not there, `Conflict`. A stranger's
tree is to be measured before it is walked, flattened, compared or merged: few objects can be many paths.

Imported by: `store`, `workspace`, `operations`, `syncing`, `sdk`. Imports: `petri.errors`.
"""

from petri.trees.apply import Put, apply
from petri.trees.diff import Change, Move, Renamed, diff, flatten, renames
from petri.trees.entries import (
    ADDRESS_BYTES,
    EMPTY,
    Entry,
    File,
    Folder,
    FolderObject,
    Link,
    address,
    decode,
    encode,
)
from petri.trees.hashing import Hashing
from petri.trees.merge import Merged, PathConflict, merge
from petri.trees.walk import Fetch, Totals, find, measure, walk

__all__ = [
    "ADDRESS_BYTES",
    "EMPTY",
    "Change",
    "Entry",
    "Fetch",
    "File",
    "Folder",
    "FolderObject",
    "Hashing",
    "Link",
    "Merged",
    "Move",
    "PathConflict",
    "Put",
    "Renamed",
    "Totals",
    "address",
    "apply",
    "decode",
    "diff",
    "encode",
    "find",
    "flatten",
    "measure",
    "merge",
    "renames",
    "walk",
]
