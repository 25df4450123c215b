"""What a sync leaves out: the rules of `.petriignore` and `.gitignore`, and what nobody wants sent.

Rules are those of the files in the folder that is synced, so both sides see the same ones. The file in a
folder outranks that of the folder above; in a file, a later line outranks an earlier one; `.petriignore`
files outrank `.gitignore` files, and both outrank `DEFAULTS`. What is in an ignored folder is ignored,
whatever else is said about it. What `is_gits` is always ignored, as git itself does it.
"""

import re
from collections.abc import Callable

from petri.syncing.patterns import Pattern, parse

PETRIIGNORE = b".petriignore"
GITIGNORE = b".gitignore"
LONGEST_RULES = 2**20
"""Bytes of an ignore file."""
STAGE = b".petri-sync"
"""A folder at the top where arriving files grow. It is always ignored, and never in a tree."""

DEFAULTS = b"""\
.hg
.svn
.DS_Store
.ipynb_checkpoints/
.mypy_cache/
.nox/
.pytest_cache/
.ruff_cache/
.tox/
.venv/
__pycache__/
node_modules/
"""
"""Made for one machine, or made anew at any time. `!.venv/` in an ignore file brings one back."""


def is_gits(name: bytes) -> bool:
    """Say whether a name is git's own, on file systems too to which case does not matter.

    What lies there decides what git runs on the machine it is on. Code in a sandbox can write such a file,
    and the ignore file that would bring it along; so no rule brings it back.
    """
    return name.lower() == b".git"


class Rules:
    """What one ignore file says about the folder it is in, and about those below."""

    def __init__(self, content: bytes) -> None:
        patterns = list(enumerate(parse(content)))[::-1]
        self._names = [(number, each) for number, each in patterns if each.names]
        self._paths = [(number, each, _matcher(each)) for number, each in patterns if not each.names]
        self._literals = {each.literal for _, each in self._names if not each.glob}
        self._suffixes = tuple(each.suffix for _, each in self._names if each.suffix is not None)
        self._globs = _any_of([each for _, each in self._names if each.glob and each.suffix is None])
        self._matchers: dict[int, Callable[[bytes], object]] = {}

    @property
    def is_about_paths(self) -> bool:
        """Whether some pattern has to see more than a name."""
        return bool(self._paths)

    def verdict(self, name: bytes, path: bytes, *, is_folder: bool) -> bool | None:
        """Say whether something is ignored, or is not, or None if nothing is said about it.

        `path` starts at the folder of the ignore file, and ends with `name`.
        """
        number, ignored = self._by_name(name, is_folder=is_folder)
        for later, pattern, matches in self._paths:
            if later < number:
                break
            if (is_folder or not pattern.folders_only) and matches(path):
                return not pattern.includes
        return ignored

    def _by_name(self, name: bytes, *, is_folder: bool) -> tuple[int, bool | None]:
        """Return the number of the last line about this name, and what it says."""
        # Nearly every name is in no pattern, and that is told at once for all of them.
        if name in self._literals or name.endswith(self._suffixes) or self._globs(name):
            for number, pattern in self._names:
                if (is_folder or not pattern.folders_only) and self._matches(number, pattern, name):
                    return number, not pattern.includes
        return -1, None

    def _matches(self, number: int, pattern: Pattern, name: bytes) -> bool:
        if number not in self._matchers:
            self._matchers[number] = _matcher(pattern)
        return bool(self._matchers[number](name))


class Level:
    """The rules that hold in one folder: its own, and those of the folders around it."""

    __slots__ = ("_chains",)

    def __init__(self, chains: "tuple[tuple[tuple[Rules, bytes], ...], ...]") -> None:
        self._chains = chains
        """Each kind of file in turn, the nearest first, with the path from its folder to this one."""

    def below(self, name: bytes, petriignore: bytes | None, gitignore: bytes | None) -> "Level":
        """Return the rules of a folder in this one, in which there are these files."""
        return Level(
            tuple(
                _with(content, tuple((rules, path + name + b"/") for rules, path in chain))
                for content, chain in zip((petriignore, gitignore), self._chains, strict=True)
            )
        )

    def ignores(self, name: bytes, *, is_folder: bool) -> bool:
        """Say whether something in this folder is to be left out."""
        if is_gits(name):
            return True
        for chain in self._chains:
            for rules, path in chain:
                verdict = rules.verdict(
                    name, path + name if rules.is_about_paths else name, is_folder=is_folder
                )
                if verdict is not None:
                    return verdict
        return bool(_DEFAULT_RULES.verdict(name, name, is_folder=is_folder))


def top(petriignore: bytes | None, gitignore: bytes | None) -> Level:
    """Return the rules at the top, in which there are these files."""
    return Level((_with(petriignore, ()), _with(gitignore, ())))


class Ignoring:
    """The rules of a whole folder, read as they are needed. For paths in any order.

    `read` gives what an ignore file holds, by its path, or None if there is none.
    """

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        self._read = read
        self._levels: dict[bytes, Level | None] = {b"": top(read(PETRIIGNORE), read(GITIGNORE))}

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """Say whether what is at `path`, or a folder around it, is to be left out."""
        folder, _, name = path.rpartition(b"/")
        level = self._level(folder)
        if level is None or path == STAGE:
            return True
        return level.ignores(name, is_folder=is_folder)

    def _level(self, folder: bytes) -> Level | None:
        """Return the rules in `folder`, or None if it is ignored itself."""
        missing = []
        while folder not in self._levels:
            missing.append(folder)
            folder = folder.rpartition(b"/")[0]
        level = self._levels[folder]
        for path in reversed(missing):
            name = path.rpartition(b"/")[2]
            if level is None or path == STAGE or level.ignores(name, is_folder=True):
                level = None
            else:
                petriignore = self._read(path + b"/" + PETRIIGNORE)
                level = level.below(name, petriignore, self._read(path + b"/" + GITIGNORE))
            self._levels[path] = level
        return level


def _with(content: bytes | None, chain: tuple[tuple[Rules, bytes], ...]) -> tuple[tuple[Rules, bytes], ...]:
    return ((Rules(content), b""), *chain) if content else chain


def _matcher(pattern: Pattern) -> Callable[[bytes], object]:
    if not pattern.glob:
        return pattern.literal.__eq__
    if (suffix := pattern.suffix) is not None:
        return lambda name: name.endswith(suffix)
    return re.compile(pattern.regex(), re.DOTALL).fullmatch


def _any_of(patterns: list[Pattern]) -> Callable[[bytes], object]:
    if not patterns:
        return lambda _: None
    return re.compile(b"|".join(b"(?:" + each.regex() + b")" for each in patterns), re.DOTALL).fullmatch


_DEFAULT_RULES = Rules(DEFAULTS)
