"""What the rooms know, in the shapes of the wire."""

import base64
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from petri.engine import Layer
from petri.ledger import HistoryRow
from petri.model import Asker, Changes, Kept, Key, Limits, Packages, Peer, Run, Sandbox
from petri.operations.command import Ask
from petri.operations.create import Wish
from petri.operations.history import Told
from petri.operations.languages import Language
from petri.operations.shares import Measured
from petri.operations.tenants import Standing
from petri.wire import (
    ChangesAnswer,
    CreateSandbox,
    DiskUsage,
    EntryAnswer,
    EventAnswer,
    ExecAnswer,
    ExecFields,
    ExecRequest,
    KeptAnswer,
    KeyAnswer,
    LanguageAnswer,
    LayerAnswer,
    LimitsAnswer,
    NetworkAnswer,
    NewKey,
    NotInstalled,
    PeerAnswer,
    PeerRequest,
    QuotasAnswer,
    RunAnswer,
    SandboxAnswer,
    SeenPeerAnswer,
    TenantAnswer,
    TenantUsage,
    UsageAnswer,
)
from petri.workspace import Entry

_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799
"""The years 1 and 9999, beyond which no calendar of ours goes."""


def timestamp(seconds: float) -> str:
    """Return a time as RFC 3339 has it, in UTC."""
    seconds = min(max(seconds, _EARLIEST), _LATEST)  # a program may give its files any time at all
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp(seconds)


def wish_of(body: CreateSandbox, key_name: str | None) -> Wish:
    """Return what a request to create asks for."""
    return Wish(
        language=body.language,
        name=body.name,
        engine=body.engine,
        lifetime=body.lifetime,
        ttl_s=body.ttl_s,
        idle_s=body.idle_s,
        limits=body.limits.model_dump(exclude_none=True),
        env=body.env,
        metadata=body.metadata,
        peers=peers_of(body.peers),
        asker=Asker(body.created_by, body.agent, key_name),
        from_snapshot=body.from_snapshot,
    )


def ask_of(body: ExecFields, key_name: str | None) -> Ask:
    """Return what a request to run asks for."""
    return Ask(
        filename=body.filename,
        command=body.command,
        code=body.code,
        language=body.language,
        args=body.args,
        stdin=(body.stdin or "").encode(),
        env=body.env,
        cwd=body.cwd,
        timeout_s=body.timeout_s if body.timeout_s is not None else body.timeout,
        limits=body.limits.model_dump(exclude_none=True) if isinstance(body, ExecRequest) else {},
        engine=body.engine,
        keep=body.keep,
        dependencies=body.dependencies,
        missing=body.missing,
        asker=Asker(body.created_by, body.agent, key_name),
    )


def sandbox_answer(sandbox: Sandbox, measured: Measured | None) -> SandboxAnswer:
    """Return a sandbox as the API shows it, with what it took of the disk when it was last measured."""
    expiry = None if sandbox.ended_at is not None else sandbox.expiry()
    return SandboxAnswer(
        id=sandbox.id,
        name=sandbox.name,
        language=sandbox.language,
        state=sandbox.state,
        engine=sandbox.engine,
        image=None,
        lifetime=sandbox.lifetime,
        created_at=timestamp(sandbox.created_at),
        last_active_at=timestamp(sandbox.last_active_at),
        expires_at=timestamp(expiry[0]) if expiry else None,
        expires_because=expiry[1] if expiry else None,
        ended_at=_moment(sandbox.ended_at),
        ended_because=sandbox.ended_because,
        ttl_s=sandbox.ttl_s,
        idle_s=sandbox.idle_s,
        limits=_limits(sandbox.limits),
        usage=_disk_usage(measured) if measured else None,
        network=NetworkAnswer(),
        env_names=sorted(sandbox.env),
        metadata=dict(sandbox.metadata),
        peers=[_peer_answer(peer) for peer in sandbox.peers],
        created_by=sandbox.asker.created_by,
        agent=sandbox.asker.agent,
        key_name=sandbox.asker.key_name,
        # What is to be there is what whoever uses the files will find.
        tree=sandbox.becoming or sandbox.tree,
        first_tree=sandbox.first_tree,
        forked_from=sandbox.forked_from,
        from_snapshot=sandbox.from_snapshot,
        environment=sandbox.environment,
    )


