"""Conditions around imports that can be answered without running anything."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

MAYBE_THERE: Final = "maybe there"
"""The condition asks whether a module is installed."""

_OPERATORS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class _Unknown(Exception):
    """Only running it would tell."""


def truth(test: ast.expr, python: tuple[int, int]) -> bool | str | None:
    """Return what `test` comes to on Linux under this Python; None if its text does not tell.

    Type checkers see `TYPE_CHECKING` as true, programs see it as false.
    """
    try:
        return bool(_value(test, python))
    except _Unknown:
        asks = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(test)}
        return MAYBE_THERE if "find_spec" in asks else None
    except (TypeError, ValueError, IndexError, RecursionError):
        return None


def _value(node: ast.expr, python: tuple[int, int]) -> object:
    match node:
        case ast.Constant(value):
            return value
        case ast.Tuple(elements) | ast.List(elements):
            return tuple(_value(each, python) for each in elements)
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, python)
        case ast.BoolOp(joined, values):
            return _both_or_either(joined, values, python)
        case ast.Compare(left, [compared], [right]) if type(compared) in _OPERATORS:
            return _OPERATORS[type(compared)](_value(left, python), _value(right, python))
        case ast.Call(ast.Attribute(what, "startswith"), [start]):
            return str(_value(what, python)).startswith(str(_value(start, python)))
        case ast.Call(ast.Attribute(ast.Name("platform"), "system"), []):
            return "Linux"
        case ast.Subscript(what, ast.Constant(int(index))):
            return _indexed(_value(what, python), index)
        case ast.Subscript(what, ast.Slice(None, ast.Constant(int(end)), None)):
            return _up_to(_value(what, python), end)
    return _known(node, python)


def _known(node: ast.expr, python: tuple[int, int]) -> object:
    match node:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(_, "TYPE_CHECKING"):
            return False
        case ast.Name("version_info") | ast.Attribute(ast.Name("sys"), "version_info"):
            return (*python, 0, "final", 0)
        case ast.Attribute(ast.Attribute(ast.Name("sys"), "version_info"), "major"):
            return python[0]
        case ast.Attribute(ast.Attribute(ast.Name("sys"), "version_info"), "minor"):
            return python[1]
        case ast.Attribute(ast.Name("sys"), "platform"):
            return "linux"
        case ast.Attribute(ast.Name("os"), "name"):
            return "posix"
        case ast.Name("PY2") | ast.Attribute(ast.Name("six"), "PY2"):
            return False
        case ast.Name("PY3") | ast.Attribute(ast.Name("six"), "PY3"):
            return True
    raise _Unknown


def _both_or_either(joined: ast.boolop, values: list[ast.expr], python: tuple[int, int]) -> bool:
    """Return what `and` and `or` come to, also where one side alone decides."""
    decisive = isinstance(joined, ast.Or)
    is_unknown = False
    for each in values:
        try:
            if bool(_value(each, python)) is decisive:
                return decisive
        except _Unknown:
            is_unknown = True
    if is_unknown:
        raise _Unknown
    return not decisive


def _indexed(value: object, index: int) -> object:
    if isinstance(value, tuple | str):
        return value[index]
    raise _Unknown


def _up_to(value: object, end: int) -> object:
    if isinstance(value, tuple | str):
        return value[:end]
    raise _Unknown
