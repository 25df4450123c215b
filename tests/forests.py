"""Trees for tests: nested dictionaries as folder objects, and hypothesis' own ideas of them."""

from collections.abc import Mapping
from typing import TypeAlias

from hypothesis import strategies as st

from petri.errors import NotFound
from petri.trees import EMPTY, Entry, File, Folder, FolderObject, Link, address, decode, encode, walk

Plan: TypeAlias = Mapping[bytes, "Plan | File | Link"]
"""A tree as a person writes it down: a folder is a dictionary."""


class Forest:
    """Keeps folder objects in memory, and counts how often it is asked for one."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.fetched = 0
        self.has_put = 0

    def fetch(self, wanted: bytes) -> FolderObject:
        self.fetched += 1
        if wanted not in self.kept:
            raise NotFound(f"there is no folder {wanted.hex()}")
        return decode(self.kept[wanted])

    def put(self, encoded: bytes) -> bytes:
        self.has_put += 1
        self.kept[address(encoded)] = encoded
        return address(encoded)

    def plant(self, plan: Plan) -> bytes:
        """Return the tree that `plan` describes."""
        entries: dict[bytes, Entry] = {}
        for name, inside in plan.items():
            entries[name] = inside if isinstance(inside, File | Link) else Folder(self.plant(inside))
        return self.put(encode(entries)) if entries else EMPTY

    def dig(self, depth: int, content: bytes) -> bytes:
        """Return a tree with a file `f` at the end of `depth` folders `d`, each in the one before."""
        tree = self.plant({b"f": a_file(content)})
        for _ in range(depth):
            tree = self.put(encode({b"d": Folder(tree)}))
        return tree

    def paths(self, tree: bytes) -> dict[bytes, Entry]:
        """Return every path of `tree`, as `walk` has it."""
        return dict(walk(self.fetch, tree))

    def folders(self, tree: bytes) -> list[bytes]:
        """Return the paths of the folders in `tree`."""
        return [path for path, entry in self.paths(tree).items() if isinstance(entry, Folder)]

    def leaves(self, tree: bytes) -> dict[bytes, Entry]:
        """Return the paths of `tree` that hold the rest: files, links, empty folders."""
        paths = self.paths(tree)
        return {
            path: entry
            for path, entry in paths.items()
            if not isinstance(entry, Folder) or entry.address == EMPTY
        }


def a_file(content: bytes = b"", mode: int = 6) -> File:
    return File(address(content), len(content), mode)


DEEP = 5_000
"""Levels: more than Python would recurse."""
NAMES = st.sampled_from([b"a", b"b", b"c", b"a-b", b"\xff"])
"""Few, so that trees meet; `a-b` sorts before `a/…` as bytes and behind it in a tree."""
FILES = st.builds(a_file, st.sampled_from([b"", b"one", b"two", b"three"]), st.sampled_from([6, 7]))
LINKS = st.builds(Link, st.sampled_from([b"a", b"../b"]))
PLANS: st.SearchStrategy[Plan] = st.recursive(
    st.dictionaries(NAMES, FILES | LINKS, max_size=4),
    lambda inner: st.dictionaries(NAMES, FILES | LINKS | inner, max_size=4),
    max_leaves=12,
)


@st.composite
def related(draw: st.DrawFn, sides: int) -> tuple[Plan, ...]:
    """Draw a tree, and some that were made of it by a few edits each."""
    base = draw(PLANS)
    return base, *(draw(_edited(base)) for _ in range(sides))


@st.composite
def _edited(draw: st.DrawFn, plan: Plan) -> Plan:
    edited = dict(plan)
    for _ in range(draw(st.integers(0, 3))):
        name = draw(NAMES)
        inside = edited.get(name)
        if isinstance(inside, Mapping) and draw(st.booleans()):
            edited[name] = draw(_edited(inside))
        elif name in edited and draw(st.booleans()):
            del edited[name]
        else:
            edited[name] = draw(FILES | LINKS | PLANS)
    return edited
