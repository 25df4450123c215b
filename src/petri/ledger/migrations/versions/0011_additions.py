"""Packages that runs asked for while they ran, of each sandbox and each snapshot."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the columns; nobody could ask before."""
    op.add_column("sandboxes", sa.Column("added", sa.JSON))
    op.add_column("snapshots", sa.Column("added", sa.JSON))
