"""A workspace's tree, whole, into the store: every folder object and every content it does not have yet.

The look that finds out what the tree is hands each content it reads to the store in the same pass. What was
read by an earlier look, and is not in the store all the same, is read again here and must still be what it
was. So a tree of which the store has the root costs a look, and nothing else.
"""

import os
import stat
from typing import NamedTuple

from petri.errors import CallerError, Conflict
from petri.trees import Entry, File, encode
from petri.workspace.beneath import open_beneath
from petri.workspace.index import Index
from petri.workspace.looking import LOST, Sink, join, unread


class Lacking(NamedTuple):
    """What a store does not have of a tree."""

    folders: list[bytes]
    """Encoded folder objects."""
    files: dict[bytes, tuple[bytes, File]]
    """A path for each content, by its digest."""


def lacking(index: Index, sink: Sink) -> Lacking:
    """Return what `sink` does not have of the tree that `index` is."""
    found = Lacking([], {})
    for path, entries in index.unknown(lambda address: bool(sink.has([address]))):
        found.folders.append(encode(entries))
        found.files.update(_missing(path, entries, sink))
    return found


def _missing(path: bytes, entries: dict[bytes, Entry], sink: Sink) -> dict[bytes, tuple[bytes, File]]:
    files = {
        entry.digest: (join(path, name), entry) for name, entry in entries.items() if isinstance(entry, File)
    }
    for digest in sink.has(files):
        del files[digest]
    return files


def supply(workspace: int, wanted: Lacking, sink: Sink) -> None:
    """Put what is lacking into `sink`; `Conflict` if a file is by now another than it was."""
    for digest, (path, file) in wanted.files.items():
        _supply_file(workspace, path, file, digest, sink)
    for encoded in wanted.folders:
        sink.put_folder(encoded)


def _supply_file(workspace: int, path: bytes, file: File, digest: bytes, sink: Sink) -> None:
    try:
        fd = open_beneath(workspace, os.fsdecode(path), os.O_RDONLY | os.O_NOFOLLOW, follow=False)
    except OSError as error:
        if error.errno in LOST:
            raise _changed() from error
        raise
    try:
        status = os.fstat(fd)
        if digest == unread(status):
            return  # too large: the tree knows it by its times, and nobody has its content
        if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
            raise _changed()
        sink.put_file(fd, file.size, digest)
    except CallerError as error:
        raise _changed() from error
    finally:
        os.close(fd)


def _changed() -> Conflict:
    return Conflict("the files changed while they were being kept; try again when nothing writes to them")
