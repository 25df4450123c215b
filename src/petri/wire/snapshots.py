"""Snapshots, forks and going back, on the wire."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator
from pydantic.config import JsonDict

from petri.wire.sandboxes import SandboxAnswer
from petri.wire.values import ADDRESS, Answer, ForkName, Label, Metadata, Name, Request, Seconds

MOST_FORKS = 16
TreeAddress = Annotated[str, StringConstraints(pattern=ADDRESS)]

_ONE_GOAL: JsonDict = {
    "oneOf": [
        {"required": [name], "properties": {name: {"type": "string"}}} for name in ("snapshot", "run", "tree")
    ]
}


class SnapshotRequest(Request):
    """Body of `POST /v1/sandboxes/{id}/snapshots`; everything is optional."""

    name: Name | None = None
    """Unique among the snapshots of a tenant."""
    created_by: Label | None = None
    agent: Label | None = None


class RestoreRequest(Request):
    """Body of `POST /v1/sandboxes/{id}/restore`: exactly one of `snapshot`, `run` and `tree`."""

    model_config = ConfigDict(json_schema_extra=_ONE_GOAL)

    snapshot: Label | None = None
    """A snapshot of the tenant's, by its id or its name."""
    run: Label | None = None
    """A run of this sandbox: what the files were before it."""
    side: Literal["before", "after"] | None = None
    """With `run`: `after` for what the files were when it had ended."""
    tree: TreeAddress | None = None
    """A tree that the files of this sandbox were at some time, as runs and answers name it."""

    @model_validator(mode="after")
    def _one_goal(self) -> "RestoreRequest":
        goals = [name for name in ("snapshot", "run", "tree") if getattr(self, name) is not None]
        if len(goals) != 1:
            given = " and ".join(goals) if goals else "none of them"
            raise ValueError(f"give exactly one of `snapshot`, `run` and `tree`; this request has {given}")
        if self.side is not None and self.run is None:
            raise ValueError("`side` says which side of a `run` is meant: give it with `run` only")
        return self


class ForkRequest(Request):
    """Body of `POST /v1/sandboxes/{id}/fork`; everything is optional."""

    n: Annotated[int, Field(ge=1, le=MOST_FORKS)] = 1
    """How many."""
    name: ForkName | None = None
    """The name of the fork; several are called `name-1`, `name-2` and so on."""
    metadata: Metadata | None = None
    """Instead of the metadata of the sandbox that is forked."""
    idle_s: Seconds | None = None
    """Ends each fork this long after it was last used."""
    created_by: Label | None = None
    agent: Label | None = None


class SnapshotAnswer(Answer):
    """A snapshot: a name for the files that a sandbox had at one moment."""

    id: str
    name: str | None
    tree: str
    """Address of the files."""
    sandbox_id: str
    """Whose files they were; it may have ended."""
    created_at: str
    created_by: str | None
    agent: str | None
    key_name: str | None
    """The key that asked for it."""


class SnapshotList(Answer):
    """A page of snapshots, newest first."""

    snapshots: list[SnapshotAnswer]
    next_cursor: str | None
    """Pass as `cursor` for the next page; null on the last."""


class RestoreAnswer(Answer):
    """What the files of a sandbox are now, and what they were."""

    sandbox_id: str
    tree: str
    """What they are."""
    was: str
    """What they were: restore that `tree` to take this back."""
    run_id: str | None
    """The run that was gone back behind, or to."""
    snapshot_id: str | None
    packages_gone: list[str] = []
    """Packages that runs had asked for (`pip install`) and that later runs do not have any more."""
    packages_back: list[str] = []
    """Packages that later runs have again."""


class ForkAnswer(Answer):
    """New sandboxes with the files of another. Whoever uses those first may have to wait for them."""

    sandboxes: list[SandboxAnswer]
    tree: str
    """Address of the files they begin with."""
