"""What one JavaScript or TypeScript source imports: ES modules, CommonJS, dynamic imports of a literal."""

from collections.abc import Iterator
from dataclasses import dataclass

from petri.environment.needs.javascript.tokens import Token, tokens

MOST_TOKENS_OF_A_CLAUSE = 4_000
_NOWHERE = Token("mark", "", 0)


@dataclass(frozen=True, slots=True)
class Import:
    """One specifier that a source names."""

    specifier: str
    line: int
    is_needed: bool
    said: str


def imports(source: bytes) -> tuple[Import, ...]:
    """Return what `source` imports, in order. What only type checkers import is left out."""
    if not any(word in source for word in (b"import", b"require", b"from")):
        return ()
    text = source.decode("utf-8-sig", errors="replace")
    return tuple(_Scan(text).found())


class _Scan:
    """One pass over the tokens, with a look ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._ahead: list[Token] = []
        self._before = (_NOWHERE, _NOWHERE, _NOWHERE)
        self._last = max(text.rfind(word) for word in ("import", "require", "from"))
        """Behind this nothing can be imported, and most files import at their head."""
        self._tries: list[int] = []
        """The depths of the `try` blocks that are open."""
        self._depth = 0

    def found(self) -> Iterator[Import]:
        """Yield the imports."""
        while (token := self._next()) is not _NOWHERE and token.at <= self._last:
            if token.kind == "mark":
                self._count(token)
            elif token.kind == "word" and self._before[-1].text != ".":
                yield from self._word(token)
            self._before = (*self._before[1:], token)

    def _word(self, token: Token) -> Iterator[Import]:
        if token.text == "import":
            yield from self._import(token)
        elif token.text == "export" and self._peek().text in ("{", "*", "type"):
            yield from self._clause(token)
        elif token.text == "require":
            yield from self._require(token)

    def _import(self, token: Token) -> Iterator[Import]:
        ahead = self._peek()
        if ahead.text == "(" and ahead.kind == "mark":
            if not self._is_type():
                yield from self._call(token, "import")
        elif ahead.kind == "string":
            yield self._named(token, self._next().text)
        elif ahead.text != "." and ahead.text != ":":
            yield from self._clause(token)

    def _is_type(self) -> bool:
        """Say whether what comes is a type: behind `typeof`, or the right side of `type Name =`."""
        words = [token.text for token in self._before]
        return words[-1] == "typeof" or (words[0] == "type" and words[-1] == "=")

    def _require(self, token: Token) -> Iterator[Import]:
        if self._peek().text == "." and self._peek(1).text == "resolve":
            self._next(), self._next()
        if self._peek().text == "(" and self._peek().kind == "mark":
            yield from self._call(token, "require")

    def _call(self, token: Token, word: str) -> Iterator[Import]:
        named, end = self._peek(1), self._peek(2)
        if named.kind in ("string", "template") and named.text and end.text in (")", ","):
            yield self._named(token, named.text, f'{word}("{named.text}")')

    def _clause(self, token: Token) -> Iterator[Import]:
        """Yield what stands behind `from` in an import or export; nothing if it is for types alone."""
        words: list[Token] = []
        while len(words) < MOST_TOKENS_OF_A_CLAUSE:
            ahead = self._peek()
            if ahead is _NOWHERE or (ahead.kind == "mark" and ahead.text not in ("{", "}", ",", "*", "=")):
                return
            if ahead.kind == "string" and words and words[-1].text == "from":
                self._next()
                if not _is_for_types(words[:-1]):
                    yield self._named(token, ahead.text)
                return
            if ahead.text == "=" and words[:1] and words[0].text == "type":
                return
            words.append(self._next())
            if words[-1].text == "=":
                return

    def _named(self, token: Token, specifier: str, said: str | None = None) -> Import:
        line = self._text.count("\n", 0, token.at) + 1
        words = "export … from" if token.text == "export" else token.text
        return Import(specifier, line, not self._tries, said or f'{words} "{specifier}"')

    def _count(self, token: Token) -> None:
        if token.text == "{":
            self._depth += 1
            if self._before[-1].text == "try":
                self._tries.append(self._depth)
        elif token.text == "}":
            if self._tries and self._tries[-1] == self._depth:
                self._tries.pop()
            self._depth -= 1

    def _next(self) -> Token:
        return self._ahead.pop(0) if self._ahead else next(self._tokens, _NOWHERE)

    def _peek(self, far: int = 0) -> Token:
        while len(self._ahead) <= far:
            self._ahead.append(next(self._tokens, _NOWHERE))
        return self._ahead[far]


def _is_for_types(clause: list[Token]) -> bool:
    """Say whether an import clause, without its `from`, names nothing that is there at run time."""
    words = [token.text for token in clause]
    if words[:1] == ["type"] and len(words) > 1 and words[1] != ",":
        return True
    if "{" not in words or words[0] != "{":
        return False
    names = " ".join(words[1:-1]).split(",") if words[-1] == "}" else []
    inner = [name.split() for name in names if name.strip()]
    return bool(inner) and all(len(name) > 1 and name[0] == "type" and name[1] != "as" for name in inner)
