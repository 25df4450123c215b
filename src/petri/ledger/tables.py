"""The ledger's tables.

`migrations/` says how a ledger on disk comes to look like this; a test holds the two to each other.
Types are chosen so that the same definitions serve SQLite and, later, Postgres.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

from petri.model import LIVE

metadata = MetaData(
    naming_convention={  # a constraint without a name cannot be changed by a later migration
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite counts up by itself only in a column whose type is exactly INTEGER."""

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text),
    Column("language", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("lifetime", Text, nullable=False),
    Column("limits", JSON, nullable=False),
    Column("env", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("state", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("ttl_s", Double),
    Column("idle_s", Double),
    Column("created_at", Double, nullable=False),
    Column("last_active_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("ended_at", Double),
    Column("ended_because", Text),
    Column("created_by", Text),
    Column("agent", Text),
    Column("key_name", Text),
    Column("tree", Text),
    Column("becoming", Text),
    Column("forked_from", Text),
    Column("from_snapshot", Text),
    Column("first_tree", Text),
    Column("peers", JSON),
    Column("environment", Text),
    Column("added", JSON),
    sqlite_autoincrement=True,  # without it SQLite hands out the highest number again once its row is gone
)
Index("ix_sandboxes_tenant_number", sandboxes.c.tenant, sandboxes.c.number)
Index("ix_sandboxes_tenant_state_number", sandboxes.c.tenant, sandboxes.c.state, sandboxes.c.number)
Index("ix_sandboxes_state", sandboxes.c.state)
Index("ix_sandboxes_becoming", sandboxes.c.becoming, sqlite_where=sandboxes.c.becoming.is_not(None))

# No `postgresql_where` here, though the migration has it: naming it loads that dialect, 30 ms at each start.
Index("ix_sandboxes_expires_at", sandboxes.c.expires_at, sqlite_where=sandboxes.c.expires_at.is_not(None))
Index(
    "uq_sandboxes_live_name",
    sandboxes.c.tenant,
    sandboxes.c.name,
    unique=True,
    sqlite_where=sandboxes.c.state.in_([state.value for state in LIVE]),
)
IS_LIVE = text("sandboxes.state IN ({})".format(", ".join(f"'{state.value}'" for state in LIVE)))
"""Spelt like the condition of that index, values and all: only then does a database see that it serves."""

labels = Table(
    "labels",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""A sandbox's metadata once more, one row each, to filter by: databases disagree on asking JSON, and
SQLite's paths cannot name a key that holds a quotation mark. The value is in no index because Postgres
takes no more than 2.7 kB there."""

runs = Table(
    "runs",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("sandbox_id", Text, ForeignKey("sandboxes.id"), nullable=False),
    Column("tenant", Text, nullable=False),
    Column("form", Text, nullable=False),
    Column("said", Text, nullable=False),
    Column("argv", JSON, nullable=False),
    Column("cwd", Text, nullable=False),
    Column("language", Text),
    Column("engine", Text, nullable=False),
    Column("env_names", JSON, nullable=False),
    Column("stdin_bytes", BigInteger, nullable=False),
    Column("timeout_s", Double, nullable=False),
    Column("created_by", Text),
    Column("agent", Text),
    Column("key_name", Text),
    Column("state", Text, nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("duration_ms", Double),
    Column("cpu_ms", Double),
    Column("peak_memory_bytes", BigInteger),
    Column("exit_code", BigInteger),
    Column("signal", Integer),
    Column("timed_out", Boolean),
    Column("oom_killed", Boolean),
    Column("cancelled", Boolean),
    Column("stdout_bytes", BigInteger, nullable=False),
    Column("stdout_kept_bytes", BigInteger, nullable=False),
    Column("stdout_digest", Text, nullable=False),
    Column("stderr_bytes", BigInteger, nullable=False),
    Column("stderr_kept_bytes", BigInteger, nullable=False),
    Column("stderr_digest", Text, nullable=False),
    Column("failure", Text),
    Column("limits", JSON),
    Column("disk_full", Boolean),
    Column("remark", Text),
    Column("tree_before", Text),
    Column("tree_after", Text),
    Column("changes", JSON(none_as_null=True)),
    Column("undone_at", Double),
    Column("keep", Text),
    Column("kept", Boolean),
    Column("peers", JSON),
    Column("environment", Text),
    Column("packages", JSON(none_as_null=True)),
)
Index("ix_runs_sandbox_id_number", runs.c.sandbox_id, runs.c.number)
Index("ix_runs_state_tenant", runs.c.state, runs.c.tenant)

outputs = Table(
    "outputs",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id"), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
"""What a run wrote, if that was little; apart from its row, since lists of runs do not show it."""

events = Table(
    "events",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("sandbox_id", Text, ForeignKey("sandboxes.id"), nullable=False),
    Column("run_id", Text, ForeignKey("runs.id")),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("detail", JSON, nullable=False),
)
Index("ix_events_sandbox_id_number", events.c.sandbox_id, events.c.number)

snapshots = Table(
    "snapshots",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text),
    Column("tree", Text, nullable=False),
    Column("sandbox_id", Text, ForeignKey("sandboxes.id"), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("created_by", Text),
    Column("agent", Text),
    Column("key_name", Text),
    Column("deleted_at", Double),
    Column("added", JSON),
)
Index("ix_snapshots_tenant_number", snapshots.c.tenant, snapshots.c.number)
Index("ix_snapshots_sandbox_id_number", snapshots.c.sandbox_id, snapshots.c.number)
Index(
    "uq_snapshots_name",
    snapshots.c.tenant,
    snapshots.c.name,
    unique=True,
    sqlite_where=snapshots.c.deleted_at.is_(None),
)

restores = Table(
    "restores",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("sandbox_id", Text, ForeignKey("sandboxes.id"), nullable=False),
    Column("at", Double, nullable=False),
    Column("was", Text, nullable=False),
    Column("tree", Text, nullable=False),
    Column("former", JSON),
)
"""What files were before they became another tree, and which: whoever went back can come back.

`former` is what was written over for it elsewhere, should it be given up.
"""
Index("ix_restores_sandbox_id_number", restores.c.sandbox_id, restores.c.number)

tenants = Table(
    "tenants",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
    Column("quotas", JSON, nullable=False),
)
"""`quotas` holds only those that are the tenant's own."""

keys = Table(
    "keys",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("last_used_at", Double),
    Column("revoked_at", Double),
)
Index(
    "uq_keys_name",
    keys.c.tenant,
    keys.c.name,
    unique=True,
    sqlite_where=keys.c.revoked_at.is_(None),
)

tenant_events = Table(
    "tenant_events",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("detail", JSON, nullable=False),
)
"""What happened to a tenant, its keys and its quotas, and who did it."""
Index("ix_tenant_events_tenant_number", tenant_events.c.tenant, tenant_events.c.number)

agreements = Table(
    "agreements",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id"), primary_key=True),
    Column("tree", Text, primary_key=True),
    Column("at", Double, nullable=False),
)
"""The trees that sandboxes and folders of clients agreed on, and when they last did."""
