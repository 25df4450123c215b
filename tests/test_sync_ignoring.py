"""What is ignored: held against git itself, over the patterns people write and those nobody would."""

import itertools
import random
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from petri.syncing.ignoring import DEFAULTS, Ignoring, Rules
from petri.syncing.patterns import parse

NAMES = (
    "a",
    "b",
    "ab",
    "foo",
    "foo.o",
    "bar",
    "a b",
    "[x]",
    "x-y",
    "#c",
    "!d",
    "e\\",
    "*",
    "?z",
    "é",
    "f ",
    "A1",
)
"""Of the folder that both look at: two levels of all, and a third of some."""

WRITTEN = (
    "foo",
    "/foo",
    "foo/",
    "/foo/",
    "*.o",
    "!foo.o",
    "*\n!foo\n!foo/**",
    "foo/*",
    "foo/**",
    "foo/**/",
    "**/foo",
    "**/",
    "**",
    "a/**/b",
    "a/**/foo/bar",
    "**/a/**/b",
    "foo**/bar",
    "a**",
    "a**b",
    "a/b**",
    "**a",
    "***/foo",
    "a/***/b",
    "/*\n!/foo",
    "/*\n!/foo/\n/foo/*\n!/foo/bar",
    "\\#c",
    "#c",
    "\\!d",
    "!d",
    "f\\ ",
    "f ",
    "foo   ",
    "a\\ b",
    "a b",
    "e\\\\",
    "e\\",
    "\\*",
    "\\?z",
    "[[]x]",
    "[[]x[]]",
    "[a-c]",
    "[!a-c]",
    "[^a-c]",
    "[]x[]*",
    "[a",
    "[[:alpha:]]",
    "[[:alpha:]][[:digit:]]",
    "[[:upper:]]*",
    "[[:nonsense:]]",
    "[[:alpha]",
    "[[:]",
    "x[-]y",
    "x[a-]y",
    "x[--.]y",
    "x[\\-]y",
    "[b-a]",
    "?",
    "??",
    "a/?",
    "a/[!/]oo",
    "a[/]b",
    "a\\/b",
    "**\\/b",
    "a//b",
    "foo//",
    "/",
    "//",
    "!",
    "!/",
    " ",
    "\ufefffoo",
    "foo\r",
    "a/b/",
    "!a/b/",
    "a/\n!a/b",
    "a/*\n!a/b",
    "*a*b*",
    "f*o/*r",
    "*/b",
    "*/*/b",
    "**/*",
    "**/*.o",
    "[!a]*/**",
    "é",
    "[é]",
    "*\\",
    "a\\*",
    "fo\\o",
    "f\\oo/bar",
)
"""Patterns from the manual, from real repositories, and from looking for trouble."""


def _folder(top: Path) -> list[str]:
    paths = []
    for depth, names in ((1, NAMES), (2, NAMES), (3, ("a", "b", "foo", "bar", "foo.o"))):
        for parts in itertools.product(*([("a", "b", "foo", "ab", "bar")] * (depth - 1)), names):
            paths.append("/".join(parts))
    folders = {path.rpartition("/")[0] for path in paths} - {""}
    for path in sorted(paths):
        if path in folders:
            (top / path).mkdir(parents=True, exist_ok=True)
        else:
            (top / path).write_bytes(b"")
    return sorted(paths)


class _Git:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.paths = _folder(top)
        self._environment = {"PATH": "/usr/bin:/bin", "HOME": str(top), "GIT_CONFIG_NOSYSTEM": "1"}
        self._run("init", "-q")

    def ignored(self, files: Mapping[str, str]) -> set[str]:
        """Return what git ignores, if there are these ignore files."""
        for path, content in files.items():
            (self.top / path).write_text(content, newline="")
        try:
            told = self._run("check-ignore", "--no-index", "-z", "--stdin", said="\0".join(self.paths) + "\0")
        finally:
            for path in files:
                (self.top / path).unlink()
        return set(told.split("\0")) - {""}

    def ours(self, files: Mapping[str, str]) -> set[str]:
        """Return what we ignore, if there are these ignore files."""
        kept = {path.encode(): content.encode() for path, content in files.items()}
        ignoring = Ignoring(kept.get)
        return {
            path
            for path in self.paths
            if ignoring.ignores(path.encode(), is_folder=(self.top / path).is_dir())
        }

    def _run(self, *words: str, said: str = "") -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.top,
            input=said.encode(),
            env=self._environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout.decode()


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> _Git:
    return _Git(tmp_path_factory.mktemp("ignoring"))


