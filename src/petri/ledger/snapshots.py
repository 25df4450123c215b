"""What the ledger knows of snapshots. Each function is one job inside somebody else's transaction."""

from sqlalchemy import Connection, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from petri.errors import Conflict, NotFound
from petri.ledger import events, pages, rows
from petri.ledger.events import Happening
from petri.ledger.pages import Page
from petri.ledger.tables import snapshots
from petri.model import Snapshot

_KIND = pages.Kind(snapshots.c.id, rows.to_snapshot)
_IS_THERE = snapshots.c.deleted_at.is_(None)


def add(connection: Connection, snapshot: Snapshot) -> Snapshot:
    """Write down a new snapshot; `Conflict` if its tenant has one of that name."""
    values = rows.of_snapshot(snapshot)
    try:
        connection.execute(insert(snapshots), values)
    except IntegrityError as error:
        raise Conflict(
            f"there is a snapshot {snapshot.name} already; delete it, or choose another"
        ) from error
    detail = {"snapshot": snapshot.id, "name": snapshot.name, "tree": snapshot.tree}
    happening = Happening(snapshot.sandbox_id, snapshot.created_at, "snapshot.create", detail)
    events.add(connection, [happening])
    return rows.to_snapshot(values)


def find(connection: Connection, id_or_name: str, tenant: str) -> Snapshot:
    """Return a snapshot by its id or its name; another tenant's is as good as none."""
    said = rows.text(id_or_name)
    wanted = select(snapshots).where(
        snapshots.c.tenant == rows.text(tenant),
        _IS_THERE,
        or_(snapshots.c.id == said, snapshots.c.name == said),
    )
    # An id outranks a name: nobody may call theirs like another's id and be taken for it.
    found = sorted(connection.execute(wanted).mappings(), key=lambda row: row["id"] != said)
    if not found:
        raise NotFound(f"there is no snapshot {id_or_name}")
    return rows.to_snapshot(found[0])


def page(
    connection: Connection, tenant: str, sandbox_id: str | None, limit: int, cursor: str | None
) -> Page[Snapshot]:
    """Return a tenant's snapshots, of one sandbox or of all, newest first."""
    theirs = (snapshots.c.tenant == rows.text(tenant)) & _IS_THERE
    if sandbox_id is not None:
        theirs &= snapshots.c.sandbox_id == rows.text(sandbox_id)
    wanted = select(snapshots).where(theirs).order_by(snapshots.c.number.desc())
    if cursor is not None:
        wanted = wanted.where(snapshots.c.number < pages.read_cursor(connection, cursor, _KIND, theirs))
    return pages.fetch(connection, wanted, _KIND, limit)


def delete(connection: Connection, snapshot: Snapshot, at: float) -> None:
    """Write down that a snapshot is wanted no more. Deleting twice is fine."""
    this = snapshots.c.id == snapshot.id
    gone = connection.execute(update(snapshots).where(this, _IS_THERE).values(deleted_at=at))
    if gone.rowcount:
        detail = {"snapshot": snapshot.id, "name": snapshot.name}
        events.add(connection, [Happening(snapshot.sandbox_id, at, "snapshot.delete", detail)])
