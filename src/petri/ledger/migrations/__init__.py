"""How a ledger on disk comes to look like `petri.ledger.tables`: a new one at once, an older one by steps.

A new step: a file in `versions/` whose `down_revision` is today's `HEAD`, and its number here. What it makes
must also be what the tables say, and what it puts into them also what `_make` does: a test compares the two.
"""

import time

from sqlalchemy import Connection, insert, inspect, text

from petri.errors import Unavailable
from petri.ledger.tables import metadata, tenants

HEAD = "0012"
"""The newest step. Known without asking Alembic, whose import takes longer than opening a ledger."""


def upgrade(connection: Connection) -> None:
    """Bring the ledger to `HEAD`, whole or not at all; one that is there already is left alone."""
    with connection.begin():
        if not inspect(connection).get_table_names():
            _make(connection)
        elif _version(connection) != HEAD:
            _run_steps(connection)


def _make(connection: Connection) -> None:
    """Make a new ledger, without Alembic: steps that were taken long ago need not be taken again."""
    metadata.create_all(connection)
    connection.execute(insert(tenants), {"name": "default", "created_at": time.time(), "quotas": {}})
    connection.execute(
        text(
            "CREATE TABLE alembic_version ("
            "version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def _run_steps(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "petri.ledger:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, HEAD)
    except CommandError as error:
        raise Unavailable(
            "the ledger was written by a newer Petri: start that one, or put back a backup from before",
            detail=str(error),
        ) from error
