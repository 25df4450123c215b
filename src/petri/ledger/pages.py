"""Pages of a list, and the cursors between them.

A cursor names the last row of a page, not how many rows came before it, so rows that are added while
somebody reads are neither shown twice nor push others out.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Select

from petri.errors import InvalidField
from petri.ledger.rows import Row

T = TypeVar("T")

_HIGHEST = 2**63 - 1
"""The largest number a database column holds."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the things asked for, in order."""

    items: list[T]
    next_cursor: str | None
    """Where the next page begins; None on the last."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of thing that comes in pages: its name in cursors, and how to make one of a row."""

    name: str
    make: Callable[[Row], T]


def fetch(connection: Connection, wanted: Select[Any], kind: Kind[T], limit: int) -> Page[T]:
    """Return the first `limit` of `wanted`, which are ordered by their `number`."""
    if limit < 1:
        raise InvalidField("limit", "must be at least 1")
    found = connection.execute(wanted.limit(limit + 1)).mappings().all()
    shown = found[:limit]
    more = len(found) > limit
    return Page([kind.make(row) for row in shown], _cursor(kind, shown[-1]["number"]) if more else None)


def read_cursor(cursor: str, kind: Kind[Any]) -> int:
    """Return the number of the row that `cursor` stands for, or refuse one that is none of ours."""
    try:
        number = int(base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").rpartition(":")[2])
    except ValueError:
        raise _bad() from None
    # The decoders above are lenient: what does not come out the way we write it is not ours.
    if not 0 <= number <= _HIGHEST or _cursor(kind, number) != cursor:
        raise _bad()
    return number


def _cursor(kind: Kind[Any], number: int) -> str:
    return base64.urlsafe_b64encode(f"{kind.name}:{number}".encode("ascii")).decode("ascii")


def _bad() -> InvalidField:
    return InvalidField("cursor", "is not a cursor of this list: pass `next_cursor` of the page before")
