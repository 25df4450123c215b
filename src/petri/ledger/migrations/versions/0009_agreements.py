"""The trees that clients and sandboxes last agreed on."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "agreements",
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("tree", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", "tree", name="pk_agreements"),
        sa.ForeignKeyConstraint(["sandbox_id"], ["sandboxes.id"], name="fk_agreements_sandbox_id"),
    )
