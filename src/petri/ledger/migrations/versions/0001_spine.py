"""Sandboxes, runs, and the history of both."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the first tables."""
    _sandboxes()
    _labels()
    _runs()
    _events()


def _sandboxes() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("language", sa.Text, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("lifetime", sa.Text, nullable=False),
        sa.Column("limits", sa.JSON, nullable=False),
        sa.Column("env", sa.JSON, nullable=False),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("ttl_s", sa.Double),
        sa.Column("idle_s", sa.Double),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_active_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("ended_because", sa.Text),
        sa.Column("created_by", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("key_name", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_sandboxes_tenant_number", "sandboxes", ["tenant", "number"])
    op.create_index("ix_sandboxes_tenant_state_number", "sandboxes", ["tenant", "state", "number"])
    op.create_index("ix_sandboxes_state", "sandboxes", ["state"])
    expires = sa.text("expires_at IS NOT NULL")
    op.create_index(
        "ix_sandboxes_expires_at", "sandboxes", ["expires_at"], sqlite_where=expires, postgresql_where=expires
    )
    live = sa.text("state IN ('creating', 'ready')")
    op.create_index(
        "uq_sandboxes_live_name",
        "sandboxes",
        ["tenant", "name"],
        unique=True,
        sqlite_where=live,
        postgresql_where=live,
    )


def _labels() -> None:
    op.create_table(
        "labels",
        sa.Column("sandbox_id", sa.Text, sa.ForeignKey("sandboxes.id"), primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("sandbox_id", sa.Text, sa.ForeignKey("sandboxes.id"), nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("said", sa.Text, nullable=False),
        sa.Column("argv", sa.JSON, nullable=False),
        sa.Column("cwd", sa.Text, nullable=False),
        sa.Column("language", sa.Text),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("env_names", sa.JSON, nullable=False),
        sa.Column("stdin_bytes", sa.BigInteger, nullable=False),
        sa.Column("timeout_s", sa.Double, nullable=False),
        sa.Column("created_by", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("key_name", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("asked_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("duration_ms", sa.Double),
        sa.Column("cpu_ms", sa.Double),
        sa.Column("peak_memory_bytes", sa.BigInteger),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("signal", sa.Integer),
        sa.Column("timed_out", sa.Boolean),
        sa.Column("oom_killed", sa.Boolean),
        sa.Column("cancelled", sa.Boolean),
        sa.Column("stdout_bytes", sa.BigInteger, nullable=False),
        sa.Column("stdout_kept_bytes", sa.BigInteger, nullable=False),
        sa.Column("stdout_digest", sa.Text, nullable=False),
        sa.Column("stderr_bytes", sa.BigInteger, nullable=False),
        sa.Column("stderr_kept_bytes", sa.BigInteger, nullable=False),
        sa.Column("stderr_digest", sa.Text, nullable=False),
        sa.Column("failure", sa.Text),
    )
    op.create_index("ix_runs_sandbox_id_number", "runs", ["sandbox_id", "number"])
    op.create_index("ix_runs_state", "runs", ["state"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("sandbox_id", sa.Text, sa.ForeignKey("sandboxes.id"), nullable=False),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id")),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_index("ix_events_sandbox_id_number", "events", ["sandbox_id", "number"])
