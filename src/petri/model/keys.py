"""Keys: who may knock, and what for.

A key is `petri_`, eight letters that say which one it is, `_`, and a secret. The text is shown once, when
the key is made; what is kept is its SHA-256. With 160 random bits there is no list of likely keys to try, so
a slow hash would protect nothing and be paid for at every request.
"""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum

_ID_LETTERS = 8
_SECRET_BYTES = 20
_SHAPE = re.compile(rb"petri_([a-z2-7]{8})_[a-z2-7]{32}")

ENVIRONMENT = "environment"
"""The name of the key in `PETRI_API_KEY`."""
LOCAL = "local"
"""Who acts on a home in which no server runs: whoever may write its files."""
RESERVED = frozenset({ENVIRONMENT, LOCAL})
"""Names no key on record may have: the record would not say who it was."""


class Scope(StrEnum):
    """What a key is for. Each covers those before it."""

    READ = "read"
    """Look, and download."""
    RUN = "run"
    """Create, upload, run, change, delete, cancel."""
    ADMIN = "admin"
    """Keys, tenants, quotas, and everybody's counts. No right to anybody else's files."""

    def covers(self, needed: "Scope") -> bool:
        """Say whether a key of this scope may do what takes `needed`."""
        return _RANK[self] >= _RANK[needed]


_RANK = {scope: rank for rank, scope in enumerate(Scope)}


@dataclass(frozen=True, slots=True)
class Key:
    """A key on record. Times are seconds since the epoch."""

    id: str
    name: str
    tenant: str
    scope: Scope
    digest: bytes = field(repr=False)
    """SHA-256 of its text, which nobody kept."""
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    """Give or take a minute."""
    revoked_at: float | None = None

    def opens(self, now: float) -> bool:
        """Say whether this key still opens anything."""
        return self.revoked_at is None and not self.is_expired(now)

    def is_expired(self, now: float) -> bool:
        """Say whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


def new_key_text() -> tuple[str, str]:
    """Return the id and the text of a fresh key."""
    letters = base64.b32encode(secrets.token_bytes(_SECRET_BYTES + 5)).decode().lower()
    key_id, secret = letters[:_ID_LETTERS], letters[_ID_LETTERS:]
    return key_id, f"petri_{key_id}_{secret}"


def digest(text: bytes) -> bytes:
    """Return what is kept of a key's text."""
    return hashlib.sha256(text).digest()


def id_in(text: bytes) -> str | None:
    """Return the id that a key's text names, or None if it is not spelt like one of ours."""
    found = _SHAPE.fullmatch(text)
    return None if found is None else found[1].decode()
