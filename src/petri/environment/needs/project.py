"""A project's files while one question is answered: what was asked of the reader once is not asked again."""

from collections.abc import Iterator
from functools import cached_property
from posixpath import normpath

from petri.environment.needs.bounds import MOST_FOLDERS, MOST_MANIFEST_BYTES
from petri.environment.needs.nouns import Reader
from petri.environment.needs.words import names_in

NOT_THE_PROJECT = frozenset(
    names_in("""
    .git .hg .svn node_modules __pycache__ .venv venv env .env site-packages .tox .nox .eggs .mypy_cache
    .pytest_cache .ruff_cache .cache
""")
)
"""Folders that hold what others wrote, or what tools did."""


class Project:
    """The files of one project, seen through a reader."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.asks = False
        """Some source that was looked at names an installer of packages."""
        self.cut: set[str] = set()
        """Folders that have more below them than was looked at."""
        self._names: dict[str, frozenset[str]] = {}
        self._is_folder: dict[str, bool] = {}

    def names(self, folder: str) -> frozenset[str]:
        """Return what is in a folder."""
        known = self._names.get(folder)
        if known is None:
            known = self._names[folder] = frozenset(self.reader.names(folder))
        return known

    def is_folder(self, path: str) -> bool:
        """Say whether there is a folder."""
        known = self._is_folder.get(path)
        if known is None:
            known = self._is_folder[path] = path == "" or self.reader.kind(path) == "folder"
        return known

    def has(self, path: str) -> bool:
        """Say whether anything is there, by the name in its folder."""
        folder, _, name = path.rpartition("/")
        return name in self.names(folder)

    def is_file(self, path: str) -> bool:
        """Say whether there is a file."""
        return self.has(path) and self.reader.kind(path) == "file"

    def text(self, path: str) -> str | None:
        """Return a manifest's text, or None where there is none to be read."""
        content = self.reader.read(path, MOST_MANIFEST_BYTES) if self.has(path) else None
        return None if content is None else content.decode("utf-8-sig", errors="replace")

    @cached_property
    def stems(self) -> frozenset[str]:
        """What the project's files and folders are called, wherever they are, without `.py`."""
        return frozenset(name.removesuffix(".py") for each in self.folders("") for name in self.names(each))

    def folders(self, start: str) -> Iterator[str]:
        """Yield a folder and those below it that are the project's own, nearest first, up to a bound."""
        waiting = [start]
        for folder in waiting:
            yield folder
            for name in sorted(self.names(folder)):
                path = join(folder, name)
                if name in NOT_THE_PROJECT or "." in name or not self.is_folder(path):
                    continue
                if len(waiting) >= MOST_FOLDERS:
                    self.cut.add(start)
                    break
                waiting.append(path)


def join(folder: str, name: str) -> str:
    """Return the path of what is called `name` in a folder."""
    return f"{folder}/{name}" if folder else name


def parent(path: str) -> str:
    """Return the folder that a file or folder is in."""
    return path.rpartition("/")[0]


def within(folder: str, path: str) -> str | None:
    """Return where a path as a program would write it leads to, or None if that is not in the workspace."""
    if path == "/workspace" or path.startswith("/workspace/"):
        folder, path = "", path[len("/workspace/") :]
    elif path.startswith("/"):
        return None
    if "\0" in path:
        return None
    leads = normpath(join(folder, path)) if path or folder else "."
    if leads == ".":
        return ""
    return None if leads.startswith(("../", "/")) or leads == ".." else leads


def upwards(folder: str) -> Iterator[str]:
    """Yield a folder and all it is in, up to the workspace."""
    while folder:
        yield folder
        folder = parent(folder)
    yield ""
