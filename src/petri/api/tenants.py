"""/v1/tenants: who there is, what they use, and how much they may have. For `admin` keys."""

from typing import Annotated

from fastapi import APIRouter, Path

from petri.api.bodies import JsonRoute
from petri.api.context import CallerOf, Cursor, HostOf, Limit
from petri.api.problems import DOCUMENTED
from petri.api.shapes import event_answer, tenant_answer
from petri.operations import tenants
from petri.wire import EventList, PatchTenant, TenantAnswer, TenantList, TenantName

router = APIRouter(prefix="/v1/tenants", route_class=JsonRoute, responses=DOCUMENTED, tags=["tenants"])

_NO_CHANGES = PatchTenant()


@router.get("")
async def list_tenants(host: HostOf, limit: Limit = 50, cursor: Cursor = None) -> TenantList:
    """List tenants with what they may have and what they have, oldest first."""
    page = await tenants.listed(host, limit, cursor)
    return TenantList(tenants=[tenant_answer(each) for each in page.items], next_cursor=page.next_cursor)


@router.get("/{tenant}")
async def show_tenant(tenant: str, host: HostOf) -> TenantAnswer:
    """Show one tenant with what it may have and what it has."""
    return tenant_answer(await tenants.standing(host, tenant))


@router.patch("/{tenant}")
async def change_tenant(
    tenant: Annotated[TenantName, Path()], host: HostOf, caller: CallerOf, body: PatchTenant = _NO_CHANGES
) -> TenantAnswer:
    """Set quotas of a tenant, which is made if there is none; what the body does not name stays."""
    await tenants.set_quotas(host.ledger, host.access, caller, tenant, body.model_dump(exclude_unset=True))
    return tenant_answer(await tenants.standing(host, tenant))


@router.get("/{tenant}/events")
async def list_tenant_events(
    tenant: str, host: HostOf, limit: Limit = 50, cursor: Cursor = None
) -> EventList:
    """List what was done to a tenant, its keys and its quotas, and who did it; oldest first."""
    page = await tenants.events(host, tenant, limit, cursor)
    return EventList(events=[event_answer(each) for each in page.items], next_cursor=page.next_cursor)
