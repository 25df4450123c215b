"""From the names in wheels to a table: which import means which distributions, the most used first."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from petri.environment.needs.words import names_in

NOT_MODULES = frozenset(
    names_in("""
    test tests testing docs doc documentation examples example benchmark benchmarks samples sample
    scripts script bin src build dist licenses license site_packages
""")
)
"""Folders that wheels have at their top by mistake."""
SHARED_BY = 3
"""A name that this many distributions have is a namespace, or may be one: then look a level deeper."""
DEEPEST = 4
TIDY = 1_500
"""The most used distributions bring what they mean to bring; of others, some is there by accident."""
MOST_OF_ONE = 4
"""Names side by side at the top of one distribution that is called like none of them."""
_DATA = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")
_NOT_CODE = re.compile(r"^[^/]+\.(?:dist-info|data|libs)/")
_FILE = re.compile(r"([A-Za-z_]\w*)(?:\.py|(?:\.[\w-]+)?\.so)")


@dataclass(frozen=True)
class Provided:
    """What one distribution brings: the names it is imported by, and every name below them."""

    roots: frozenset[str]
    below: frozenset[str]


def provided(names: Iterable[str]) -> Provided:
    """Return the modules that a wheel with these files installs."""
    files = [_DATA.sub("", name) for name in names]
    code = [file for file in files if not _NOT_CODE.match(file) and file.endswith((".py", ".so"))]
    packages = {file.rpartition("/")[0] for file in code if _is_package_file(file)}
    roots: set[str] = set()
    below: set[str] = set()
    for file in code:
        stem = _stem(file)
        if not stem or stem[0].startswith("_") or stem[0].lower() in NOT_MODULES:
            continue
        roots.add(_root(stem, packages))
        below.update(".".join(stem[:depth]) for depth in range(2, min(len(stem), DEEPEST) + 1))
    return Provided(frozenset(roots), frozenset(below))


def _is_package_file(file: str) -> bool:
    return file.rpartition("/")[2].partition(".")[0] == "__init__"


def _stem(file: str) -> tuple[str, ...]:
    """Return the dotted name of a file's module, or nothing if it cannot be imported."""
    *folders, last = file.split("/")
    match = _FILE.fullmatch(last)
    if match is None or not all(folder.isidentifier() for folder in folders):
        return ()
    return tuple(folders) if match[1] == "__init__" else (*folders, match[1])


def _root(stem: tuple[str, ...], packages: set[str]) -> str:
    for depth in range(1, len(stem)):
        if "/".join(stem[:depth]) in packages:
            return ".".join(stem[:depth])
    return ".".join(stem)


def fold(by_rank: Mapping[str, Provided]) -> dict[str, list[str]]:
    """Return import → distributions. `by_rank` has the most used distribution first, and so has each list.

    Namespaces of the old kind have an `__init__.py` in every distribution, so that all of them seem to bring
    the whole: below a shared name its parts decide, as far down as it takes.
    """
    table: dict[str, list[str]] = {}
    for rank, (name, each) in enumerate(by_rank.items()):
        for root in each.roots if rank < TIDY else meant_roots(name, each.roots):
            table.setdefault(root, []).append(name)
    shared = {name for name, those in table.items() if len(those) >= SHARED_BY}
    while shared:
        deeper: dict[str, list[str]] = {}
        for name, each in by_rank.items():
            for part in each.below:
                if part not in table and part.rpartition(".")[0] in shared:
                    deeper.setdefault(part, []).append(name)
        table.update(deeper)
        shared = {name for name, those in deeper.items() if len(those) >= SHARED_BY}
    return {name: those for name, those in table.items() if not _says_nothing(name, table)}


def meant_roots(name: str, roots: frozenset[str]) -> frozenset[str]:
    """Return the names that a distribution means to bring, not the `config` that lies beside them."""
    tops = {root.partition(".")[0] for root in roots}
    own = {top for top in tops if _letters(top) in _letters(name) or _letters(name) in _letters(top)}
    if len(tops) <= MOST_OF_ONE and not any(_letters(top) == _letters(name) for top in tops):
        return roots
    return frozenset(root for root in roots if root.partition(".")[0] in own)


def _letters(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()


def _says_nothing(name: str, table: Mapping[str, list[str]]) -> bool:
    """Say whether the next shorter name in the table has the same answer."""
    parent = name.rpartition(".")[0]
    while parent and parent not in table:
        parent = parent.rpartition(".")[0]
    return bool(parent) and table[parent] == table[name]
