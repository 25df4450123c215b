"""What is known of modules and distributions: by wheels that were looked into, and by what people decided."""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache

from petri.environment.needs.names.curated import (
    DISTRIBUTION,
    ELSEWHERE,
    GENERIC,
    MISTAKEN,
    NAMESPACES,
    SPECIAL,
    THEMSELVES,
)
from petri.environment.needs.names.edits import meant
from petri.environment.needs.names.tables import imports, pypi_ranks, without_wheel
from petri.environment.needs.names.verdicts import Meant, Not

FAMOUS = 2_500
"""A distribution that is among this many most used is worth imitating, and worth being meant."""
ESTABLISHED = 6_000
"""Further down the list a distribution is meant only if it is called like its module."""
SELDOM = 10_000
"""Even further down, a slip of the fingers is likelier than that one of them was meant."""
_BEFORE = re.compile(r"^(?:python-?|pytorch-|django-|scikit-|py-?|lib|dm-)")
_BEHIND = re.compile(r"-?(?:python|py|sdk|client|api)?[0-9]*$")
_NEARLY = 2
"""How many times further down the list of the most used is still about as much used."""
_FAR = 10
"""How many times further down it is no longer what anybody means."""
_SEPARATORS = re.compile(r"[-_.]+")


def normalised(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def shorter_and_shorter(module: str) -> Iterator[str]:
    """Yield a dotted name, and what is left of it without its last parts."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def known(module: str) -> Meant | Not | None:
    """Return what the longest part of a dotted name means that anything is known of."""
    table = imports()
    for part in shorter_and_shorter(module):
        if part in ELSEWHERE:
            return Not(f"`{part}` exists only on {ELSEWHERE[part]}: no package brings it here")
        if part in MISTAKEN:
            return _mistaken(part)
        if (chosen := DISTRIBUTION.get(part) or SPECIAL.get(part)) is not None:
            name = normalised(re.split("[<>=!~]", chosen)[0])
            others = [each for each in table.get(part, "").split() if each != name]
            return Meant(chosen, (name, *others))
        if part in GENERIC or part in NAMESPACES:
            return None
        if part in table:
            return _from_wheels(part, table[part])
    return None


def _mistaken(part: str) -> Not:
    instead = MISTAKEN[part]
    return Not(
        f"`{part}` is not what one imports, but `{instead}`{behind(instead)}: nothing was installed", instead
    )


def behind(module: str) -> str:
    """Return the package that brings a module, in brackets; nothing if it is called so, or if none has to."""
    if module in standard():
        return ""
    found = known(module)
    package = found.name if isinstance(found, Meant) else normalised(module)
    return "" if package == module else f" ({package})"


def _from_wheels(part: str, listed: str) -> Meant | Not:
    candidates = listed.split()
    if candidates[0].startswith("pyobjc"):
        return Not(f"`{part}` exists only on macOS: no package brings it here")
    first = namesake(part, candidates) or candidates[0]
    rank = pypi_ranks().get(first, 0)
    if (likelier := _in_another_case(part, rank) or (_slip(part) if rank >= SELDOM else None)) is not None:
        return Not(
            f"`{part}` looks like a misspelling of `{likelier}`{behind(likelier)}: nothing was installed for "
            f"it; if you mean the little known package `{first}`, declare it in requirements.txt",
            likelier,
        )
    if rank >= ESTABLISHED and not is_alike(part, first):
        return Not(
            f"`{part}` may be what the little known package `{first}` brings, and none is guessed: if you "
            f"mean it, declare it in requirements.txt",
            first,
        )
    return Meant(first, tuple(dict.fromkeys((first, *candidates))))


def _in_another_case(part: str, rank: int) -> str | None:
    """Return the famous module that differs from `part` in its capitals alone, if few mean `part` itself."""
    famous = cases().get(part.lower(), part)
    return famous if famous != part and famous_imports()[famous] * _FAR < rank else None


def _slip(part: str) -> str | None:
    """Return the famous or standard module that a little used name is one edit from."""
    if part in THEMSELVES or "." in part:
        return None
    return meant(part, famous_imports()) or meant(part, standard())


def namesake(part: str, candidates: list[str]) -> str | None:
    """Return the distribution that is called like a module, if it is the likelier one of those that bring it.

    That is so if it is hardly less used than the first, or if its name is too particular to be chance; and
    for one without wheels, which cannot be among `candidates`, if it is better known than all that are.
    """
    name, ranks = normalised(part), pypi_ranks()
    if name in candidates:
        is_near = ranks[name] < _NEARLY * ranks[candidates[0]]
        return name if is_near or "_" in part else None
    is_better_known = name in without_wheel() and ranks[name] < ranks.get(candidates[0], 0)
    return name if is_better_known else None


def is_alike(module: str, name: str) -> bool:
    """Say whether a distribution is called like a module, but for what such names have around them."""
    plain = module.lower().replace("_", "")
    short = _BEFORE.sub("", name)
    spellings = {
        each.replace("-", "") for each in (name, short, _BEHIND.sub("", name), _BEHIND.sub("", short))
    }
    spellings.add("py" + short.replace("-", ""))
    return "." in module or plain in spellings or (plain.startswith("sk") and name.startswith("scikit-"))


def brought_by(name: str) -> str | None:
    """Return the module that a well-known distribution is imported as, the shortest if there are several."""
    return _modules().get(name)


@cache
def _modules() -> Mapping[str, str]:
    pairs = [(module, normalised(chosen)) for module, chosen in (*DISTRIBUTION.items(), *SPECIAL.items())]
    pairs += [(module, name) for module, listed in imports().items() for name in listed.split()]
    found: dict[str, str] = {}
    for module, name in sorted(pairs, key=lambda pair: _how_private(pair[0])):
        found.setdefault(name, module)
    return found


def _how_private(module: str) -> tuple[bool, int, int, str]:
    return module.startswith("_"), module.count("."), len(module), module


@cache
def famous_imports() -> Mapping[str, int]:
    """Return the top-level names that are worth misspelling, and how well known each is."""
    ranks = pypi_ranks()
    found = {module: 0 for module in DISTRIBUTION if "." not in module}
    for module, listed in imports().items():
        rank = ranks.get(listed.partition(" ")[0], FAMOUS)
        if rank < FAMOUS and "." not in module and module not in GENERIC:
            found.setdefault(module, rank)
    return found


@cache
def cases() -> Mapping[str, str]:
    """Return famous imports by how they read without capitals, the best known if several read so."""
    best_last = sorted(famous_imports().items(), key=lambda pair: -pair[1])
    return {module.lower(): module for module, _ in best_last}


@cache
def standard() -> Mapping[str, int]:
    """Return the names of the standard library that are worth misspelling."""
    return {name: 0 for name in sys.stdlib_module_names if not name.startswith("_")}


@cache
def famous_distributions() -> Mapping[str, int]:
    """Return the distributions that are worth imitating."""
    return {name: rank for name, rank in pypi_ranks().items() if rank < FAMOUS}
