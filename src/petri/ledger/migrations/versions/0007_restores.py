"""What files were before they became another tree: whoever went back can come back."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the table, with nothing in it."""
    op.create_table(
        "restores",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite")),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("was", sa.Text, nullable=False),
        sa.Column("tree", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_restores"),
        sa.ForeignKeyConstraint(["sandbox_id"], ["sandboxes.id"], name="fk_restores_sandbox_id"),
    )
    op.create_index("ix_restores_sandbox_id_number", "restores", ["sandbox_id", "number"])
