"""Statements compiled once, for the few that every exec waits for.

SQLAlchemy caches what it compiles, but at each call still walks the statement for its cache key, gathers
the parameters and sets up a result: measured here, several times what SQLite itself takes. A `Prepared`
does all that once. It is a Core statement still, and nothing in here knows which database runs it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import JSON, Boolean, Connection, Dialect, Insert, Select, Update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

Values = Mapping[str, Any]
_Columns = Sequence[tuple[str, Callable[[Any], Any] | None]]


class Prepared:
    """An INSERT or UPDATE that returns no rows and is given values of the same names each time."""

    def __init__(self, statement: Insert | Update) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, values: Values) -> int:
        """Execute with `values`; return how many rows there were to change."""
        compiled = self._for(connection.dialect, values)
        cursor = connection.connection.cursor()
        try:
            cursor.execute(compiled.sql, compiled.arrange(values))
        except connection.dialect.loaded_dbapi.Error as error:
            raise wrapped(connection.dialect, compiled.sql, error) from error
        return cursor.rowcount

    def run_each(self, connection: Connection, many: Sequence[Values]) -> None:
        """Execute once for each of `many`, of which there is at least one."""
        compiled = self._for(connection.dialect, many[0])
        try:
            connection.connection.cursor().executemany(compiled.sql, [compiled.arrange(one) for one in many])
        except connection.dialect.loaded_dbapi.Error as error:
            raise wrapped(connection.dialect, compiled.sql, error) from error

    def _for(self, dialect: Dialect, values: Values) -> "_Compiled":
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = self._compiled[dialect.name] = self._compile(dialect, values)
        return compiled

    def _compile(self, dialect: Dialect, values: Values) -> "_Compiled":
        columns = [name for name in values if name in self._statement.table.c]
        return _compiled(self._statement.compile(dialect=dialect, column_keys=columns), dialect)


class PreparedRow:
    """A SELECT of one row by its key."""

    def __init__(self, statement: Select[Any]) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[_Compiled, _Columns]] = {}

    def one(self, connection: Connection, values: Values) -> dict[str, Any] | None:
        """Return the row's values by column, or None if there is none."""
        compiled, columns = self._for(connection.dialect)
        cursor = connection.connection.cursor()
        try:
            cursor.execute(compiled.sql, compiled.arrange(values))
            found = cursor.fetchone()
        except connection.dialect.loaded_dbapi.Error as error:
            raise wrapped(connection.dialect, compiled.sql, error) from error
        finally:
            cursor.close()
        if found is None:
            return None
        return {
            name: value if process is None else process(value)
            for (name, process), value in zip(columns, found, strict=True)
        }

    def _for(self, dialect: Dialect) -> "tuple[_Compiled, _Columns]":
        if dialect.name not in self._compiled:
            compiled = self._statement.compile(dialect=dialect)
            columns = [
                (column.name, _reading(column.type, dialect)) for column in self._statement.selected_columns
            ]
            self._compiled[dialect.name] = _compiled(compiled, dialect), columns
        return self._compiled[dialect.name]


_EMPTY: Mapping[str, Callable[[], Any]] = {"{}": dict, "[]": list, "null": lambda: None}


def _reading(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    """Return what makes a value of a column of what the driver has of it; None where that is the same."""
    process = kind.dialect_impl(dialect).result_processor(dialect, None)
    if process is None or not isinstance(kind, JSON):
        return process
    read = process

    def quick(text: Any) -> Any:
        """Most are empty: no parser is needed to see that."""
        make = _EMPTY.get(text)
        return read(text) if make is None else make()

    return quick


def _compiled(compiled: Any, dialect: Dialect) -> "_Compiled":
    processors = {
        name: process
        for name, parameter in compiled.binds.items()
        # Of a truth value SQLAlchemy only makes sure that it is one: there are ten in a run, and mypy did.
        if not isinstance(parameter.type, Boolean)
        and (process := parameter.type.dialect_impl(dialect).bind_processor(dialect)) is not None
    }
    return _Compiled(str(compiled), dict(compiled.params), processors, _order(compiled.positiontup))


def _order(names: Sequence[str] | None) -> Callable[[Values], Any] | None:
    if not names:
        return None
    # Of a single name `itemgetter` makes no tuple, which is what a driver takes.
    return itemgetter(*names) if len(names) > 1 else lambda values: (values[names[0]],)


@dataclass(frozen=True, slots=True)
class _Compiled:
    sql: str
    constants: Values
    processors: Mapping[str, Callable[[Any], Any]]
    order: Callable[[Values], Any] | None
    """None for a driver that takes its parameters by name."""

    def arrange(self, values: Values) -> Any:
        """Return `values` the way the driver takes them."""
        ready = {**self.constants, **values}
        for name, process in self.processors.items():
            ready[name] = process(ready[name])
        return ready if self.order is None else self.order(ready)


def wrapped(dialect: Dialect, sql: str, error: Exception) -> Exception:
    """Return a driver's `error` as SQLAlchemy raises it, without the parameters: callers sent those."""
    return DBAPIError.instance(sql, None, error, dialect.loaded_dbapi.Error, dialect=dialect)
