"""Regular expressions mean the same in every Python that Petri runs on, Debian 12's 3.11.2 above all."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import petri
from petri.syncing import records

ALONE = frozenset({codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY, codes.ATOMIC_GROUP})
"""What may be repeated possessively: one character of some kind, or an atomic group."""
INSIDE_CELLS = "petri.cell."


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield every expression that some module of ours holds."""
    for module in pkgutil.walk_packages(petri.__path__, "petri."):
        if not module.name.startswith(INSIDE_CELLS) and "migrations" not in module.name:
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern):
                    yield f"{module.name}.{name}", value
    yield "petri.syncing.records._path", records._path()


def possessive(parsed: Any) -> Iterator[Any]:
    """Yield what is repeated possessively, however deep."""
    if isinstance(parsed, parser.SubPattern | list | tuple):
        items = list(parsed)
        if items and items[0] is codes.POSSESSIVE_REPEAT:
            yield items[1][2]
        for item in items:
            yield from possessive(item)


def is_sound(pattern: re.Pattern[Any]) -> bool:
    found = possessive(parser.parse(pattern.pattern, pattern.flags))
    return all(len(repeated) == 1 and repeated[0][0] in ALONE for repeated in found)


def test_what_is_repeated_possessively_is_atomic() -> None:
    """Before 3.11.5 another group that fails half-way has eaten what it tried (python/cpython#106052)."""
    found = dict(patterns())

    assert [name for name, pattern in found.items() if not is_sound(pattern)] == []
    assert len(found) > 50


def test_a_group_that_is_not_atomic_is_found() -> None:
    assert [is_sound(re.compile(each)) for each in (r"a(?:/b)*+", r"(x)?+", r"a(?>/b)*+", r"[^a]++")] == [
        False,
        False,
        True,
        True,
    ]
