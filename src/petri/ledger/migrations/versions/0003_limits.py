"""Runs remember what they might use, and whether the disk was full."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add what a run may use, and how its disk ended."""
    op.add_column("runs", sa.Column("limits", sa.JSON))
    op.add_column("runs", sa.Column("disk_full", sa.Boolean))
    op.add_column("runs", sa.Column("remark", sa.Text))
