"""What a run wrote, if that was little, in the ledger itself."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the table; what earlier runs wrote stays in their files."""
    op.create_table(
        "outputs",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", name="fk_outputs_run_id"), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_outputs"),
    )
