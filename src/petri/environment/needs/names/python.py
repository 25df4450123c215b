"""Which distribution a Python import or requirement means; and when no answer is the right one."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

from petri.environment.needs.names.curated import DISTRIBUTION, ELSEWHERE, GENERIC, MISTAKEN, NAMESPACES
from petri.environment.needs.names.edits import meant
from petri.environment.needs.names.tables import imports, pypi_ranks, without_wheel
from petri.environment.needs.names.verdicts import Meant, Not
from petri.environment.needs.nouns import Policy

FAMOUS = 2_500
"""A distribution that is among this many most used is worth imitating, and worth being meant."""
ESTABLISHED = 6_000
"""Further down the list a distribution is meant only if it is called like its module."""
_BEFORE = re.compile(r"^(?:python-?|pytorch-|django-|py-?|lib|dm-)")
_BEHIND = re.compile(r"-?(?:python|py|sdk|client|api)?[0-9]*$")
_NEARLY = 2
"""How many times further down the list of the most used is still about as much used."""
_SEPARATORS = re.compile(r"[-_.]+")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def normalised(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def is_name(name: str) -> bool:
    """Say whether a distribution can be called so."""
    return _NAME.fullmatch(name) is not None and len(name) <= 200


def meaning(module: str, policy: Policy) -> Meant | Not:
    """Return the distribution that brings `module`, a dotted name, or the reason for installing none."""
    found = _known(module) or _rooted(module) or _established(module, policy)
    if found is None:
        return _unknown(module)
    if isinstance(found, Not):
        return found
    if found.name in policy.deny:
        return Not(f"`{found.name}`, which brings `{module}`, is on the list of packages not to install here")
    return found


def _known(module: str) -> Meant | Not | None:
    """Return what the longest part of a dotted name means that anything is known of."""
    table = imports()
    for part in _shorter_and_shorter(module):
        if part in ELSEWHERE:
            return Not(f"`{part}` exists only on {ELSEWHERE[part]}: no package brings it here")
        if part in MISTAKEN:
            return _mistaken(part)
        if part in DISTRIBUTION:
            chosen = DISTRIBUTION[part]
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
    found = _known(instead)
    package = found.name if isinstance(found, Meant) else normalised(instead)
    behind = "" if package == instead else f" ({package})"
    return Not(f"`{part}` is not what one imports, but `{instead}`{behind}: nothing was installed", instead)


def _from_wheels(part: str, listed: str) -> Meant | Not:
    candidates = listed.split()
    if candidates[0].startswith("pyobjc"):
        return Not(f"`{part}` exists only on macOS: no package brings it here")
    first = namesake(part, candidates) or candidates[0]
    if pypi_ranks().get(first, 0) >= ESTABLISHED and not is_alike(part, first):
        return Not(
            f"`{part}` may be what the little known package `{first}` brings, and none is guessed: if you "
            f"mean it, declare it in requirements.txt",
            first,
        )
    return Meant(first, tuple(dict.fromkeys((first, *candidates))))


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
    return "." in module or plain in spellings or (plain.startswith("sk") and name.startswith("scikit-"))


def _rooted(module: str) -> Meant | None:
    """Return the distribution of the same name where only parts of what it brings are known to be its own.

    That is so where others have parts below the same name, or where it has no file there itself. What is
    further down beside known parts is one of those others'.
    """
    top, name = module.partition(".")[0], normalised(module.partition(".")[0])
    if pypi_ranks().get(name, ESTABLISHED) >= ESTABLISHED or {top} & (GENERIC | NAMESPACES):
        return None
    is_others = any(part in _shared() for part in _shorter_and_shorter(module) if part != top)
    brings = brought_by(name) or ""
    return Meant(name, (name,)) if brings.startswith(f"{top}.") and not is_others else None


@cache
def _shared() -> frozenset[str]:
    """Return the names that others are known below of."""
    return frozenset(part for each in imports() for part in _shorter_and_shorter(each.rpartition(".")[0]))


def _established(module: str, policy: Policy) -> Meant | None:
    """Return the distribution of the same name where that is no guess: it is well known, or allowed by name.

    Well-known ones with wheels were looked into: if such a one brought `module`, the table would have it.
    Types for others are no modules, and further down the list a slip of the fingers is likelier.
    """
    top = module.partition(".")[0]
    name = normalised(top)
    is_known = name in without_wheel() and not {top} & (GENERIC | NAMESPACES) and brought_by(name) is None
    is_module = not name.startswith("types-") and not name.endswith("-stubs")
    is_slip = pypi_ranks().get(name, 0) >= ESTABLISHED and meant(top, famous_imports()) is not None
    return Meant(name, (name,)) if (is_known and is_module and not is_slip) or name in policy.allow else None


def _unknown(module: str) -> Not:
    top = module.partition(".")[0]
    if top in GENERIC:
        return Not(
            f"`{top}` is what programs call their own modules, and this one has no file for it: no package "
            f"is guessed; upload the file, or declare the package in requirements.txt"
        )
    is_shared = (brought_by(normalised(top)) or "").startswith(f"{top}.")
    if is_shared or any(part in NAMESPACES for part in _shorter_and_shorter(module)):
        return Not(
            f"`{top}` is shared by many packages, and none is known to bring `{module}`: declare the one "
            f"you mean in requirements.txt"
        )
    return _near_miss(top) or Not(
        f"no package is known to bring `{top}`, and none is guessed: if it is yours, upload its file; if it "
        f"is a package, declare it by its exact name in requirements.txt"
    )


def _near_miss(top: str) -> Not | None:
    brings = brought_by(normalised(top))
    if brings is not None:
        return Not(f"the package `{normalised(top)}` is imported as `{brings}`, not as `{top}`", brings)
    famous = meant(top, famous_imports())
    if famous is None:
        return None
    found = _known(famous)
    package = found.name if isinstance(found, Meant) else famous
    behind = "" if package == famous else f" ({package})"
    return Not(
        f"`{top}` looks like a misspelling of `{famous}`{behind}: nothing was installed for it", famous
    )


def brought_by(name: str) -> str | None:
    """Return the module that a well-known distribution is imported as, the shortest if there are several."""
    return _modules().get(name)


@cache
def _modules() -> Mapping[str, str]:
    pairs = [(module, normalised(chosen)) for module, chosen in DISTRIBUTION.items()]
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
def famous_distributions() -> Mapping[str, int]:
    """Return the distributions that are worth imitating."""
    return {name: rank for name, rank in pypi_ranks().items() if rank < FAMOUS}


def objection(name: str, policy: Policy) -> Not | None:
    """Return why a distribution that somebody declared by name is not installed, or None if it may be."""
    name = normalised(name)
    if name in policy.deny:
        return Not(f"`{name}` is on the list of packages not to install here")
    if name in policy.allow:
        return None
    if (called := _imported_as(name)) is not None:
        return Not(f"`{name}` is what one imports; the package is called `{called}`", called)
    famous = None if name in pypi_ranks() else meant(name, famous_distributions())
    if famous is None:
        return None
    return Not(f"`{name}` looks like a misspelling of `{famous}`: nothing was installed for it", famous)


def _imported_as(name: str) -> str | None:
    """Return the distribution that brings the module `name`, where one of that name is another's or nobody's.

    `sklearn` and `docx` are on the index, without wheels, for those who mistook the module for the package.
    """
    if name in pypi_ranks() and name not in without_wheel():
        return None
    found = _known(name.replace("-", "_"))
    return found.name if isinstance(found, Meant) and found.name != name else None


def _shorter_and_shorter(module: str) -> Iterator[str]:
    while module:
        yield module
        module = module.rpartition(".")[0]
