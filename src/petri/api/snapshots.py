"""/v1/snapshots, and of a sandbox: snapshots, restore, undo and fork."""

from fastapi import APIRouter

from petri.api.bodies import JsonRoute
from petri.api.context import CallerOf, Cursor, HostOf, Limit
from petri.api.problems import DOCUMENTED
from petri.api.shapes import sandbox_answer, timestamp
from petri.ledger import Page
from petri.model import Asker, Snapshot
from petri.operations import fork, restore, snapshots
from petri.wire import (
    ForkAnswer,
    ForkRequest,
    RestoreAnswer,
    RestoreRequest,
    SnapshotAnswer,
    SnapshotList,
    SnapshotRequest,
)

router = APIRouter(prefix="/v1", route_class=JsonRoute, responses=DOCUMENTED, tags=["snapshots"])

_UNNAMED = SnapshotRequest()
_ONE_FORK = ForkRequest()


@router.post("/sandboxes/{sandbox_id}/snapshots", status_code=201)
async def take_snapshot(
    sandbox_id: str, host: HostOf, caller: CallerOf, body: SnapshotRequest = _UNNAMED
) -> SnapshotAnswer:
    """Keep the files of a sandbox as they are now, for as long as the snapshot is there."""
    asker = Asker(body.created_by, body.agent, caller.key_name)
    return _answer(await snapshots.take(host, caller, sandbox_id, body.name, asker))


@router.get("/sandboxes/{sandbox_id}/snapshots")
async def list_snapshots_of(
    sandbox_id: str, host: HostOf, caller: CallerOf, limit: Limit = 50, cursor: Cursor = None
) -> SnapshotList:
    """List the snapshots of a sandbox, newest first."""
    return _list(await snapshots.listing(host, caller, sandbox_id, limit, cursor))


@router.get("/snapshots")
async def list_snapshots(
    host: HostOf, caller: CallerOf, limit: Limit = 50, cursor: Cursor = None
) -> SnapshotList:
    """List all snapshots, newest first; those of sandboxes that have ended, too."""
    return _list(await snapshots.listing(host, caller, None, limit, cursor))


@router.get("/snapshots/{snapshot}")
async def show_snapshot(snapshot: str, host: HostOf, caller: CallerOf) -> SnapshotAnswer:
    """Show one snapshot, by its id or its name."""
    return _answer(await snapshots.show(host, caller, snapshot))


@router.delete("/snapshots/{snapshot}", status_code=204)
async def delete_snapshot(snapshot: str, host: HostOf, caller: CallerOf) -> None:
    """Delete a snapshot. Sandboxes that were made from it stay as they are."""
    await snapshots.delete(host, caller, snapshot)


@router.post("/sandboxes/{sandbox_id}/restore")
async def restore_files(
    sandbox_id: str, body: RestoreRequest, host: HostOf, caller: CallerOf
) -> RestoreAnswer:
    """Have the files of a sandbox be what they were in a snapshot, before or after a run, or at a tree."""
    wish = restore.Wish(body.snapshot, body.run, body.side or "before", body.tree)
    return _restored(await restore.restore(host, caller, sandbox_id, wish))


@router.post("/sandboxes/{sandbox_id}/undo")
async def undo_run(sandbox_id: str, host: HostOf, caller: CallerOf) -> RestoreAnswer:
    """Have the files of a sandbox be what they were before the last run that changed them; says which."""
    return _restored(await restore.undo(host, caller, sandbox_id))


@router.post("/sandboxes/{sandbox_id}/fork", status_code=201)
async def fork_sandbox(
    sandbox_id: str, host: HostOf, caller: CallerOf, body: ForkRequest = _ONE_FORK
) -> ForkAnswer:
    """Make new sandboxes with the files, limits and variables of this one; all of them, or none."""
    asker = Asker(body.created_by, body.agent, caller.key_name)
    wish = fork.Wish(body.n, body.name, body.metadata, body.idle_s, asker)
    children = await fork.fork(host, caller, sandbox_id, wish)
    answers = [sandbox_answer(each, host.shares.remembered(each.id)) for each in children]
    return ForkAnswer(sandboxes=answers, tree=children[0].first_tree or "")


def _answer(snapshot: Snapshot) -> SnapshotAnswer:
    return SnapshotAnswer(
        id=snapshot.id,
        name=snapshot.name,
        tree=snapshot.tree,
        sandbox_id=snapshot.sandbox_id,
        created_at=timestamp(snapshot.created_at),
        created_by=snapshot.asker.created_by,
        agent=snapshot.asker.agent,
        key_name=snapshot.asker.key_name,
    )


def _list(page: Page[Snapshot]) -> SnapshotList:
    return SnapshotList(snapshots=[_answer(each) for each in page.items], next_cursor=page.next_cursor)


def _restored(done: restore.Restored) -> RestoreAnswer:
    return RestoreAnswer(
        sandbox_id=done.sandbox_id,
        tree=done.tree,
        was=done.was,
        run_id=done.run,
        snapshot_id=done.snapshot,
        packages_gone=list(done.packages_gone),
        packages_back=list(done.packages_back),
    )
