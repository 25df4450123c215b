"""What the ledger knows of tenants. Each function is one job inside somebody else's transaction."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, true, update

from petri.errors import NotFound
from petri.ledger import events, pages, rows
from petri.ledger.events import Deed, HistoryRow
from petri.ledger.pages import Page
from petri.ledger.tables import tenant_events, tenants
from petri.model import Tenant

_KIND = pages.Kind(tenants.c.name, rows.to_tenant)
_OLDEST_FIRST = select(tenants).order_by(tenants.c.number)
_BY_NAME = select(tenants).where(tenants.c.name == bindparam("name"))


def every(connection: Connection) -> list[Tenant]:
    """Return every tenant, oldest first."""
    return [rows.to_tenant(row) for row in connection.execute(_OLDEST_FIRST).mappings()]


def find(connection: Connection, name: str) -> Tenant:
    """Return a tenant, or say that there is none of that name."""
    row = connection.execute(_BY_NAME, {"name": rows.text(name)}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no tenant {name}")
    return rows.to_tenant(row)


def page(connection: Connection, limit: int, cursor: str | None) -> Page[Tenant]:
    """Return tenants, oldest first."""
    wanted = _OLDEST_FIRST
    if cursor is not None:
        wanted = wanted.where(tenants.c.number > pages.read_cursor(connection, cursor, _KIND, true()))
    return pages.fetch(connection, wanted, _KIND, limit)


def have(connection: Connection, name: str, deed: Deed) -> Tenant:
    """Return the tenant of that name; where there is none, it is made by the same deed."""
    try:
        return find(connection, name)
    except NotFound:
        new = {"name": name, "created_at": deed.at, "quotas": {}}
        connection.execute(insert(tenants), rows.storable(new))
        record(connection, name, deed, "tenant.create", {})
        return find(connection, name)


def amend(connection: Connection, name: str, changes: Mapping[str, int | None], deed: Deed) -> Tenant:
    """Change quotas of a tenant, made now if there is none; None is back to the operator's own."""
    current = have(connection, name, deed)
    wanted = {quota: most for quota, most in {**current.own, **changes}.items() if most is not None}
    if wanted != current.own:
        connection.execute(update(tenants).where(tenants.c.name == current.name).values(quotas=wanted))
        record(connection, name, deed, "tenant.amend", {"quotas": wanted})
    return find(connection, name)


def record(connection: Connection, name: str, deed: Deed, kind: str, detail: Mapping[str, Any]) -> None:
    """Write down what was done to a tenant, in the transaction that did it."""
    row = {"tenant": name, "at": deed.at, "kind": kind, "detail": {**detail, "by": deed.by}}
    connection.execute(insert(tenant_events), rows.storable(row))


def history(connection: Connection, name: str, limit: int, cursor: str | None) -> Page[HistoryRow]:
    """Return what happened to a tenant, its keys and its quotas, oldest first."""
    find(connection, name)
    theirs = select(tenant_events).where(tenant_events.c.tenant == rows.text(name))
    return events.fetch(connection, theirs, limit, cursor)
