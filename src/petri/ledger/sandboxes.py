"""What the ledger knows of sandboxes. Each function is one job inside somebody else's transaction."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError

from petri.errors import Conflict, InvalidField, NotFound, OverQuota
from petri.ledger import events, expiry, pages, rows
from petri.ledger.events import Happening
from petri.ledger.pages import Page
from petri.ledger.prepared import Prepared, PreparedRow
from petri.ledger.tables import IS_LIVE, labels, runs, sandboxes
from petri.model import ENDED_BECAUSE, LIVE, UNFINISHED, Addition, Event, Sandbox, State, after

AMENDABLE = frozenset({"name", "ttl_s", "idle_s", "limits", "metadata", "peers"})

_KIND = pages.Kind(sandboxes.c.id, rows.to_sandbox)


@dataclass(frozen=True, slots=True)
class SandboxQuery:
    """Which of a tenant's sandboxes to list."""

    limit: int = 50
    cursor: str | None = None
    states: Collection[State] | None = None
    """None: in whatever state."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Every pair must be there, equal."""
    name: str | None = None


# ---------------------------------------------------------------------------------------------- asking

_BY_ID = select(sandboxes).where(sandboxes.c.id == bindparam("id"))
_THEIRS = PreparedRow(_BY_ID.where(sandboxes.c.tenant == bindparam("tenant")))
"""Somebody else's is not found the way one that never was is not found: the same steps, the same answer."""
_BY_NAME = select(sandboxes).where(
    sandboxes.c.tenant == bindparam("tenant"), sandboxes.c.name == bindparam("name"), IS_LIVE
)
_UNFINISHED = (
    select(sandboxes)
    .where(sandboxes.c.state.in_(sorted(state.value for state in UNFINISHED)))
    .order_by(sandboxes.c.number)
)
_COUNT = select(sandboxes.c.state, func.count()).group_by(sandboxes.c.state)
_COUNT_THEIRS = _COUNT.where(sandboxes.c.tenant == bindparam("tenant"))
_LIVE_BY_TENANT = select(sandboxes.c.tenant, func.count()).where(IS_LIVE).group_by(sandboxes.c.tenant)
_LIVE = select(sandboxes.c.id, sandboxes.c.last_active_at).where(IS_LIVE)


def find(connection: Connection, sandbox_id: str, tenant: str) -> Sandbox:
    """Return a sandbox in whatever state; another tenant's is as good as none."""
    wanted = rows.storable({"id": sandbox_id, "tenant": tenant})
    row = _THEIRS.one(connection, wanted)
    if row is None:
        raise _no_such(sandbox_id)
    return rows.to_sandbox(row)


def named(connection: Connection, name: str, tenant: str) -> Sandbox | None:
    """Return the live sandbox that holds `name`."""
    wanted = rows.storable({"name": name, "tenant": tenant})
    row = connection.execute(_BY_NAME, wanted).mappings().one_or_none()
    return None if row is None else rows.to_sandbox(row)


def page(connection: Connection, tenant: str, query: SandboxQuery) -> Page[Sandbox]:
    """Return a tenant's sandboxes, newest first."""
    theirs = sandboxes.c.tenant == rows.text(tenant)
    wanted = select(sandboxes).where(theirs).order_by(sandboxes.c.number.desc())
    if query.states is not None:
        wanted = wanted.where(sandboxes.c.state.in_(sorted(state.value for state in query.states)))
    if query.name is not None:
        wanted = wanted.where(sandboxes.c.name == rows.text(query.name))
    for key, value in rows.storable(query.metadata).items():
        wanted = wanted.where(_labelled(key, value))
    if query.cursor is not None:
        last = pages.read_cursor(connection, query.cursor, _KIND, theirs)
        wanted = wanted.where(sandboxes.c.number < last)
    return pages.fetch(connection, wanted, _KIND, query.limit)


def unfinished(connection: Connection) -> list[Sandbox]:
    """Return the sandboxes in a state that names work still to be done, oldest first."""
    return [rows.to_sandbox(row) for row in connection.execute(_UNFINISHED).mappings()]


def used_up(connection: Connection) -> list[Sandbox]:
    """Return the ephemeral sandboxes that are ready though a run of theirs is on record."""
    ran = exists().where(runs.c.sandbox_id == sandboxes.c.id)
    ready = sandboxes.c.state == State.READY.value
    wanted = select(sandboxes).where(sandboxes.c.lifetime == "ephemeral", ready, ran)
    return [rows.to_sandbox(row) for row in connection.execute(wanted).mappings()]


def count(connection: Connection, tenant: str | None) -> dict[State, int]:
    """Return how many sandboxes are in each state: a tenant's, or everybody's."""
    wanted = _COUNT if tenant is None else _COUNT_THEIRS
    counted = {State(state): number for state, number in connection.execute(wanted, {"tenant": tenant})}
    return {state: counted.get(state, 0) for state in State}


def live_by_tenant(connection: Connection) -> dict[str, int]:
    """Return how many live sandboxes each tenant has that has any."""
    return {tenant: number for tenant, number in connection.execute(_LIVE_BY_TENANT)}


