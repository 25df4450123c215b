"""When a sandbox was last in use, and when it will end by itself.

`expires_at` is kept beside the facts it follows from, so that asking who has expired reads an index and
not every sandbox. Whoever changes one of those facts changes it too: `touch` here, and in `sandboxes`
`add`, `amend` and `advance`.
"""

from sqlalchemy import Connection, Double, bindparam, case, select, update

from petri.ledger import rows
from petri.ledger.prepared import Prepared
from petri.ledger.tables import IS_LIVE, sandboxes
from petri.model import LIVE, Sandbox

COLUMNS = frozenset({"last_active_at", "expires_at"})
"""All that a `touch` changes: each run does so twice."""

_AT = bindparam("at", type_=Double)
_LAST_ACTIVE = case((sandboxes.c.last_active_at < _AT, _AT), else_=sandboxes.c.last_active_at)
_TTL_END = sandboxes.c.created_at + sandboxes.c.ttl_s
_IDLE_END = _LAST_ACTIVE + sandboxes.c.idle_s
# What `Sandbox.expiry` says, as CASE because SQLite and Postgres share no function for the lesser of two.
_EXPIRES_AT = case(
    (sandboxes.c.idle_s.is_(None), _TTL_END),
    (sandboxes.c.ttl_s.is_(None), _IDLE_END),
    (_TTL_END < _IDLE_END, _TTL_END),
    else_=_IDLE_END,
)
_TOUCH = Prepared(
    update(sandboxes)
    .where(sandboxes.c.id == bindparam("sandbox"), IS_LIVE)
    .values(last_active_at=_LAST_ACTIVE, expires_at=_EXPIRES_AT)
)
_EXPIRED = select(sandboxes).where(sandboxes.c.expires_at <= _AT).order_by(sandboxes.c.expires_at)


def expires_at(sandbox: Sandbox) -> float | None:
    """Return what belongs in the column; nothing for a sandbox that is ending already."""
    expiry = sandbox.expiry()
    return None if expiry is None or sandbox.state not in LIVE else expiry[0]


def touch(connection: Connection, sandbox_id: str, at: float) -> bool:
    """Note that a live sandbox was in use at `at`; say whether there is one."""
    return _TOUCH.run(connection, {"sandbox": rows.text(sandbox_id), "at": at}) == 1


def expired(connection: Connection, at: float) -> list[Sandbox]:
    """Return the live sandboxes whose time is up, longest overdue first."""
    return [rows.to_sandbox(row) for row in connection.execute(_EXPIRED, {"at": at}).mappings()]
