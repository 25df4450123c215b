"""What is particular to SQLite: how it is opened, what is insisted on, and what its refusals mean.

Nothing outside this file knows which database keeps the ledger. `sqlite://` keeps it in memory and is
the ledger's own fake: the same SQL, gone when closed.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from sqlalchemy import Connection, Engine, NullPool, Table, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from petri.errors import HostError, Invalid, StorageFull, Unavailable
from petri.ledger.ballast import Ballast
from petri.ledger.prepared import wrapped

BUSY_TIMEOUT_S = 2.0
"""How long a writer waits for a lock that something outside this server holds, such as a backup."""

CHECKED_BYTES = 256 * 2**20
"""Up to this size the whole file is checked for damage when it is opened, at about 1 ms a megabyte.
Beyond it a check would be felt at every start; damage is then found when the page is read."""

_CACHE_KIB = 512
"""What a connection keeps of the file. SQLite's own 2 MiB fill up with rows nobody asks for again, and were
most of what a thousand idle sandboxes took; the kernel has the file's pages in memory anyway."""

_FOLD_AFTER = 96
"""Transactions after which the log is folded into the file where nobody waits: of runs, some 800 pages. At
1,000 SQLite does so by itself, within a commit, and who waits for that one waits 1 to 3 ms more."""

_AS_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each value, ten for each run."""

_RESTORE = (
    "put back a backup of it, or move it aside together with its -wal and -shm to begin an empty one; "
    "the workspaces are not touched"
)


class Sqlite:
    """One SQLite ledger: a file, or memory. Connections are the caller's to close."""

    def __init__(self, url: str) -> None:
        self._path = _path(url)
        self.in_memory = self._path is None
        """Then its one connection is all there is: whoever opens a second one sees an empty ledger."""
        self._writing = _engine(self._path, query_only=False)
        event.listen(self._writing, "begin", _begin)
        self._reading = _engine(self._path, query_only=True)
        self.ballast = Ballast(self._path and self._path.with_name(f"{self._path.name}-ballast"))

    def writer(self) -> Connection:
        """Return a connection to a file that is there, is sound, and is nobody else's to read."""
        while True:
            try:
                connection = self._writer()
            except StorageFull:  # opening makes the -wal and the -shm, for which there must be room
                if not self.ballast.release():
                    raise
            else:
                self.ballast.restore()
                return connection

    def _writer(self) -> Connection:
        if self._path is not None:
            _make_private(self._path)
        connection = _connected(self._writing)
        try:
            if self._path is not None:
                _refuse_damaged(connection, self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def reader(self) -> Connection:
        """Return a connection that can only read, each time what is committed by then."""
        return _connected(self._reading)


_BY_HAND = "petri_by_hand"


class Transactions:
    """The transactions of one connection, one after the other: `with` it, and what is done is kept or undone.

    SQLAlchemy keeps books of each one, at a tenth of all that an exec costs the ledger. So it is told of one
    that never ends, and those within are begun and ended by hand.
    """

    def __init__(self, connection: Connection, when_over: Callable[[], None]) -> None:
        self._connection = connection.execution_options(**{_BY_HAND: True})
        self._when_over = when_over
        """Called after each one, kept or undone, before anybody is told."""
        self._in_log = 0
        """How many were kept since the log was folded into the file."""
        self._connection.begin()

    @staticmethod
    def begin(connection: Connection) -> None:
        """Take the write lock at once: who reads first and writes later may find itself overtaken."""
        _say(connection, "BEGIN IMMEDIATE")

    def __enter__(self) -> None:
        self.begin(self._connection)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end(is_kept=kind is None)
        finally:
            self._when_over()

    def _end(self, *, is_kept: bool) -> None:
        driver = self._connection.connection
        if not is_kept:
            driver.rollback()  # nothing, if SQLite has done so by itself
            return
        try:
            # Not `commit()`, which has SQLite parse the word each time.
            _say(self._connection, "COMMIT")
        except DBAPIError:
            driver.rollback()
            raise
        self._in_log += 1

    def rest(self) -> None:
        """Do now what would delay one to come: called between two while nobody waits."""
        if self._in_log >= _FOLD_AFTER:
            self._in_log = 0
            # What is not folded stays in the log, as safe as it was; and who writes must go on.
            with suppress(sqlite3.Error, SQLAlchemyError):
                self._connection.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")


def _say(connection: Connection, word: str) -> None:
    try:
        connection.connection.cursor().execute(word)
    except sqlite3.Error as error:
        raise wrapped(connection.dialect, word, error) from error


def tell_changes(
    connection: Connection, table: Table, unless: Collection[str], tell: Callable[[str, str], None]
) -> None:
    """Have `tell` called, within the transaction, with the id and the tenant of each row that is changed.

    Not where only the columns `unless` are. The database itself does so: no statement can forget to.
    """
    columns = ", ".join(column.name for column in table.c if column.name not in unless)
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.create_function("petri_changed", 2, tell)
    driver.execute(
        f"CREATE TEMP TRIGGER {table.name}_changed AFTER UPDATE OF {columns} ON main.{table.name} "
        "BEGIN SELECT petri_changed(OLD.id, OLD.tenant); END"
    )


def explain(error: DBAPIError) -> HostError:
    """Return what a refusal of the database means to a caller. The SQL goes to our log only."""
    code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if (
        code == sqlite3.SQLITE_IOERR_SHMSIZE
    ):  # the one file of a ledger for whose lack of room SQLite has no word
        code = sqlite3.SQLITE_FULL
    kind, message = _MEANING.get(code & 0xFF, (Unavailable, "the ledger could not be used"))
    return kind(message, detail=str(error))


_DAMAGED = (Unavailable, f"the ledger's file is damaged or is no SQLite database: {_RESTORE}")
_BUSY = (Unavailable, "the ledger is busy: something else holds its write lock; try again")
_CLOSED = (
    Unavailable,
    "the ledger's file cannot be opened or written: check that its folder is there and ours",
)

_MEANING: Mapping[int, tuple[type[HostError], str]] = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: (StorageFull, "no space left on the disk that holds the ledger"),
    sqlite3.SQLITE_IOERR: (Unavailable, "the disk that holds the ledger reports an error"),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_READONLY: _CLOSED,
    sqlite3.SQLITE_PERM: _CLOSED,
}


