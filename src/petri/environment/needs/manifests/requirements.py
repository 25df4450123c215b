"""requirements.txt, as pip reads it: continued lines, comments, other files, hashes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from petri.environment.needs.bounds import MOST_REQUIREMENTS
from petri.environment.needs.manifests.declared import Declaration
from petri.environment.needs.names.known import normalised
from petri.environment.needs.nouns import Pin
from petri.environment.needs.project import Project, parent, within

_COMMENT = re.compile(r"(?:^|\s)#.*$")
_HASH = re.compile(r"--hash[=\s](sha(?:256|384|512):[0-9a-f]+)")
_INCLUDED = re.compile(r"(?:-r|--requirement)[=\s]*(\S+)")
_OPTION = re.compile(r"\s--\S+.*$")
_PINNED = re.compile(r"([\w.-]+)\s*(?:\[[^\]]*\])?\s*===?\s*([\w.+!-]+)\s*(?:;(.*))?")
_ITSELF = re.compile(r"(?:-e|--editable)[=\s]*\.?/?(?:\[[\w,\s-]*\])?|\.(?:\[[\w,\s-]*\])?")
_MOST_FILES = 20


@dataclass(slots=True)
class Lines:
    """What a file of requirements, and those it includes, come to."""

    declarations: list[Declaration] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    has_itself: bool = False
    """Whether the project itself is among them: `-e .`."""

    @property
    def is_lock(self) -> bool:
        """Whether every line has a hash."""
        return bool(self.pins) and len(self.pins) == len(self.declarations)


def read(project: Project, path: str) -> Lines | None:
    """Return what a file of requirements says, or None if there is no such file."""
    if project.text(path) is None:
        return None
    found = Lines()
    waiting = [path]
    for each in waiting:
        for line, said in _logical(project.text(each) or ""):
            if match := _INCLUDED.match(said):
                inner = within(parent(each), match[1])
                if inner is not None and inner not in waiting and len(waiting) < _MOST_FILES:
                    waiting.append(inner)
            elif len(found.declarations) < MOST_REQUIREMENTS:
                _take(found, each, line, said)
    return found


def _take(found: Lines, path: str, line: int, said: str) -> None:
    if _ITSELF.fullmatch(said):
        found.has_itself = True
        return
    if said.startswith("-"):
        return
    bare = _OPTION.sub("", said).strip()
    hashes = tuple(_HASH.findall(said))
    pinned = _PINNED.fullmatch(bare)
    if hashes and pinned:
        marker = (pinned[3] or "").strip() or None
        found.pins.append(Pin(normalised(pinned[1]), pinned[2], hashes, marker))
    found.declarations.append(Declaration(bare, path, line))


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, continued ones joined, with the number each begins on."""
    begun, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        said = _COMMENT.sub("", begun + line).strip()
        if said:
            yield start, said
        begun, start = "", 0
    if begun.strip():
        yield start, begun.strip()
