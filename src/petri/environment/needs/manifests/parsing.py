"""TOML and JSON of a stranger: parsed within bounds, or nothing at all."""

import json
import re
import tomllib
from typing import Any

_TOO_DOTTED = re.compile(r"(?:[\w\"'-]++\s*+\.\s*+){30}")
"""A key of so many parts is nobody's manifest, and `tomllib` takes their square."""
_MOST_TOML = 4 << 20


def toml(text: str | None) -> dict[str, Any]:
    """Return a TOML document; an empty one where it is broken or not there."""
    if text is None or len(text) > _MOST_TOML or _TOO_DOTTED.search(text):
        return {}
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def json_object(text: str | None) -> dict[str, Any]:
    """Return a JSON object, with comments and trailing commas forgiven; an empty one where it is broken."""
    if text is None:
        return {}
    for attempt in (text, _without_comments(text)):
        try:
            value = json.loads(attempt)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


_STRING_OR_COMMENT = re.compile(r'"(?>[^"\\\n]++|\\.)*+"|//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/|,(?=\s*[}\]])')


def _without_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else "", text)


def table(value: object, *keys: str) -> dict[str, Any]:
    """Return the table that is reached by `keys`, or an empty one where anything else is."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def strings(value: object) -> list[str]:
    """Return the strings in a list, or nothing where there is none."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def tables(value: object) -> list[dict[str, Any]]:
    """Return the tables in a list, or nothing where there is none."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def string(value: object) -> str | None:
    """Return a string, or None where it is none."""
    return value if isinstance(value, str) else None
