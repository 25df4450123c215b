"""Keys in memory: what a key looks like, whom it lets in, and what holds for a tenant. No server."""

import hmac
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from petri.ledger import KeyQuery, Ledger
from petri.model import (
    DEFAULT_TENANT,
    Key,
    Quotas,
    Scope,
    Tenant,
    digest,
    id_in,
    new_id,
    new_key_text,
)
from petri.operations import AT_HOME, Access, Caller, access
from petri.operations.keys import KeyWish, create_key, note_uses

OPERATOR = "what-the-operator-set-0123"


def a_key(**changes: Any) -> tuple[Key, str]:
    key_id, text = new_key_text()
    fields = {
        "name": "ci",
        "tenant": "acme",
        "scope": Scope.RUN,
        "created_at": time.time(),
        "digest": digest(text.encode()),
        **changes,
    }
    return Key(id=key_id, **fields), text


def an_access(*keys: Key, operator: str | None = None, **quotas: int) -> Access:
    found = Access(operator, Quotas(**quotas))
    found.load(keys or None, [Tenant(DEFAULT_TENANT, 0.0)])
    return found


# ---------------------------------------------------------------------------------------------- the model


def test_a_key_has_eight_letters_to_be_found_by_and_160_random_bits() -> None:
    made = [new_key_text() for _ in range(200)]

    assert all(re.fullmatch(rf"petri_{key_id}_[a-z2-7]{{32}}", text) for key_id, text in made)
    assert all(len(key_id) == 8 and id_in(text.encode()) == key_id for key_id, text in made)
    assert len({text.rpartition("_")[2] for _, text in made}) == len({key_id for key_id, _ in made}) == 200
    secrets = [text.rpartition("_")[2] for _, text in made]
    assert all(len({secret[place] for secret in secrets}) > 16 for place in range(32)), "every letter varies"


@pytest.mark.parametrize("kind", ["sb", "run", "snap"])
def test_an_id_is_a_hundred_random_bits(kind: str) -> None:
    made = [new_id(kind) for _ in range(400)]

    assert all(re.fullmatch(rf"{kind}-[a-z2-7]{{20}}", each) for each in made)
    assert all(len({each[-1 - place] for each in made}) > 24 for place in range(20)), "every letter varies"
    often = Counter("".join(each.rpartition("-")[2] for each in made)).values()
    assert len(often) == 32
    assert max(often) - min(often) < 200, "of 8,000 letters each comes 250 times, give or take"


@pytest.mark.parametrize(
    "text",
    [b"", b"petri_", b"petri_abcdefgh_", b"PETRI_abcdefgh_" + b"a" * 32, b"petri_abcdefgh_" + b"a" * 33],
)
def test_what_is_not_spelt_like_a_key_names_none(text: bytes) -> None:
    assert id_in(text) is None


def test_each_scope_covers_those_before_it() -> None:
    covered = {scope: [other.value for other in Scope if scope.covers(other)] for scope in Scope}

    assert covered == {
        Scope.READ: ["read"],
        Scope.RUN: ["read", "run"],
        Scope.ADMIN: ["read", "run", "admin"],
    }


# -------------------------------------------------------------------------------------------- who comes in


def test_a_key_lets_its_tenant_in_with_its_scope() -> None:
    key, text = a_key()

    assert an_access(key).caller(text.encode()) == Caller("acme", Scope.RUN, "ci", key.id)


def test_nothing_else_does() -> None:
    key, text = a_key()
    other, _ = a_key()
    found = an_access(key, operator=OPERATOR)

    id_, secret = key.id, text.rpartition("_")[2]
    for shown in (
        *("", id_, secret, text[:-1], text + "a", text.upper(), f" {text}", f"petri_{id_}_{'a' * 32}"),
        *(f"petri_{other.id}_{secret}", OPERATOR[:-1], OPERATOR + "x", key.digest.hex()),
    ):
        assert found.caller(shown.encode()) is None, shown
    assert found.caller(key.digest) is None


def test_the_operator_s_key_is_an_administrator_of_the_default_tenant() -> None:
    found = an_access(operator=OPERATOR)

    assert found.caller(OPERATOR.encode()) == Caller("default", Scope.ADMIN, "environment")


