"""/v1/sandboxes/{id}/diff, /blame and /merge: what differs, who wrote it, and bringing two together."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from petri.api.bodies import JsonRoute
from petri.api.context import CallerOf, HostOf, ListedPath
from petri.api.presence import while_there
from petri.api.problems import DOCUMENTED
from petri.api.tree_shapes import blame_answer, diff_answer, merge_answer
from petri.operations.blaming import blame
from petri.operations.comparing import compare
from petri.operations.merging import Merging, merge
from petri.wire import BlameAnswer, DiffAnswer, MergeAnswer, MergeRequest

router = APIRouter(
    prefix="/v1/sandboxes/{sandbox_id}", route_class=JsonRoute, responses=DOCUMENTED, tags=["trees"]
)

_MOMENT = "`now`, a run (`run-…`, or `run-…:before`), a snapshot, another sandbox or a tree."
Moment = Annotated[str | None, Query(max_length=100, description=_MOMENT)]


@router.get("/diff")
async def show_diff(
    sandbox_id: str,
    request: Request,
    host: HostOf,
    caller: CallerOf,
    from_: Annotated[str | None, Query(alias="from", max_length=100, description=_MOMENT)] = None,
    to: Moment = None,
) -> DiffAnswer:
    """Tell what lies between two trees; by default from before the last run until now."""
    errand = host.workspaces.errand()
    comparing = compare(host, caller, sandbox_id, (from_, to), errand)
    return diff_answer(await while_there(request, errand.call_off, comparing))


@router.get("/blame")
async def show_blame(sandbox_id: str, host: HostOf, caller: CallerOf, path: ListedPath) -> BlameAnswer:
    """Tell which run, upload or restore gave the file at `path` what it holds now."""
    return blame_answer(await blame(host, caller, sandbox_id, path))


@router.post("/merge")
async def merge_into(sandbox_id: str, body: MergeRequest, host: HostOf, caller: CallerOf) -> MergeAnswer:
    """Bring the changes of a fork, a snapshot or a tree into the sandbox; all of them, or none."""
    merging = Merging(body.from_, body.base, body.prefer)
    return merge_answer(await merge(host, caller, sandbox_id, merging))
