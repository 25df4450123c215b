"""Find out which run, upload or restore gave a file what it holds now.

The record is read backwards. A run says which paths it changed, an upload which it wrote; where such a list
was cut, the trees from before and after are compared, as long as they are kept. What can be told by neither
is passed over, and said.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from petri.errors import Conflict, InvalidField, NotFound
from petri.ledger import HistoryRow
from petri.model import Run, Sandbox
from petri.operations import Caller, Host
from petri.operations.becoming import Kept
from petri.operations.moments import tree_now
from petri.threads import in_thread
from petri.trees import File, Folder, find

_STEPS = 2_000
"""How far back is looked."""
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
    forked_from: str | None
    """The sandbox whose files this one began with, if it did not begin empty."""


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
    steps = await _steps(host, sandbox)
    step, passed_over = await in_thread(_found, kept, exact, steps)
    digest = entry.digest.hex() if isinstance(entry, File) else None
    return Blame(path, digest, step, passed_over, sandbox.forked_from)


async def _steps(host: Host, sandbox: Sandbox) -> list[Step]:
    """Return what may have changed the files, the latest first."""
    rows = await host.ledger.file_history(sandbox.id, _STEPS)
    runs = {run.id: run for run in await host.ledger.runs_by_id([row.run_id for row in rows if row.run_id])}
    return list(_joined(rows, runs, sandbox.first_tree))


def _joined(rows: list[HistoryRow], runs: dict[str, Run], first: str | None) -> Iterator[Step]:
    for row, earlier in zip(rows, [*rows[1:], None], strict=True):
        if row.run_id is not None:
            run = runs[row.run_id]
            yield Step(row, run, run.tree_before, run.tree_after)
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
    try:
        trees = (bytes.fromhex(step.before), bytes.fromhex(step.after))
        before, after = (find(kept.folder, tree, path) for tree in trees)
    except NotFound:
        return None
    return before != after
