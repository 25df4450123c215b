"""Which packages each run had, and the environment a sandbox was last run in."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the columns; what ran before had none."""
    op.add_column("sandboxes", sa.Column("environment", sa.Text))
    op.add_column("runs", sa.Column("environment", sa.Text))
    op.add_column("runs", sa.Column("packages", sa.JSON))