@pytest.mark.parametrize("content", WRITTEN)
def test_a_pattern_means_what_it_means_to_git(git: _Git, content: str) -> None:
    files = {".gitignore": content}

    assert git.ours(files) == git.ignored(files)


def _invented(seed: int) -> Iterator[dict[str, str]]:
    draw = random.Random(seed)
    pieces = (
        *"ab*?/!\\[]^-. #",
        "foo",
        "bar",
        "**",
        "**/",
        "/**",
        "*.o",
        "[ab]",
        "[!a]",
        "[a-f]",
        "[[:alpha:]]",
    )

    def pattern() -> str:
        return "".join(draw.choice(pieces) for _ in range(draw.randint(1, 6)))

    def content() -> str:
        return "\n".join(
            draw.choice(WRITTEN) if draw.random() < 0.4 else pattern() for _ in range(draw.randint(1, 6))
        )

    while True:
        files = {".gitignore": content()}
        for folder in ("a", "foo", "a/b"):
            if draw.random() < 0.4:
                files[f"{folder}/.gitignore"] = content()
        yield files


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_invented_patterns_in_nested_files_mean_what_they_mean_to_git(git: _Git, seed: int) -> None:
    for files in itertools.islice(_invented(seed), 60):
        assert git.ours(files) == git.ignored(files), files


def ignores(path: str, *, is_folder: bool = False, **files: str) -> bool:
    kept = {name.replace("__", "/").encode(): content.encode() for name, content in files.items()}
    return Ignoring(lambda path: kept.get(path.replace(b".", b""))).ignores(
        path.encode(), is_folder=is_folder
    )


def test_petriignore_outranks_every_gitignore() -> None:
    assert ignores("data/x.csv", petriignore="*.csv", data__gitignore="!*.csv")
    assert not ignores("data/x.csv", petriignore="!*.csv", data__gitignore="*.csv")


def test_the_nearer_petriignore_outranks_the_farther() -> None:
    assert not ignores("data/x.csv", petriignore="*.csv", data__petriignore="!x.csv")
    assert ignores("x.csv", petriignore="*.csv", data__petriignore="!x.csv")


@pytest.mark.parametrize("line", DEFAULTS.decode().split())
def test_a_default_is_ignored_until_somebody_wants_it(line: str) -> None:
    path, is_folder = f"deep/{line.rstrip('/')}", line.endswith("/")

    assert ignores(path, is_folder=is_folder)
    assert ignores(f"{path}/inside")
    assert not ignores(path, is_folder=is_folder, gitignore=f"!{line}")
    assert not ignores(f"{path}/inside", petriignore=f"!{line}")


def test_the_stage_is_ignored_whatever_anybody_wants() -> None:
    assert ignores(".petri-sync", is_folder=True, petriignore="!.petri-sync")
    assert ignores(".petri-sync/x", petriignore="!*")
    assert not ignores("pkg/.petri-sync/x")


@pytest.mark.parametrize("pattern", [b"*a" * 60 + b"b", b"**/a*" * 12 + b"/b", b"/" + b"*a" * 60 + b"b/c"])
def test_no_pattern_takes_exponential_time(pattern: bytes) -> None:
    begun = time.process_time()

    assert Rules(pattern).verdict(b"a" * 250, b"/".join([b"a" * 250] * 15), is_folder=False) is None

    # Backtracking, this would take longer than the machine will last: any bound tells.
    assert time.process_time() - begun < 30


@pytest.mark.parametrize("line", [b"[!x]", b"[^[:alnum:]]", b"*[!a]*[!b]", b"[ace]"])
def test_no_pattern_becomes_much_longer_than_it_is(line: bytes) -> None:
    (pattern,) = parse(line)

    assert len(pattern.regex()) < 25 * len(line)