def _disk_usage(measured: Measured) -> DiskUsage:
    used = measured.used
    return DiskUsage(disk_bytes=used.disk_bytes, inodes=used.inodes, measured_at=timestamp(measured.at))


def _limits(limits: Limits) -> LimitsAnswer:
    return LimitsAnswer(**asdict(limits))


def exec_answer(told: Told) -> ExecAnswer:
    """Return how a run ended, as its caller is told."""
    run, outcome = told.run, told.run.outcome
    return ExecAnswer(
        run_id=run.id,
        sandbox_id=run.sandbox_id,
        state=run.state,
        exit_code=outcome.exit_code if outcome else None,
        signal=outcome.signal if outcome else None,
        signal_name=_signal_name(outcome.signal if outcome else None),
        timed_out=bool(outcome and outcome.timed_out),
        oom_killed=bool(outcome and outcome.oom_killed),
        disk_full=bool(outcome and outcome.disk_full),
        cancelled=run.state == "cancelled",
        remark=outcome.remark if outcome else None,
        stdout=told.stdout.text(),
        stderr=told.stderr.text(),
        stdout_truncated=_is_truncated(told.stdout.truncated, run.stdout),
        stderr_truncated=_is_truncated(told.stderr.truncated, run.stderr),
        stdout_bytes=max(run.stdout.total_bytes, told.stdout.total_bytes),
        stderr_bytes=max(run.stderr.total_bytes, told.stderr.total_bytes),
        duration_ms=outcome.duration_ms if outcome else 0.0,
        usage=UsageAnswer(
            cpu_ms=outcome.usage.cpu_ms if outcome else 0.0,
            peak_memory_bytes=outcome.usage.peak_memory_bytes if outcome else 0,
        ),
        tree_before=run.tree_before,
        tree_after=run.tree_after,
        changes=_changes(run.changes),
        keep=run.keep,
        kept=run.kept,
        peers=_seen_peers(run),
        environment=run.environment,
        installed=list(run.packages.installed) if run.packages else [],
        not_installed=not_installed(run.packages),
        repeated=run.packages is not None and run.packages.repeated,
    )


def not_installed(packages: Packages | None) -> list[NotInstalled]:
    """Return what a run seemed to want and did not get."""
    missing = packages.missing if packages is not None else ()
    return [NotInstalled(name=each.name, why=each.why, suggestion=each.suggestion) for each in missing]


def _is_truncated(cut: bool, kept: Kept) -> bool:  # noqa: FBT001 - one fact of two, both about one stream
    return cut or kept.total_bytes > kept.kept_bytes


def run_answer(run: Run) -> RunAnswer:
    """Return a run as the record has it."""
    outcome = run.outcome
    return RunAnswer(
        run_id=run.id,
        sandbox_id=run.sandbox_id,
        state=run.state,
        form=run.form,
        said=run.said,
        argv=list(run.argv),
        cwd=run.cwd,
        language=run.language,
        engine=run.engine,
        env_names=list(run.env_names),
        stdin_bytes=run.stdin_bytes,
        timeout_s=run.timeout_s,
        created_by=run.asker.created_by,
        agent=run.asker.agent,
        key_name=run.asker.key_name,
        asked_at=timestamp(run.asked_at),
        started_at=_moment(run.started_at),
        ended_at=_moment(run.ended_at),
        exit_code=outcome.exit_code if outcome else None,
        signal=outcome.signal if outcome else None,
        signal_name=_signal_name(outcome.signal if outcome else None),
        limits=None if run.limits is None else _limits(run.limits),
        timed_out=bool(outcome and outcome.timed_out),
        oom_killed=bool(outcome and outcome.oom_killed),
        disk_full=bool(outcome and outcome.disk_full),
        cancelled=run.state == "cancelled",
        remark=outcome.remark if outcome else None,
        duration_ms=outcome.duration_ms if outcome else None,
        usage=UsageAnswer(cpu_ms=outcome.usage.cpu_ms, peak_memory_bytes=outcome.usage.peak_memory_bytes)
        if outcome
        else None,
        stdout=_kept(run.stdout),
        stderr=_kept(run.stderr),
        failure=run.failure,
        tree_before=run.tree_before,
        tree_after=run.tree_after,
        changes=_changes(run.changes),
        undone_at=_moment(run.undone_at),
        keep=run.keep,
        kept=run.kept,
        peers=_seen_peers(run),
        environment=run.environment,
        installed=list(run.packages.installed) if run.packages else [],
        not_installed=not_installed(run.packages),
        repeated=run.packages is not None and run.packages.repeated,
    )


