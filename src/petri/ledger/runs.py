"""What the ledger knows of runs. Each function is one job inside somebody else's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, func, insert, null, select, update
from sqlalchemy.exc import IntegrityError

from petri.errors import Conflict, NotFound
from petri.ledger import becoming, events, expiry, pages, rows, sandboxes
from petri.ledger.events import Happening
from petri.ledger.pages import Page
from petri.ledger.prepared import Prepared, PreparedRow
from petri.ledger.tables import outputs, runs
from petri.model import RUN_UNFINISHED, Changes, Kept, Outcome, Run, RunEvent, RunState, run_after


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, as far as there is something to say. What is None stays as it was."""

    outcome: Outcome | None = None
    stdout: Kept | None = None
    stderr: Kept | None = None
    failure: str | None = None
    tree: str | None = None
    changes: Changes | None = None
    output: bytes | None = None
    """What it wrote, if that is little enough to be kept here."""
    kept: bool | None = None
    """Whether what the run did to the files stays."""


NO_ENDING = Ending()

_KIND = pages.Kind(runs.c.id, rows.to_run)

# ---------------------------------------------------------------------------------------------- asking

_THEIRS = select(runs).where(runs.c.id == bindparam("id"), runs.c.tenant == bindparam("tenant"))
"""Somebody else's is not found the way one that never was is not found: the same steps, the same answer."""
_OUTPUT = PreparedRow(select(outputs.c.content).where(outputs.c.run_id == bindparam("run_id")))
_UNFINISHED = (
    select(runs)
    .where(runs.c.state.in_(sorted(state.value for state in RUN_UNFINISHED)))
    .order_by(runs.c.number)
)
_COUNT = select(runs.c.state, func.count()).group_by(runs.c.state)
_COUNT_THEIRS = _COUNT.where(
    # Every state by name, and the index leads straight to the tenant's own.
    runs.c.state.in_([state.value for state in RunState]),
    runs.c.tenant == bindparam("tenant"),
)


def find(connection: Connection, run_id: str, tenant: str) -> Run:
    """Return a run; another tenant's is as good as none."""
    wanted = rows.storable({"id": run_id, "tenant": tenant})
    row = connection.execute(_THEIRS, wanted).mappings().one_or_none()
    if row is None:
        raise _no_such(run_id)
    return rows.to_run(row)


def many(connection: Connection, run_ids: Sequence[str]) -> list[Run]:
    """Return those runs, in no order."""
    wanted = select(runs).where(runs.c.id.in_(run_ids))
    return [rows.to_run(row) for row in connection.execute(wanted).mappings()]


def page(connection: Connection, sandbox_id: str, limit: int, cursor: str | None) -> Page[Run]:
    """Return a sandbox's runs, newest first."""
    here = runs.c.sandbox_id == rows.text(sandbox_id)
    wanted = select(runs).where(here).order_by(runs.c.number.desc())
    if cursor is not None:
        wanted = wanted.where(runs.c.number < pages.read_cursor(connection, cursor, _KIND, here))
    return pages.fetch(connection, wanted, _KIND, limit)


def output(connection: Connection, run_id: str) -> bytes | None:
    """Return what a run wrote, if it is kept here."""
    row = _OUTPUT.one(connection, {"run_id": rows.text(run_id)})
    return None if row is None else row["content"]


def last_equipped(connection: Connection, sandbox_id: str) -> Run | None:
    """Return the last run of a sandbox for which packages were wanted, installed or not."""
    here = runs.c.sandbox_id == rows.text(sandbox_id)
    wanted = select(runs).where(here, runs.c.packages.is_not(null())).order_by(runs.c.number.desc()).limit(1)
    row = connection.execute(wanted).mappings().one_or_none()
    return None if row is None else rows.to_run(row)


def environments(connection: Connection) -> set[str]:
    """Return the address of every environment that a run had."""
    had = select(runs.c.environment).where(runs.c.environment.is_not(null())).distinct()
    return {address for joined in connection.scalars(had) for address in joined.split("+")}


def unfinished(connection: Connection) -> list[Run]:
    """Return the runs nobody has seen the end of, oldest first."""
    return [rows.to_run(row) for row in connection.execute(_UNFINISHED).mappings()]


def count(connection: Connection, tenant: str | None) -> dict[RunState, int]:
    """Return how many runs are in each state: a tenant's, or everybody's."""
    wanted = _COUNT if tenant is None else _COUNT_THEIRS
    counted = {RunState(state): number for state, number in connection.execute(wanted, {"tenant": tenant})}
    return {state: counted.get(state, 0) for state in RunState}


