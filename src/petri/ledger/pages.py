"""Pages of a list, and the cursors between them.

A cursor names the last row of a page, not how many rows came before it, so rows that are added while
somebody reads are neither shown twice nor push others out. It names the row by its id, never by the number
that counts over all tenants: from two of those one could tell how busy everybody else is. And it is looked
up among the rows that are being listed, so that one made up, or somebody else's, is none.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Select, select

from petri.errors import InvalidField
from petri.ledger.rows import Row

T = TypeVar("T")

PAGE_BYTES = 4 << 20
"""What the rows of a page come to, unless one alone is longer: the longest is 3 MiB of arguments, and
whoever keeps a record of such gets it in more pages."""
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
    """A kind of thing that comes in pages: the column that names one, and how to make one of a row."""

    column: Column[str]
    make: Callable[[Row], T]

    @property
    def name(self) -> str:
        """What cursors call it."""
        return str(self.column.table.name)


def fetch(connection: Connection, wanted: Select[Any], kind: Kind[T], limit: int) -> Page[T]:
    """Return the first of `wanted`, which are ordered by their `number`: `limit`, or as many as fit."""
    shown, more = fitting(connection, wanted, limit)
    last = shown[-1][kind.column.name] if more else None
    return Page([kind.make(row) for row in shown], None if last is None else cursor_of(kind.name, last))


def fitting(connection: Connection, wanted: Select[Any], limit: int) -> tuple[list[RowMapping], bool]:
    """Return the first rows of `wanted`, `limit` or as many as fit into a page, and whether more follow."""
    shown: list[RowMapping] = []
    left_bytes = PAGE_BYTES
    # Row by row: a page that is full by its bytes must not have read all that would not fit.
    with connection.execute(wanted.limit(at_least_one(limit) + 1)) as found:
        for row in found.mappings():
            left_bytes -= _bytes_of(row)
            if len(shown) == limit or (len(shown) > 0 and left_bytes < 0):
                return shown, True
            shown.append(row)
    return shown, False


def _bytes_of(row: RowMapping) -> int:
    """Return about what a row takes in an answer: its words as JSON; all else is short."""
    words = [value for value in row.values() if isinstance(value, str | list | dict)]
    return len(json.dumps(words, ensure_ascii=False).encode())


def read_cursor(connection: Connection, cursor: str, kind: Kind[Any], among: ColumnElement[bool]) -> int:
    """Return the number of the row that `cursor` stands for, which must be `among` the rows listed."""
    columns = kind.column.table.c
    named = select(columns.number).where(kind.column == _mark(cursor, kind.name), among)
    number: int | None = connection.execute(named).scalar_one_or_none()
    if number is None:
        raise _bad()
    return number


def read_count(cursor: str, name: str) -> int:
    """Return the number that `cursor` holds, for lists that count their own rows."""
    mark = _mark(cursor, name)
    if not mark.isdecimal() or int(mark) > _HIGHEST or cursor_of(name, int(mark)) != cursor:
        raise _bad()
    return int(mark)


def cursor_of(name: str, mark: str | int) -> str:
    """Return the cursor that stands for the row of `mark` in the list `name`."""
    return base64.urlsafe_b64encode(f"{name}:{mark}".encode()).decode("ascii")


def at_least_one(limit: int) -> int:
    """Return `limit`, if it lets anything through."""
    if limit < 1:
        raise InvalidField("limit", "must be at least 1")
    return limit


def _mark(cursor: str, name: str) -> str:
    try:
        mark = base64.urlsafe_b64decode(cursor.encode("ascii")).decode().partition(":")[2]
    except ValueError:
        raise _bad() from None
    # The decoders above are lenient: what does not come out the way we write it is not ours.
    if cursor_of(name, mark) != cursor:
        raise _bad()
    return mark


def _bad() -> InvalidField:
    return InvalidField("cursor", "is not a cursor of this list: pass `next_cursor` of the page before")
