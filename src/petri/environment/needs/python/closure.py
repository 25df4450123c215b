"""From the entry outward: every import that a program's own files lead to, through the files themselves."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from blake3 import blake3

from petri.environment.needs.asking import names_an_installer
from petri.environment.needs.bounds import MOST_BECAUSE, MOST_FILES, MOST_FRESH_BYTES, MOST_SOURCE_BYTES
from petri.environment.needs.memory import Memory
from petri.environment.needs.project import Project
from petri.environment.needs.python.imports import Import, imports, quick_roots
from petri.environment.needs.python.local import LocalModules
from petri.environment.needs.python.notebook import code_of
from petri.environment.needs.python.stdlib import is_standard


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one source imports, whoever's project it is in."""

    others: tuple[Import, ...]
    standard: frozenset[str]
    """The modules of the standard library: most of what is imported, and hardly ever of interest."""
    asks: bool = False
    """It names an installer of packages."""


_NOTHING = _Seen((), frozenset())
_seen: Memory[_Seen] = Memory(50_000)


@dataclass(frozen=True, slots=True)
class Foreign:
    """An import that none of the program's own files answers."""

    path: str
    found: Import
    is_needed: bool


@dataclass(frozen=True, slots=True)
class Start:
    """Where a walk begins: files, modules or code; and the folders that modules are looked for in."""

    folders: tuple[str, ...]
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    code: str | None = None


class Closure:
    """One walk through a program. `foreign` is what it found."""

    def __init__(self, project: Project, start: Start, python: tuple[int, int]) -> None:
        self.foreign: list[Foreign] = []
        self._project = project
        self._python = python
        self._local = LocalModules(project, start.folders)
        self._left_bytes = MOST_FRESH_BYTES
        self._done: set[str] = set()
        self._times: dict[tuple[str, tuple[str, ...], bool], int] = {}
        self._needed = list(start.files)
        self._optional: list[str] = []
        self._begin(start)
        self._walk(self._needed, is_needed=True)
        self._walk(self._optional, is_needed=False)

    def _begin(self, start: Start) -> None:
        if start.code is not None:
            source = start.code.encode(errors="replace")[:MOST_SOURCE_BYTES]
            self._follow("", self._look(source), is_needed=True)
        named = [Import(module, (), 0, 0, is_needed=True) for module in start.modules]
        self._follow("", self._sorted(named), is_needed=True)

    def _walk(self, waiting: list[str], *, is_needed: bool) -> None:
        """Look at each file once. What is needed is looked at first, so that nothing must be again."""
        for path in waiting:
            if path not in self._done and len(self._done) < MOST_FILES:
                self._done.add(path)
                self._follow(path, self._imports(path), is_needed=is_needed)

    def _follow(self, path: str, seen: _Seen, *, is_needed: bool) -> None:
        local, done = self._local, self._done
        self._project.asks |= seen.asks
        replaced = [Import(name, (), 0, 0, is_needed) for name in sorted(seen.standard & local.tops)]
        for each in (*seen.others, *replaced):
            needed = is_needed and each.is_needed
            own = local.relative(path, each.level, each.module) if each.level else local.absolute(each.module)
            if own is None:
                self._note(path, each, is_needed=needed)
                continue
            waiting = self._needed if needed else self._optional
            waiting += [file for file in own.files if file not in done]
            if own.folder is not None:
                below = [local.submodule(own, name) for name in each.names]
                waiting += [file for sub in below if sub for file in sub.files if file not in done]

    def _note(self, path: str, found: Import, *, is_needed: bool) -> None:
        """Keep an import that nobody here answers, unless it is the same for the eleventh time."""
        key = (found.module, found.names, is_needed)
        times = self._times[key] = self._times.get(key, 0) + 1
        is_foreign = not found.level and not is_standard(found.module.partition(".")[0], self._python)
        if times <= MOST_BECAUSE and is_foreign:
            self.foreign.append(Foreign(path, found, is_needed))

    def _imports(self, path: str) -> _Seen:
        digest = self._project.reader.digest(path)
        known = _seen.get((digest, self._python)) if digest is not None else None
        return known if known is not None else self._read(path, digest)

    def _read(self, path: str, digest: bytes | None) -> _Seen:
        source = self._project.reader.read(path, min(MOST_SOURCE_BYTES, self._left_bytes))
        if source is None:
            return _NOTHING
        self._left_bytes -= len(source)
        if path.endswith(".ipynb"):
            return self._look(code_of(source))
        key = (digest or blake3(source).digest(), self._python)
        known = _seen.get(key)
        return known if known is not None else _seen.keep(key, self._look(source))

    def _look(self, source: bytes) -> _Seen:
        """Return the imports of a source; a quick look is enough where all are the standard library's."""
        roots, asks = quick_roots(source), names_an_installer(source)
        if roots is not None and all(is_standard(root, self._python) for root in roots):
            return _Seen((), roots, asks)
        return replace(self._sorted(imports(source, self._python)), asks=asks)

    def _sorted(self, found: Iterable[Import]) -> _Seen:
        """Return imports, the standard library's apart, and of the others each once."""
        others: dict[object, Import] = {}
        standard = set()
        for each in found:
            top = each.module.partition(".")[0]
            if not each.level and is_standard(top, self._python):
                standard.add(top)
            else:
                others.setdefault((each.module, each.names, each.level, each.is_needed), each)
        return _Seen(tuple(others.values()), frozenset(standard))
