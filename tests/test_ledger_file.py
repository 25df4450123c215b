"""The ledger's file: its settings, its schema, and what happens when the disk or a neighbour misbehaves."""

import asyncio
import os
import re
import resource
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from petri.errors import HostError, Invalid, PetriError, StorageFull, Unavailable
from petri.ledger import Ledger, expiry, migrations, runs, sandboxes, sqlite, tables
from tests.calls import eventually
from tests.test_ledger import NOW, a_run, a_sandbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(f"sqlite:///{path}")
    yield ledger
    await ledger.close()


def refusal(path: Path) -> PetriError:
    with pytest.raises(Unavailable) as refused:
        Ledger.open(f"sqlite:///{path}")
    return refused.value


async def make(path: Path, *, sandboxes: int) -> None:
    ledger = Ledger.open(f"sqlite:///{path}")
    await asyncio.gather(*(ledger.add_sandbox(a_sandbox(env={"A": "b" * 200})) for _ in range(sandboxes)))
    await ledger.close()


def schema(raw: sqlite3.Connection) -> set[tuple[object, ...]]:
    """Return what there is and not how it was spelt: a column added later stands elsewhere in the text."""
    made = "FROM sqlite_master WHERE name != 'sqlite_sequence'"
    found = set(raw.execute(f"SELECT type, name, sql {made} AND type != 'table'").fetchall())
    for (table,) in raw.execute(f"SELECT name {made} AND type = 'table'").fetchall():
        for about in ("table_info", "foreign_key_list"):
            found |= {(table, about, *row) for row in raw.execute(f"PRAGMA {about}({table})")}
    return found


def content(raw: sqlite3.Connection) -> dict[str, list[dict[str, object]]]:
    """Return every row by its table, but for numbers and times."""
    raw.row_factory = sqlite3.Row
    tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        table: [
            {name: row[name] for name in row.keys() if name not in ("number", "seq", "created_at")}  # noqa: SIM118
            for row in raw.execute(f"SELECT * FROM {table}")
        ]
        for table in tables
    }


# ---------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 2000)],
)
async def test_both_writer_and_readers_keep_the_promised_settings(
    ledger: Ledger, pragma: str, value: str | int
) -> None:
    def asked(connection: Any) -> Any:
        return connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()

    assert await ledger._writer.do(asked) == value
    assert await ledger._readers.do(asked) == value


async def test_readers_cannot_write(ledger: Ledger) -> None:
    with pytest.raises(Unavailable):
        await ledger._readers.do(lambda connection: connection.execute(tables.runs.delete()))


def test_a_setting_that_does_not_hold_is_refused() -> None:
    with closing(sqlite3.connect(":memory:")) as raw, pytest.raises(Unavailable, match="local file system"):
        sqlite._insist(raw, "journal_mode", "wal")


