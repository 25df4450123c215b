"""Find out which run, upload or restore gave a file what it holds now.

The record is read backwards. A run says which paths it changed, an upload which it wrote; where such a list
was cut, the trees from before and after are compared, as long as they are kept. What can be told by neither
is passed over, and said.

A restore, a merge or a fork writes nothing anew: it has the files be what they were at another moment, there
or in another sandbox. So the record is read on from that moment, which is found by its tree.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from petri.errors import Conflict, InvalidField, NotFound
from petri.ledger import HistoryRow
from petri.model import Run, Sandbox
from petri.operations import Caller, Host
from petri.operations.becoming import Kept
from petri.operations.moments import is_sandbox, tree_now
from petri.threads import in_thread
from petri.trees import EMPTY, File, Folder, find

_STEPS = 2_000
"""How far back is looked."""
_PASSAGES = 32
"""How often content is followed to where it came from."""
_GOING = frozenset({"files.restore", "files.undo"})
"""Steps after which the files are what they had been before."""
_SHOWN = 200
_REPLACED = "\ufffd"


@dataclass(frozen=True, slots=True)
class Blame:
    """Who gave a file its content."""

    path: str
    digest: str | None
    """Of its content; a link has none."""
    step: "Step | None"
    """What did; None if it was there from the beginning, or further back than anybody looks."""
    passed_over: int
    """Later steps of which nobody can tell whether they did."""
    sandbox: Sandbox
    """Where it did."""
    through: "tuple[Passage, ...]" = ()
    """What brought it from there to here, the latest first."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Something that had files be what they were at another moment."""

    kind: str
    """`files.restore`, `files.undo`, `files.merge`, `fork` or `from_snapshot`."""
    at: float
    sandbox_id: str
    """Whose files it was that it changed."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """Where in the record of a sandbox to read on: the last time, up to `until`, that it was `tree`."""

    sandbox: Sandbox
    tree: str | None
    until: float


@dataclass(frozen=True, slots=True)
class Step:
    """Something that may have changed files."""

    row: HistoryRow
    run: Run | None
    before: str | None
    after: str | None

    def names(self, path: str) -> bool | None:
        """Say whether this step is on record as having written `path`; None where the record cannot tell.

        Its list may have been cut; and what is no text in a name is told apart in trees alone.
        """
        if _REPLACED in path:
            return None
        if self.run is not None:
            return _run_names(self.run, path)
        named: Any = self.row.detail.get("paths")
        if named is None:
            return None
        return True if path in named else (False if self.row.detail["count"] <= len(named) else None)


def _run_names(run: Run, path: str) -> bool | None:
    if run.kept is False or run.tree_before == run.tree_after:
        return False
    if run.changes is None:
        return None
    if path in run.changes.added or path in run.changes.modified:
        return True
    return None if run.changes.left_out else False


async def blame(host: Host, caller: Caller, sandbox_id: str, path: str) -> Blame:
    """Return what gave the file or link at `path` its content."""
    sandbox = await host.ledger.sandbox(sandbox_id, caller.tenant)
    if not path:
        raise InvalidField("path", "name a file by its path in the workspace, as in ?path=out.csv")
    tree = await tree_now(host, sandbox)
    kept = Kept(host.store, sandbox.tenant)
    exact = path.encode("utf-8", "surrogateescape")
    entry = await in_thread(find, kept.folder, bytes.fromhex(tree), exact)
    if isinstance(entry, Folder):
        raise Conflict(f"{path[:_SHOWN]!r} is a folder; name a file in it")
    if entry is None:
        raise NotFound(f"there is no {path[:_SHOWN]!r} in the workspace")
    digest = entry.digest.hex() if isinstance(entry, File) else None
    return await _traced(host, kept, Blame(path, digest, None, 0, sandbox), exact)


async def _traced(host: Host, kept: Kept, blame: Blame, exact: bytes) -> Blame:
    """Return who wrote what is at a path now, wherever that was."""
    steps = record = await _steps(host, blame.sandbox)
    while True:
        step, passed_over = await in_thread(_found, kept, exact, steps)
        blame = replace(blame, step=step, passed_over=blame.passed_over + passed_over)
        if step is None and not _is_all(record):
            return blame  # it may have been written before that: it need not come from where the files did
        if len(blame.through) == _PASSAGES or (earlier := await _earlier(host, blame)) is None:
            return blame
        passage, moment = earlier
        record = await _steps(host, moment.sandbox)
        behind = _behind(record, moment)
        if behind is None:
            return blame
        steps = behind
        blame = replace(blame, sandbox=moment.sandbox, through=(*blame.through, passage))


async def _earlier(host: Host, blame: Blame) -> tuple[Passage, _Moment] | None:
    """Return where what a step brought had been before, and how it came from there; None if it was new."""
    step, sandbox = blame.step, blame.sandbox
    with suppress(
        NotFound
    ):  # a tree has no record, and a snapshot that was deleted says no more whose it was
        if step is None and sandbox.forked_from is not None:
            parent = await host.ledger.sandbox(sandbox.forked_from, sandbox.tenant)
            passage = Passage("fork", sandbox.created_at, sandbox.id)
            return passage, _Moment(parent, sandbox.first_tree, sandbox.created_at)
        if step is None and sandbox.from_snapshot is not None:
            passage = Passage("from_snapshot", sandbox.created_at, sandbox.id)
            return passage, await _of_snapshot(host, sandbox, sandbox.from_snapshot, sandbox.first_tree)
        if step is not None and step.row.kind in _GOING:
            passage = Passage(step.row.kind, step.row.at, sandbox.id)
            return passage, await _restored(host, sandbox, step.row)
        if step is not None and step.row.kind == "files.merge":
            passage = Passage(step.row.kind, step.row.at, sandbox.id)
            return passage, await _merged(host, sandbox, step.row)
    return None


async def _of_snapshot(host: Host, sandbox: Sandbox, named: str, tree: str | None) -> _Moment:
    snapshot = await host.ledger.snapshot(named, sandbox.tenant)
    if snapshot.tree != tree:
        raise NotFound("another snapshot has that name by now")
    whose = await host.ledger.sandbox(snapshot.sandbox_id, sandbox.tenant)
    return _Moment(whose, snapshot.tree, snapshot.created_at)


async def _restored(host: Host, sandbox: Sandbox, row: HistoryRow) -> _Moment:
    if "snapshot" in row.detail:
        return await _of_snapshot(host, sandbox, row.detail["snapshot"], row.detail["tree"])
    return _Moment(sandbox, row.detail["tree"], row.at)


async def _merged(host: Host, sandbox: Sandbox, row: HistoryRow) -> _Moment:
    named: str = row.detail["from"]
    if is_sandbox(named):
        return _Moment(await host.ledger.sandbox(named, sandbox.tenant), row.detail["theirs"], row.at)
    return await _of_snapshot(host, sandbox, named, row.detail["theirs"])


def _behind(steps: list[Step], moment: _Moment) -> list[Step] | None:
    """Return what of `steps` led to a moment; None if that is further back than anybody looks."""
    for at, step in enumerate(steps):
        if step.row.at > moment.until:
            continue
        # Whoever went there left that tree, too; what they went to is further back.
        if step.after == moment.tree and not (step.row.at == moment.until and step.row.kind in _GOING):
            return steps[at:]
        if step.before == moment.tree:
            return steps[at + 1 :]
    return None


async def _steps(host: Host, sandbox: Sandbox) -> list[Step]:
    """Return what may have changed the files, the latest first."""
    rows = await host.ledger.file_history(sandbox.id, _STEPS)
    runs = {run.id: run for run in await host.ledger.runs_by_id([row.run_id for row in rows if row.run_id])}
    # What was there first is known if nothing is further back than that.
    is_all = bool(rows) and rows[-1].is_beginning
    first = (sandbox.first_tree or EMPTY.hex()) if is_all else None
    return list(_joined([row for row in rows if _may_change(row)], runs, first))


def _may_change(row: HistoryRow) -> bool:
    return row.run_id is not None or "tree" in row.detail


def _is_all(record: list[Step]) -> bool:
    """Say whether a record goes back to its beginning, of a sandbox whose files came from another."""
    return bool(record) and not record[-1].row.detail.keys().isdisjoint(("forked_from", "from_snapshot"))


def _joined(rows: list[HistoryRow], runs: dict[str, Run], first: str | None) -> Iterator[Step]:
    for row, earlier in zip(rows, [*rows[1:], None], strict=True):
        if row.run_id is not None:
            run = runs[row.run_id]
            yield Step(row, run, run.tree_before, _tree_after(row, runs))
        else:
            yield Step(row, None, _tree_after(earlier, runs) if earlier else first, row.detail.get("tree"))


def _tree_after(row: HistoryRow, runs: dict[str, Run]) -> str | None:
    if row.run_id is None:
        tree: str | None = row.detail.get("tree")
        return tree
    run = runs[row.run_id]
    return run.tree_before if run.kept is False else run.tree_after


def _found(kept: Kept, exact: bytes, steps: list[Step]) -> tuple[Step | None, int]:
    """Return the latest step that changed a path, and how many later ones cannot be told."""
    passed_over = 0
    for step in steps:
        did = step.names(exact.decode(errors="replace"))
        if did is None:
            did = _differs(kept, step, exact)
        if did:
            return step, passed_over
        passed_over += did is None
    return None, passed_over


def _differs(kept: Kept, step: Step, path: bytes) -> bool | None:
    """Say whether a path is another after a step than before; None where the trees are not kept."""
    if step.before is None or step.after is None:
        return None
    if step.before == step.after:
        return False  # whether they are kept or not
    try:
        trees = (bytes.fromhex(step.before), bytes.fromhex(step.after))
        before, after = (find(kept.folder, tree, path) for tree in trees)
    except NotFound:
        return None
    return before != after
