"""What the ledger knows of files that are to become another tree. Each function is one job in a transaction.

That it is to happen is on record before a file is touched, and stands there until it has happened: whatever
becomes of the server meanwhile, the next one to use the files finds out what is still to be done.
"""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, exists, insert, or_, select, update

from petri.errors import Conflict
from petri.ledger import agreements, events, expiry, rows
from petri.ledger.events import Happening
from petri.ledger.tables import restores, runs, sandboxes
from petri.model import RUN_UNFINISHED, Addition, Run, Sandbox, State

Side = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Rewind:
    """Where in its history a sandbox goes: right before a run, or right after it."""

    run_id: str
    side: Side = "before"


@dataclass(frozen=True, slots=True)
class Back:
    """What it takes to come back from where a sandbox goes."""

    was: str
    """The tree that its files were."""
    rewind: Rewind | None = None
    added: tuple[Addition, ...] | None = None
    """The packages that runs had asked for there, where that is on record of its own."""


def begin(
    connection: Connection, tree: str, happening: Happening, back: Back | None, agreed: str | None
) -> None:
    """Write down that the files of a sandbox are to be `tree`, because of `happening`, and what is agreed."""
    this = sandboxes.c.id == rows.text(happening.sandbox_id)
    ready = sandboxes.c.state == State.READY.value
    begun = connection.execute(update(sandboxes).where(this, ready).values(becoming=tree))
    if begun.rowcount != 1:
        raise Conflict("the sandbox has ended: its files cannot become anything any more")
    if back is not None:
        row = {"sandbox_id": happening.sandbox_id, "at": happening.at, "was": back.was, "tree": tree}
        connection.execute(
            insert(restores), {**row, "former": _former(connection, happening.sandbox_id, back)}
        )
        if back.rewind is not None:
            _mark_undone(connection, happening.sandbox_id, back.rewind, happening.at)
            _mark_added(connection, happening.sandbox_id)
        elif back.added is not None:
            connection.execute(update(sandboxes).where(this).values(added=rows.of_added(back.added)))
    if agreed is not None:
        agreements.add(connection, happening.sandbox_id, agreed, happening.at)
    events.add(connection, [happening])
    expiry.touch(connection, happening.sandbox_id, happening.at)


def _former(connection: Connection, sandbox_id: str, back: Back) -> rows.Values:
    """Return what is about to be written over, as far as nothing else on record would bring it back."""
    if back.rewind is not None and back.rewind.side == "after":
        to = (runs.c.sandbox_id == rows.text(sandbox_id)) & (runs.c.id == rows.text(back.rewind.run_id))
        return {"run": back.rewind.run_id, "undone_at": connection.scalar(select(runs.c.undone_at).where(to))}
    if back.rewind is None and back.added is not None:
        this = sandboxes.c.id == rows.text(sandbox_id)
        return {"added": connection.scalar(select(sandboxes.c.added).where(this)) or []}
    return {}


def _mark_undone(connection: Connection, sandbox_id: str, rewind: Rewind, at: float) -> None:
    """Have every run count as undone that the files go back behind, and the one they go to as not."""
    here = runs.c.sandbox_id == rows.text(sandbox_id)
    number = select(runs.c.number).where(runs.c.id == rows.text(rewind.run_id), here).scalar_subquery()
    if rewind.side == "after":
        connection.execute(update(runs).where(here, runs.c.number == number).values(undone_at=None))
    behind = runs.c.number > number if rewind.side == "after" else runs.c.number >= number
    connection.execute(update(runs).where(here, behind, runs.c.undone_at.is_(None)).values(undone_at=at))


def _mark_added(connection: Connection, sandbox_id: str) -> None:
    """Have what runs asked for not count where the run is undone, and count again where it is not."""
    this = sandboxes.c.id == rows.text(sandbox_id)
    kept = connection.execute(select(sandboxes.c.added).where(this)).scalar()
    if not kept:
        return
    asked = {each["said"].partition(" ")[0] for each in kept}
    here = (runs.c.sandbox_id == rows.text(sandbox_id)) & runs.c.id.in_(sorted(asked))
    undone = set(connection.scalars(select(runs.c.id).where(here, runs.c.undone_at.is_not(None))))
    marked = [{**each, rows.UNDONE: each["said"].partition(" ")[0] in undone} for each in kept]
    connection.execute(update(sandboxes).where(this).values(added=marked))


