"""Commands in shell text, and those of them that are not there."""

import pytest

from petri.environment import Ask, Code, File, Words, wanted
from petri.environment.needs.shell import commands, unwrapped
from tests.projects import MemoryReader, refused

HERE = frozenset({"ls", "cat", "grep", "head", "python3", "bash", "sh", "mkdir"})


def _words(text: str) -> list[tuple[str, ...]]:
    return [command.words for command in commands(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ls -l 'a b' \"c d\" e\\ f", [("ls", "-l", "a b", "c d", "e f")]),
        ("a && b || c; d & e | f", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]),
        ("A=1 B='x y' a > out 2>&1 < in b", [("a", "b")]),
        ("if a; then b; elif c; then d; else e; fi", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("while a; do b; done", [("a",), ("b",)]),
        ("x=$(a | b) c `d`", [("a",), ("b",), ("c",), ("d",)]),
        ("a # b\n# c\nd", [("a",), ("d",)]),
        ("cat <<EOF\nx; y\nEOF\na", [("cat",), ("a",)]),
        ("cat <<'A' <<-B\nx\nA\n\ty\n\tB\na", [("cat",), ("a",)]),
        ("a \\\n  b", [("a", "b")]),
        ("( a; b )", [("a",), ("b",)]),
        ("echo 'a; b' \"$(x)\"", [("echo", "a; b", "$(x)")]),
        ("a#b", [("a#b",)]),
        ("", []),
        ("'unclosed", [("unclosed",)]),
    ],
)
def test_simple_commands_are_found(text: str, words: list[tuple[str, ...]]) -> None:
    assert _words(text) == words


def test_lines_are_those_of_the_text() -> None:
    assert [(each.words[0], each.line) for each in commands("a\n\ncat <<E\nx\nE\nb")] == [
        ("a", 1),
        ("cat", 3),
        ("b", 6),
    ]


@pytest.mark.parametrize(
    ("words", "inner"),
    [
        (("env", "A=1", "python", "x"), ("python", "x")),
        (("/usr/bin/timeout", "-k", "5", "python"), ("python",)),
        (("nohup", "nice", "a", "-b"), ("a", "-b")),
        (("command", "-v", "jq"), ()),
        (("env",), ()),
        (("python", "env"), ("python", "env")),
    ],
)
def test_programs_that_start_others_are_looked_through(
    words: tuple[str, ...], inner: tuple[str, ...]
) -> None:
    assert unwrapped(words) == inner


def test_a_command_that_is_not_there_is_told_with_its_debian_package() -> None:
    text = """
        cd sub; export A=1; [ -f x ] && [[ -d y ]]
        ls | jq . | rg pattern
        if command -v ffmpeg; then echo yes; fi
        ./own-tool; $TOOL x; no-such-thing-at-all
        jq again
    """

    found = wanted(MemoryReader({}), Ask(Code(text), "bash", commands=HERE))

    assert refused(found) == {
        "jq": "there is no command `jq` here; in Debian the package `jq` has it",
        "rg": "there is no command `rg` here; in Debian the package `ripgrep` has it",
    }
    assert [(each.line, each.said) for each in found.refused[0].because] == [(3, "jq ."), (6, "jq again")]


def test_functions_and_scripts_of_the_project_are_no_missing_commands() -> None:
    files = {"run.sh": "jq() { cat; }\nfunction rg { cat; }\njq x\nrg y\n", "other.sh": "jq z"}

    assert refused(wanted(MemoryReader(files), Ask(File("run.sh"), "bash", commands=HERE))) == {}
    assert refused(
        wanted(MemoryReader(files), Ask(Words(("sh", "other.sh")), "bash", commands=HERE))
    ).keys() == {"jq"}


def test_nothing_is_missing_where_nobody_knows_what_is_there() -> None:
    assert refused(wanted(MemoryReader({}), Ask(Code("jq ."), "bash"))) == {}
