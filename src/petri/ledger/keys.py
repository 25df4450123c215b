"""What the ledger knows of keys. Each function is one job inside somebody else's transaction."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, exists, insert, select, true, update
from sqlalchemy.exc import IntegrityError

from petri.errors import Conflict, NotFound
from petri.ledger import pages, rows, tenants
from petri.ledger.events import Deed
from petri.ledger.pages import Page
from petri.ledger.tables import keys
from petri.model import Key

_KIND = pages.Kind(keys.c.id, rows.to_key)
_BY_ID = select(keys).where(keys.c.id == bindparam("id"))
_HELD = select(keys).where(keys.c.revoked_at.is_(None))
_USED = update(keys).where(keys.c.id == bindparam("this_id")).values(last_used_at=bindparam("this_at"))


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Which keys to list."""

    limit: int = 50
    cursor: str | None = None
    tenant: str | None = None
    revoked: bool = False
    """Those that were revoked, too."""


def add(connection: Connection, key: Key, deed: Deed) -> Key:
    """Write down a new key, and its tenant if that is new too."""
    tenants.have(connection, key.tenant, deed)
    try:
        connection.execute(insert(keys), rows.of_key(key))
    except IntegrityError as error:
        raise Conflict(
            f"tenant {key.tenant} has a key named {key.name}; revoke that one first, or choose another name"
        ) from error
    tenants.record(connection, key.tenant, deed, "key.create", _told(key))
    return key


def revoke(connection: Connection, key_id: str, deed: Deed) -> Key:
    """Write down that a key opens nothing any more. Doing it twice is fine, and the first time counts."""
    key = find(connection, key_id)
    if key.revoked_at is not None:
        return key
    connection.execute(update(keys).where(keys.c.id == key.id).values(revoked_at=deed.at))
    tenants.record(connection, key.tenant, deed, "key.revoke", _told(key))
    return replace(key, revoked_at=deed.at)


def find(connection: Connection, key_id: str) -> Key:
    """Return a key in whatever state."""
    row = connection.execute(_BY_ID, {"id": rows.text(key_id)}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no key {key_id}; `petri keys ls` lists their ids")
    return rows.to_key(row)


def held(connection: Connection) -> list[Key]:
    """Return every key that was not revoked."""
    return [rows.to_key(row) for row in connection.execute(_HELD).mappings()]


def any_ever(connection: Connection) -> bool:
    """Say whether there ever was a key, revoked and expired ones included."""
    found: bool = connection.execute(select(exists(select(keys.c.id)))).scalar_one()
    return found


def page(connection: Connection, query: KeyQuery) -> Page[Key]:
    """Return keys, newest first."""
    wanted = select(keys).order_by(keys.c.number.desc())
    among = true() if query.tenant is None else keys.c.tenant == rows.text(query.tenant)
    wanted = wanted.where(among)
    if not query.revoked:
        wanted = wanted.where(keys.c.revoked_at.is_(None))
    if query.cursor is not None:
        wanted = wanted.where(keys.c.number < pages.read_cursor(connection, query.cursor, _KIND, among))
    return pages.fetch(connection, wanted, _KIND, query.limit)


def note_uses(connection: Connection, uses: Mapping[str, float]) -> None:
    """Write down when keys were last used."""
    connection.execute(_USED, [{"this_id": key_id, "this_at": at} for key_id, at in uses.items()])


def _told(key: Key) -> dict[str, str | float | None]:
    """Return what the record says of a key: nothing of its text, not even the hash."""
    return {"key_id": key.id, "name": key.name, "scope": key.scope.value, "expires_at": key.expires_at}
