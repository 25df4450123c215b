"""PETRI_HOME: one process at a time has it, a server or whoever minds its keys while none runs.

That is what lets a server trust what it remembers of keys: nobody else writes them. It also is how the
first key of a machine is made, and how one gets in again who has lost the last: with the server stopped,
whoever may write its files may make a key.

Imported by: `app`, `cli`. Imports: the rooms that keys and tenants take, and `petri.settings`.
"""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter, ValidationError

from petri.api.shapes import key_answer, new_key, tenant_answer
from petri.errors import Invalid, InvalidField
from petri.ledger import KeyQuery, Ledger
from petri.model import Quotas, Scope, Tenant
from petri.operations import AT_HOME, Access
from petri.operations.keys import KeyWish, create_key, list_keys, revoke_key
from petri.operations.tenants import Standing, Use, set_quotas
from petri.settings import Settings, load
from petri.wire import CreateKey, KeyAnswer, NewKey, PatchTenant, TenantAnswer, TenantName

_PAGE = 200


@contextmanager
def held(settings: Settings, otherwise: str) -> Iterator[None]:
    """Hold the home for ourselves; `otherwise` says what to do if somebody else does."""
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(settings.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Invalid(f"PETRI_HOME={settings.home} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Invalid(f"another Petri server is using {settings.home}; {otherwise}") from None
    try:
        yield
    finally:
        os.close(lock)


async def load_access(ledger: Ledger, settings: Settings) -> Access:
    """Return who may come in, as the ledger and the operator's settings have it."""
    defaults = Quotas(settings.tenant_sandboxes, settings.tenant_runs, settings.tenant_disk_bytes)
    access = Access(settings.api_key, defaults)
    access.load(await ledger.held_keys(), await ledger.tenants())
    return access


@contextmanager
def at_home() -> Iterator["Home"]:
    """Yield the home that the environment names, ours until the end. No server may run in it."""
    settings = load()
    _refuse_somebody_else_s(settings)
    otherwise = "set PETRI_URL to its address and ask it with an `admin` key, or stop it"
    with held(settings, otherwise), asyncio.Runner() as runner:
        ledger = Ledger.open(settings.ledger)
        try:
            yield Home(settings, runner, ledger, runner.run(load_access(ledger, settings)))
        finally:
            runner.run(ledger.close())


def _refuse_somebody_else_s(settings: Settings) -> None:
    """Refuse to write files into a home that its server could then not open."""
    if settings.home.exists() and (owner := settings.home.stat().st_uid) != os.geteuid():
        raise Invalid(f"PETRI_HOME={settings.home} belongs to uid {owner}: run this as that user")


class Home:
    """Keys and tenants without a server, asked the way `petri.sdk.Admin` asks one."""

    def __init__(self, settings: Settings, runner: asyncio.Runner, ledger: Ledger, access: Access) -> None:
        self.where = str(settings.home)
        self._runner = runner
        self._ledger = ledger
        self._access = access

    def create_key(
        self, name: str, *, tenant: str | None = None, scope: str = "run", expires_in_s: float | None = None
    ) -> NewKey:
        """Make a key; its text is in the answer and nowhere else."""
        fields = {"name": name, "tenant": tenant, "scope": scope, "expires_in_s": expires_in_s}
        asked = _valid(CreateKey, fields, "")
        wish = KeyWish(asked.name, Scope(asked.scope), asked.tenant, asked.expires_in_s)
        return new_key(*self._runner.run(create_key(self._ledger, self._access, AT_HOME, wish)))

    def keys(self, *, tenant: str | None = None, revoked: bool = False) -> Iterator[KeyAnswer]:
        """Yield keys, newest first."""
        cursor = None
        while True:
            query = KeyQuery(_PAGE, cursor, tenant, revoked)
            page = self._runner.run(list_keys(self._ledger, self._access, query))
            yield from (key_answer(key) for key in page.items)
            if (cursor := page.next_cursor) is None:
                return

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key."""
        self._runner.run(revoke_key(self._ledger, self._access, AT_HOME, key_id))

    def tenants(self) -> Iterator[TenantAnswer]:
        """Yield tenants, oldest first."""
        live = self._runner.run(self._ledger.live_by_tenant())
        for tenant in self._runner.run(self._ledger.tenants()):
            yield self._answer(tenant, live.get(tenant.name, 0))

    def set_quotas(self, tenant: str, **quotas: int | None) -> TenantAnswer:
        """Set quotas of a tenant, which is made if there is none."""
        _valid(TenantName, tenant, "tenant")
        asked = _valid(PatchTenant, quotas, "").model_dump(exclude_unset=True)
        changed = set_quotas(self._ledger, self._access, AT_HOME, tenant, asked)
        return self._answer(self._runner.run(changed), len(self._runner.run(self._ledger.live(tenant))))

    def _answer(self, tenant: Tenant, live: int) -> TenantAnswer:
        use = Use(live, runs=0, disk_bytes=None)  # nothing runs without a server, and nobody measures
        return tenant_answer(Standing(tenant, self._access.quotas(tenant.name), use))


def _valid(kind: Any, given: object, name: str) -> Any:
    """Return what is asked for as `kind`, if a server would take it."""
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or name
        raise InvalidField(field, f"{field}: {first['msg']}") from None
