"""package.json and the locks beside it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from petri.environment.needs.bounds import MOST_REQUIREMENTS
from petri.environment.needs.manifests.parsing import json_object, string, table
from petri.environment.needs.names.npm import is_name, objection
from petri.environment.needs.nouns import Because, Lock, Pin, Policy, Refusal, Requirement
from petri.environment.needs.project import Project, join, upwards

LOCKS = ("bun.lock", "pnpm-lock.yaml", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock")
_GROUPS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_RANGE = re.compile(r"[\w\s.*^~<>=|+-]{0,200}")
_OWN = ("workspace:", "file:", "link:", "portal:", "catalog:")


@dataclass(frozen=True, slots=True)
class Declared:
    """What the nearest package.json says."""

    path: str
    requirements: tuple[Requirement, ...]
    refused: tuple[Refusal, ...]
    lock: Lock | None
    names: frozenset[str]
    """All that are declared, the project's own packages too."""


def find(project: Project, folder: str, policy: Policy) -> Declared | None:
    """Return what is declared for a program in `folder`; None where no package.json speaks of packages."""
    for each in upwards(folder):
        path = join(each, "package.json")
        said = json_object(project.text(path))
        if any(table(said, group) for group in _GROUPS):
            return _read(project, each, said, policy)
    return None


def _read(project: Project, folder: str, said: dict[str, object], policy: Policy) -> Declared:
    path = join(folder, "package.json")
    requirements: dict[str, Requirement] = {}
    refused: list[Refusal] = []
    entries = [(name, wanted) for group in _GROUPS for name, wanted in table(said, group).items()]
    for name, wanted in entries[:MOST_REQUIREMENTS]:
        versions = string(wanted)
        if versions is None or versions.startswith(_OWN) or name in requirements:
            continue
        verdict = vet(name, versions, Because(path, None, f'"{name}": "{versions}"'[:400]), policy)
        if isinstance(verdict, Refusal):
            refused.append(verdict)
        else:
            requirements[name] = verdict
    names = frozenset(name for name, _ in entries)
    return Declared(path, tuple(requirements.values()), tuple(refused), _lock(project, folder), names)


def vet(name: str, versions: str, because: Because, policy: Policy) -> Requirement | Refusal:
    """Return the requirement that a name and a range are, or why they are not one to follow."""
    inner = re.fullmatch(r"npm:(@?[^@]+)(?:@(.*))?", versions)
    meant = inner[1] if inner else name
    bare = (inner[2] or "") if inner else versions
    if not is_name(meant) or not is_name(name):
        return Refusal(name[:200], f"`{name[:200]}` is not the name of an npm package", None, (because,))
    if not _RANGE.fullmatch(bare):
        sentence = (
            f"`{name}` is not from the package index but from `{bare[:200]}`, and nothing else is installed"
        )
        return Refusal(name, sentence, None, (because,))
    if objected := objection(meant, policy):
        return Refusal(name, objected.sentence, objected.suggestion, (because,))
    spec = f"npm:{meant}@{bare.strip() or '*'}" if inner else bare.strip() or "*"
    return Requirement(name, f"{name}@{spec}", (because,))


def _lock(project: Project, folder: str) -> Lock | None:
    for place in upwards(folder):
        for name in LOCKS:
            path = join(place, name)
            if (text := project.text(path)) is not None:
                return Lock(path, text, tuple(_pins(name, text)))
    return None


def _pins(name: str, text: str) -> Iterator[Pin]:
    """Yield the pins of the locks that are JSON; the others are for their own tools to read."""
    if name == "bun.lock":
        for entry in table(json_object(text), "packages").values():
            if isinstance(entry, list) and entry and isinstance(entry[0], str) and "@" in entry[0][1:]:
                package, _, version = entry[0].rpartition("@")
                yield Pin(package, version, tuple(each for each in entry[-1:] if isinstance(each, str)))
    elif name.endswith(".json"):
        for path, entry in table(json_object(text), "packages").items():
            said = table({"": entry}, "")
            settled, whole = string(said.get("version")), string(said.get("integrity"))
            if "node_modules/" in path and settled is not None:
                yield Pin(path.rpartition("node_modules/")[2], settled, (whole,) if whole else ())
