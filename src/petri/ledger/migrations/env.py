"""Run by Alembic for each upgrade, inside the transaction that `petri.ledger.migrations` opened."""

from alembic import context

from petri.ledger.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
