"""Which specifiers lead to a project's own files: paths, aliases of tsconfig.json, workspaces."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from petri.environment.needs.manifests.parsing import json_object, string, strings, table
from petri.environment.needs.project import Project, join, parent, upwards, within

ENDINGS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")
_TYPED = {".js": (".ts", ".tsx"), ".mjs": (".mts",), ".cjs": (".cts",), ".jsx": (".tsx",)}
"""TypeScript names the file that will be there once it is compiled."""
_ENTRIES = ("source", "module", "main", "types")


class LocalFiles:
    """Finds a specifier's file in a project. `folder` is where the program is started from."""

    def __init__(self, project: Project, folder: str, members: Mapping[str, str]) -> None:
        self.used: dict[str, None] = {}
        """Folders of the project's own packages that something was found in, in that order."""
        self._project = project
        self._folder = folder
        self._linked = members

    def resolve(self, importer: str, specifier: str) -> tuple[str, ...] | None:
        """Return the file that a specifier leads to, if it is there; None for what is somebody else's."""
        bare = specifier.partition("?")[0]
        if bare.startswith(("./", "../", "/")) or bare in (".", ".."):
            return self._file(within(parent(importer), bare))
        if bare.startswith(("#", "~", "$", "@/")) or ":" in bare:
            return self._aliased(bare) or ()
        return self._aliased(bare) or self._member(bare)

    def _file(self, path: str | None) -> tuple[str, ...]:
        if path is None:
            return ()
        return tuple(each for each in self._spellings(path) if self._project.is_file(each))[:1]

    def _spellings(self, path: str) -> Iterator[str]:
        stem, dot, ending = path.rpartition(".")
        if path.endswith(ENDINGS):
            yield path
            yield from (stem + each for each in _TYPED.get(dot + ending, ()))
        yield from (path + each for each in ENDINGS)
        if self._project.is_folder(path):
            yield from (join(path, f"index{each}") for each in ENDINGS)

    def _aliased(self, specifier: str) -> tuple[str, ...] | None:
        for start, end, targets in self._aliases:
            if specifier.startswith(start) and specifier.endswith(end) and len(specifier) >= len(start + end):
                inner = specifier[len(start) : len(specifier) - len(end)]
                found = [self._file(within("", each.replace("*", inner))) for each in targets]
                return next((each for each in found if each), ())
        return None

    @cached_property
    def _aliases(self) -> list[tuple[str, str, list[str]]]:
        """The `paths` of the nearest tsconfig.json or jsconfig.json, the longest first."""
        for folder in upwards(self._folder):
            for name in ("tsconfig.json", "jsconfig.json"):
                options = table(json_object(self._project.text(join(folder, name))), "compilerOptions")
                if options:
                    return list(_aliases(folder, options))
        return []

    def _member(self, specifier: str) -> tuple[str, ...] | None:
        for name, folder in self._members.items():
            if specifier == name:
                self.used[folder] = None
                return self._entry(folder)
            if specifier.startswith(f"{name}/"):
                self.used[folder] = None
                inner = join(folder, specifier[len(name) + 1 :])
                return self._file(inner) or self._file(join(folder, f"src/{specifier[len(name) + 1 :]}"))
        return None

    def _entry(self, folder: str) -> tuple[str, ...]:
        said = json_object(self._project.text(join(folder, "package.json")))
        named = [each for key in _ENTRIES if (each := string(said.get(key)))]
        for each in [*named, "src/index", "index"]:
            if found := self._file(within(folder, each)):
                return found
        return ()

    @cached_property
    def _members(self) -> dict[str, str]:
        """The project's own packages: the one the program is in, and those of its workspace."""
        found: dict[str, str] = {}
        for folder in upwards(self._folder):
            said = json_object(self._project.text(join(folder, "package.json")))
            if name := string(said.get("name")):
                found.setdefault(name, folder)
        return {**self._linked, **found}


def _aliases(folder: str, options: dict[str, object]) -> Iterator[tuple[str, str, list[str]]]:
    base = join(folder, string(options.get("baseUrl")) or ".")
    paths = table(options, "paths")
    for pattern in sorted(paths, key=lambda each: (-len(each), each)):
        start, _, end = pattern.partition("*")
        yield start, end, [join(base, target) for target in strings(paths[pattern])]
