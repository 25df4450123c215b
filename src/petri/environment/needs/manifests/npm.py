"""package.json and the locks beside it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from petri.environment.needs.bounds import MOST_BECAUSE, MOST_REQUIREMENTS
from petri.environment.needs.manifests.parsing import json_object, string, table
from petri.environment.needs.names.npm import is_name, objection
from petri.environment.needs.nouns import Because, Lock, Pin, Policy, Refusal, Requirement
from petri.environment.needs.project import Project, join, upwards

LOCKS = ("bun.lock", "pnpm-lock.yaml", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock")
_GROUPS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_OF_OTHERS = ("dependencies", "optionalDependencies", "peerDependencies")
"""What a package needs where it is used, and not to be worked on."""
_RANGE = re.compile(r"[\w\s.*^~<>=|+-]{0,200}")
_OWN = ("workspace:", "file:", "link:", "portal:", "catalog:")


@dataclass(frozen=True, slots=True)
class Declared:
    """What the nearest package.json says, and those of the project's own packages that a program uses."""

    paths: tuple[str, ...]
    requirements: tuple[Requirement, ...]
    refused: tuple[Refusal, ...]
    lock: Lock | None
    names: frozenset[str]
    """All that are declared, the project's own packages too."""
    overruled: tuple[str, ...]
    """What one of them asks for in other words than one before it, and does not get."""


def find(
    project: Project, folder: str, policy: Policy, own: Mapping[str, str], used: Iterable[str]
) -> Declared | None:
    """Return what is declared for a program in `folder`; None where no package.json speaks of packages.

    `own` are the project's own packages, which no index is asked for, whatever versions are declared; `used`
    are the folders of those that the program imports.
    """
    reading = _Reading(project, policy, own)
    nearest = (each for each in upwards(folder) if reading.take(each, _GROUPS))
    next(nearest, None)
    waiting = [*used, *reading.leads, *(upwards(folder) if own else ())]
    for each in waiting:
        already = len(reading.leads)
        reading.take(each, _OF_OTHERS)
        waiting += reading.leads[already:]
    return reading.declared()


class _Reading:
    """One package.json after the other; the first to speak of a package decides."""

    def __init__(self, project: Project, policy: Policy, own: Mapping[str, str]) -> None:
        self.leads: list[str] = []
        """Folders of the project's own packages that others declare, each once."""
        self._project = project
        self._policy = policy
        self._own = own
        self._done: set[str] = set()
        self._spoke: list[str] = []
        self._names: set[str] = set()
        self._found: dict[str, Requirement | Refusal] = {}
        self._overruled: list[str] = []

    def take(self, folder: str, groups: tuple[str, ...]) -> bool:
        """Take up what the package.json in a folder declares; False where it declares nothing."""
        said = json_object(self._project.text(join(folder, "package.json")))
        entries = [(name, versions) for group in groups for name, versions in table(said, group).items()]
        if not entries or folder in self._done:
            return False
        self._done.add(folder)
        self._spoke.append(folder)
        self._names.update(name for name, _ in entries)
        here: set[str] = set()
        for name, wanted in entries[:MOST_REQUIREMENTS]:
            versions = string(wanted)
            if name in self._own:
                self.leads += [self._own[name]] if self._own[name] not in self.leads else []
            elif versions is not None and not versions.startswith(_OWN) and name not in here:
                here.add(name)
                self._declare(name, versions, join(folder, "package.json"))
        return True

    def _declare(self, name: str, versions: str, path: str) -> None:
        because = Because(path, None, f'"{name}": "{versions}"'[:400])
        verdict = vet(name, versions, because, self._policy)
        known = self._found.get(name)
        if known is None:
            if len(self._found) < MOST_REQUIREMENTS:
                self._found[name] = verdict
        elif isinstance(known, Requirement) and len(known.because) < MOST_BECAUSE:
            self._found[name] = replace(known, because=(*known.because, because))
            if not isinstance(verdict, Requirement) or verdict.text != known.text:
                self._overruled.append(f"{because.said} of {path}"[:200])

    def declared(self) -> Declared | None:
        """Return all of it; None where there was nothing."""
        if not self._spoke:
            return None
        return Declared(
            tuple(join(each, "package.json") for each in self._spoke),
            tuple(each for each in self._found.values() if isinstance(each, Requirement)),
            tuple(each for each in self._found.values() if isinstance(each, Refusal)),
            _lock(self._project, self._spoke[0]),
            frozenset(self._names),
            tuple(self._overruled),
        )


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
