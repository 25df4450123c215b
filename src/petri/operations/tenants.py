"""Look at tenants and what they use, and set their quotas."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from petri.ledger import Deed, HistoryRow, Ledger, Page
from petri.model import Quotas, Tenant
from petri.operations import Access, Caller, Host
from petri.operations.keys import who
from petri.threads import in_thread


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant has now."""

    sandboxes: int
    runs: int
    disk_bytes: int | None
    """None where nobody measures: no server runs."""
    store_bytes: int | None = None
    """What is kept of its trees takes so much."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A tenant, what it may have, and what it has."""

    tenant: Tenant
    quotas: Quotas
    use: Use


async def set_quotas(
    ledger: Ledger, access: Access, caller: Caller, name: str, quotas: Mapping[str, int | None]
) -> Tenant:
    """Return the tenant with `quotas` set; None is back to the operator's own. Made if there is none."""
    tenant = await ledger.amend_tenant(name, quotas, Deed(time.time(), who(caller)))
    access.set_tenant(tenant)
    return tenant


async def listed(host: Host, limit: int, cursor: str | None) -> Page[Standing]:
    """Return a page of tenants, oldest first."""
    page = await host.ledger.tenants_page(limit=limit, cursor=cursor)
    return Page([await _standing(host, tenant) for tenant in page.items], page.next_cursor)


async def standing(host: Host, name: str) -> Standing:
    """Return how one tenant stands."""
    return await _standing(host, await host.ledger.tenant(name))


async def events(host: Host, name: str, limit: int, cursor: str | None) -> Page[HistoryRow]:
    """Return what was done to a tenant, its keys and its quotas, oldest first."""
    return await host.ledger.tenant_events(name, limit=limit, cursor=cursor)


async def _standing(host: Host, tenant: Tenant) -> Standing:
    live = await host.ledger.live(tenant.name)
    files = await host.tenant_disk.used(tenant.name)
    kept = await in_thread(host.store.disk_bytes, tenant.name)
    use = Use(len(live), host.desk.runs(tenant.name), files, kept)
    return Standing(tenant, host.access.quotas(tenant.name), use)
