"""The tokens of JavaScript and TypeScript: strings, templates and regular expressions told from code."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from petri.environment.needs.words import names_in

TokenKind = Literal["word", "string", "template", "regex", "mark", "open template"]
_TOKEN = re.compile(
    r"""
    (?P<space>\s++|//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+(?:\*/|\Z)|^\#![^\n]*+)
  | (?P<word>[A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*+)
  | (?P<number>\.?\d[\w.]*+)
  | (?P<string>"(?>[^"\\\n]++|\\.)*+"|'(?>[^'\\\n]++|\\.)*+')
  | (?P<template>`(?>[^`\\$]++|\\.|\$(?!\{))*+(?:`|\$\{|\Z))
  | (?P<slash>/)
  | (?P<mark>=>|\+\+|--|[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)
_REST_OF_TEMPLATE = re.compile(r"(?P<rest>\}(?>[^`\\$]++|\\.|\$(?!\{))*+(?:`|\$\{|\Z))", re.DOTALL)
_REGEX = re.compile(r"/(?![*/])(?>[^/\\\[\n]++|\\[^\n]|\[(?>[^\]\\\n]++|\\[^\n])*+\])*+/[A-Za-z]*+")
_OPERAND_FOLLOWS = frozenset(
    names_in("return typeof case do else in instanceof new void delete throw yield await of")
)
"""Words behind which a slash begins a regular expression."""


class Token(NamedTuple):
    """One token. Of a string or a whole template, `text` is what is inside."""

    kind: TokenKind
    text: str
    at: int
    is_continued: bool = False
    """Whether it goes on with a template behind `${…}`."""


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of `source`. What does not fit the language is passed over, a character at a time."""
    state = _State()
    at = 0
    while at < len(source):
        if source[at] == "}" and state.is_in_template:
            match = _REST_OF_TEMPLATE.match(source, at)
        else:
            match = _TOKEN.match(source, at)
            if match is not None and match["slash"] and state.may_begin_operand:
                match = _REGEX.match(source, at) or match
        if match is None:
            at += 1
            continue
        at = match.end()
        if match.lastgroup != "space":
            yield state.take(_token(match))


class _State:
    """What the tokens so far say of the next: is a brace the end of `${`, is a slash a division?"""

    def __init__(self) -> None:
        self._before = Token("mark", ";", 0)
        self._depth = 0
        self._templates: list[int] = []
        """How deep the braces were where each open template began."""
        self._conditions: list[bool] = []
        """For each open parenthesis, whether it holds a condition: then a statement follows it."""
        self._ended_condition = False

    @property
    def is_in_template(self) -> bool:
        """Whether a closing brace here goes on with a template."""
        return bool(self._templates) and self._templates[-1] == self._depth

    @property
    def may_begin_operand(self) -> bool:
        """Whether a slash here begins a regular expression rather than dividing."""
        before = self._before
        if before.kind == "word":
            return before.text in _OPERAND_FOLLOWS
        if before.kind == "mark":
            return self._ended_condition or before.text not in (")", "]", "}", "0", "++", "--")
        return before.kind == "open template"

    def take(self, token: Token) -> Token:
        """Go on by one token, and return it."""
        self._ended_condition = False
        if token.kind == "mark":
            self._count(token.text)
        elif token.kind in ("open template", "template") and token.is_continued:
            self._templates.pop()
        if token.kind == "open template":
            self._templates.append(self._depth)
        self._before = token
        return token

    def _count(self, mark: str) -> None:
        if mark == "{":
            self._depth += 1
        elif mark == "}":
            self._depth -= 1
        elif mark == "(":
            self._conditions.append(self._before.text in ("if", "while", "for", "with"))
        elif mark == ")" and self._conditions:
            self._ended_condition = self._conditions.pop()


def _token(match: re.Match[str]) -> Token:
    text, at = match[0], match.start()
    match match.lastgroup:
        case "word":
            return Token("word", text, at)
        case "number":
            return Token("mark", "0", at)
        case "string":
            return Token("string", text[1:-1], at)
        case "template":
            is_whole = text.endswith("`") and len(text) > 1
            return Token("template" if is_whole else "open template", text[1:-1] if is_whole else "", at)
        case "rest":
            return Token("open template" if text.endswith("${") else "template", "", at, is_continued=True)
        case "mark" | "slash":
            return Token("mark", text, at)
    return Token("regex", "", at)
