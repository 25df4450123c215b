"""Going through a tree, top down and in order, by the folder objects that somebody keeps.

The order is that of the names, folder by folder: a folder comes before what is in it, and what is in it
before its next sibling. Nothing here recurses: hostile code nests ten thousand levels deep.
"""

from collections.abc import Callable, Iterator, MutableMapping
from typing import NamedTuple

from petri.trees.entries import EMPTY, Entry, File, Folder, FolderObject, Link

Fetch = Callable[[bytes], FolderObject]
"""Gives a folder object by its address, or raises `NotFound`."""


class Totals(NamedTuple):
    """What there is in a tree, each path counted, however much the paths share."""

    files: int = 0
    links: int = 0
    folders: int = 0
    """Without the root."""
    size: int = 0
    """The files' sizes together."""
    depth: int = 0
    """The most names that a path has."""


def open_folder(fetch: Fetch, address: bytes) -> FolderObject:
    """Return the folder object at `address`; the empty one is known to everybody."""
    return {} if address == EMPTY else fetch(address)


def walk(
    fetch: Fetch, tree: bytes, into: Callable[[bytes], bool] | None = None, prefix: bytes = b""
) -> Iterator[tuple[bytes, Entry]]:
    """Yield every path of `tree` with what is there, in order, the root excepted.

    `prefix` comes before every path. A folder for which `into(path)` is false is yielded and not looked into.
    """
    levels = [(prefix, _in_order(open_folder(fetch, tree)))]
    while levels:
        prefix, rest = levels[-1]
        for name, entry in rest:
            path = prefix + name
            yield path, entry
            if isinstance(entry, Folder) and (into is None or into(path)):
                levels.append((path + b"/", _in_order(open_folder(fetch, entry.address))))
                break
        else:
            levels.pop()


def _in_order(entries: FolderObject) -> Iterator[tuple[bytes, Entry]]:
    return iter([(name, entries[name]) for name in sorted(entries)])


def find(fetch: Fetch, tree: bytes, path: bytes) -> Entry | None:
    """Return what is at `path`, nothing if there is nothing; the root's path is empty."""
    entry: Entry | None = Folder(tree)
    for name in path.split(b"/") if path else ():
        if not isinstance(entry, Folder):
            return None
        entry = open_folder(fetch, entry.address).get(name)
    return entry


def measure(fetch: Fetch, tree: bytes, known: MutableMapping[bytes, Totals] | None = None) -> Totals:
    """Return what there is in `tree`, each folder object fetched once.

    A stranger's tree is measured before it is walked: thirty folder objects, each with the next one in
    it twice, are a billion paths. Pass the same `known` again, and only what is new is fetched.
    """
    known = {} if known is None else known
    waiting: list[tuple[bytes, FolderObject | None]] = [(tree, None)]
    while waiting:
        address, entries = waiting.pop()
        if address in known:
            continue
        if entries is None:
            entries = open_folder(fetch, address)
            inside = {entry.address for entry in entries.values() if isinstance(entry, Folder)}
            waiting.append((address, entries))
            waiting += ((one, None) for one in inside if one not in known)
        else:
            known[address] = _added_up(entries, known)
    return known[tree]


def _added_up(entries: FolderObject, known: MutableMapping[bytes, Totals]) -> Totals:
    files = [entry for entry in entries.values() if isinstance(entry, File)]
    folders = [known[entry.address] for entry in entries.values() if isinstance(entry, Folder)]
    return Totals(
        files=len(files) + sum(inside.files for inside in folders),
        links=sum(isinstance(entry, Link) for entry in entries.values())
        + sum(inside.links for inside in folders),
        folders=len(folders) + sum(inside.folders for inside in folders),
        size=sum(file.size for file in files) + sum(inside.size for inside in folders),
        depth=1 + max((inside.depth for inside in folders), default=0) if entries else 0,
    )
