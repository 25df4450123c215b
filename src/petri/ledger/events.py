"""The history: a row for whatever happened to a sandbox, a run or a tenant. Rows are added, never changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, insert, select

from petri.ledger import pages, rows
from petri.ledger.pages import Page
from petri.ledger.prepared import Prepared
from petri.ledger.tables import events


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Something that happened, and when."""

    number: int
    """Counts up from 1 over one history; a number over all of them would tell how busy others are."""
    at: float
    kind: str
    """`create`, `amend` and the sandbox's events; `run.queue` and the run's events as `run.…`; or a note.
    Of a tenant: `tenant.create`, `tenant.amend`, `key.create`, `key.revoke`."""
    run_id: str | None
    detail: Mapping[str, Any]
    """Where a state was entered, it is here as `state`: the history alone tells the whole life."""

    @property
    def is_beginning(self) -> bool:
        """Whether it is how a sandbox began."""
        return self.kind == "create"


@dataclass(frozen=True, slots=True)
class Deed:
    """When somebody changes a tenant, its keys or its quotas, and who that is."""

    at: float
    by: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Happening:
    """What is about to become a history row."""

    sandbox_id: str
    at: float
    kind: str
    detail: Mapping[str, Any]
    run_id: str | None = None


_ADD = Prepared(insert(events))
_BEFORE_A_RUN = ("run.queue", "run.start")
UNCHANGED = "files.unchanged"
"""Files will not be what they were to be."""
_GIVEN_UP = ("files.restore", "files.undo", "files.merge")
"""What may have been said of them then."""
_NAME = "events"
"""What cursors call a history."""


def add(connection: Connection, happenings: Sequence[Happening]) -> None:
    """Write `happenings` down, in the transaction that made them true."""
    if happenings:
        _ADD.run_each(connection, [_of_happening(one) for one in happenings])


def page(connection: Connection, sandbox_id: str, limit: int, cursor: str | None) -> Page[HistoryRow]:
    """Return the history of a sandbox and of its runs, oldest first."""
    theirs = select(events).where(events.c.sandbox_id == rows.text(sandbox_id))
    return fetch(connection, theirs, limit, cursor)


def latest(connection: Connection, sandbox_id: str, limit: int) -> list[HistoryRow]:
    """Return what happened to a sandbox's files, or may have: the latest first, `limit` at most.

    Its creation is last, unless that is further back.
    """
    theirs = select(events).where(events.c.sandbox_id == rows.text(sandbox_id))
    wanted = theirs.where(events.c.kind.not_in(_BEFORE_A_RUN)).order_by(events.c.number.desc()).limit(limit)
    found = [_to_history(row, 0) for row in connection.execute(wanted).mappings()]
    telling = (row for row in found if row.run_id is not None or "tree" in row.detail or row.is_beginning)
    return list(_without_given_up(telling))


def _without_given_up(rows: Iterable[HistoryRow]) -> Iterator[HistoryRow]:
    """Leave out what was to become of files and did not, and that it did not."""
    is_given_up = False
    for row in rows:
        if row.kind == UNCHANGED:
            is_given_up = True
        elif is_given_up and row.kind in _GIVEN_UP:
            is_given_up = False
        else:
            yield row


def fetch(connection: Connection, wanted: Select[Any], limit: int, cursor: str | None) -> Page[HistoryRow]:
    """Return a page of the history that `wanted` is the rows of, oldest first."""
    # Rows are added at the end and never removed: how many came before is a place that does not move.
    before = 0 if cursor is None else pages.read_count(cursor, _NAME)
    wanted = wanted.order_by(wanted.selected_columns.number).offset(before)
    found, more = pages.fitting(connection, wanted, limit)
    shown = [_to_history(row, before + place) for place, row in enumerate(found, 1)]
    return Page(shown, pages.cursor_of(_NAME, before + len(shown)) if more else None)


def _to_history(row: Mapping[Any, Any], number: int) -> HistoryRow:
    return HistoryRow(number, row["at"], row["kind"], row.get("run_id"), row["detail"])


def _of_happening(happening: Happening) -> rows.Values:
    return rows.storable(
        {
            "sandbox_id": happening.sandbox_id,
            "run_id": happening.run_id,
            "at": happening.at,
            "kind": happening.kind,
            "detail": happening.detail,
        }
    )
