"""Which of a program's imports are its own files, the way Python would find them."""

from dataclasses import dataclass
from functools import cached_property

from petri.environment.needs.project import Project, join, parent

LAYOUTS = ("", "src", "lib", "python")
"""Below the folders a program starts from: where projects keep their packages."""
_BINARY = (".so", ".pyd", ".pyc")
_CODE = (".py", *_BINARY)
_LEVELS_OF_NAMESPACE = 3
_MOST_INNER = 50
"""Folders on each level that are looked into for code."""


@dataclass(frozen=True, slots=True)
class Own:
    """A module of the project: the files that importing it runs."""

    files: tuple[str, ...]
    folder: str | None
    """Where modules below it are; None for a plain file."""


class LocalModules:
    """Finds modules among a project's files."""

    def __init__(self, project: Project, starts: tuple[str, ...]) -> None:
        self._project = project
        bases = dict.fromkeys(join(start, each) if each else start for start in starts for each in LAYOUTS)
        self._roots = tuple(base for base in bases if project.is_folder(base))
        self._absolute: dict[str, Own | None] = {}
        self._compiled: dict[str, frozenset[str]] = {}
        self._relative: dict[tuple[str, int, str], Own | None] = {}
        self._submodules: dict[tuple[str, str], Own | None] = {}

    @cached_property
    def tops(self) -> frozenset[str]:
        """What may be a module's name in the folders that modules are looked for in, and maybe more."""
        return frozenset(name.partition(".")[0] for root in self._roots for name in self._project.names(root))

    def absolute(self, module: str) -> Own | None:
        """Return the project's own module of this name, or None if it has none."""
        if module not in self._absolute:
            self._absolute[module] = self._in_roots(module)
        return self._absolute[module]

    def relative(self, importer: str, level: int, module: str) -> Own | None:
        """Return what `from ..module import` means in `importer`, or None if there is no such thing."""
        key = (parent(importer), level, module)
        if key not in self._relative:
            self._relative[key] = self._upwards(*key)
        return self._relative[key]

    def _upwards(self, folder: str, level: int, module: str) -> Own | None:
        for _ in range(level - 1):
            if not folder:
                return None
            folder = parent(folder)
        return self._below(folder, module.split(".")) if module else self._package(folder)

    def submodule(self, own: Own, name: str) -> Own | None:
        """Return the module `name` below `own`, or None if it is an attribute or nothing."""
        if own.folder is None:
            return None
        key = (own.folder, name)
        if key not in self._submodules:
            self._submodules[key] = self._child(own.folder, name)
        return self._submodules[key]

    def _in_roots(self, module: str) -> Own | None:
        parts = module.split(".")
        for root in self._roots:
            if (found := self._below(root, parts)) is not None:
                return found
        return None

    def _below(self, folder: str, parts: list[str]) -> Own | None:
        own = self._child(folder, parts[0])
        if own is None:
            return None
        files = own.files
        for index, part in enumerate(parts[1:]):
            below = self.submodule(own, part)
            if below is None:
                # A folder without `__init__.py` shares its name with whoever else has it: `google`, `azure`.
                return None if index == 0 and not own.files and own.folder else Own(files, None)
            files += below.files
            own = below
        return Own(files, own.folder)

    def _child(self, folder: str, name: str) -> Own | None:
        names = self._project.names(folder)
        path = join(folder, name)
        if name in names and self._project.is_folder(path):
            package = self._package(path)
            if package is not None:
                return package
        if f"{name}.py" in names:
            return Own((f"{path}.py",), None)
        return Own((), None) if name in self._binary(folder) else None

    def _binary(self, folder: str) -> frozenset[str]:
        """Return the names of a folder's compiled modules."""
        if folder not in self._compiled:
            found = [name for name in self._project.names(folder) if name.endswith(_BINARY)]
            self._compiled[folder] = frozenset(name.partition(".")[0] for name in found)
        return self._compiled[folder]

    def _package(self, folder: str) -> Own | None:
        if "__init__.py" in self._project.names(folder):
            return Own((join(folder, "__init__.py"),), folder)
        return Own((), folder) if self._has_code(folder) else None

    def _has_code(self, folder: str) -> bool:
        """Say whether a folder without `__init__.py` has Python in it: `docker/Dockerfile` is no module."""
        level = [folder]
        for _ in range(_LEVELS_OF_NAMESPACE):
            if any(name.endswith(_CODE) for each in level for name in self._project.names(each)):
                return True
            names = [(each, name) for each in level for name in sorted(self._project.names(each))]
            inner = [join(each, name) for each, name in names if "." not in name]
            level = [path for path in inner[:_MOST_INNER] if self._project.is_folder(path)]
        return False
