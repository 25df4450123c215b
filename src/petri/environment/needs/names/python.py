"""Which distribution a Python import or requirement means; and when no answer is the right one."""

import re
from functools import cache

from petri.environment.needs.names.curated import GENERIC, NAMESPACES, THEMSELVES
from petri.environment.needs.names.known import (
    ESTABLISHED,
    brought_by,
    known,
    normalised,
    shorter_and_shorter,
)
from petri.environment.needs.names.tables import imports, pypi_ranks, without_wheel
from petri.environment.needs.names.unknown import misnamed, unknown
from petri.environment.needs.names.verdicts import Meant, Not
from petri.environment.needs.nouns import Policy

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def is_name(name: str) -> bool:
    """Say whether a distribution can be called so."""
    return _NAME.fullmatch(name) is not None and len(name) <= 200


def meaning(module: str, policy: Policy) -> Meant | Not:
    """Return the distribution that brings `module`, a dotted name, or the reason for installing none."""
    found = known(module) or _rooted(module) or _established(module, policy)
    if found is None:
        return unknown(module)
    if isinstance(found, Not):
        return found
    if found.name in policy.deny:
        return Not(f"`{found.name}`, which brings `{module}`, is on the list of packages not to install here")
    return found


def _rooted(module: str) -> Meant | None:
    """Return the distribution of the same name where only parts of what it brings are known to be its own.

    That is so where others have parts below the same name, or where it has no file there itself. What is
    further down beside known parts is one of those others'.
    """
    top, name = module.partition(".")[0], normalised(module.partition(".")[0])
    if pypi_ranks().get(name, ESTABLISHED) >= ESTABLISHED or {top} & (GENERIC | NAMESPACES):
        return None
    is_others = any(part in _shared() for part in shorter_and_shorter(module) if part != top)
    brings = brought_by(name) or ""
    return Meant(name, (name,)) if brings.startswith(f"{top}.") and not is_others else None


@cache
def _shared() -> frozenset[str]:
    """Return the names that others are known below of."""
    return frozenset(part for each in imports() for part in shorter_and_shorter(each.rpartition(".")[0]))


def _established(module: str, policy: Policy) -> Meant | None:
    """Return the distribution of the same name where that is no guess: it is well known, or allowed by name.

    Well-known ones with wheels were looked into: if such a one brought `module`, the table would have it.
    Types for others are no modules. Further down the list nobody can tell whose a name is but by looking.
    """
    top = module.partition(".")[0]
    name = normalised(top)
    is_known = name in without_wheel() and not {top} & (GENERIC | NAMESPACES) and brought_by(name) is None
    is_module = not name.startswith("types-") and not name.endswith("-stubs")
    is_settled = pypi_ranks().get(name, ESTABLISHED) < ESTABLISHED or top in THEMSELVES
    return Meant(name, (name,)) if (is_known and is_module and is_settled) or name in policy.allow else None


def objection(name: str, policy: Policy) -> Not | None:
    """Return why a distribution that somebody declared by name is not installed, or None if it may be."""
    if normalised(name) in policy.deny:
        return Not(f"`{normalised(name)}` is on the list of packages not to install here")
    return None if normalised(name) in policy.allow else misnamed(name)
