"""What to say of a name that nothing is known to bring: whose it may be, and what may have been meant."""

import re
from collections.abc import Mapping
from functools import cache

from petri.environment.needs.names.curated import GENERIC, NAMESPACES, STRANGERS
from petri.environment.needs.names.edits import meant
from petri.environment.needs.names.known import (
    behind,
    brought_by,
    cases,
    famous_distributions,
    famous_imports,
    known,
    normalised,
    shorter_and_shorter,
    standard,
)
from petri.environment.needs.names.tables import pypi_ranks, without_wheel
from petri.environment.needs.names.verdicts import Meant, Not

_AFFIXES = re.compile(r"^(?:python[0-9]?|py|lib)-|-(?:python|py|lib|library|package)[0-9]?$")
"""What is put around a package's name by those who guess it, and by Debian."""


def unknown(module: str) -> Not:
    """Return why nothing is installed for a module that nothing is known to bring."""
    top = module.partition(".")[0]
    if top in GENERIC:
        return Not(
            f"`{top}` is what programs call their own modules, and this one has no file for it: no package "
            f"is guessed; upload the file, or declare the package in requirements.txt"
        )
    is_shared = (brought_by(normalised(top)) or "").startswith(f"{top}.")
    if is_shared or any(part in NAMESPACES for part in shorter_and_shorter(module)):
        return Not(
            f"`{top}` is shared by many packages, and none is known to bring `{module}`: declare the one "
            f"you mean in requirements.txt"
        )
    return _near_miss(top) or Not(
        f"no package is known to bring `{top}`, and none is guessed: if it is yours, upload its file; if it "
        f"is a package, declare it by its exact name in requirements.txt"
    )


def _near_miss(top: str) -> Not | None:
    """Return what may have been meant: a module, what a package is called, or a misspelling of either."""
    famous = cases().get(top.lower())
    if famous is None and (package := _package_written(top)) is not None:
        brings = brought_by(package)
        return Not(f"the package `{package}` is imported as `{brings}`, not as `{top}`", brings)
    if (famous := famous or meant(top, famous_imports())) is not None:
        return Not(
            f"`{top}` looks like a misspelling of `{famous}`{behind(famous)}: nothing was installed for it",
            famous,
        )
    if (own := meant(top, standard())) is not None:
        return Not(
            f"`{top}` looks like a misspelling of `{own}`, which Python has itself: nothing was installed "
            f"for it; if it is yours, upload its file",
            own,
        )
    package = meant(normalised(top), famous_distributions())
    if package is None or (brings := brought_by(package)) is None:
        return None
    return Not(
        f"`{top}` looks like a misspelling of `{package}`, a package that is imported as `{brings}`: nothing "
        f"was installed for it",
        brings,
    )


def _package_written(top: str) -> str | None:
    """Return the package that somebody named where its module belongs, with or without its separators."""
    name = normalised(top)
    name = name if brought_by(name) is not None else _run_together().get(name.replace("-", ""), name)
    return name if brought_by(name) is not None else None


@cache
def _run_together() -> Mapping[str, str]:
    """Return the famous distributions by their names without separators."""
    best_last = sorted(famous_distributions(), key=lambda name: -famous_distributions()[name])
    return {name.replace("-", ""): name for name in best_last}


def misnamed(said: str) -> Not | None:
    """Return why a distribution of that name is not the one meant, or None if it may be.

    What is among the well-known ones is meant, but for the few that are strangers to all who name them.
    """
    name = normalised(said)
    if (instead := STRANGERS.get(name.replace("-", "_"))) is not None:
        found = known(instead)
        package = found.name if isinstance(found, Meant) else instead
        return Not(f"`{name}` is not the package that brings `{instead}`; that is `{package}`", package)
    if (called := _imported_as(said)) is not None:
        return Not(f"`{name}` is what one imports; the package is called `{called}`", called)
    if name in pypi_ranks():
        return None
    if (famous := _guessed(name)) is not None:
        return Not(
            f"no well-known package is called `{name}`; `{famous}` is: nothing was installed for it", famous
        )
    if (famous := meant(name, famous_distributions())) is not None:
        return Not(f"`{name}` looks like a misspelling of `{famous}`: nothing was installed for it", famous)
    return None


def _imported_as(said: str) -> str | None:
    """Return the distribution that brings the module `said`, where one of that name is another's or nobody's.

    `sklearn` and `docx` are on the index, without wheels, for those who mistook the module for the package.
    """
    name = normalised(said)
    if name in pypi_ranks() and name not in without_wheel():
        return None
    spellings = (said.replace("-", "_"), name.replace("-", "_"), cases().get(name.replace("-", "_"), ""))
    found = next((verdict for each in spellings if isinstance(verdict := known(each), Meant)), None)
    return found.name if found is not None and found.name != name else None


def _guessed(name: str) -> str | None:
    """Return the famous distribution that has the words of `name` otherwise arranged, or all but an affix."""
    other = _in_any_order().get(frozenset(name.split("-"))) or _run_together().get(name.replace("-", ""))
    if other is not None:
        return other
    bare = _AFFIXES.sub("", name)
    return bare if bare != name and bare in famous_distributions() else None


@cache
def _in_any_order() -> Mapping[frozenset[str], str]:
    best_last = sorted(famous_distributions(), key=lambda name: -famous_distributions()[name])
    return {frozenset(name.split("-")): name for name in best_last if "-" in name}
