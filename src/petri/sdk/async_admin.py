"""Keys, tenants and quotas: what an `admin` key may ask, for programs with an event loop.

`sync_admin.py` is generated from this file by `scripts/generate-sdk`: change this one, run that.
"""

from collections.abc import AsyncGenerator
from typing import Unpack

from petri.sdk.asking import Ask, segment
from petri.sdk.async_connection import AsyncConnection
from petri.sdk.fields import Quotas, ScopeName, given
from petri.wire import EventAnswer, EventList, KeyAnswer, KeyList, NewKey, TenantAnswer, TenantList


class AsyncAdmin:
    """Who may come in, and how much they may have. Found as `admin` of a client."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create_key(
        self,
        name: str,
        *,
        tenant: str | None = None,
        scope: ScopeName = "run",
        expires_in_s: float | None = None,
    ) -> NewKey:
        """Make a key of `tenant`, or of our own; its text is in the answer and nowhere else."""
        fields = {"name": name, "tenant": tenant, "scope": scope, "expires_in_s": expires_in_s}
        return await self._connection.ask(Ask("POST", "/v1/keys", json=given(fields)), NewKey)

    async def keys(
        self, *, tenant: str | None = None, revoked: bool = False
    ) -> AsyncGenerator[KeyAnswer, None]:
        """Yield keys, newest first: of `tenant`, or of all; those that were `revoked`, too."""
        wanted = given({"tenant": tenant, "revoked": "true" if revoked else None})
        async for page in self._connection.pages(Ask("GET", "/v1/keys", params=wanted), KeyList):
            for key in page.keys:
                yield key

    async def revoke_key(self, key_id: str) -> None:
        """Have a key open nothing from now on. Revoking twice is fine."""
        await self._connection.tell(Ask("DELETE", f"/v1/keys/{segment(key_id)}"))

    async def tenants(self) -> AsyncGenerator[TenantAnswer, None]:
        """Yield tenants with what they may have and what they have, oldest first."""
        async for page in self._connection.pages(Ask("GET", "/v1/tenants"), TenantList):
            for tenant in page.tenants:
                yield tenant

    async def tenant(self, name: str) -> TenantAnswer:
        """Return one tenant with what it may have and what it has."""
        return await self._connection.ask(Ask("GET", _tenant(name)), TenantAnswer)

    async def set_quotas(self, tenant: str, **quotas: Unpack[Quotas]) -> TenantAnswer:
        """Set what is given; None is back to the server's default. A tenant that is not there is made."""
        return await self._connection.ask(Ask("PATCH", _tenant(tenant), json=quotas), TenantAnswer)

    async def tenant_events(self, tenant: str) -> AsyncGenerator[EventAnswer, None]:
        """Yield what was done to a tenant, its keys and its quotas, and who did it; oldest first."""
        async for page in self._connection.pages(Ask("GET", _tenant(tenant) + "/events"), EventList):
            for event in page.events:
                yield event


def _tenant(name: str) -> str:
    return f"/v1/tenants/{segment(name)}"
