"""Rows to nouns and back. Pure.

Text is made storable here: a lone surrogate, which no database holds as UTF-8, becomes U+FFFD.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Protocol

from petri.model import (
    Addition,
    Asker,
    Changes,
    Kept,
    Key,
    Limits,
    Missing,
    Outcome,
    Packages,
    Peer,
    Run,
    RunState,
    Sandbox,
    Scope,
    SeenPeer,
    Snapshot,
    State,
    Tenant,
    Usage,
)

Values = dict[str, Any]


class Row(Protocol):
    """What was read, or is about to be written: a value for each column."""

    def __getitem__(self, column: str, /) -> Any: ...


def of_sandbox(sandbox: Sandbox) -> Values:
    """Return the columns of `sandbox`; its number is left to the database."""
    return storable(
        {
            "id": sandbox.id,
            "tenant": sandbox.tenant,
            "name": sandbox.name,
            "language": sandbox.language,
            "engine": sandbox.engine,
            "lifetime": sandbox.lifetime,
            "limits": of_limits(sandbox.limits),
            "env": dict(sandbox.env),
            "metadata": dict(sandbox.metadata),
            "state": sandbox.state.value,
            "generation": sandbox.generation,
            "ttl_s": sandbox.ttl_s,
            "idle_s": sandbox.idle_s,
            "created_at": sandbox.created_at,
            "last_active_at": sandbox.last_active_at,
            "ended_at": sandbox.ended_at,
            "ended_because": sandbox.ended_because,
            "tree": sandbox.tree,
            "becoming": sandbox.becoming,
            "forked_from": sandbox.forked_from,
            "from_snapshot": sandbox.from_snapshot,
            "first_tree": sandbox.first_tree,
            "peers": [asdict(peer) for peer in sandbox.peers],
            "environment": sandbox.environment,
            "added": of_added(sandbox.added),
            **_of_asker(sandbox.asker),
        }
    )


def to_sandbox(row: Row) -> Sandbox:
    """Return the sandbox that `row` holds."""
    return Sandbox(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        language=row["language"],
        engine=row["engine"],
        lifetime=row["lifetime"],
        limits=Limits(**row["limits"]),
        env=row["env"],
        metadata=row["metadata"],
        state=State(row["state"]),
        generation=row["generation"],
        number=row["number"],
        ttl_s=row["ttl_s"],
        idle_s=row["idle_s"],
        created_at=row["created_at"],
        last_active_at=row["last_active_at"],
        ended_at=row["ended_at"],
        ended_because=row["ended_because"],
        asker=_to_asker(row),
        tree=row["tree"],
        becoming=row["becoming"],
        forked_from=row["forked_from"],
        from_snapshot=row["from_snapshot"],
        first_tree=row["first_tree"],
        peers=tuple(Peer(**peer) for peer in row["peers"] or ()),
        environment=row["environment"],
        added=_to_added(row["added"]),
    )


def of_run(run: Run) -> tuple[Values, Run]:
    """Return the columns of `run`, and the run as they hold it."""
    said = {
        "id": run.id,
        "sandbox_id": run.sandbox_id,
        "tenant": run.tenant,
        "form": run.form,
        "said": run.said,
        "argv": list(run.argv),
        "cwd": run.cwd,
        "language": run.language,
        "engine": run.engine,
        "env_names": list(run.env_names),
        "stdin_bytes": run.stdin_bytes,
        "timeout_s": run.timeout_s,
        "limits": None if run.limits is None else of_limits(run.limits),
        "asked_at": run.asked_at,
        "undone_at": run.undone_at,
        "keep": run.keep,
        **_of_asker(run.asker),
    }
    held = storable(said)
    columns = {**held, **of_progress(run)}
    return columns, run if held == said else to_run(columns)


def of_progress(run: Run) -> Values:
    """Return those columns of `run` that change while it lives, storable."""
    return {
        "state": run.state.value,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "failure": None if run.failure is None else text(run.failure),
        "tree_before": run.tree_before,
        "tree_after": run.tree_after,
        "kept": run.kept,
        "peers": [storable(asdict(peer)) for peer in run.peers],
        "changes": None if run.changes is None else _of_changes(run.changes),
        "environment": run.environment,
        "packages": None if run.packages is None else storable(asdict(run.packages)),
        **_of_outcome(run.outcome),
        **_of_kept("stdout", run.stdout),
        **_of_kept("stderr", run.stderr),
    }


def to_run(row: Row) -> Run:
    """Return the run that `row` holds."""
    return Run(
        id=row["id"],
        sandbox_id=row["sandbox_id"],
        tenant=row["tenant"],
        form=row["form"],
        said=row["said"],
        argv=tuple(row["argv"]),
        cwd=row["cwd"],
        timeout_s=row["timeout_s"],
        engine=row["engine"],
        asked_at=row["asked_at"],
        limits=None if row["limits"] is None else Limits(**row["limits"]),
        asker=_to_asker(row),
        language=row["language"],
        env_names=tuple(row["env_names"]),
        stdin_bytes=row["stdin_bytes"],
        state=RunState(row["state"]),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        outcome=_to_outcome(row),
        stdout=_to_kept("stdout", row),
        stderr=_to_kept("stderr", row),
        failure=row["failure"],
        tree_before=row["tree_before"],
        tree_after=row["tree_after"],
        changes=_to_changes(row["changes"]),
        environment=row["environment"],
        packages=_to_packages(row["packages"]),
        undone_at=row["undone_at"],
        keep=row["keep"] or "always",
        kept=row["kept"],
        peers=tuple(SeenPeer(**peer) for peer in row["peers"] or ()),
    )


def of_snapshot(snapshot: Snapshot) -> Values:
    """Return the columns of `snapshot`."""
    return storable(
        {
            "id": snapshot.id,
            "tenant": snapshot.tenant,
            "name": snapshot.name,
            "tree": snapshot.tree,
            "sandbox_id": snapshot.sandbox_id,
            "created_at": snapshot.created_at,
            "added": of_added(snapshot.added),
            **_of_asker(snapshot.asker),
        }
    )


def to_snapshot(row: Row) -> Snapshot:
    """Return the snapshot that `row` holds."""
    return Snapshot(
        id=row["id"],
        tenant=row["tenant"],
        tree=row["tree"],
        sandbox_id=row["sandbox_id"],
        created_at=row["created_at"],
        name=row["name"],
        asker=_to_asker(row),
        added=_to_added(row["added"]),
    )


def of_key(key: Key) -> Values:
    """Return the columns of `key`."""
    return storable(
        {
            "id": key.id,
            "tenant": key.tenant,
            "name": key.name,
            "scope": key.scope.value,
            "digest": key.digest,
            "created_at": key.created_at,
            "expires_at": key.expires_at,
            "last_used_at": key.last_used_at,
            "revoked_at": key.revoked_at,
        }
    )


def to_key(row: Row) -> Key:
    """Return the key that `row` holds."""
    return Key(
        id=row["id"],
        name=row["name"],
        tenant=row["tenant"],
        scope=Scope(row["scope"]),
        digest=row["digest"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        last_used_at=row["last_used_at"],
        revoked_at=row["revoked_at"],
    )


def to_tenant(row: Row) -> Tenant:
    """Return the tenant that `row` holds."""
    return Tenant(name=row["name"], created_at=row["created_at"], own=row["quotas"])


def of_limits(limits: Limits) -> Values:
    """Return `limits` as JSON."""
    return {name: getattr(limits, name) for name in _LIMITS}


_LIMITS = tuple(field.name for field in fields(Limits))


def text(words: str) -> str:
    """Return `words` with every lone surrogate in them replaced."""
    if words.isascii():
        return words
    # By way of UTF-16, two surrogates that belong together become the character they stand for.
    return words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def storable(values: Mapping[str, Any]) -> Values:
    """Return `values` with all words in them as `text` has them, however deep they sit."""
    # Most are plain, and told so here: a call for each takes longer than all else that is done to them.
    return {
        name if name.isascii() else text(name): value
        if (kind := type(value)) in _PLAIN or (kind is str and value.isascii())
        else _storable(value)
        for name, value in values.items()
    }


_PLAIN = frozenset({int, float, bool, type(None)})


def _storable(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list | tuple):
        return [_storable(one) for one in value]
    if isinstance(value, Mapping):
        return storable(value)
    return value


def _of_changes(changes: Changes) -> Values:
    paths = {"added": changes.added, "modified": changes.modified, "deleted": changes.deleted}
    return {**storable(paths), "left_out": changes.left_out}


def _to_changes(kept: Mapping[str, Any] | None) -> Changes | None:
    if kept is None:
        return None
    paths = {kind: tuple(kept[kind]) for kind in ("added", "modified", "deleted")}
    return Changes(**paths, left_out=kept["left_out"])


def _to_packages(kept: Mapping[str, Any] | None) -> Packages | None:
    if kept is None:
        return None
    return Packages(
        installed=tuple(kept["installed"]),
        missing=tuple(Missing(**each) for each in kept["missing"]),
        source=kept["source"],
        why=kept["why"],
        because={name: tuple(lines) for name, lines in kept["because"].items()},
        repeated=kept.get("repeated", False),
    )


UNDONE = "undone"
"""Marks what a run asked for that was gone back behind: it is not there, until somebody comes back."""


def of_added(added: Sequence[Addition]) -> list[Values]:
    """Return packages that were asked for as JSON."""
    return [storable(asdict(each)) for each in added]


def _to_added(kept: Sequence[Mapping[str, Any]] | None) -> tuple[Addition, ...]:
    entries = ({**each} for each in kept or ())
    return tuple(Addition(**each) for each in entries if not each.pop(UNDONE, False))


def _of_asker(asker: Asker) -> Values:
    return {"created_by": asker.created_by, "agent": asker.agent, "key_name": asker.key_name}


def _to_asker(row: Row) -> Asker:
    return Asker(created_by=row["created_by"], agent=row["agent"], key_name=row["key_name"])


def _of_outcome(outcome: Outcome | None) -> Values:
    if outcome is None:
        return dict.fromkeys(_OUTCOME)
    return {
        "duration_ms": outcome.duration_ms,
        "cpu_ms": outcome.usage.cpu_ms,
        "peak_memory_bytes": outcome.usage.peak_memory_bytes,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "timed_out": outcome.timed_out,
        "oom_killed": outcome.oom_killed,
        "cancelled": outcome.cancelled,
        "disk_full": outcome.disk_full,
        "remark": None if outcome.remark is None else text(outcome.remark),
    }


_OUTCOME = (
    *("duration_ms", "cpu_ms", "peak_memory_bytes", "exit_code", "signal", "timed_out", "oom_killed"),
    *("cancelled", "disk_full", "remark"),
)


def _to_outcome(row: Row) -> Outcome | None:
    if row["duration_ms"] is None:
        return None
    return Outcome(
        duration_ms=row["duration_ms"],
        usage=Usage(cpu_ms=row["cpu_ms"], peak_memory_bytes=row["peak_memory_bytes"]),
        exit_code=row["exit_code"],
        signal=row["signal"],
        timed_out=row["timed_out"],
        oom_killed=row["oom_killed"],
        cancelled=row["cancelled"],
        disk_full=bool(row["disk_full"]),
        remark=row["remark"],
    )


def _of_kept(stream: str, kept: Kept) -> Values:
    return {
        f"{stream}_bytes": kept.total_bytes,
        f"{stream}_kept_bytes": kept.kept_bytes,
        f"{stream}_digest": kept.digest,
    }


def _to_kept(stream: str, row: Row) -> Kept:
    return Kept(
        total_bytes=row[f"{stream}_bytes"],
        kept_bytes=row[f"{stream}_kept_bytes"],
        digest=row[f"{stream}_digest"],
    )