def test_an_operator_may_choose_a_key_that_looks_like_ours() -> None:
    _, text = a_key()

    assert an_access(operator=text).caller(text.encode()) == Caller("default", Scope.ADMIN, "environment")


def test_a_key_opens_until_its_time_is_over_or_it_is_dropped() -> None:
    late, late_text = a_key(expires_at=time.time() - 1)
    soon, soon_text = a_key(expires_at=time.time() + 60)
    found = an_access(late, soon)

    assert found.caller(late_text.encode()) is None
    assert found.caller(soon_text.encode()) is not None
    found.drop(soon.id)
    assert found.caller(soon_text.encode()) is None


def test_hashes_are_compared_in_constant_time_on_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Watched:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(access, "hmac", Watched)
    key, text = a_key()
    _, unknown = a_key()

    for operator in (None, OPERATOR):
        found = an_access(key, operator=operator)
        for shown in (text, unknown, "", "x", OPERATOR, text[:-1]):
            compared.clear()
            found.caller(shown.encode())
            assert len(compared) == 2, shown
            assert all(one == digest(shown.encode()) and len(other) == 32 for one, other in compared)


def test_a_server_that_had_a_key_never_opens_again() -> None:
    found = an_access()
    assert found.is_open
    assert not found.opens_to_somebody

    key, text = a_key()
    found.add(key)
    assert not found.is_open
    assert found.opens_to_somebody
    found.drop(key.id)
    assert not found.is_open
    assert not found.opens_to_somebody
    assert found.caller(text.encode()) is None

    expired, _ = a_key(expires_at=1.0)
    assert not an_access(expired).is_open
    assert not an_access(expired).opens_to_somebody
    revoked = Access(None, Quotas())
    revoked.load([], [])
    assert not revoked.is_open
    assert not an_access(operator=OPERATOR).is_open


def test_uses_are_remembered_until_somebody_writes_them_down() -> None:
    key, text = a_key(last_used_at=5.0)
    idle, _ = a_key(name="idle")
    found = an_access(key, idle)
    assert found.last_used_at(key) == 5.0

    found.caller(text.encode())

    assert (found.last_used_at(key) or 0) > 5.0
    assert list(found.take_uses()) == [key.id]
    assert found.take_uses() == {}


async def test_a_use_is_written_down_later_and_all_of_them_together(tmp_path: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    found = an_access()
    made = [await create_key(ledger, found, AT_HOME, KeyWish(name)) for name in ("a", "b", "c")]
    assert all(found.caller(text.encode()) for _ in range(50) for _, text in made[:2])

    assert [key.last_used_at for key in (await ledger.keys(KeyQuery())).items] == [None] * 3
    await note_uses(ledger, found)
    noted = {key.name: key.last_used_at for key in (await ledger.keys(KeyQuery())).items}
    await ledger.close()
    await note_uses(ledger, found)  # nothing to write, so nothing to fail

    assert noted["c"] is None
    assert None not in (noted["a"], noted["b"])
    found.caller(made[0][1].encode())
    await note_uses(ledger, found)  # a ledger out of reach is no reason to end the server


# ------------------------------------------------------------------------------------------------- quotas


def test_a_tenant_s_own_quotas_stand_before_the_operator_s() -> None:
    found = an_access(sandboxes=5, runs=6, disk_bytes=7)
    found.set_tenant(Tenant("acme", 0.0, {"sandboxes": 0, "runs": 2}))

    assert found.quotas("acme") == Quotas(0, 2, 7)
    assert found.quotas("default") == found.quotas("nobody") == Quotas(5, 6, 7)
    assert (found.share("acme").most_runs, found.share("default").most_runs) == (2, 6)
    assert sorted(found.bound_on_disk()) == [("acme", 7), ("default", 7)]


def test_a_tenant_is_alone_until_another_comes() -> None:
    found = an_access()
    assert found.share("default").is_alone

    found.add(a_key(tenant="default")[0])
    assert found.share("default").is_alone
    found.add(a_key(tenant="acme")[0])
    assert not found.share("default").is_alone
    assert not found.share("acme").is_alone

    found.set_tenant(Tenant("third", 0.0))
    assert not any(found.share(name).is_alone for name in ("default", "acme", "third"))
