"""Who may come in, and how much they may have: every key and every tenant's quotas, in memory.

A request is let in by a look into a dictionary: no question to the ledger, no thread. That is right because
nobody else changes a ledger in use: a home belongs to one process at a time, and whatever this one writes
down about keys it does here in the same step.
"""

import hmac
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from petri.model import (
    DEFAULT_TENANT,
    ENVIRONMENT,
    LOCAL,
    Key,
    Quotas,
    Scope,
    Tenant,
    digest,
    id_in,
)
from petri.operations.desk import Share

_NO_KEY = secrets.token_bytes(32)
"""What is compared where there is no key, so that an id nobody has takes as long as one that is known."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking, as far as the server itself knows."""

    tenant: str
    scope: Scope
    key_name: str | None = None
    key_id: str | None = None


ANYBODY = Caller(DEFAULT_TENANT, Scope.ADMIN)
"""Whoever calls a server that has no keys; it answers to programs of its own machine alone."""
STRANGER = Caller("", Scope.READ)
"""Whoever asks for what needs no key: no tenant, so nothing of anybody's."""
AT_HOME = Caller(DEFAULT_TENANT, Scope.ADMIN, LOCAL)
"""Whoever works on a home directly, while no server does."""
_OPERATOR = Caller(DEFAULT_TENANT, Scope.ADMIN, ENVIRONMENT)


class Access:
    """The keys that open, and what holds for each tenant."""

    def __init__(self, environment_key: str | None, defaults: Quotas) -> None:
        self._environment = digest(environment_key.encode()) if environment_key else None
        self._defaults = defaults
        self._had_keys = False
        self._keys: dict[str, Key] = {}
        self._shares: dict[str, Share] = {}
        self._quotas: dict[str, Quotas] = {}
        self._uses: dict[str, float] = {}

    def load(self, keys: Iterable[Key] | None, tenants: Iterable[Tenant]) -> None:
        """Take in what the ledger knows: the keys not revoked, None if there never was one."""
        self._had_keys = keys is not None
        self._keys = {key.id: key for key in keys or ()}
        for tenant in tenants:
            self.set_tenant(tenant)

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for.

        Once there was a key, one is asked for: a server must not open because its last one expired.
        """
        return self._environment is None and not self._had_keys

    @property
    def opens_to_somebody(self) -> bool:
        """Whether there is a key that opens."""
        now = time.time()
        return self._environment is not None or any(key.opens(now) for key in self._keys.values())

    def caller(self, shown: bytes) -> Caller | None:
        """Return whose key was shown, or None if it opens nothing."""
        hashed = digest(shown)
        key = self._keys.get(id_in(shown) or "")
        # Both are always compared, a key or none: how long it takes tells nothing.
        is_key = hmac.compare_digest(hashed, _NO_KEY if key is None else key.digest)
        is_operator = hmac.compare_digest(hashed, self._environment or _NO_KEY)
        if is_operator:
            return _OPERATOR
        now = time.time()
        if key is None or not is_key or not key.opens(now):
            return None
        self._uses[key.id] = now
        return Caller(key.tenant, key.scope, key.name, key.id)

    def add(self, key: Key) -> None:
        """Let `key` in from now on."""
        self._had_keys = True
        self._keys[key.id] = key
        if key.tenant not in self._quotas:
            self.set_tenant(Tenant(key.tenant, key.created_at))

    def drop(self, key_id: str) -> None:
        """Let that key in no more."""
        self._keys.pop(key_id, None)
        self._uses.pop(key_id, None)

    # ------------------------------------------------------------------------------------------- quotas

    def set_tenant(self, tenant: Tenant) -> None:
        """Have `tenant` bound by its quotas from now on."""
        quotas = tenant.quotas(self._defaults)
        self._quotas[tenant.name] = quotas
        self._shares[tenant.name] = Share(tenant.name, quotas.runs, is_alone=len(self._quotas) == 1)
        if len(self._quotas) == 2:
            self._shares = {name: replace(share, is_alone=False) for name, share in self._shares.items()}

    def quotas(self, tenant: str) -> Quotas:
        """Return what a tenant may have."""
        return self._quotas.get(tenant, self._defaults)

    def share(self, tenant: str) -> Share:
        """Return what a tenant may have of the desk's turns."""
        return self._shares.get(tenant) or Share(tenant, self._defaults.runs, is_alone=False)

    def bound_on_disk(self) -> list[tuple[str, int]]:
        """Return the tenants with a quota on disk, and how much it is."""
        return [(name, quotas.disk_bytes) for name, quotas in self._quotas.items() if quotas.disk_bytes]

    # --------------------------------------------------------------------------------------------- uses

    def last_used_at(self, key: Key) -> float | None:
        """Return when `key` was last used, whether that is on record yet or not."""
        return self._uses.get(key.id, key.last_used_at)

    def take_uses(self) -> dict[str, float]:
        """Return the uses since the last time this was asked, by key."""
        uses, self._uses = self._uses, {}
        return uses
