"""Projects in memory, to be looked at by `petri.environment`."""

from collections.abc import Mapping
from textwrap import dedent

from blake3 import blake3

from petri.environment import Ask, Code, File, Kind, Language, Policy, Wanted, Words, wanted

Files = Mapping[str, str | bytes]
MANIFEST_ONLY = Policy("manifest-only")
OFF = Policy("off")
_LANGUAGES: Mapping[str, Language] = {
    "py": "python",
    "ipynb": "python",
    "sh": "bash",
    "js": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "ts": "typescript",
    "tsx": "typescript",
}


class MemoryReader:
    """A reader of files that are given as texts or bytes. Remembers what was read."""

    def __init__(self, files: Files, *, has_digests: bool = True) -> None:
        self._files = {
            path: dedent(text).encode() if isinstance(text, str) else text for path, text in files.items()
        }
        self._digests = {
            path: blake3(content).digest() for path, content in self._files.items() if has_digests
        }
        self._folders: dict[str, dict[str, None]] = {"": {}}
        self.reads: list[str] = []
        for path in self._files:
            while path:
                folder, _, name = path.rpartition("/")
                self._folders.setdefault(folder, {})[name] = None
                path = folder

    def read(self, path: str, most_bytes: int) -> bytes | None:
        self.reads.append(path)
        content = self._files.get(path)
        return content if content is not None and len(content) <= most_bytes else None

    def kind(self, path: str) -> Kind | None:
        if path in self._files:
            return "file"
        return "folder" if path in self._folders else None

    def names(self, folder: str) -> list[str]:
        return list(self._folders.get(folder, ()))

    def digest(self, path: str) -> bytes | None:
        return self._digests.get(path)


def look(
    files: Files,
    entry: File | Code | Words | str = "main.py",
    *,
    policy: Policy | None = None,
    python: tuple[int, int] = (3, 11),
    language: Language | None = None,
) -> Wanted:
    """Return what a project of these files wants when `entry` is run. A text is a file's name."""
    what = File(entry) if isinstance(entry, str) else entry
    ending = what.path.rpartition(".")[2] if isinstance(what, File) else "py"
    spoken = language or _LANGUAGES.get(ending, "python")
    return wanted(MemoryReader(files), Ask(what, spoken, policy or Policy(), python=python))


def names(found: Wanted) -> set[str]:
    """Return the names of what is to be installed."""
    return {each.name for each in found.requirements}


def texts(found: Wanted) -> set[str]:
    """Return what the installer would be told."""
    return {each.text for each in found.requirements}


def optional(found: Wanted) -> set[str]:
    """Return the names of what the program can do without."""
    return {each.name for each in found.optional}


def refused(found: Wanted) -> dict[str, str]:
    """Return the names of what was refused, and why."""
    return {each.name: each.sentence for each in found.refused}
