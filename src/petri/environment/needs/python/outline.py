"""A Python source cut down to its imports and the blocks around them, so that it can be parsed safely.

`ast.parse` holds the interpreter for as long as it takes, and for some sources that is long: 200 kB of
`import a.a.a…` are half a minute. So a stranger's file is never parsed whole. What is kept of it here is each
import statement, the `if`, `try` and `with` that it stands in, and what a handler does that matters to it;
strings and comments are told from code on the way. The syntax tree of that outline decides.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_STATEMENTS = 5_000
MOST_LINES = 4 * MOST_STATEMENTS
"""Of the outline, with the blocks around the imports."""
MOST_STATEMENT_CHARACTERS = 20_000
MOST_HEADER_CHARACTERS = 400
MOST_DOTS = 40
"""In one name: the parser's time grows with their square."""

_STRING = r"""
    \"{3}[^"\\]*+(?>(?:\\.|"(?!""))[^"\\]*+)*+(?:\"{3}|\Z)
  | '{3}[^'\\]*+(?>(?:\\.|'(?!''))[^'\\]*+)*+(?:'{3}|\Z)
  | "[^"\\\n]*+(?>\\.[^"\\\n]*+)*+"
  | '[^'\\\n]*+(?>\\.[^'\\\n]*+)*+'
"""
_LEAVING = r"(?:raise|sys\.exit|exit|quit|os\._exit)\b"
_TOKEN = re.compile(
    rf"""
    \#[^\n]*+ | {_STRING}
  | ^(?<!\\\n)[ \t\f]*+(?:
        (?P<head>(?:async[ \t]++)?(?:try|except|finally|else|elif|if|with))\b
      | (?P<other>(?:async|def|class|for|while|match|case)\b)
      | (?P<statement>(?:import|from)\b)
      | (?P<leaving>{_LEAVING})
    )
  | (?<=[;:])[ \t]*+(?:(?P<later_statement>(?:import|from)\b) | (?P<later_leaving>{_LEAVING}))
  | (?:(?<=\b__import__)|(?<=\bimport_module)|(?<=\b(?P<skipping>importorskip)))
    \(\s*+(?P<quote>['"])(?P<named>[\w.]++)(?P=quote)(?=\s*+[,)])
  | [^\#"'\n;:(]++
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_STATEMENT = re.compile(r"(?>[^\n;\#()\\]++|\\\r?\n|\((?>[^()\#]++|\#[^\n]*+)*+\))*+")
_IN_HEADER = re.compile(rf"\#[^\n]*+|{_STRING}|[()\[\]{{}}:]|\\\n|\n", re.VERBOSE | re.DOTALL)
_COMMENT = re.compile(r"\#[^\n]*")
_DOTTED = re.compile(rf"(?:\w+\s*\.\s*){{{MOST_DOTS}}}")
_CLAUSES = ("except", "elif", "else", "finally")
_GUARDS = ("if", "try", "with")


@dataclass(slots=True)
class _Block:
    """A compound statement, or one clause of it, that is open where the reading is."""

    indent: int
    line_start: int
    word: str
    test: str
    first: "_Block | None" = None
    """For a clause: the statement it belongs to."""
    depth: int | None = None
    """How deep its body is in the outline, once it is there."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A short source text, and for each of its lines the line it was made from."""

    text: str
    lines: tuple[int, ...]


def outline(source: str) -> Outline:
    """Return `source` cut down to its imports. It parses if `source` does."""
    drawing = _Drawing(source)
    for token in _TOKEN.finditer(source):
        if token.lastgroup is not None:
            drawing.take(token)
        if drawing.is_full:
            break
    return Outline("\n".join(drawing.text) + "\n", tuple(drawing.lines))


class _Drawing:
    """An outline while it is drawn, token by token."""

    def __init__(self, source: str) -> None:
        self.text: list[str] = []
        self.lines: list[int] = []
        self._source = source
        self._open: list[_Block] = []
        self._line = 1
        self._counted = 0
        self._statements = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many imports as anybody will look at."""
        return self._statements >= MOST_STATEMENTS or len(self.text) >= MOST_LINES

    def take(self, token: re.Match[str]) -> None:
        """Go on by one token."""
        at = token.start(token.lastgroup or 0)
        self._line += self._source.count("\n", self._counted, at)
        self._counted = at
        start = self._source.rfind("\n", 0, at) + 1
        indent = _indent(self._source[start:at])
        if head := token["head"]:
            self._enter(head.split()[-1], indent, start, token.end())
            return
        self._leave(indent, start)
        if token["other"]:
            # It decides nothing of what is in it, but what a handler defines is not what the handler does.
            self._open.append(_Block(indent, start, "other", ""))
        elif token["leaving"] or token["later_leaving"]:
            self._give_up()
        elif token["named"]:
            call = "importorskip" if token["skipping"] else "import_module"
            self._draw(f'{call}("{token["named"]}")')
        else:
            self._import(at)

    def _enter(self, word: str, indent: int, start: int, at: int) -> None:
        test = _header(self._source, at)
        if test is None:
            return
        self._leave(indent + (word in _CLAUSES), start)
        block = _Block(indent, start, word, test)
        if word in _CLAUSES and self._open and self._open[-1].indent == indent:
            before = self._open.pop()
            block.first = before.first or before
        self._open.append(block)
        if block.first is not None and block.first.word == "try" and block.first.depth is not None:
            self._show(block)

    def _leave(self, indent: int, start: int) -> None:
        """Close the blocks that a line with this indentation is not in; those it begins itself stay open."""
        while self._open and self._open[-1].indent >= indent and self._open[-1].line_start != start:
            self._open.pop()

    def _import(self, at: int) -> None:
        match = _STATEMENT.match(self._source, at)
        assert match is not None, "it may be empty, but it matches"
        said = _COMMENT.sub("", match[0]).replace("\\\r\n", " ").replace("\\\n", " ")
        if len(said) <= MOST_STATEMENT_CHARACTERS and not _DOTTED.search(said):
            self._draw(" ".join(said.split()))

    def _draw(self, statement: str) -> None:
        self._statements += 1
        for block in self._open:
            if block.depth is None:
                self._show(block)
        self._put(self._depth(), statement)

    def _give_up(self) -> None:
        """Keep it that a handler ends what it is in, if the handler is in the outline at all."""
        if self._open and self._open[-1].word == "except" and self._open[-1].depth is not None:
            self._put(self._depth(), "raise")

    def _depth(self) -> int:
        return next((block.depth for block in reversed(self._open) if block.depth is not None), 0)

    def _show(self, block: _Block) -> None:
        """Put a block's header into the outline, and in front of it what its clause belongs to."""
        outer = self._open[: next(i for i, each in enumerate(self._open) if each is block)]
        depth = next((each.depth for each in reversed(outer) if each.depth is not None), 0)
        headers = list(_headers(block))
        for header in headers:
            self._put(depth, header)
            self._put(depth + 1, "pass")
        block.depth = depth + 1 if headers else depth
        if block.first is not None:
            block.first.depth = block.depth

    def _put(self, depth: int, text: str) -> None:
        self.text.append(" " * depth + text)
        self.lines.append(self._line)


def _headers(block: _Block) -> Iterator[str]:
    """Yield the lines that open `block`; none for those that do not decide whether an import happens."""
    first = block.first
    if block.word in _GUARDS:
        yield f"{block.word} {block.test}:"
    elif block.word == "elif":
        yield f"if {block.test}:"
    elif first is not None and first.word == "if" and block.word == "else":
        yield from (f"if {first.test}:", "else:")
    elif first is not None and first.word == "try" and block.word != "else":
        if first.depth is None:
            yield "try:"
        yield f"{block.word} {block.test}:"


def _header(source: str, at: int) -> str | None:
    """Return what stands between a keyword and its colon; None where there is no colon to be found."""
    depth = 0
    start = at
    for token in _IN_HEADER.finditer(source, at, at + 20 * MOST_HEADER_CHARACTERS):
        mark = token[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == "\n" and depth <= 0:
            return None
        elif mark == ":" and depth <= 0:
            return _shortened(source[start : token.start()])
    return None


def _shortened(test: str) -> str:
    said = " ".join(_COMMENT.sub("", test).replace("\\\n", " ").split())
    return said if len(said) <= MOST_HEADER_CHARACTERS else "..."


def _indent(space: str) -> int:
    bare = space.replace("\f", "")
    return len(bare[: len(bare) - len(bare.lstrip(" \t"))].expandtabs(8))
