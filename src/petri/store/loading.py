"""A tenant's packs as they lie on the disk, also after a crash, made ready for use."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from petri.errors import counted
from petri.store.contents import (
    NOTHING,
    Contents,
    Recovered,
    load_index,
    read_contents,
    recovered,
    save_index,
)
from petri.store.disk import read_at, write_at
from petri.store.layout import PACK_MAGIC
from petri.store.manifest import Manifest, load_manifest
from petri.store.packs import Pack
from petri.store.table import Table


class Loaded(NamedTuple):
    """What there is."""

    table: Table
    packs: dict[int, Pack]
    next: int
    """The number for the next new pack."""
    active: Pack | None
    """The pack that was written to last, if it may be written to again."""
    findings: list[str]
    """What is not as it should be, in words."""


def load(folder: Path) -> Loaded:
    """Have everything that counts in `folder` found, and everything else out of the way.

    Called when nobody else uses `folder`. What a crash left behind the last whole batch of a pack is cut
    off, what a sweep had dropped or not finished is removed.
    """
    findings: list[str] = []
    manifest = _manifest(folder, findings)
    every = sorted(int(path.stem) for path in folder.glob("*.pack"))
    numbers = [number for number in every if not _is_on_its_way_out(number, manifest)]
    _clear(folder, set(every) - set(numbers))
    table, packs, active = Table(), {}, None
    for number in numbers:
        pack = packs[number] = Pack(folder, number, 0)
        contents = load_index(pack.path)
        active = pack if contents is None else None
        if contents is None:
            contents = _read(pack, findings)
            if number != numbers[-1]:
                with suppress(OSError):  # it is only missed at the next start
                    save_index(pack.path, contents)
        else:
            pack.end = pack.path.stat().st_size
        table.load(*_counting(pack, contents, manifest, findings))
    if any(manifest is None or number >= manifest.next for number in numbers[1:]):
        table.unify()  # a crash while a sweep was copying leaves two of some
    following = max([0, *every]) + 1
    return Loaded(table, packs, max(following, manifest.next if manifest else 0), active, findings)


def _manifest(folder: Path, findings: list[str]) -> Manifest | None:
    try:
        return load_manifest(folder)
    except ValueError as error:
        findings.append(f"the manifest is damaged ({error}): what was swept may be back until the next sweep")
        return None


def _is_on_its_way_out(number: int, manifest: Manifest | None) -> bool:
    return manifest is not None and number < manifest.next and number not in manifest.packs


def _clear(folder: Path, numbers: set[int]) -> None:
    for path in folder.glob("*.new"):
        path.unlink()
    for number in numbers:
        Pack(folder, number, 0).unlink()


def _read(pack: Pack, findings: list[str]) -> Contents:
    """Return what the batches of a pack without an index say is in it, and cut off what is not whole."""
    descriptor = pack.open()
    size = os.fstat(descriptor).st_size
    if read_at(descriptor, len(PACK_MAGIC), 0) != PACK_MAGIC:
        if size > len(PACK_MAGIC):
            findings.append(f"pack {pack.number} does not begin as a pack does; nothing in it is used")
            pack.is_spoilt = True
            return NOTHING
        write_at(descriptor, PACK_MAGIC, 0)  # the crash came right after its birth
    left = recovered(descriptor)
    findings.extend(_told(pack.number, left))
    pack.end = left.end
    if not left.stray:
        os.ftruncate(descriptor, pack.end)
    # What was read may be in the kernel's memory alone, and from now on others will count on it.
    pack.sync(pack.end)
    pack.is_spoilt = left.stray > 0  # that stays for somebody to look at: nothing is written over it
    contents = read_contents(pack.number, descriptor)
    pack.close()
    return contents


def _told(number: int, left: Recovered) -> Iterator[str]:
    for batch in left.damaged:
        yield (
            f"pack {number} is damaged between byte {batch.at} and {batch.end}: "
            f"{counted(batch.objects, 'object')} in it, put there last, cannot be used any more"
        )
    if left.stray:
        yield f"pack {number} is damaged at byte {left.end}: no batch is there, but {left.stray} bytes"


def _counting(pack: Pack, contents: Contents, manifest: Manifest | None, findings: list[str]) -> Contents:
    pack.dead = manifest.packs.get(pack.number, pack.dead) if manifest is not None else pack.dead
    if pack.dead.bits and pack.dead.entries != len(contents):
        findings.append(f"pack {pack.number} does not hold what it did; what was swept may be back")
    return contents.without(pack.dead)
