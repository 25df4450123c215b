"""What a restore writes over besides files: one that is given up puts it back."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column; of restores from before, nothing is known but their files."""
    op.add_column("restores", sa.Column("former", sa.JSON))