def _seen_peers(run: Run) -> list[SeenPeerAnswer]:
    return [SeenPeerAnswer(sandbox=peer.sandbox_id, at=peer.at, tree=peer.tree) for peer in run.peers]


def _peer_answer(peer: Peer) -> PeerAnswer:
    return PeerAnswer(sandbox=peer.sandbox_id, at=peer.at, tree=peer.tree, snapshot=peer.snapshot)


def peers_of(asked: Iterable[PeerRequest]) -> tuple[Peer, ...]:
    """Return the peers that a request asks for."""
    return tuple(Peer(each.sandbox, each.at, each.tree, each.snapshot) for each in asked)


def _changes(changes: Changes | None) -> ChangesAnswer | None:
    return None if changes is None else changes_answer(changes)


def changes_answer(changes: Changes) -> ChangesAnswer:
    """Return what happened to files, by path."""
    return ChangesAnswer(
        added=list(changes.added),
        modified=list(changes.modified),
        deleted=list(changes.deleted),
        left_out=changes.left_out,
    )


def _kept(kept: Kept) -> KeptAnswer:
    return KeptAnswer(bytes=kept.total_bytes, kept_bytes=kept.kept_bytes, digest=kept.digest)


def _signal_name(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def event_answer(row: HistoryRow) -> EventAnswer:
    """Return a row of the history."""
    return EventAnswer(
        number=row.number, at=timestamp(row.at), kind=row.kind, run_id=row.run_id, detail=dict(row.detail)
    )


def key_answer(key: Key) -> KeyAnswer:
    """Return a key as an administrator sees it."""
    state = "live" if key.opens(time.time()) else "expired" if key.revoked_at is None else "revoked"
    return KeyAnswer(
        id=key.id,
        name=key.name,
        tenant=key.tenant,
        scope=key.scope,
        state=state,
        created_at=timestamp(key.created_at),
        expires_at=_moment(key.expires_at),
        last_used_at=_moment(key.last_used_at),
        revoked_at=_moment(key.revoked_at),
    )


def new_key(key: Key, text: str) -> NewKey:
    """Return a key with its text, this once."""
    return NewKey(**key_answer(key).model_dump(), key=text)


def tenant_answer(standing: Standing) -> TenantAnswer:
    """Return a tenant with what it may have and what it has."""
    tenant, quotas, use = standing.tenant, standing.quotas, standing.use
    return TenantAnswer(
        name=tenant.name,
        created_at=timestamp(tenant.created_at),
        quotas=QuotasAnswer(sandboxes=quotas.sandboxes, runs=quotas.runs, disk_bytes=quotas.disk_bytes),
        own_quotas=sorted(tenant.own),
        usage=TenantUsage(
            sandboxes=use.sandboxes,
            runs=use.runs,
            disk_bytes=use.disk_bytes,
            store_bytes=use.store_bytes,
        ),
    )


def shown_path(path: str) -> tuple[str, str | None]:
    """Return a path as text, and its bytes in base64 if it is not UTF-8."""
    raw = path.encode("utf-8", "surrogateescape")
    try:
        return raw.decode(), None
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), base64.b64encode(raw).decode()


def entry_answer(entry: Entry) -> EntryAnswer:
    """Return an entry of a workspace."""
    path, exact = shown_path(entry.path)
    return EntryAnswer(
        path=path,
        kind=entry.kind,
        size=entry.size,
        mode=f"{entry.mode:04o}",
        modified_at=timestamp(entry.modified_at),
        target=None if entry.target is None else shown_path(entry.target)[0],
        path_base64=exact,
    )


def language_answer(language: Language) -> LanguageAnswer:
    """Return a language and whether it is to be had."""
    return LanguageAnswer(
        name=language.name,
        available=language.needs is None,
        version=language.version,
        endings=list(language.endings),
        needs=language.needs,
    )


def layer_answer(layer: Layer) -> LayerAnswer:
    """Return a protective layer."""
    return LayerAnswer(name=layer.name, on=layer.on, says=layer.says, remedy=layer.remedy)
