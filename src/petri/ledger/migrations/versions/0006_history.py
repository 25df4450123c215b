"""What files are to become, where they came from, snapshots, and which runs are undone."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns, all of them empty, and the table."""
    for name in ("becoming", "forked_from", "from_snapshot", "first_tree"):
        op.add_column("sandboxes", sa.Column(name, sa.Text))
    is_becoming = sa.text("becoming IS NOT NULL")
    op.create_index(
        "ix_sandboxes_becoming",
        "sandboxes",
        ["becoming"],
        sqlite_where=is_becoming,
        postgresql_where=is_becoming,
    )
    op.add_column("runs", sa.Column("undone_at", sa.Double))
    _create_snapshots()


def _create_snapshots() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "snapshots",
        sa.Column("number", number, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("tree", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("created_by", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("key_name", sa.Text),
        sa.Column("deleted_at", sa.Double),
        sa.PrimaryKeyConstraint("number", name="pk_snapshots"),
        sa.UniqueConstraint("id", name="uq_snapshots_id"),
        sa.ForeignKeyConstraint(["sandbox_id"], ["sandboxes.id"], name="fk_snapshots_sandbox_id"),
    )
    op.create_index("ix_snapshots_tenant_number", "snapshots", ["tenant", "number"])
    op.create_index("ix_snapshots_sandbox_id_number", "snapshots", ["sandbox_id", "number"])
    is_there = sa.text("deleted_at IS NULL")
    op.create_index(
        "uq_snapshots_name",
        "snapshots",
        ["tenant", "name"],
        unique=True,
        sqlite_where=is_there,
        postgresql_where=is_there,
    )