def end(connection: Connection, tree: str, happening: Happening) -> None:
    """Write down that files, which were to be `tree`, are what `happening` says they are."""
    _settle(connection, tree, happening)


def give_up(connection: Connection, tree: str, happening: Happening) -> None:
    """Write down that files will not be `tree`: they are as they were.

    So is what counts as undone, and what counts of packages that runs asked for.
    """
    if _settle(connection, tree, happening):
        here = restores.c.sandbox_id == happening.sandbox_id
        latest = select(restores.c.at, restores.c.former).where(here).order_by(restores.c.number.desc())
        last = connection.execute(latest.limit(1)).one_or_none()
        if last is not None:
            _put_back(connection, happening.sandbox_id, last.at, last.former or {})


def _put_back(connection: Connection, sandbox_id: str, at: float, former: rows.Values) -> None:
    here, this = runs.c.sandbox_id == sandbox_id, sandboxes.c.id == sandbox_id
    connection.execute(update(runs).where(here, runs.c.undone_at == at).values(undone_at=None))
    if "run" in former:
        went_to = update(runs).where(here, runs.c.id == former["run"])
        connection.execute(went_to.values(undone_at=former["undone_at"]))
    if "added" in former:
        connection.execute(update(sandboxes).where(this).values(added=former["added"]))
    else:
        _mark_added(connection, sandbox_id)


def _settle(connection: Connection, tree: str, happening: Happening) -> bool:
    """Have files on their way to `tree` no more.

    Not if somebody has them become something else by now, or if the sandbox has ended.
    """
    this = (sandboxes.c.id == rows.text(happening.sandbox_id)) & (sandboxes.c.becoming == tree)
    now = happening.detail["tree"]
    if not connection.execute(update(sandboxes).where(this).values(becoming=None, tree=now)).rowcount:
        return False
    events.add(connection, [happening])
    return True


def foresee(connection: Connection, sandbox_id: str, tree: str) -> None:
    """Write down that the files of a sandbox will be `tree` again, whatever a run does to them.

    Not those of an ephemeral one: they will not be there at all.
    """
    this = (sandboxes.c.id == rows.text(sandbox_id)) & (sandboxes.c.lifetime != "ephemeral")
    connection.execute(update(sandboxes).where(this).values(becoming=tree))


def clear(connection: Connection, sandbox_id: str) -> None:
    """Write down that what was foreseen for the files of a sandbox is not to happen, or has."""
    this = sandboxes.c.id == rows.text(sandbox_id)
    connection.execute(update(sandboxes).where(this).values(becoming=None))


def unsettled(connection: Connection) -> list[Sandbox]:
    """Return the sandboxes that can be used, but for their files, which are not yet what they are to be."""
    wanted = select(sandboxes).where(
        sandboxes.c.becoming.is_not(None), sandboxes.c.state == State.READY.value
    )
    return [rows.to_sandbox(row) for row in connection.execute(wanted).mappings()]


def last_to_undo(connection: Connection, sandbox: Sandbox) -> Run | None:
    """Return the last run of a sandbox that changed something, as far as one knows, and is not undone."""
    asked = sorted({each.run_id for each in sandbox.added})
    wanted = (
        select(runs)
        .where(
            runs.c.sandbox_id == rows.text(sandbox.id),
            runs.c.state.not_in(sorted(state.value for state in RUN_UNFINISHED)),
            runs.c.undone_at.is_(None),
            runs.c.tree_before.is_not(None),
            or_(runs.c.tree_before.is_distinct_from(runs.c.tree_after), runs.c.id.in_(asked)),
            runs.c.kept.is_distinct_from(False),
        )
        .order_by(runs.c.number.desc())
        .limit(1)
    )
    row = connection.execute(wanted).mappings().one_or_none()
    return None if row is None else rows.to_run(row)


def has_been(connection: Connection, sandbox: Sandbox, tree: str) -> bool:
    """Say whether a sandbox's files were this tree at some time that is on record."""
    if tree in (sandbox.tree, sandbox.first_tree):
        return True
    ran = exists().where(
        runs.c.sandbox_id == sandbox.id, or_(runs.c.tree_before == tree, runs.c.tree_after == tree)
    )
    went_back = exists().where(
        restores.c.sandbox_id == sandbox.id, or_(restores.c.was == tree, restores.c.tree == tree)
    )
    return bool(connection.execute(select(or_(ran, went_back))).scalar())
