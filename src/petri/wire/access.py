"""Keys, tenants and quotas on the wire."""

from petri.wire.values import Answer, Name, Quota, Request, ScopeName, Seconds, TenantName


class CreateKey(Request):
    """Body of `POST /v1/keys`."""

    name: Name
    """Who holds it. Unique among the keys of a tenant that are not revoked; shown with every run."""
    tenant: TenantName | None = None
    """Whose sandboxes it opens; made if it is new. Default: the caller's own."""
    scope: ScopeName = "run"
    """`read`: look and download. `run`: that, and create, upload, run, change, delete. `admin`: that, and
    keys, tenants and quotas."""
    expires_in_s: Seconds | None = None
    """It opens nothing any more this long after now."""


class PatchTenant(Request):
    """Body of `PATCH /v1/tenants/{tenant}`: what is given changes, `null` is back to the server's default."""

    sandboxes: Quota | None = None
    """Live sandboxes; 0 is as many as it likes."""
    runs: Quota | None = None
    """Runs, running and waiting; 0 is as many as it likes."""
    disk_bytes: Quota | None = None
    """What its live sandboxes' files take on disk; 0 is as much as it likes."""


class KeyAnswer(Answer):
    """A key on record; its text is not."""

    id: str
    """Eight letters, which also stand in its text."""
    name: str
    tenant: str
    scope: str
    state: str
    """`live`, `expired` or `revoked`."""
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    """Give or take a minute."""
    revoked_at: str | None


class NewKey(KeyAnswer):
    """A key that was just made."""

    key: str
    """Its text, shown this once: send it as `Authorization: Bearer KEY`."""


class KeyList(Answer):
    """A page of keys, newest first."""

    keys: list[KeyAnswer]
    next_cursor: str | None


class QuotasAnswer(Answer):
    """What a tenant may have at one time. 0 is as much as it likes."""

    sandboxes: int
    runs: int
    disk_bytes: int


class TenantUsage(Answer):
    """What a tenant has now."""

    sandboxes: int
    """Live ones."""
    runs: int
    """Running and waiting."""
    disk_bytes: int | None
    """What its live sandboxes' files take; null where nobody measures."""
    store_bytes: int | None = None
    """What is kept of its snapshots and its sandboxes' history; null where nobody measures."""


class TenantAnswer(Answer):
    """A tenant: whose sandboxes and keys they are."""

    name: str
    created_at: str
    quotas: QuotasAnswer
    own_quotas: list[str]
    """Which of them are its own; the others are the server's defaults."""
    usage: TenantUsage


class TenantList(Answer):
    """A page of tenants, oldest first."""

    tenants: list[TenantAnswer]
    next_cursor: str | None
