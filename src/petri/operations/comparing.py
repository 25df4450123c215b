"""Tell what lies between two trees of a sandbox: text by lines, the rest by size.

Only where the trees differ is anything fetched, and there is a bound on how much is told and how long it
takes: files are written by hostile code, and somebody waits.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from petri import trees
from petri.errors import NotFound
from petri.model import Sandbox
from petri.operations import Caller, Host
from petri.operations.becoming import Kept
from petri.operations.moments import NOW, tree_meant
from petri.patches import Patch, render
from petri.threads import in_thread
from petri.trees import Change, File, Folder, Link
from petri.workspace import Errand

_TOLD = 10_000
"""Changes that are named; the rest is counted."""
_COUNTED = 1_000_000
_TEXT_BYTES = 4 << 20
"""What the patches of one answer come to."""
_FILE_BYTES = 1 << 20
"""A larger file is told by its size."""
_PATIENCE_S = 10.0
_KINDS: Mapping[type, Literal["file", "link", "folder"]] = {File: "file", Link: "link", Folder: "folder"}


@dataclass(frozen=True, slots=True)
class Told:
    """One change, and how it reads."""

    path: str
    kind: Literal["file", "link", "folder"]
    """Of what is there now, or was."""
    old_size: int | None
    """Of the file that was there, if one was."""
    new_size: int | None
    is_there: bool
    was_there: bool
    patch: Patch


@dataclass(frozen=True, slots=True)
class Comparison:
    """What turns one tree into the other."""

    old: str
    new: str
    told: list[Told]
    """What goes comes before what comes, so that a patch of all of it can be applied."""
    left_out: int
    """Changes that are not told, since there are too many."""


async def compare(
    host: Host, caller: Caller, sandbox_id: str, between: tuple[str | None, str | None], errand: Errand
) -> Comparison:
    """Return what lies between two moments of a sandbox: by default, from before its last run until now."""
    old, new = between
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    after = await tree_meant(host, caller, sandbox, new or NOW, "to")
    before = (
        await tree_meant(host, caller, sandbox, old, "from") if old else await _before_last(host, sandbox)
    )
    async with host.benches.bench(sandbox.id, "comparing"):
        return await in_thread(_compared, Kept(host.store, sandbox.tenant), before or after, after, errand)


async def _before_last(host: Host, sandbox: Sandbox) -> str | None:
    """Return the tree from before the last run, if there was one."""
    page = await host.ledger.runs(sandbox.id, limit=1, cursor=None)
    return page.items[0].tree_before if page.items else None


def _compared(kept: Kept, old: str, new: str, errand: Errand) -> Comparison:
    found = trees.flatten(kept.folder, trees.diff(kept.folder, bytes.fromhex(old), bytes.fromhex(new)))
    changes = list(islice(found, _TOLD))
    left_out = sum(1 for _ in islice(found, _COUNTED))
    # What goes makes room for what comes: a file may be where a folder was.
    changes.sort(key=lambda change: change.new is not None)
    return Comparison(old, new, list(_told(kept, changes, errand)), left_out)


def _told(kept: Kept, changes: list[Change], errand: Errand) -> Iterator[Told]:
    deadline = time.monotonic() + _PATIENCE_S
    left_bytes = _TEXT_BYTES
    for change in changes:
        errand.check()
        if left_bytes <= 0 or time.monotonic() > deadline:
            yield _as_told(change, Patch("", remark="left out: there is too much to show"))
            continue
        patch = render(*change, lambda file: _read(kept, file))
        left_bytes -= len(patch.text)
        yield _as_told(change, patch)


def _as_told(change: Change, patch: Patch) -> Told:
    path, old, new = change
    return Told(
        path=os.fsdecode(path),
        kind=_KINDS[type(old if new is None else new)],
        old_size=old.size if isinstance(old, File) else None,
        new_size=new.size if isinstance(new, File) else None,
        is_there=new is not None,
        was_there=old is not None,
        patch=patch,
    )


def _read(kept: Kept, file: File) -> bytes | None:
    if file.size > _FILE_BYTES:
        return None
    try:
        return b"".join(kept.content(file.digest))
    except NotFound:
        return None
