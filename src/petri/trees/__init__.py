"""Trees: a workspace's content at a moment, as addresses. Pure: no files, no clock, no store.

A *blob* is a file's content, named by its BLAKE3. A *folder object* is what is in one folder, as canonical
bytes, named by the BLAKE3 of those. A *tree* is the address of a root folder object. So two trees are the
same if their addresses are, and two that differ are compared by looking only where addresses differ.
Names, targets and paths are bytes; a path is names joined by `/`, the root's is empty.

Whoever asks brings the folder objects along: `Fetch` gives one by its address, `Put` keeps one.

    encode, decode, address          a folder object as bytes, strictly, and its name

Bytes that cannot be a folder raise `Invalid`.

Imported by: nobody yet. Imports: `petri.errors`.
"""

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

__all__ = [
    "ADDRESS_BYTES",
    "EMPTY",
    "Entry",
    "File",
    "Folder",
    "FolderObject",
    "Link",
    "address",
    "decode",
    "encode",
]