# --------------------------------------------------------------------------------------------- changing

_ADD = Prepared(insert(runs))
_ADD_OUTPUT = Prepared(insert(outputs))
_ADVANCE = Prepared(
    update(runs).where(runs.c.id == bindparam("this_id"), runs.c.state == bindparam("this_state"))
)


def add(connection: Connection, run: Run, *, start: bool) -> Run:
    """Write down a queued run, and its start if it need not wait. Its sandbox must be live."""
    sandboxes.touch_live(connection, run.sandbox_id, run.asked_at)
    happenings = [_happening(run, "queue", run.asked_at)]
    if start:
        run = _moved(run, RunEvent.START, run.asked_at)
        happenings.append(_happening(run, RunEvent.START, run.asked_at))
        begin_trial(connection, run)
    values, run = rows.of_run(run)
    try:
        _ADD.run(connection, values)
    except IntegrityError as error:
        raise Conflict(f"there is a run {run.id} already") from error
    if start:
        sandboxes.set_environment(connection, run.sandbox_id, run.environment)
    events.add(connection, happenings)
    return run


def advance(connection: Connection, run: Run, event: RunEvent, at: float, ending: Ending) -> Run:
    """Do `event` to `run`: the new state and its history row, or neither.

    Compare-and-set on the state: `Conflict` if the run has moved on since it was read.
    """
    moved = _moved(run, event, at, ending)
    step = _step(run, moved)
    if _ADVANCE.run(connection, step) != 1:
        now = find(connection, run.id, run.tenant)
        raise Conflict(f"the run is {now.state} by now: {event} came too late")
    if ending.output:
        _ADD_OUTPUT.run(connection, {"run_id": run.id, "content": ending.output})
    expiry.touch(connection, run.sandbox_id, at)
    if event is RunEvent.START:
        begin_trial(connection, run)
    elif _is_over_with(moved):
        becoming.clear(connection, run.sandbox_id)
    if moved.kept is not False and ending.tree is not None:
        sandboxes.set_tree(connection, run.sandbox_id, ending.tree)
    if event is RunEvent.START:
        sandboxes.set_environment(connection, run.sandbox_id, run.environment)
    events.add(connection, [_happening(moved, event, at)])
    return moved


def interrupt_unfinished(connection: Connection, at: float) -> int:
    """Write down that every unfinished run was cut off, as after a crash; return how many were."""
    found = unfinished(connection)
    cut_off = [_moved(run, RunEvent.INTERRUPTED, at) for run in found]
    if cut_off:
        _ADVANCE.run_each(connection, [_step(*pair) for pair in zip(found, cut_off, strict=True)])
    for sandbox_id in {run.sandbox_id for run in cut_off}:
        expiry.touch(connection, sandbox_id, at)
    events.add(connection, [_happening(run, RunEvent.INTERRUPTED, at) for run in cut_off])
    return len(cut_off)


def _step(run: Run, moved: Run) -> rows.Values:
    return {**rows.of_progress(moved), "this_id": run.id, "this_state": run.state.value}


def _moved(run: Run, event: RunEvent, at: float, ending: Ending = NO_ENDING) -> Run:
    state = run_after(run.state, event)
    if state in RUN_UNFINISHED:
        return replace(run, state=state, started_at=at)
    kept = None if run.keep == "always" else False
    return replace(
        run,
        state=state,
        ended_at=at,
        outcome=ending.outcome or run.outcome,
        stdout=ending.stdout or run.stdout,
        stderr=ending.stderr or run.stderr,
        failure=run.failure if ending.failure is None else rows.text(ending.failure),
        tree_after=ending.tree or run.tree_after,
        changes=ending.changes or run.changes,
        kept=kept if ending.kept is None else ending.kept,
    )


def begin_trial(connection: Connection, run: Run) -> None:
    """Have it on record that the files will be as before the run, unless it ends as one that is kept."""
    if run.keep != "always" and run.tree_before is not None:
        becoming.foresee(connection, run.sandbox_id, run.tree_before)


def _is_over_with(run: Run) -> bool:
    """Say whether a run that might have been thrown away leaves nothing to go back from."""
    if run.keep == "always" or run.tree_before is None:
        return False
    return bool(run.kept) or run.tree_after == run.tree_before


def _happening(run: Run, kind: str, at: float) -> Happening:
    return Happening(run.sandbox_id, at, f"run.{kind}", {"state": run.state.value}, run.id)


def _no_such(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id}")
