"""What a run did to the files may be thrown away, and sandboxes may see each other's files."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns; what ran before was kept and saw nobody."""
    op.add_column("sandboxes", sa.Column("peers", sa.JSON))
    op.add_column("runs", sa.Column("keep", sa.Text))
    op.add_column("runs", sa.Column("kept", sa.Boolean))
    op.add_column("runs", sa.Column("peers", sa.JSON))