async def test_only_the_owner_may_read_the_file(ledger: Ledger, path: Path) -> None:
    await ledger.add_sandbox(a_sandbox(env={"SECRET": "x"}))

    for file in (path, path.with_name("ledger.db-wal"), path.with_name("ledger.db-shm")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("url", ["nonsense", "postgresql://host/petri", "mysql://host/petri"])
def test_an_address_that_is_no_sqlite_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        Ledger.open(url)


async def test_closing_folds_the_log_into_the_file(path: Path) -> None:
    await make(path, sandboxes=3)

    assert sorted(file.name for file in path.parent.iterdir()) == ["ledger.db", "ledger.db-ballast"]


async def test_the_log_is_folded_into_the_file_where_nobody_waits(ledger: Ledger, path: Path) -> None:
    sandbox = await ledger.add_sandbox(a_sandbox())
    for number in range(sqlite._FOLD_AFTER):  # a page or two each: SQLite itself would wait for a thousand
        await ledger.touch(sandbox.id, NOW + number)

    eventually(lambda: sandbox.id.encode() in path.read_bytes())

    assert (await ledger.sandbox(sandbox.id, "acme")).last_active_at == NOW + sqlite._FOLD_AFTER - 1


# -------------------------------------------------------------------------------------------- migrations


async def test_a_ledger_made_at_once_is_the_one_that_all_the_steps_lead_to(path: Path) -> None:
    await make(path, sandboxes=0)
    by_steps = path.with_name("steps.db")
    engine = create_engine(f"sqlite:///{by_steps}")
    with engine.begin() as connection:
        migrations._run_steps(connection)
    engine.dispose()

    with closing(sqlite3.connect(path)) as made, closing(sqlite3.connect(by_steps)) as stepped:
        assert schema(made) == schema(stepped)
        assert content(made) == content(stepped)
        assert (len(schema(made)) > 10, content(made)["tenants"]) == (
            True,
            [{"name": "default", "quotas": "{}"}],
        )


async def test_opening_again_changes_nothing(path: Path) -> None:
    await make(path, sandboxes=5)
    with closing(sqlite3.connect(path)) as raw:
        before = list(raw.iterdump())

    await make(path, sandboxes=0)

    with closing(sqlite3.connect(path)) as raw:
        assert list(raw.iterdump()) == before


def test_the_newest_step_is_the_one_we_say_it_is() -> None:
    config = Config()
    config.set_main_option("script_location", "petri.ledger:migrations")

    assert ScriptDirectory.from_config(config).get_heads() == [migrations.HEAD]


async def test_a_ledger_of_a_newer_petri_is_refused_and_left_alone(path: Path) -> None:
    await make(path, sandboxes=1)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")

    assert "newer Petri" in refusal(path).message

    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)


async def test_a_migration_that_fails_leaves_nothing_behind(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE runs (id TEXT)")

    refusal(path)

    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]


@pytest.mark.long
async def test_a_ledger_that_is_up_to_date_opens_without_alembic(path: Path) -> None:
    await make(path, sandboxes=0)

    said = _python(
        "import asyncio, sys; from petri.ledger import Ledger; "
        f"asyncio.run(Ledger.open('sqlite:///{path}').close()); print('alembic' in sys.modules)"
    )

    assert said == "False\n"


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# ------------------------------------------------------------------------------------------------ queries


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (expiry._EXPIRED, "ix_sandboxes_expires_at"),
        (sandboxes._LIVE, "ix_sandboxes_state"),
        (sandboxes._BY_NAME, "uq_sandboxes_live_name"),
        (sandboxes._COUNT, "ix_sandboxes_state"),
        (sandboxes._COUNT_THEIRS, "ix_sandboxes_tenant_state_number"),
        (runs._COUNT, "COVERING INDEX ix_runs_state_tenant"),
        (
            runs._COUNT_THEIRS,
            "COVERING INDEX ix_runs_state_tenant (state=? AND tenant=?)",
        ),
        (runs._UNFINISHED, "ix_runs_state_tenant"),
    ],
)
async def test_frequent_questions_are_answered_by_an_index(path: Path, statement: Any, index: str) -> None:
    await make(path, sandboxes=0)
    compiled = str(statement.compile(dialect=SQLiteDialect_pysqlite()))
    sql = re.sub(r"__\[POSTCOMPILE_\w+\]", "'a', 'b'", compiled)  # what SQLAlchemy writes for a list

    with closing(sqlite3.connect(path)) as raw:
        plan = raw.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?")).fetchall()

    assert index in plan[0][3]


# -------------------------------------------------------------------------------------------- misbehaviour


def test_a_file_that_is_no_database_is_refused_with_what_would_help(path: Path) -> None:
    path.write_bytes(b"this was never a ledger\n" * 1000)

    assert "backup" in refusal(path).message
    assert path.read_bytes().startswith(b"this was never")


async def test_a_damaged_file_is_refused_with_what_would_help(path: Path) -> None:
    await make(path, sandboxes=300)
    _damage(path)

    error = refusal(path)

    assert "is damaged" in error.message
    assert "backup" in error.message


