"""Requirements as projects declare them: checked to be nothing but a name, versions and a marker."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from petri.environment.needs.names.known import normalised
from petri.environment.needs.names.python import objection
from petri.environment.needs.nouns import Because, Lock, Policy, Refusal, Requirement, Source

_VERSION = r"(?:===?|~=|!=|<=|>=|<|>)\s*+[\w.*+!-]+"
_REQUIREMENT = re.compile(
    rf"""(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,198}}[A-Za-z0-9])?)\s*+
    (?P<extras>\[[\w\s,.-]*\])?\s*+
    (?P<versions>\(?\s*+{_VERSION}(?:\s*+,\s*+{_VERSION})*\s*+,?\s*+\)?)?\s*+
    (?:;\s*+(?P<marker>[\w\s.<>=!~'"()+*,-]{{1,400}}))?""",
    re.VERBOSE | re.ASCII,
)
_MOST_CHARACTERS = 1_000
_ELSEWHERE = re.compile(r"@\s*\S|^(?:git|hg|svn|bzr)\+|^(?:https?|file):|^\.{0,2}/|\.(?:whl|zip|tar\.gz)$")


@dataclass(frozen=True, slots=True)
class Declaration:
    """One line of a manifest."""

    text: str
    path: str
    line: int | None = None


@dataclass(slots=True)
class Declared:
    """What a manifest or a lock comes to."""

    source: Source
    path: str
    declarations: list[Declaration] = field(default_factory=list)
    lock: Lock | None = None
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Vetted:
    """Declarations, sorted into what may be installed and what may not."""

    requirements: tuple[Requirement, ...]
    refused: tuple[Refusal, ...]


def vet(declarations: Iterable[Declaration], policy: Policy) -> Vetted:
    """Return what declarations come to under a policy."""
    requirements: dict[str, Requirement] = {}
    refused: dict[str, Refusal] = {}
    for each in declarations:
        verdict = vet_one(each, policy)
        if isinstance(verdict, Refusal):
            refused.setdefault(verdict.name, verdict)
        else:
            requirements.setdefault(verdict.text, verdict)
    return Vetted(tuple(requirements.values()), tuple(refused.values()))


def vet_one(declaration: Declaration, policy: Policy) -> Requirement | Refusal:
    """Return the requirement that a declaration is, or why it is not one to follow."""
    said = declaration.text.strip()
    because = (Because(declaration.path, declaration.line, said[:_MOST_CHARACTERS]),)
    match = _REQUIREMENT.fullmatch(said) if len(said) <= _MOST_CHARACTERS else None
    if match is None:
        return Refusal(said[:200], _what_is_wrong(said), None, because)
    if objected := objection(match["name"], policy):
        return Refusal(match["name"], objected.sentence, objected.suggestion, because)
    return Requirement(normalised(match["name"]), _canonical(match), because)


def _what_is_wrong(said: str) -> str:
    if _ELSEWHERE.search(said):
        return f"`{said[:200]}` is not from the package index: only packages from there are installed"
    return f"`{said[:200]}` is not a requirement: write a name and versions, as in `numpy>=2`"


def _canonical(match: re.Match[str]) -> str:
    extras = "".join((match["extras"] or "").split())
    versions = "".join((match["versions"] or "").strip("() \t,").split())
    marker = f"; {' '.join(match['marker'].split())}" if match["marker"] else ""
    return f"{normalised(match['name'])}{extras}{versions}{marker}"
