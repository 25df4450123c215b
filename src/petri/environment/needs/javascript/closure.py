"""From the entry outward: every package that a program's own JavaScript and TypeScript files lead to."""

from dataclasses import dataclass

from blake3 import blake3

from petri.environment.needs.asking import names_an_installer
from petri.environment.needs.bounds import MOST_FILES, MOST_FRESH_BYTES
from petri.environment.needs.entry import Program
from petri.environment.needs.javascript.imports import Import, imports
from petri.environment.needs.javascript.local import ENDINGS, LocalFiles
from petri.environment.needs.memory import Memory
from petri.environment.needs.project import Project

MOST_SOURCE_BYTES = 2 << 20
"""What is larger was made by a bundler, and has its packages inside."""
_seen: Memory["_Seen"] = Memory(50_000)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one source imports, and whether it names an installer of packages."""

    imports: tuple[Import, ...] = ()
    asks: bool = False


_NOTHING = _Seen()


@dataclass(frozen=True, slots=True)
class Foreign:
    """A specifier that none of the program's own files answers."""

    path: str
    found: Import
    is_needed: bool


def closure(project: Project, local: LocalFiles, program: Program) -> list[Foreign]:
    """Return what a program imports from elsewhere."""
    walk, folder = _Walk(project, local), program.folder
    if program.code is not None:
        source = program.code.encode(errors="replace")[:MOST_SOURCE_BYTES]
        # Code that is in no file is in the folder it is started from.
        walk.follow(f"{folder}/-" if folder else "-", _look(source), is_needed=True)
    walk.needed += program.files
    walk.through(walk.needed, is_needed=True)
    walk.through(walk.optional, is_needed=False)
    return walk.foreign


class _Walk:
    def __init__(self, project: Project, local: LocalFiles) -> None:
        self.foreign: list[Foreign] = []
        self.needed: list[str] = []
        self.optional: list[str] = []
        self._project = project
        self._local = local
        self._done: set[str] = set()
        self._left_bytes = MOST_FRESH_BYTES
        self._leads: dict[tuple[str, str], tuple[str, ...] | None] = {}

    def through(self, waiting: list[str], *, is_needed: bool) -> None:
        """Look at each file once; the list grows on the way."""
        for path in waiting:
            if path not in self._done and len(self._done) < MOST_FILES:
                self._done.add(path)
                self.follow(path, self._imports(path), is_needed=is_needed)

    def follow(self, path: str, seen: _Seen, *, is_needed: bool) -> None:
        """Take up the imports of one file."""
        self._project.asks |= seen.asks
        for each in seen.imports:
            needed = is_needed and each.is_needed
            leads = self._resolve(path, each.specifier)
            if leads is None:
                self.foreign.append(Foreign("" if path.endswith("-") else path, each, needed))
            else:
                (self.needed if needed else self.optional).extend(leads)

    def _resolve(self, path: str, specifier: str) -> tuple[str, ...] | None:
        # A bare specifier means the same wherever it stands.
        key = (path.rpartition("/")[0] if specifier.startswith(".") else "", specifier)
        if key not in self._leads:
            self._leads[key] = self._local.resolve(path, specifier)
        return self._leads[key]

    def _imports(self, path: str) -> _Seen:
        if not path.endswith(ENDINGS):
            return _NOTHING
        reader = self._project.reader
        digest = reader.digest(path)
        known = _seen.get(digest) if digest is not None else None
        if known is not None:
            return known
        source = reader.read(path, min(MOST_SOURCE_BYTES, self._left_bytes))
        if source is None:
            return _NOTHING
        self._left_bytes -= len(source)
        key = digest or blake3(source).digest()
        known = _seen.get(key)
        return known if known is not None else _seen.keep(key, _look(source))


def _look(source: bytes) -> _Seen:
    return _Seen(imports(source), names_an_installer(source))
