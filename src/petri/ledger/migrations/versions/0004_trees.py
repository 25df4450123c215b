"""The trees of a workspace: what it is now, and what each run made of what."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns; of what ran before nobody knows the trees."""
    op.add_column("sandboxes", sa.Column("tree", sa.Text))
    for name in ("tree_before", "tree_after"):
        op.add_column("runs", sa.Column(name, sa.Text))
    op.add_column("runs", sa.Column("changes", sa.JSON))