def live(connection: Connection, tenant: str | None) -> dict[str, float]:
    """Return the ids of live sandboxes, a tenant's or everybody's, and when each was last in use."""
    wanted = _LIVE if tenant is None else _LIVE.where(sandboxes.c.tenant == rows.text(tenant))
    return {id_: at for id_, at in connection.execute(wanted)}


def _labelled(key: str, value: str) -> ColumnElement[bool]:
    return exists().where(labels.c.sandbox_id == sandboxes.c.id, labels.c.key == key, labels.c.value == value)


# --------------------------------------------------------------------------------------------- changing

_LAST_NUMBER = text("SELECT seq FROM sqlite_sequence WHERE name = 'sandboxes'")
_ADD = insert(sandboxes).returning(sandboxes)
_ADD_MADE = Prepared(insert(sandboxes))
_ADD_LABELS = insert(labels)


def add(connection: Connection, sandbox: Sandbox, most: int) -> Sandbox:
    """Write down a new sandbox, by the next number; a tenant may have `most` live ones (0: any)."""
    if most:
        _refuse_more_than(connection, sandbox.tenant, most)
    try:
        row = connection.execute(_ADD, _columns(sandbox)).mappings().one()
    except IntegrityError as error:
        raise _taken(sandbox) from error
    added = rows.to_sandbox(row)
    _label(connection, added)
    events.add(connection, _beginning(added))
    return added


def add_made(connection: Connection, sandbox: Sandbox, most: int) -> Sandbox:
    """Write down a new sandbox whose workspace is there: that it was to be made, and that it was.

    It has its number already. Two rows of history, but only one of its own: nobody can see it in between.
    """
    if most:
        _refuse_more_than(connection, sandbox.tenant, most)
    state = after(sandbox.state, Event.CREATED)
    made = replace(sandbox, state=state, generation=sandbox.generation + 1)
    values = {**_columns(made), "number": made.number}
    try:
        _ADD_MADE.run(connection, values)
    except IntegrityError as error:
        raise _taken(sandbox) from error
    made = rows.to_sandbox(values)
    _label(connection, made)
    became = Happening(made.id, time.time(), Event.CREATED.value, {"state": state.value})
    events.add(connection, [*_beginning(sandbox), became])
    return made


def _columns(sandbox: Sandbox) -> rows.Values:
    return {**rows.of_sandbox(sandbox), "expires_at": expiry.expires_at(sandbox)}


def _beginning(new: Sandbox) -> list[Happening]:
    created = Happening(new.id, new.created_at, "create", {"state": new.state.value, **_origin(new)})
    return [created, *_of_parent(new)]


def last_number(connection: Connection) -> int:
    """Return the highest number that a sandbox ever had, even one whose row is gone."""
    return connection.execute(_LAST_NUMBER).scalar() or 0


def _of_parent(child: Sandbox) -> list[Happening]:
    """Return what a fork is to the sandbox that it was forked from."""
    if child.forked_from is None:
        return []
    detail = {"sandbox": child.id, "tree": child.first_tree}
    return [Happening(child.forked_from, child.created_at, "fork", detail)]


def _origin(sandbox: Sandbox) -> dict[str, str]:
    """Return where the first files of a sandbox come from, as far as there is something to say."""
    said = {
        "tree": sandbox.first_tree,
        "forked_from": sandbox.forked_from,
        "from_snapshot": sandbox.from_snapshot,
    }
    return {name: value for name, value in said.items() if value is not None}


def _refuse_more_than(connection: Connection, tenant: str, most: int) -> None:
    counted = count(connection, tenant)
    have = sum(counted[state] for state in LIVE)
    if have >= most:
        raise OverQuota(
            f"tenant {tenant} has {have} live sandboxes, and its quota `sandboxes` is {most}: "
            "delete one first, or ask an administrator for more"
        )


def advance(connection: Connection, sandbox: Sandbox, happening: Happening) -> Sandbox:
    """Do to `sandbox` what `happening` says: the new state and its history row, or neither.

    Compare-and-set on the generation: `Conflict` if the sandbox has moved on since it was read.
    """
    event = Event(happening.kind)
    state = after(sandbox.state, event)
    changes: rows.Values = {"state": state.value, "generation": sandbox.generation + 1}
    if event in ENDED_BECAUSE:
        changes |= {"ended_at": happening.at, "ended_because": ENDED_BECAUSE[event]}
    if state not in LIVE:
        changes["expires_at"] = None
        # Values may be secrets, and the ledger is for ever: of an ended sandbox only the names stay.
        changes["env"] = dict.fromkeys(sandbox.env, "")
    moved = _move(connection, sandbox, changes)
    if moved is None:
        now = _current(connection, sandbox.id)
        raise Conflict(f"the sandbox is {now.state} by now: {event} came too late")
    events.add(connection, [replace(happening, detail={**happening.detail, "state": state.value})])
    return moved


