"""What is told of trees, in the shapes of the wire."""

from petri.api.shapes import changes_answer, shown_path, timestamp
from petri.operations.blaming import Blame
from petri.operations.comparing import Comparison, Told
from petri.operations.merging import Merged
from petri.wire import BlameAnswer, DiffAnswer, FileDiff, MergeAnswer, PassageAnswer, PathConflict


def diff_answer(found: Comparison) -> DiffAnswer:
    """Return what lies between two trees."""
    files = [_file_diff(told) for told in found.told]
    return DiffAnswer(from_tree=found.old, to_tree=found.new, files=files, left_out=found.left_out)


def _file_diff(told: Told) -> FileDiff:
    shown, exact = shown_path(told.path)
    return FileDiff(
        path=shown,
        path_base64=exact,
        change="modified" if told.is_there and told.was_there else "added" if told.is_there else "deleted",
        kind=told.kind,
        old_size=told.old_size,
        new_size=told.new_size,
        added_lines=told.patch.added,
        removed_lines=told.patch.removed,
        patch=told.patch.text,
        remark=told.patch.remark,
    )


def blame_answer(found: Blame) -> BlameAnswer:
    """Return what gave a file its content."""
    step, run = found.step, found.step.run if found.step else None
    asker = run.asker if run else None
    return BlameAnswer(
        path=shown_path(found.path)[0],
        digest=found.digest,
        by=None if step is None else "run" if run is not None else step.row.kind,
        at=timestamp(step.row.at) if step else None,
        run_id=run.id if run else None,
        said=run.said if run else None,
        created_by=asker.created_by if asker else None,
        agent=asker.agent if asker else None,
        key_name=asker.key_name if asker else None,
        sandbox_id=found.sandbox.id,
        through=[
            PassageAnswer(kind=each.kind, at=timestamp(each.at), sandbox_id=each.sandbox_id)
            for each in found.through
        ],
        forked_from=found.sandbox.forked_from,
        from_snapshot=found.sandbox.from_snapshot,
        passed_over=found.passed_over,
    )


def merge_answer(merged: Merged) -> MergeAnswer:
    """Return what came in."""
    return MergeAnswer(
        base=merged.base,
        ours=merged.ours,
        theirs=merged.theirs,
        tree=merged.tree,
        changes=changes_answer(merged.changes),
        conflicts=[_conflict(path, reason) for path, reason in merged.conflicts],
    )


def _conflict(path: str, reason: str) -> PathConflict:
    shown, exact = shown_path(path)
    return PathConflict(path=shown, path_base64=exact, reason=reason)
