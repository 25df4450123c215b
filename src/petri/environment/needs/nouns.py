"""The nouns of this room: what is asked, what is read, and what a run turns out to want."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

Language = Literal["python", "javascript", "typescript", "bash"]
Kind = Literal["file", "folder"]
Mode = Literal["auto", "manifest-only", "off"]
Source = Literal["pep723", "lock", "manifest", "imports", "added", "build", "none"]


class Reader(Protocol):
    """A project's files, as far as whoever asks lets them be seen.

    Paths are relative to the workspace, their names joined by `/`; the workspace itself is `""`. Whoever
    implements this follows no link out of the workspace. What cannot be read is not there: nothing raises.
    """

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Return a file's content; None where there is no file, or one longer than `most_bytes`."""

    def kind(self, path: str) -> Kind | None:
        """Say what is at `path`; None for nothing and for what is neither."""

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, in any order; nothing where there is no folder."""

    def digest(self, path: str) -> bytes | None:
        """Return what changes whenever the content does, or None where that is not known without reading."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the workspace is run."""

    path: str


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of source text is run, by `python -c`, `node -e` or `bash -c`."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """A command is run: the words as the kernel gets them. `("/bin/sh", "-c", "pytest -q")` is read into."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be installed without being asked for, and what may not be at all."""

    mode: Mode = "auto"
    allow: frozenset[str] = frozenset()
    """Names of packages that are fine whatever the tables say of them."""
    deny: frozenset[str] = frozenset()
    """Names of packages that are never installed."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is about to be run, and under which rules."""

    entry: File | Code | Words
    language: Language
    """Of a `File` or `Code`. For `Words` the command itself says what it runs."""
    policy: Policy = field(default_factory=Policy)
    folder: str = ""
    """Where it is started, as a path of the workspace."""
    python: tuple[int, int] = (3, 11)
    """The interpreter's version: what its standard library has, and what it has no more."""
    commands: frozenset[str] | None = None
    """The programs that a cell has; None where that is not known, and then none is said to be missing."""


@dataclass(frozen=True, slots=True)
class Because:
    """Who needs a package: a file, the line, and the words found there."""

    path: str
    """`""` for code that is in no file."""
    line: int | None
    said: str
    """`import cv2`, or the requirement as it was declared."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One package that is wanted."""

    name: str
    """Normalised: `scikit-learn`, `@types/node`."""
    text: str
    """What the installer is told: PEP 508 for Python, `name@range` for npm."""
    because: tuple[Because, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not wanted although the code seems to ask for it. The run still starts."""

    name: str
    """As the code or the manifest has it."""
    sentence: str
    """Why, and what would be right, in words that an agent can act on."""
    suggestion: str | None = None
    """The package it may have meant."""
    because: tuple[Because, ...] = ()


@dataclass(frozen=True, slots=True)
class Pin:
    """One package as a lock has it. Versions are exact; hashes are as in `sha256:…` or npm's `sha512-…`."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()
    marker: str | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file of the project: whatever it pins has that version."""

    path: str
    text: str
    pins: tuple[Pin, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One of a JavaScript project's own packages, which its files import by name."""

    name: str
    """One that npm allows: letters, digits and `._~-`, behind a scope or not, no dot in front."""
    folder: str
    """A path of the workspace."""
    programs: tuple[tuple[str, str], ...] = ()
    """What can be typed to run a file of it: names, and paths of the workspace."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run wants, who decided that, and what was refused."""

    language: Literal["python", "javascript", "bash"]
    requirements: tuple[Requirement, ...] = ()
    optional: tuple[Requirement, ...] = ()
    """What the program tries to import and can do without. Not to be installed for this alone."""
    refused: tuple[Refusal, ...] = ()
    source: Source = "none"
    """Who had the first word. With a lock or a manifest, imports may have added to it: see `because`."""
    why: str = ""
    """The decision as one sentence, naming the files it rests on."""
    lock: Lock | None = None
    python: str | None = None
    """The versions of Python the project asks for, as in `>=3.11`."""
    asks: bool = False
    """It may ask for more while it runs, as by `pip install`."""
    members: tuple[Member, ...] = ()
    """The project's own packages, which are linked and not installed."""
    also: tuple["Wanted", ...] = ()
    """The same for another language, where one command runs both."""
