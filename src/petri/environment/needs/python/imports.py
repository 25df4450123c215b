"""What one Python source imports: every name it may need, and whether it can do without."""

import ast
import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from petri.environment.needs.names.curated import LATE, LATE_ATTRIBUTES
from petri.environment.needs.python.conditions import MAYBE_THERE, truth
from petri.environment.needs.python.outline import Outline, outline
from petri.environment.needs.python.stdlib import is_standard

_QUICK = re.compile(rb"import")
"""A literal, which the engine looks for at the speed of memory; what stands around it is looked at after."""
_BEFORE = re.compile(rb"[ \t\f]*+(?>from[ \t]++([^\s;#]++)[ \t]*+)?+")
_NAMES = re.compile(rb"[^\n;#]*+")
_IN_CALLS = (b"import_module", b"importorskip", b"import__")
_USED = re.compile(rb"\.(" + "|".join(sorted(LATE_ATTRIBUTES)).encode() + rb")\s*+\(")
_CATCHES = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_CALLS_THAT_SKIP = frozenset({"importorskip"})


@dataclass(frozen=True, slots=True)
class Import:
    """One module that a source names."""

    module: str
    """`a.b` of `import a.b` and of `from a.b import c`; empty for `from . import c`."""
    names: tuple[str, ...]
    """What is taken from it: attributes, or modules below it."""
    level: int
    """How many dots a relative import begins with."""
    line: int
    is_needed: bool
    """Whether the program fails without it, as far as its text tells."""
    used: str = ""
    """For what a library imports itself: the part of it that is used."""

    @property
    def said(self) -> str:
        """The import as one would write it."""
        if self.used:
            return f"{self.used} imports {self.module}"
        if not self.names:
            return f"import {self.module}"
        return f"from {'.' * self.level}{self.module} import {', '.join(self.names)}"


def quick_roots(source: bytes) -> frozenset[str] | None:
    """Return the top-level names that `source` may import, too many rather than too few.

    None where only the outline can tell: relative imports, and names that are in calls.
    """
    roots: set[bytes] = set()
    text = source.removeprefix(codecs.BOM_UTF8).replace(b"\\\r\n", b" ").replace(b"\\\n", b" ")
    for match in _QUICK.finditer(text):
        at, end = match.span()
        if text.startswith(_IN_CALLS, at):
            return None
        line = text[text.rfind(b"\n", 0, at) + 1 : at]
        before = _BEFORE.fullmatch(line[max(line.rfind(b";"), line.rfind(b":")) + 1 :])
        if before is None or text[end : end + 1].isalnum() or text.startswith(b"_", end):
            continue
        if before[1] is not None and before[1].startswith(b"."):
            return None
        roots.update(_first_names(text, end) if before[1] is None else [before[1]])
    return frozenset(root.partition(b".")[0].decode(errors="replace") for root in roots)


def _first_names(text: bytes, at: int) -> Iterator[bytes]:
    match = _NAMES.match(text, at)
    for each in match[0].split(b",") if match else ():
        if words := each.split():
            yield words[0]


def imports(source: bytes, python: tuple[int, int]) -> tuple[Import, ...]:
    """Return what `source` imports under this version of Python, in the order of its lines.

    A source that does not parse has imports all the same: Python will say what is wrong with it.
    """
    found = _found(source, python)
    return (*found, *_late(source, found))


def _found(source: bytes, python: tuple[int, int]) -> tuple[Import, ...]:
    drawn = outline(source.decode("utf-8-sig", errors="replace").replace("\r\n", "\n"))
    try:
        tree = ast.parse(drawn.text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return tuple(_one_by_one(drawn))
    found = _Finder(python).block(tree.body, is_needed=True)
    return tuple(replace(each, line=drawn.lines[each.line - 1]) for each in found)


def _late(source: bytes, found: Iterable[Import]) -> Iterator[Import]:
    """Yield what the libraries that are imported will import themselves, by what of them is used."""
    for library in sorted({each.module.partition(".")[0] for each in found} & LATE.keys()):
        modules: dict[str, re.Match[bytes]] = {}
        for match in _USED.finditer(source):
            if module := LATE[library].get(match[1].decode(errors="replace")):
                modules.setdefault(module, match)
        for module, match in modules.items():
            line = source.count(b"\n", 0, match.start()) + 1
            yield Import(module, (), 0, line, is_needed=True, used=f"{library}'s {match[1].decode()}")


def _one_by_one(drawn: Outline) -> Iterator[Import]:
    """Yield the statements that parse by themselves; what stands in any block can be done without."""
    for line, text in zip(drawn.lines, drawn.text.split("\n"), strict=False):
        try:
            body = ast.parse(text.strip()).body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        for node in body:
            for each in _named(node):
                yield replace(each, line=line, is_needed=not text.startswith(" "))


class _Finder:
    """Walks an outline's syntax tree, which is never deeper than blocks may be nested."""

    def __init__(self, python: tuple[int, int]) -> None:
        self._python = python

    def block(self, body: Sequence[ast.stmt], *, is_needed: bool) -> Iterator[Import]:
        """Yield the imports of some statements."""
        for node in body:
            if isinstance(node, ast.If):
                yield from self._if(node, is_needed=is_needed)
            elif isinstance(node, ast.Try):
                yield from self._try(node, is_needed=is_needed)
            elif isinstance(node, ast.With):
                yield from self.block(node.body, is_needed=is_needed and not _suppresses(node))
            else:
                yield from (each if is_needed else replace(each, is_needed=False) for each in _named(node))

    def _if(self, node: ast.If, *, is_needed: bool) -> Iterator[Import]:
        answer = truth(node.test, self._python)
        if answer is not False:
            is_sure = is_needed and answer is not MAYBE_THERE
            yield from self.block(node.body, is_needed=is_sure)
        if answer is not True:
            yield from self.block(node.orelse, is_needed=is_needed)

    def _try(self, node: ast.Try, *, is_needed: bool) -> Iterator[Import]:
        guarding = [handler for handler in node.handlers if _catches(handler)]
        has_way_out = any(self._is_way_out(handler) for handler in guarding)
        yield from self.block(node.body, is_needed=is_needed and not has_way_out)
        for handler in node.handlers:
            yield from self.block(handler.body, is_needed=False)
        yield from self.block(node.finalbody, is_needed=is_needed)

    def _is_way_out(self, handler: ast.ExceptHandler) -> bool:
        """Say whether the program goes on behind this handler, and without another package."""
        if any(isinstance(node, ast.Raise) for node in handler.body):
            return False
        instead = [each for node in handler.body for each in _named(node) if each.level == 0]
        return all(is_standard(each.module.partition(".")[0], self._python) for each in instead)


def _named(node: ast.stmt) -> Iterable[Import]:
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.Import):
        return [Import(alias.name, (), 0, line, is_needed=True) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = tuple(alias.name for alias in node.names)
        return [Import(node.module or "", names, node.level, line, is_needed=True)]
    match node:
        case ast.Expr(ast.Call(ast.Name(call), [ast.Constant(str(module))])):
            is_bare = module.strip(".") == module and module != ""
            return [Import(module, (), 0, line, call not in _CALLS_THAT_SKIP)] if is_bare else []
    return []


def _suppresses(node: ast.With) -> bool:
    for item in node.items:
        match item.context_expr:
            case ast.Call(ast.Name("suppress") | ast.Attribute(attr="suppress"), caught):
                return any(_name(each) in _CATCHES for each in caught)
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(each is None or _name(each) in _CATCHES for each in caught)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
