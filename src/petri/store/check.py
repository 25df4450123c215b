"""Whether everything is as it should be, while others read and write."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from petri.errors import NotFound, PetriError
from petri.store.contents import load_index, read_contents
from petri.store.layout import PACK_MAGIC, batches, is_whole
from petri.store.packs import Pack, index_path
from petri.store.reading import check_object
from petri.store.shelf import Shelf
from petri.store.table import Found
from petri.trees import EMPTY, Fetch, File, Folder, FolderObject


class Finding(NamedTuple):
    """Something that is wrong."""

    words: str
    digest: bytes | None = None
    """The object it is wrong with, if it is one."""


def check(shelf: Shelf, *, deep: bool) -> Iterator[Finding]:
    """Yield what is wrong. `deep` reads every byte; else only what says where things are."""
    yield from map(Finding, shelf.findings)
    with shelf.guard:
        packs = list(shelf.packs.values())
    for pack in packs:
        yield from map(Finding, _pack(shelf, pack, deep=deep))
    for found in list(shelf.table):
        yield from (Finding(words, found.digest) for words in _object(shelf, found, deep=deep))


def _pack(shelf: Shelf, pack: Pack, *, deep: bool) -> Iterator[str]:
    """Check that a pack is whole batches to its end, and that its index says the same."""
    end = pack.end
    try:
        shelf.use(pack.number)
    except KeyError:
        return  # swept meanwhile
    except PetriError as error:
        yield f"pack {pack.number} cannot be opened: {error.detail}"
        return
    try:
        yield from _batches(pack, end, deep=deep)
        yield from _index(pack)
    except OSError as error:
        yield f"pack {pack.number} cannot be read: {error.strerror}"
    finally:
        shelf.leave(pack)


def _batches(pack: Pack, end: int, *, deep: bool) -> Iterator[str]:
    reached = len(PACK_MAGIC)
    if pack.read(reached, 0) != PACK_MAGIC:
        yield f"pack {pack.number} does not begin as a pack does"
    for batch in batches(pack.open()):
        if batch.at >= end:
            break  # came meanwhile
        reached = batch.end
        if deep and not is_whole(pack.open(), batch):
            yield f"pack {pack.number} is damaged between byte {batch.at} and {batch.end}"
    if reached < end:
        yield f"pack {pack.number} is damaged at byte {reached}: no batch is there, but {end - reached} bytes"


def _index(pack: Pack) -> Iterator[str]:
    if not index_path(pack.path).exists():
        return
    contents = load_index(pack.path)
    if contents is None:
        yield f"the index of pack {pack.number} is damaged; without it the next start makes a new one"
    elif contents != read_contents(pack.number, pack.open()):
        yield f"the index of pack {pack.number} is not what the pack says; without it a new one is made"


def _object(shelf: Shelf, found: Found, *, deep: bool) -> Iterator[str]:
    try:
        check_object(shelf, found.digest, deep=deep)
    except NotFound as error:
        with shelf.guard:
            is_there = shelf.table.find(found.digest) is not None
        if is_there:  # else it was swept meanwhile
            yield f"object {found.digest.hex()} is not whole: {error.message}"
    except PetriError as error:
        yield error.message


def places(fetch: Fetch, tree: bytes, objects: Collection[bytes]) -> Iterator[bytes]:
    """Yield the paths in `tree` that are one of `objects`, as far as its folders can be read."""
    waiting = [(b"", tree)]
    while waiting:
        path, folder = waiting.pop()
        if folder in objects:
            yield path
        inside: FolderObject = {}
        if folder != EMPTY:
            with suppress(PetriError):
                inside = fetch(folder)
        for name, entry in inside.items():
            inner = path + b"/" + name if path else name
            if isinstance(entry, Folder):
                waiting.append((inner, entry.address))
            elif isinstance(entry, File) and entry.digest in objects:
                yield inner
