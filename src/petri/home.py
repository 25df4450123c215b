"""PETRI_HOME: one process at a time has it, a server or whoever minds its keys while none runs.

That is what lets a server trust what it remembers of keys: nobody else writes them. It also is how the
first key of a machine is made, and how one gets in again who has lost the last: with the server stopped,
whoever may write its files may make a key.

Imported by: `app`, `cli`. Imports: the rooms that keys and tenants take, and `petri.settings`.
"""

import asyncio
import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from petri.api.shapes import key_answer, new_key, tenant_answer
from petri.errors import Invalid, InvalidField, PetriError
from petri.ledger import KeyQuery, Ledger
from petri.model import Quotas, Scope, Tenant
from petri.operations import AT_HOME, Access
from petri.operations.keys import KeyWish, create_key, list_keys, revoke_key
from petri.operations.tenants import Standing, Use, set_quotas
from petri.settings import Settings, load
from petri.store import Store
from petri.wire import CreateKey, KeyAnswer, NewKey, PatchTenant, TenantAnswer, TenantName

_PAGE = 200
_ALL_RUNS = 2**31
_SHOWN = 5
_REMEDIES = {
    "sandbox": "Copy what you need out of its workspace; then restore it to another moment, or delete it",
    "snapshot": "Delete it, and take another of a sandbox that still has those files",
    "run": "An undo to it will be refused; later ones work",
}


@contextmanager
def held(settings: Settings, otherwise: str) -> Iterator[None]:
    """Hold the home for ourselves; `otherwise` says what to do if somebody else does."""
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_shared("PETRI_HOME", settings.home)
        _refuse_shared("PETRI_WORKSPACE_ROOT", settings.workspaces)
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


def _refuse_shared(name: str, folder: Path) -> None:
    """Refuse a folder in which somebody else could put another ledger, or another program for our cells."""
    if not folder.exists():
        return
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise Invalid(f"{name}={folder} belongs to uid {found.st_uid}: run this as that user, or use another")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Invalid(
            f"{name}={folder} may be written by others (mode {found.st_mode & 0o7777:o}): chmod go-w it"
        )


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
    otherwise = "set PETRI_URL to its address and ask it with an `admin` key, or stop it"
    with held(settings, otherwise), asyncio.Runner() as runner:
        ledger = Ledger.open(settings.ledger)
        try:
            yield Home(settings, runner, ledger, runner.run(load_access(ledger, settings)))
        finally:
            runner.run(ledger.close())


@contextmanager
def looking() -> Iterator["Storeroom"]:
    """Yield what is kept in the home that the environment names. No server may run in it."""
    settings = load()
    with held(settings, "stop it first: a store is checked at rest"), asyncio.Runner() as runner:
        ledger = Ledger.open(settings.ledger)
        try:
            with closing(Store(settings.home / "store")) as store:
                yield Storeroom(runner, ledger, store)
        finally:
            runner.run(ledger.close())


class Storeroom:
    """Whether everything is there that was kept, without a server."""

    def __init__(self, runner: asyncio.Runner, ledger: Ledger, store: Store) -> None:
        self._runner = runner
        self._ledger = ledger
        self._store = store

    def tenants(self) -> list[str]:
        """Return everybody who may have something here."""
        return self._runner.run(self._ledger.every_tenant())

    def check(self, tenant: str, *, deep: bool) -> list[str]:
        """Return what is wrong with what is kept for a tenant, in words; `deep` reads every byte."""
        findings = self._store.findings(tenant, deep=deep)
        named = self._runner.run(self._ledger.named_trees(tenant, _ALL_RUNS))
        wanted = named.promised | self._kept(tenant, named.needed)
        said = [each.words for each in findings]
        try:
            lost = self._store.missing(tenant, [bytes.fromhex(tree) for tree in sorted(wanted)])
        except PetriError as error:  # a folder object that is damaged says nothing of what is in it
            lost, said = [], [*said, error.message]
        said += [
            f"object {digest.hex()} is not there, and a sandbox or a snapshot needs it: it was lost, or it "
            "is a file of a workspace so large that not all of it is kept"
            for digest in lost
        ]
        bad = {each.digest for each in findings if each.digest is not None} | set(lost)
        return said + (list(self._needing(tenant, bad, named.whose)) if bad else [])

    def _needing(
        self, tenant: str, bad: Collection[bytes], whose: Iterable[tuple[str, str]]
    ) -> Iterator[str]:
        """Yield who needs objects that are lost or damaged, and what can be done."""
        for tree, who in dict.fromkeys(whose):
            places = self._store.places(tenant, bytes.fromhex(tree), bad)
            if places:
                shown = ", ".join(place.decode(errors="backslashreplace") or "/" for place in places[:_SHOWN])
                more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
                yield f"{who}, cannot be had again: {shown}{more}. {_REMEDIES[who.partition(' ')[0]]}"

    def _kept(self, tenant: str, named: Collection[str]) -> set[str]:
        """Return those of `named` whose keeping was begun: of these, nothing may be missing."""
        roots = self._store.has(tenant, [bytes.fromhex(tree) for tree in named])
        return {root.hex() for root in roots}


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
