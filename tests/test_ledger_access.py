"""What the ledger promises about keys and tenants, held against real SQLite files."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from petri.errors import Conflict, InvalidField, NotFound, OverQuota
from petri.ledger import Deed, KeyQuery, Ledger, SandboxQuery
from petri.ledger.pages import cursor_of
from petri.model import Event, Key, RunState, Sandbox, Scope, State, digest, new_key_text
from tests.ledgers import put_ledger
from tests.test_ledger import NOW, a_run, a_sandbox, assert_nothing_is_left_at_its_default

DEED = Deed(NOW, {"key_id": "abcdefgh", "key_name": "ops", "tenant": "default"})


def a_key(**changes: Any) -> Key:
    key_id, text = new_key_text()
    plain = Key(key_id, "ci", "acme", Scope.RUN, digest(text.encode()), NOW)
    return replace(plain, **changes)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return put_ledger(tmp_path)


@pytest.fixture
async def ledger(url: str) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(url)
    yield ledger
    await ledger.close()


async def told(ledger: Ledger, tenant: str) -> list[tuple[str, Any]]:
    rows = (await ledger.tenant_events(tenant, limit=100, cursor=None)).items
    return [(row.kind, dict(row.detail)) for row in rows]


# --------------------------------------------------------------------------------------------------- keys


async def test_everything_a_key_holds_comes_back(ledger: Ledger) -> None:
    full = a_key(expires_at=NOW + 1, last_used_at=NOW + 2, revoked_at=NOW + 3)

    await ledger.add_key(full, DEED)

    assert_nothing_is_left_at_its_default(full)
    assert (await ledger.keys(KeyQuery(revoked=True))).items == [full]


async def test_making_and_revoking_a_key_is_on_record_with_who_did_it(ledger: Ledger) -> None:
    key = await ledger.add_key(a_key(expires_at=NOW + 9), DEED)
    later = Deed(NOW + 5, {**DEED.by, "key_name": "other"})
    revoked = await ledger.revoke_key(key.id, later)
    again = await ledger.revoke_key(key.id, Deed(NOW + 6, DEED.by))

    assert revoked == again == replace(key, revoked_at=NOW + 5)
    facts = {"key_id": key.id, "name": "ci", "scope": "run", "expires_at": NOW + 9}
    assert await told(ledger, "acme") == [
        ("tenant.create", {"by": DEED.by}),
        ("key.create", {**facts, "by": DEED.by}),
        ("key.revoke", {**facts, "by": later.by}),
    ]


async def test_a_key_nobody_made_cannot_be_revoked(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="there is no key abcdefgh"):
        await ledger.revoke_key("abcdefgh", DEED)


async def test_a_name_belongs_to_one_key_of_a_tenant_until_that_is_revoked(ledger: Ledger) -> None:
    first = await ledger.add_key(a_key(), DEED)
    await ledger.add_key(a_key(tenant="other"), DEED)

    with pytest.raises(Conflict, match="named ci"):
        await ledger.add_key(a_key(expires_at=NOW - 5), DEED)
    await ledger.revoke_key(first.id, DEED)
    second = await ledger.add_key(a_key(), DEED)

    assert [kind for kind, _ in await told(ledger, "acme")].count("key.create") == 2
    assert [key.id for key in (await ledger.keys(KeyQuery(tenant="acme"))).items] == [second.id]


async def test_a_ledger_knows_whether_it_ever_had_a_key(ledger: Ledger) -> None:
    assert await ledger.held_keys() is None
    key = await ledger.add_key(a_key(), DEED)
    assert await ledger.held_keys() == [key]
    await ledger.revoke_key(key.id, DEED)
    assert await ledger.held_keys() == []


async def test_keys_are_listed_newest_first_in_pages_and_by_tenant(ledger: Ledger) -> None:
    made = [await ledger.add_key(a_key(name=f"k{number}"), DEED) for number in range(5)]
    other = await ledger.add_key(a_key(tenant="other"), DEED)
    await ledger.revoke_key(made[2].id, DEED)

    first = await ledger.keys(KeyQuery(limit=3, tenant="acme"))
    rest = await ledger.keys(KeyQuery(limit=3, tenant="acme", cursor=first.next_cursor))

    listed = [key.id for key in [*first.items, *rest.items]]
    assert listed == [made[number].id for number in (4, 3, 1, 0)]
    assert rest.next_cursor is None
    assert len((await ledger.keys(KeyQuery(revoked=True))).items) == 6
    with pytest.raises(InvalidField, match="not a cursor"):
        await ledger.keys(KeyQuery(tenant="acme", cursor=cursor_of("keys", other.id)))


async def test_uses_are_noted_together(ledger: Ledger) -> None:
    keys = [await ledger.add_key(a_key(name=name), DEED) for name in "abc"]

    await ledger.note_uses({keys[0].id: NOW + 7, keys[2].id: NOW + 8})

    listed = {key.id: key.last_used_at for key in (await ledger.keys(KeyQuery())).items}
    assert [listed[key.id] for key in keys] == [NOW + 7, None, NOW + 8]


def test_a_key_shows_nothing_of_its_hash() -> None:
    key = a_key()

    assert "digest" not in repr(key)
    assert key.digest.hex() not in repr(key)


# ------------------------------------------------------------------------------------------------ tenants


async def test_a_new_ledger_has_the_default_tenant_alone(ledger: Ledger) -> None:
    assert [tenant.name for tenant in await ledger.tenants()] == ["default"]
    assert (await ledger.tenant("default")).own == {}
    assert await told(ledger, "default") == []


async def test_quotas_change_one_by_one_and_none_is_back_to_the_operator_s(ledger: Ledger) -> None:
    await ledger.amend_tenant("acme", {"sandboxes": 3, "runs": 0}, DEED)
    await ledger.amend_tenant("acme", {"disk_bytes": 7}, DEED)
    last = await ledger.amend_tenant("acme", {"sandboxes": None}, DEED)
    same = await ledger.amend_tenant("acme", {"runs": 0}, DEED)

    assert last.own == same.own == {"runs": 0, "disk_bytes": 7}
    assert [kind for kind, _ in await told(ledger, "acme")] == ["tenant.create", *["tenant.amend"] * 3]
    assert (await told(ledger, "acme"))[-1] == ("tenant.amend", {"quotas": dict(last.own), "by": DEED.by})


async def test_two_who_change_different_quotas_at_once_both_get_their_way(ledger: Ledger) -> None:
    await asyncio.gather(*(ledger.amend_tenant("acme", {name: 5}, DEED) for name in ("runs", "sandboxes")))

    assert (await ledger.tenant("acme")).own == {"runs": 5, "sandboxes": 5}


async def test_tenants_are_listed_oldest_first_in_pages(ledger: Ledger) -> None:
    for name in "bac":
        await ledger.amend_tenant(name, {}, DEED)

    first = await ledger.tenants_page(limit=3, cursor=None)
    rest = await ledger.tenants_page(limit=3, cursor=first.next_cursor)

    assert [tenant.name for tenant in [*first.items, *rest.items]] == ["default", "b", "a", "c"]
    with pytest.raises(NotFound, match="there is no tenant nobody"):
        await ledger.tenant("nobody")
    with pytest.raises(NotFound, match="there is no tenant nobody"):
        await ledger.tenant_events("nobody", limit=1, cursor=None)


# ------------------------------------------------------------------------------------ sandboxes by tenant


async def test_of_many_who_create_at_the_quota_exactly_so_many_get_one(ledger: Ledger, url: str) -> None:
    other = Ledger.open(url)
    wanting = [book.add_sandbox(a_sandbox(), most=5) for book in (ledger, other) for _ in range(12)]
    unbound = [ledger.add_sandbox(a_sandbox(tenant="other")) for _ in range(7)]

    answers = await asyncio.gather(*wanting, *unbound, return_exceptions=True)
    await other.close()

    assert sum(isinstance(answer, Sandbox) for answer in answers[:24]) == 5
    assert sum(isinstance(answer, OverQuota) for answer in answers[:24]) == 19
    assert all(isinstance(answer, Sandbox) for answer in answers[24:])


async def test_a_sandbox_that_ends_makes_room_for_another(ledger: Ledger) -> None:
    first = await ledger.add_sandbox(a_sandbox(), most=1)
    with pytest.raises(OverQuota, match="acme has 1 live sandboxes, and its quota `sandboxes` is 1"):
        await ledger.add_sandbox(a_sandbox(), most=1)

    await ledger.advance(first, Event.DELETE)

    assert await ledger.add_sandbox(a_sandbox(), most=1)


async def test_a_tenant_s_counts_are_its_own(ledger: Ledger) -> None:
    mine = await ledger.advance(await ledger.add_sandbox(a_sandbox(last_active_at=NOW + 3)), Event.CREATED)
    theirs = await ledger.add_sandbox(a_sandbox(tenant="other"))
    gone = await ledger.add_sandbox(a_sandbox(tenant="other"))
    await ledger.advance(gone, Event.DELETE)
    await ledger.add_run(a_run(mine), start=True)

    counts = await ledger.counts("acme")
    others = await ledger.counts("other")

    assert counts.sandboxes == {**dict.fromkeys(State, 0), State.READY: 1}
    assert counts.runs == {**dict.fromkeys(RunState, 0), RunState.RUNNING: 1}
    assert others.sandboxes == {**dict.fromkeys(State, 0), State.CREATING: 1, State.DELETING: 1}
    assert others.runs == dict.fromkeys(RunState, 0)
    assert (await ledger.counts()).sandboxes[State.CREATING] == 1
    assert await ledger.live_by_tenant() == {"acme": 1, "other": 1}
    assert await ledger.live("acme") == {mine.id: NOW + 3}
    assert list(await ledger.live("other")) == [theirs.id]


# --------------------------------------------------------------------------------------------- migration


def _ledger_before_keys(path: Path) -> None:
    """Make a ledger as the release before keys left it, with rows in it."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "petri.ledger:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    engine.dispose()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.executescript(
            """
            INSERT INTO sandboxes (id, tenant, name, language, engine, lifetime, limits, env, metadata, state,
                generation, created_at, last_active_at)
            SELECT 'sb-' || value, 'default', 'box-' || value, 'python', 'bubblewrap', 'persistent',
                '{"cpus":1,"memory_bytes":1,"processes":1,"timeout_s":1}', '{}', '{}', 'ready', 1, 1, 1
            FROM json_each('["a","b","c"]');
            INSERT INTO runs (id, sandbox_id, tenant, form, said, argv, cwd, engine, env_names, stdin_bytes,
                timeout_s, key_name, state, asked_at, stdout_bytes, stdout_kept_bytes, stdout_digest,
                stderr_bytes, stderr_kept_bytes, stderr_digest)
            VALUES ('run-a', 'sb-a', 'default', 'code', '1', '["x"]', '/workspace', 'bubblewrap', '[]', 0,
                1, 'default', 'done', 1, 0, 0, '', 0, 0, '');
            INSERT INTO events (sandbox_id, run_id, at, kind, detail)
            VALUES ('sb-a', NULL, 1, 'create', '{}'), ('sb-b', NULL, 1, 'create', '{}'),
                ('sb-a', 'run-a', 2, 'run.ended', '{}');
            """
        )


@pytest.mark.long
async def test_a_ledger_from_before_keys_belongs_to_the_default_tenant_with_all_it_holds(
    tmp_path: Path,
) -> None:
    _ledger_before_keys(tmp_path / "ledger.db")

    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")

    assert [tenant.name for tenant in await ledger.tenants()] == ["default"]
    listed = (await ledger.sandboxes("default", SandboxQuery())).items
    assert [(one.id, one.name, one.number) for one in listed] == [
        (f"sb-{letter}", f"box-{letter}", number) for letter, number in (("c", 3), ("b", 2), ("a", 1))
    ]
    assert (await ledger.run("run-a", "default")).asker.key_name == "default"
    assert (await ledger.counts("default")).runs[RunState.DONE] == 1
    rows = (await ledger.events("sb-a", limit=9, cursor=None)).items
    assert [(row.number, row.kind) for row in rows] == [(1, "create"), (2, "run.ended")]
    assert await ledger.held_keys() is None
    await ledger.add_key(a_key(tenant="default"), DEED)
    await ledger.close()
