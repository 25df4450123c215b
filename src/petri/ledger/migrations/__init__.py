"""How a ledger on disk comes to look like `petri.ledger.tables`, step by step, by Alembic.

A new step: a file in `versions/` whose `down_revision` is today's `HEAD`, and its number here.
"""

from sqlalchemy import Connection, inspect, text

from petri.errors import Unavailable

HEAD = "0004"
"""The newest step. Known without asking Alembic, whose import takes longer than opening a ledger."""


def upgrade(connection: Connection) -> None:
    """Bring the ledger to `HEAD`, whole or not at all; one that is there already is left alone."""
    with connection.begin():
        if _version(connection) != HEAD:
            _run_steps(connection)


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