def _path(url: str) -> Path | None:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise Invalid(
            "the ledger's address is not a database URL such as sqlite:////srv/petri/ledger.db"
        ) from None
    if parsed.get_backend_name() != "sqlite":
        raise Invalid(f"this release keeps its ledger in SQLite only, not in {parsed.get_backend_name()}")
    return None if parsed.database in {None, "", ":memory:"} else Path(str(parsed.database))


def _engine(path: Path | None, *, query_only: bool) -> Engine:
    return create_engine(
        "sqlite://",
        creator=lambda: _connect(path, query_only=query_only),
        poolclass=NullPool,  # who connects keeps the connection, for as long as the ledger is open
        hide_parameters=True,  # they hold what callers sent; an error's text goes to the log
        json_serializer=_AS_JSON,
    )


def _connect(path: Path | None, *, query_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        ":memory:" if path is None else path,
        isolation_level=None,  # else the driver opens transactions where it sees fit
        check_same_thread=False,  # opened by one thread, used by one other
    )
    try:
        for name, value in _pragmas(in_memory=path is None, query_only=query_only).items():
            _insist(connection, name, value)
    except BaseException:
        connection.close()
        raise
    return connection


def _pragmas(*, in_memory: bool, query_only: bool) -> dict[str, str | int]:
    return {
        "busy_timeout": int(BUSY_TIMEOUT_S * 1000),
        "journal_mode": "memory" if in_memory else "wal",  # readers never wait for the writer
        "synchronous": 2,  # FULL: a commit has reached the disk; NORMAL may lose the last ones
        "foreign_keys": 1,
        "query_only": int(query_only),
        "cache_size": -_CACHE_KIB,
    }


def _insist(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    """Set a pragma and read it back: SQLite ignores, without a word, what it cannot do."""
    connection.execute(f"PRAGMA {name}={value}")
    (answer,) = connection.execute(f"PRAGMA {name}").fetchone()
    if answer != value:
        raise Unavailable(
            f"the ledger's disk does not support {name}={value}: keep the ledger on a local file system",
            detail=f"PRAGMA {name} is {answer!r}",
        )


def _begin(connection: Connection) -> None:
    if _BY_HAND not in connection.get_execution_options():
        Transactions.begin(connection)


def _connected(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except DBAPIError as error:
        raise explain(error) from error


def _make_private(path: Path) -> None:
    """Make the file before SQLite would: variables of sandboxes are in it, and may be secrets."""
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise Unavailable(
            f"the ledger {path} cannot be opened: {error.strerror}", detail=str(error)
        ) from error


def _refuse_damaged(connection: Connection, path: Path) -> None:
    if path.stat().st_size > CHECKED_BYTES:
        return
    try:
        with connection.begin():
            (verdict,) = connection.exec_driver_sql("PRAGMA quick_check(1)").one()
    except DBAPIError as error:
        raise explain(error) from error
    if verdict != "ok":
        raise Unavailable(f"the ledger {path} is damaged: {_RESTORE}", detail=verdict)
