"""Trees on the wire: what lies between two, who wrote what, and merging them."""

from typing import Literal

from pydantic import ConfigDict, Field

from petri.wire.runs import ChangesAnswer
from petri.wire.service import PathConflict
from petri.wire.values import Answer, Label, Request


class FileDiff(Answer):
    """What happened to one path."""

    path: str
    path_base64: str | None = None
    """The exact bytes, where they are not UTF-8."""
    change: str
    """`added`, `modified` or `deleted`."""
    kind: str
    """`file`, `link` or `folder`; of what is there now, or was."""
    old_size: int | None
    new_size: int | None
    added_lines: int
    removed_lines: int
    patch: str
    """This change as `git apply` and `patch` understand it; empty where it cannot be told by lines."""
    remark: str | None
    """What the patch leaves out, and why."""


class DiffAnswer(Answer):
    """What turns one tree into the other; the patches of all files, one after the other, are one patch."""

    from_tree: str
    to_tree: str
    files: list[FileDiff]
    left_out: int
    """Changes that are not listed, since there are too many."""


class PassageAnswer(Answer):
    """Something that had the files of a sandbox be what they were at another moment."""

    kind: str
    """`files.restore`, `files.undo`, `files.merge`, `fork` or `from_snapshot`."""
    at: str
    sandbox_id: str
    """Whose files it changed."""


class BlameAnswer(Answer):
    """What gave a file its present content."""

    path: str
    digest: str | None
    """BLAKE3 of the content; null for a link."""
    by: str | None
    """`run`, or the kind of event: `files.written` for an upload; null if nothing on record did."""
    at: str | None
    run_id: str | None
    said: str | None
    """The filename, command or code of the run."""
    created_by: str | None
    agent: str | None
    key_name: str | None
    sandbox_id: str
    """Where that was: this sandbox, or one whose files came here by `through`."""
    through: list[PassageAnswer]
    """What brought the content from there to here, the latest first; it was not written anew."""
    forked_from: str | None
    """The sandbox whose files `sandbox_id` began with; look there, if nothing on record did."""
    from_snapshot: str | None
    """The snapshot whose files `sandbox_id` began with."""
    passed_over: int
    """Later events of which nobody can tell whether they did: their lists were cut, their trees are gone."""


class MergeRequest(Request):
    """Body of `POST /v1/sandboxes/{id}/merge`."""

    model_config = ConfigDict(populate_by_name=True)

    from_: Label = Field(alias="from")
    """A sandbox (`sb-…`), a snapshot (`snap-…`) or a tree, whose changes are to come in."""
    base: Label | None = None
    """What both come from: a run (`run-…:before`), a snapshot or a tree. Of a fork it is known."""
    prefer: Literal["ours", "theirs"] | None = None
    """Who wins where both changed the same path; by default nobody, and nothing is done."""


class MergeAnswer(Answer):
    """What came in."""

    base: str
    ours: str
    theirs: str
    tree: str
    """What the files are now."""
    changes: ChangesAnswer
    conflicts: list[PathConflict]
    """Those that were decided as `prefer` says."""
