"""Keys, tenants, and what happened to them. Whoever has a sandbox already is a tenant from now on."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables, and a tenant of everybody who owns something."""
    _tenants()
    _keys()
    _tenant_events()
    # Counting one tenant's runs must not read everybody's. In place of the old one: an exec pays for each.
    op.drop_index("ix_runs_state", "runs")
    op.create_index("ix_runs_state_tenant", "runs", ["state", "tenant"])


def _tenants() -> None:
    tenants = op.create_table(
        "tenants",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("quotas", sa.JSON, nullable=False),
    )
    owners = op.get_bind().execute(sa.text("SELECT DISTINCT tenant FROM sandboxes ORDER BY tenant")).scalars()
    names = ["default", *(name for name in owners if name != "default")]
    op.bulk_insert(tenants, [{"name": name, "created_at": time.time(), "quotas": {}} for name in names])


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("last_used_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
    )
    held = sa.text("revoked_at IS NULL")
    op.create_index(
        "uq_keys_name", "keys", ["tenant", "name"], unique=True, sqlite_where=held, postgresql_where=held
    )


def _tenant_events() -> None:
    op.create_table(
        "tenant_events",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_index("ix_tenant_events_tenant_number", "tenant_events", ["tenant", "number"])
