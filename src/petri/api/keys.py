"""/v1/keys: make, list and revoke keys. For `admin` keys."""

from typing import Annotated

from fastapi import APIRouter, Query

from petri.api.bodies import JsonRoute
from petri.api.context import CallerOf, Cursor, HostOf, Limit
from petri.api.problems import DOCUMENTED
from petri.api.shapes import key_answer, new_key
from petri.ledger import KeyQuery
from petri.model import Scope
from petri.operations import keys
from petri.operations.keys import KeyWish
from petri.wire import CreateKey, KeyList, NewKey

router = APIRouter(prefix="/v1/keys", route_class=JsonRoute, responses=DOCUMENTED, tags=["keys"])


@router.post("", status_code=201)
async def create_key(body: CreateKey, host: HostOf, caller: CallerOf) -> NewKey:
    """Make a key; its text is in this answer and nowhere else."""
    wish = KeyWish(body.name, Scope(body.scope), body.tenant, body.expires_in_s)
    return new_key(*await keys.create_key(host.ledger, host.access, caller, wish))


@router.get("")
async def list_keys(
    host: HostOf,
    tenant: Annotated[str | None, Query(max_length=63)] = None,
    revoked: Annotated[bool, Query(description="Those that were revoked, too.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> KeyList:
    """List the keys of every tenant, newest first."""
    query = KeyQuery(limit, cursor, tenant, revoked)
    page = await keys.list_keys(host.ledger, host.access, query)
    return KeyList(keys=[key_answer(key) for key in page.items], next_cursor=page.next_cursor)


@router.delete("/{key_id}", status_code=204)
async def revoke_key(key_id: str, host: HostOf, caller: CallerOf) -> None:
    """Revoke a key: it opens nothing from now on."""
    await keys.revoke_key(host.ledger, host.access, caller, key_id)