def _damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 8192 * 4096)  # a page in the middle
        file.write(os.urandom(4096))


def test_a_folder_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(tmp_path / "nowhere" / "ledger.db").message


@pytest.mark.long
async def test_a_held_write_lock_makes_the_ledger_unavailable_to_writers_only(
    ledger: Ledger, path: Path
) -> None:
    before = await ledger.add_sandbox(a_sandbox())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        writing = [asyncio.ensure_future(ledger.add_sandbox(a_sandbox())) for _ in range(3)]

        assert await ledger.sandbox(before.id, "acme") == before
        refused = await asyncio.gather(*writing, return_exceptions=True)
        waited = time.monotonic() - begun
        other.execute("ROLLBACK")

    assert [type(error) for error in refused] == [Unavailable] * 3
    assert waited < 2.5 * sqlite.BUSY_TIMEOUT_S  # a line of them does not wait one after the other
    assert (await ledger.add_sandbox(a_sandbox())).number == 2


async def test_a_full_disk_is_said_to_be_full_and_nothing_is_half_written(ledger: Ledger) -> None:
    sandbox = await ledger.add_sandbox(a_sandbox())
    pages = await _pragma(ledger, "page_count")
    await _pragma(ledger, f"max_page_count={pages}")

    answers = await asyncio.gather(
        *(ledger.add_run(a_run(sandbox, said="x" * 50_000), start=True) for _ in range(4)),
        return_exceptions=True,
    )
    await _pragma(ledger, f"max_page_count={pages * 100}")

    assert [type(answer) for answer in answers] == [StorageFull] * 4
    _assert_speaks_no_sql(answers[0])
    assert await ledger.unfinished_runs() == []
    await ledger.add_run(a_run(sandbox, said="x" * 50_000), start=True)
    assert len((await ledger.events(sandbox.id, limit=100, cursor=None)).items) == 3


async def test_a_disk_error_makes_the_ledger_unavailable_for_as_long_as_it_lasts(ledger: Ledger) -> None:
    sandbox = await ledger.add_sandbox(a_sandbox())

    with _no_file_may_grow_beyond(2**20), pytest.raises(Unavailable) as refused:
        await ledger.add_run(a_run(sandbox, said="x" * 2**21), start=True)

    _assert_speaks_no_sql(refused.value)
    assert await ledger.unfinished_runs() == []
    await ledger.add_run(a_run(sandbox, said="x" * 2**21), start=True)


async def test_a_failing_statement_is_told_to_the_log_but_not_what_callers_sent(ledger: Ledger) -> None:
    sandbox = await ledger.add_sandbox(a_sandbox())
    for table in ("labels", "events"):
        await _change(ledger, f"DROP TABLE {table}")

    with pytest.raises(Unavailable) as unlabelled:
        await ledger.add_sandbox(a_sandbox(metadata={"password": "hunter2"}))
    with pytest.raises(Unavailable) as unnoted:
        await ledger.note(sandbox.id, "files.written", {"password": "hunter2"}, at=NOW)

    for error, table in ((unlabelled.value, "labels"), (unnoted.value, "events")):
        _assert_speaks_no_sql(error)
        assert f"INSERT INTO {table}" in error.detail
        assert "hunter2" not in error.detail


async def _change(ledger: Ledger, sql: str) -> None:
    await ledger._writer.do(lambda connection: connection.exec_driver_sql(sql))


async def _pragma(ledger: Ledger, pragma: str) -> Any:
    return await ledger._writer.do(
        lambda connection: connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()
    )


def _assert_speaks_no_sql(error: Any) -> None:
    assert isinstance(error, HostError)
    assert not {"INSERT", "SELECT", "UPDATE", "sqlite3"} & set(error.message.replace("(", " ").split())


@contextmanager
def _no_file_may_grow_beyond(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
