"""A project's own packages, by the names its files import them by: what `npm install` would only link.

They are the members of a workspace, and folders that a package.json declares by their path. Both become
links in a cell: a name is one that npm allows, and a folder lies in the workspace, whoever wrote it down.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice

from petri.environment.needs.bounds import MOST_FOLDERS, MOST_REQUIREMENTS
from petri.environment.needs.manifests.parsing import json_object, string, strings, table
from petri.environment.needs.names.npm import BUILTIN, is_name
from petri.environment.needs.nouns import Member
from petri.environment.needs.project import NOT_THE_PROJECT, Project, join, upwards, within

_MOST_MEMBERS = 500
_MOST_PROGRAMS = 50
"""Of one of them."""
_MOST_PATTERNS = 50
_MOST_PARTS = 16
_MOST_LOOKED_AT = 50_000
"""Names that all patterns together are held against."""
_MOST_PATH_BYTES = 1_000
"""Of a member's folder: it is to fit into a link."""
_GROUPS = ("dependencies", "devDependencies", "optionalDependencies")
_PROGRAM = re.compile(r"[A-Za-z0-9_][\w.-]{0,100}", re.ASCII)
_BY_PATH = re.compile(r"(?:file|link|portal):(.{1,1000})")


@dataclass(slots=True)
class Own:
    """A project's own packages."""

    folders: dict[str, str] = field(default_factory=dict)
    """By their names."""
    is_cut: bool = False
    """There are more than were looked for."""

    def add(self, name: str | None, folder: str) -> None:
        """Take one, if its name and folder can be links."""
        if name is None or not is_name(name) or name in BUILTIN or name in self.folders or not _fits(folder):
            return
        if len(self.folders) >= _MOST_MEMBERS:
            self.is_cut = True
        else:
            self.folders[name] = folder


def members(project: Project, folders: Iterable[str]) -> Own:
    """Return what programs in `folders` find beside what is installed."""
    found = Own()
    looking = _Looking(project)
    for place in dict.fromkeys(place for folder in folders for place in upwards(folder)):
        said = _manifest(project, place)
        for member in _listed(project, looking, place, said):
            inner = _manifest(project, member)
            found.add(string(inner.get("name")), member)
            _add_declared(project, found, member, inner)
        _add_declared(project, found, place, said)
        if found.is_cut:
            break
    found.is_cut |= looking.is_cut
    return found


def as_members(project: Project, own: Own) -> tuple[Member, ...]:
    """Return them with the programs that each brings."""
    return tuple(
        Member(name, folder, tuple(_programs(project, name, folder)))
        for name, folder in sorted(own.folders.items())
    )


def _programs(project: Project, name: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield what `"bin": "cli.js"` or `"bin": {"tool": "cli.js"}` in a package.json comes to."""
    said = _manifest(project, folder).get("bin")
    named = {name.rpartition("/")[2]: said} if isinstance(said, str) else table({"": said}, "")
    for program, path in islice(named.items(), _MOST_PROGRAMS):
        leads = within(folder, path) if isinstance(path, str) else None
        if leads is not None and _PROGRAM.fullmatch(program) and _fits(leads) and project.is_file(leads):
            yield program, leads


def _manifest(project: Project, folder: str) -> dict[str, object]:
    return json_object(project.text(join(folder, "package.json")))


def _fits(folder: str) -> bool:
    """Say whether a link can lead there: some names are none that a kernel knows."""
    try:
        return len(os.fsencode(folder)) <= _MOST_PATH_BYTES
    except UnicodeEncodeError:
        return False


def _add_declared(project: Project, found: Own, folder: str, said: dict[str, object]) -> None:
    """Take what is declared as in `"lib": "file:../lib"`."""
    for group in _GROUPS:
        for name, wanted in islice(table(said, group).items(), MOST_REQUIREMENTS):
            by_path = _BY_PATH.fullmatch(string(wanted) or "")
            leads = within(folder, by_path[1].removeprefix("//")) if by_path else None
            if leads is not None and project.is_folder(leads):
                found.add(name, leads)


def _listed(project: Project, looking: "_Looking", folder: str, said: dict[str, object]) -> list[str]:
    """Return the folders that the workspace of a package.json, or of pnpm beside it, consists of."""
    listed = said.get("workspaces")
    patterns = strings(listed) or strings(table({"": listed}, "").get("packages"))
    pnpm = project.text(join(folder, "pnpm-workspace.yaml")) or ""
    patterns += re.findall(r"^\s+-\s*[\"']?([^\"'#\s]+)", pnpm, re.MULTILINE)
    found: dict[str, None] = {}
    for pattern in patterns[:_MOST_PATTERNS]:
        if pattern.startswith("!"):
            for each in looking.matching(folder, pattern[1:]):
                found.pop(each, None)
        else:
            found.update(dict.fromkeys(looking.matching(folder, pattern)))
    looking.is_cut |= len(patterns) > _MOST_PATTERNS or len(found) > _MOST_MEMBERS
    return list(found)[:_MOST_MEMBERS]


class _Looking:
    """What patterns mean, and how much all of them may still look at."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.is_cut = False
        """They meant more than was looked at."""
        self._left = _MOST_LOOKED_AT

    def matching(self, folder: str, pattern: str) -> list[str]:
        """Return the folders with a package.json that a pattern means: `lib`, `packages/*`, `apps/**`."""
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        plain = next((index for index, part in enumerate(parts) if "*" in part), len(parts))
        base = within(folder, "/".join(parts[:plain]) or ".")
        if base is None or len(parts) > _MOST_PARTS or ".." in parts[plain:]:
            return []
        found = [base]
        for part in parts[plain:]:
            below = list(dict.fromkeys(islice(self._below(found, part), MOST_FOLDERS + 1)))
            found = below[:MOST_FOLDERS]
            self.is_cut |= len(below) > MOST_FOLDERS
        return [each for each in found if self._project.has(join(each, "package.json"))]

    def _below(self, folders: list[str], part: str) -> Iterator[str]:
        for folder in folders:
            for path in self._candidates(folder, part):
                self._left -= 1
                if self._left < 0:
                    self.is_cut = True
                    return
                name = path.rpartition("/")[2]
                if part == "**" or (name not in NOT_THE_PROJECT and fnmatchcase(name, part)):
                    yield path
            self.is_cut |= part == "**" and folder in self._project.cut

    def _candidates(self, folder: str, part: str) -> Iterable[str]:
        if part == "**":
            return self._project.folders(folder)
        names = sorted(self._project.names(folder)) if "*" in part else [part]
        return (join(folder, name) for name in names)
