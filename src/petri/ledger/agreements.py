"""The trees that sandboxes and folders of clients last agreed on. Each function is one job in a transaction.

A client's next sync starts from such a tree, so its objects stay, within the budget for what somebody may go
back to. One that is forgotten costs that client a longer request, no file.
"""

from sqlalchemy import Connection, delete, insert, select, update

from petri.ledger import rows
from petri.ledger.tables import IS_LIVE, agreements, sandboxes

KEPT_S = 30 * 86_400.0
"""How long an agreement counts that nobody has come back to."""
MOST = 16
"""Of one sandbox: as many clients, more or less, may be in step with it."""


def add(connection: Connection, sandbox_id: str, tree: str, at: float) -> None:
    """Write down that a client agreed on `tree`; what is too old, or too many, is forgotten."""
    ours = agreements.c.sandbox_id == rows.text(sandbox_id)
    again = update(agreements).where(ours, agreements.c.tree == tree).values(at=at)
    if not connection.execute(again).rowcount:
        row = {"sandbox_id": rows.text(sandbox_id), "tree": tree, "at": at}
        connection.execute(insert(agreements).values(row))
    latest = select(agreements.c.tree).where(ours).order_by(agreements.c.at.desc()).limit(MOST)
    is_old = agreements.c.at < at - KEPT_S
    connection.execute(delete(agreements).where(ours, is_old | agreements.c.tree.not_in(latest)))


def dated(connection: Connection, tenant: str, since: float) -> list[tuple[float, str]]:
    """Return the trees that clients of a tenant's live sandboxes agreed on since then, and when."""
    wanted = (
        select(agreements.c.at, agreements.c.tree)
        .join(sandboxes, sandboxes.c.id == agreements.c.sandbox_id)
        .where(sandboxes.c.tenant == rows.text(tenant), IS_LIVE, agreements.c.at >= since)
    )
    return [(at, tree) for at, tree in connection.execute(wanted)]