def amend(connection: Connection, sandbox_id: str, changes: Mapping[str, Any], at: float) -> Sandbox:
    """Change what the caller may change of a live sandbox; what stays the same leaves no trace."""
    if unknown := sorted(changes.keys() - AMENDABLE):
        raise InvalidField(unknown[0], "cannot be changed")
    current = _current(connection, sandbox_id, lock=True)
    if current.state not in LIVE:
        raise Conflict(f"the sandbox is {current.state}: it cannot be changed any more")
    wanted = replace(current, **_merged(current, changes))
    changed = sorted(name for name in changes if getattr(wanted, name) != getattr(current, name))
    if not changed:
        return current
    amended = _store(connection, wanted, changed)
    events.add(connection, [Happening(sandbox_id, at, "amend", {"changed": changed})])
    return amended


def _merged(current: Sandbox, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `changes` with those limits that they do not name as they are in this very transaction."""
    if "limits" not in changes:
        return dict(changes)
    return {**changes, "limits": replace(current.limits, **changes["limits"])}


def touch_live(connection: Connection, sandbox_id: str, at: float) -> None:
    """Note that a sandbox was in use, or say why it cannot be."""
    if not expiry.touch(connection, sandbox_id, at):
        current = _current(connection, sandbox_id)
        raise Conflict(f"the sandbox is {current.state}: nothing can be run in it")


_SET_TREE = Prepared(
    update(sandboxes).where(
        sandboxes.c.id == bindparam("this_id"), sandboxes.c.tree.is_distinct_from(bindparam("no_news"))
    )
)


def set_tree(connection: Connection, sandbox_id: str, tree: str | None) -> None:
    """Write down the tree that a sandbox's files are, or that nobody knows; only if that is news."""
    _SET_TREE.run(connection, {"this_id": rows.text(sandbox_id), "no_news": tree, "tree": tree})


_SET_ENVIRONMENT = Prepared(
    update(sandboxes).where(
        sandboxes.c.id == bindparam("this_id"), sandboxes.c.environment.is_distinct_from(bindparam("no_news"))
    )
)


def set_environment(connection: Connection, sandbox_id: str, environment: str | None) -> None:
    """Write down the packages that something was last run with; a run that needed none changes nothing."""
    if environment is not None:
        change = {"this_id": rows.text(sandbox_id), "no_news": environment, "environment": environment}
        _SET_ENVIRONMENT.run(connection, change)


def set_added(
    connection: Connection, added: Sequence[Addition], environment: str | None, happening: Happening
) -> None:
    """Write down the packages that the runs of a sandbox asked for, and where they are."""
    this = sandboxes.c.id == rows.text(happening.sandbox_id)
    connection.execute(update(sandboxes).where(this).values(added=rows.of_added(added)))
    set_environment(connection, happening.sandbox_id, environment)
    events.add(connection, [happening])


def note(connection: Connection, happening: Happening) -> None:
    """Write down something that changed no state of the sandbox but shows that it is in use."""
    try:
        events.add(connection, [happening])
    except IntegrityError as error:
        raise _no_such(happening.sandbox_id) from error
    expiry.touch(connection, happening.sandbox_id, happening.at)
    if "tree" in happening.detail:
        set_tree(connection, happening.sandbox_id, happening.detail["tree"])


def _current(connection: Connection, sandbox_id: str, *, lock: bool = False) -> Sandbox:
    wanted = _BY_ID.with_for_update() if lock else _BY_ID
    row = connection.execute(wanted, {"id": rows.text(sandbox_id)}).mappings().one_or_none()
    if row is None:
        raise _no_such(sandbox_id)
    return rows.to_sandbox(row)


def _move(connection: Connection, sandbox: Sandbox, changes: rows.Values) -> Sandbox | None:
    here = (sandboxes.c.id == sandbox.id) & (sandboxes.c.generation == sandbox.generation)
    change = update(sandboxes).where(here).values(changes).returning(sandboxes)
    row = connection.execute(change).mappings().one_or_none()
    return None if row is None else rows.to_sandbox(row)


def _store(connection: Connection, sandbox: Sandbox, changed: list[str]) -> Sandbox:
    values = rows.of_sandbox(sandbox)
    new = {name: values[name] for name in changed} | {"expires_at": expiry.expires_at(sandbox)}
    change = update(sandboxes).where(sandboxes.c.id == sandbox.id).values(new).returning(sandboxes)
    try:
        row = connection.execute(change).mappings().one()
    except IntegrityError as error:
        raise _taken(sandbox) from error
    stored = rows.to_sandbox(row)
    if "metadata" in changed:
        connection.execute(delete(labels).where(labels.c.sandbox_id == sandbox.id))
        _label(connection, stored)
    return stored


def _label(connection: Connection, sandbox: Sandbox) -> None:
    pairs = [
        {"sandbox_id": sandbox.id, "key": key, "value": value} for key, value in sandbox.metadata.items()
    ]
    if pairs:
        connection.execute(_ADD_LABELS, pairs)


def _no_such(sandbox_id: str) -> NotFound:
    return NotFound(f"there is no sandbox {sandbox_id}")


def _taken(sandbox: Sandbox) -> Conflict:
    if sandbox.name is None:
        return Conflict(f"there is a sandbox {sandbox.id} already")
    return Conflict(f"the name {sandbox.name} is in use by another sandbox")
