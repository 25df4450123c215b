"""What is in a workspace, as it looks from outside: links are shown, not followed."""

import os
import stat
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal

from petri.workspace.beneath import FOLDER, LOOK, beneath
from petri.workspace.errand import Errand
from petri.workspace.paths import clean, fits, join
from petri.workspace.reading import require_folder
from petri.workspace.refusals import refusing
from petri.workspace.walk import Found, walk

Kind = Literal["file", "folder", "link", "other"]
_NAMES_BYTES = 4 << 20
"""What paths and targets of one listing come to at most: ten thousand may be of four kilobytes each."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a workspace. Bytes of a name that are not UTF-8 are surrogate escapes."""

    path: str
    kind: Kind
    size: int
    mode: int
    """Permission bits only."""
    modified_at: float
    """Seconds since the epoch."""
    target: str | None = None
    """Where a link points, as it is written there."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a folder, sorted by path."""

    path: str
    entries: tuple[Entry, ...]
    truncated: bool
    """There is more: past the limit, or so deep that no path reaches it."""


def look(workspace: int, path: str) -> Entry:
    """Return what is at `path`; a link is itself."""
    path = clean(path, new=False, empty=True)
    with refusing(path), beneath(workspace, path, LOOK | os.O_NOFOLLOW) as fd:
        seen = os.fstat(fd)
        return _entry(path, seen, os.readlink("", dir_fd=fd) if stat.S_ISLNK(seen.st_mode) else None)


def list_folder(workspace: int, path: str, errand: Errand, *, recursive: bool, limit: int) -> Listing:
    """Return at most `limit` entries of the folder at `path`, those further up first."""
    path = clean(path, new=False, empty=True)
    entries: list[Entry] = []
    truncated, left_bytes = False, _NAMES_BYTES
    with refusing(path), beneath(workspace, path, LOOK) as top:
        require_folder(os.fstat(top), path)
        # Asked again for reading, so that a folder closed to us is refused and not shown as empty.
        with beneath(top, "", FOLDER), closing(walk(top, recursive=recursive)) as everything:
            for found in everything:
                errand.check()
                if len(entries) == limit or left_bytes < 0:
                    truncated = True
                    break
                if not fits(whole := join(path, found.path)):
                    truncated = True
                    continue
                entries.append(_entry(whole, found.stat, _target(found)))
                left_bytes -= len(whole) + len(entries[-1].target or "")
    entries.sort(key=lambda entry: entry.path)
    return Listing(path, tuple(entries), truncated)


def _entry(path: str, seen: os.stat_result, target: str | None) -> Entry:
    return Entry(path, _kind(seen.st_mode), seen.st_size, stat.S_IMODE(seen.st_mode), seen.st_mtime, target)


def _target(found: Found) -> str | None:
    if stat.S_ISLNK(found.stat.st_mode):
        with suppress(OSError):
            return os.readlink(found.name, dir_fd=found.folder)
    return None


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"
