"""Make, list and revoke keys. What is on record opens, or does not, before anybody is told."""

import asyncio
import logging
import time
from dataclasses import dataclass, replace

from petri.errors import InvalidField, PetriError
from petri.ledger import Deed, KeyQuery, Ledger, Page
from petri.model import RESERVED, Key, Scope, digest, new_key_text
from petri.operations import Access, Caller

_log = logging.getLogger("petri.keys")
_NOTED_S = 60
"""Uses are written down this often at most: one row a key, never as part of a request."""


@dataclass(frozen=True, slots=True)
class KeyWish:
    """What a key is to be."""

    name: str
    scope: Scope = Scope.RUN
    tenant: str | None = None
    """None is the tenant of whoever asks."""
    expires_in_s: float | None = None


async def create_key(ledger: Ledger, access: Access, caller: Caller, wish: KeyWish) -> tuple[Key, str]:
    """Return a new key that opens from now on, and its text, which is nowhere else."""
    if wish.name in RESERVED:
        raise InvalidField("name", f"{wish.name} is what the record calls a caller without a key like this")
    if access.is_open and caller.key_name is None and wish.scope is not Scope.ADMIN:
        raise InvalidField(
            "scope",
            "the first key must be of scope `admin`: with it there, this server asks everybody for a key, "
            "and only such a one makes others",
        )
    key_id, text = new_key_text()
    now = time.time()
    key = Key(
        id=key_id,
        name=wish.name,
        tenant=wish.tenant or caller.tenant,
        scope=wish.scope,
        digest=digest(text.encode()),
        created_at=now,
        expires_at=None if wish.expires_in_s is None else now + wish.expires_in_s,
    )
    access.add(await ledger.add_key(key, Deed(now, who(caller))))
    return key, text


async def revoke_key(ledger: Ledger, access: Access, caller: Caller, key_id: str) -> None:
    """Have a key open nothing from now on; requests it has opened may finish. Twice is fine."""
    revoked = await ledger.revoke_key(key_id, Deed(time.time(), who(caller)))
    access.drop(revoked.id)


async def list_keys(ledger: Ledger, access: Access, query: KeyQuery) -> Page[Key]:
    """Return keys of every tenant, newest first."""
    page = await ledger.keys(query)
    return replace(page, items=[replace(key, last_used_at=access.last_used_at(key)) for key in page.items])


def who(caller: Caller) -> dict[str, str | None]:
    """Return what the record says of whoever did something."""
    return {"key_id": caller.key_id, "key_name": caller.key_name, "tenant": caller.tenant}


async def note_uses_forever(ledger: Ledger, access: Access) -> None:
    """Write down now and then which keys are in use. Runs until cancelled."""
    while True:
        await asyncio.sleep(_NOTED_S)
        await note_uses(ledger, access)


async def note_uses(ledger: Ledger, access: Access) -> None:
    """Write down which keys were used since the last time."""
    if uses := access.take_uses():
        try:
            await ledger.note_uses(uses)
        except PetriError as error:
            _log.warning("the last use of %d keys is not on record: %s", len(uses), error.message)
