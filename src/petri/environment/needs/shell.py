"""Commands in shell text: enough of its grammar to know which programs a line would start, and no more."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from petri.environment.needs.words import names_in

MOST_CHARACTERS = 256 << 10
MOST_COMMANDS = 2_000
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r]++|\\\n)
  | (?P<comment>(?<![^\s;&|(])\#[^\n]*+)
  | <<-?\s*+(?P<quote>['"]?)(?P<heredoc>\w++)(?P=quote)
  | (?P<redirection>\d*+(?:>>|>\||<<<|[<>]&|&>>?|<>|[<>]))
  | (?P<end>&&|\|\||;;|[;&|\n]|[()]|\$\(|<\(|`)
  | (?P<word>(?>
        \\.
      | '[^']*+'
      | "(?>[^"\\]++|\\.)*+"
      | \$\{[^}\n]*+\}
      | \$(?!\()
      | [^\s\\'"$`;&|()<>]
    )++)
  | .
    """,
    re.VERBOSE | re.DOTALL,
)
_EMPTY = re.compile(r"\s*\)")
"""Behind a name and a parenthesis: `f()`, which defines and does not run."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_UNQUOTED = re.compile(r"""\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"|([^\\'"]+)""", re.DOTALL)
KEYWORDS = frozenset(
    names_in(
        "if then elif else fi for while until do done case esac in function select time ! { } [[ ]] coproc"
    )
)
_BEFORE_A_COMMAND = frozenset(names_in("if then elif else while until do time ! {"))
_WRAPPERS = frozenset(names_in("exec command env nohup nice time sudo stdbuf timeout xargs"))


@dataclass(frozen=True, slots=True)
class Command:
    """The words of one simple command, as far as its text tells them."""

    words: tuple[str, ...]
    line: int


def commands(text: str) -> Iterator[Command]:
    """Yield the simple commands in `text`, in order; those inside `$(…)` and functions too.

    What is defined comes as `function` and its name, however it is written.
    """
    words: list[str] = []
    ends: list[str] = []
    is_target, line, begun, given = False, 1, 1, 0
    at = 0
    text = text[:MOST_CHARACTERS]
    while at < len(text) and given < MOST_COMMANDS:
        token = _TOKEN.match(text, at)
        assert token is not None, "the last alternative takes anything"
        at = token.end()
        if token["heredoc"]:
            ends.append(token["heredoc"])
        elif token["redirection"]:
            is_target = True
        elif token["word"] is not None:
            begun = begun if words else line
            words += [] if is_target else [token["word"]]
            is_target = False
        elif token["end"]:
            if token["end"] == "(" and _EMPTY.match(text, at):
                words = ["function", *words]
            if command := _command(words, begun):
                given += 1
                yield command
            words, is_target = [], False
            if token["end"] == "\n" and ends:
                at = _behind(text, at, ends)
        line += text.count("\n", token.start(), at)
    if command := _command(words, begun):
        yield command


def _behind(text: str, at: int, ends: list[str]) -> int:
    """Return where the text goes on behind the documents that stand here."""
    for end in ends:
        found = re.compile(rf"^\t*{re.escape(end)}$", re.MULTILINE).search(text, at)
        at = found.end() if found else len(text)
    ends.clear()
    return at


def _command(words: list[str], line: int) -> Command | None:
    """Return what is started by these words: behind keywords, assignments and programs that start others."""
    while words and (words[0] in _BEFORE_A_COMMAND or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    if not words or (words[0] in KEYWORDS and words[0] not in ("[[", "function")):
        return None
    return Command(tuple(unquoted(word) for word in words), line)


def unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that `env A=1 timeout 5 python x.py` and the like come to."""
    for _ in range(8):
        if not words or words[0].rpartition("/")[2] not in _WRAPPERS:
            return words
        wrapper, words = words[0].rpartition("/")[2], words[1:]
        if wrapper == "command" and words[:1] in (("-v",), ("-V",)):
            return ()
        while words and (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        if wrapper == "timeout" and words:
            words = words[1:]
    return words


def unquoted(word: str) -> str:
    """Return a word without its quotes. What a variable would put there stays as it is written."""
    return "".join(
        match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3] or "", flags=re.DOTALL) or match[4] or ""
        for match in _UNQUOTED.finditer(word)
    )
