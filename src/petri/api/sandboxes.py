"""/v1/sandboxes: create, look at, change, end."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from petri.api.bodies import JsonRoute
from petri.api.context import CallerOf, Cursor, HostOf, Limit, MetadataOf
from petri.api.problems import DOCUMENTED
from petri.api.shapes import event_answer, peers_of, run_answer, sandbox_answer, wish_of
from petri.api.shortcut import Short
from petri.ledger import SandboxQuery
from petri.model import LIVE, Limits, State
from petri.operations import Caller, Host, history
from petri.operations.amend import amend
from petri.operations.create import create
from petri.operations.destroy import destroy
from petri.wire import (
    CreateSandbox,
    EventList,
    LimitsRequest,
    PatchSandbox,
    RunList,
    SandboxAnswer,
    SandboxList,
)

router = APIRouter(prefix="/v1/sandboxes", route_class=JsonRoute, responses=DOCUMENTED, tags=["sandboxes"])

_NO_WISHES = CreateSandbox()
_NO_CHANGES = PatchSandbox()
StateName = Literal["creating", "ready", "deleting", "deleted", "all"]


@router.post(
    "",
    status_code=201,
    response_model=SandboxAnswer,
    responses={200: {"model": SandboxAnswer, "description": "It was there."}},
)
async def create_sandbox(request: Request, body: CreateSandbox = _NO_WISHES) -> Any:
    """Create a sandbox, or return the live one of that name (200)."""
    host: Host = request.app.state.host
    caller: Caller = request.state.caller
    sandbox, is_new = await create(host, caller, wish_of(body, caller.key_name))
    answer = sandbox_answer(sandbox, host.shares.remembered(sandbox.id))
    # As a finished response: FastAPI would check and convert what is known to be right.
    return Response(answer.model_dump_json(), 201 if is_new else 200, media_type="application/json")


SHORT = Short("POST", "/v1/sandboxes", create_sandbox, CreateSandbox)


@router.get("")
async def list_sandboxes(  # noqa: PLR0913 - each is a parameter of the contract
    host: HostOf,
    caller: CallerOf,
    metadata: MetadataOf,
    state: StateName | None = None,
    name: Annotated[str | None, Query(max_length=63)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> SandboxList:
    """List sandboxes, newest first: those that live, unless `state` says otherwise.

    `metadata.KEY=VALUE` keeps those that say so.
    """
    query = SandboxQuery(limit, cursor, _states(state), metadata, name)
    page = await history.sandboxes(host, caller, query)
    answers = [sandbox_answer(each, host.shares.remembered(each.id)) for each in page.items]
    return SandboxList(sandboxes=answers, next_cursor=page.next_cursor)


def _states(named: StateName | None) -> Collection[State] | None:
    if named is None:
        return LIVE
    return None if named == "all" else {State(named)}


@router.get("/{sandbox_id}")
async def show_sandbox(sandbox_id: str, host: HostOf, caller: CallerOf) -> SandboxAnswer:
    """Show one sandbox; ended ones too."""
    sandbox = await history.sandbox(host, caller, sandbox_id)
    return sandbox_answer(sandbox, await history.usage(host, sandbox))


@router.patch("/{sandbox_id}")
async def change_sandbox(
    sandbox_id: str, host: HostOf, caller: CallerOf, body: PatchSandbox = _NO_CHANGES
) -> SandboxAnswer:
    """Change a sandbox; what the body does not name stays."""
    sandbox = await amend(host, caller, sandbox_id, _changes(body, host.policy.limits))
    return sandbox_answer(sandbox, host.shares.remembered(sandbox.id))


@router.delete("/{sandbox_id}", status_code=204)
async def delete_sandbox(sandbox_id: str, host: HostOf, caller: CallerOf) -> None:
    """End a sandbox and everything in it; its history stays."""
    await destroy(host, caller, sandbox_id)


@router.get("/{sandbox_id}/runs")
async def list_runs(
    sandbox_id: str, host: HostOf, caller: CallerOf, limit: Limit = 50, cursor: Cursor = None
) -> RunList:
    """List a sandbox's runs, newest first."""
    page = await history.runs(host, caller, sandbox_id, limit, cursor)
    return RunList(runs=[run_answer(each) for each in page.items], next_cursor=page.next_cursor)


@router.get("/{sandbox_id}/events")
async def list_events(
    sandbox_id: str, host: HostOf, caller: CallerOf, limit: Limit = 50, cursor: Cursor = None
) -> EventList:
    """List what happened to a sandbox, oldest first."""
    page = await history.events(host, caller, sandbox_id, limit, cursor)
    return EventList(events=[event_answer(each) for each in page.items], next_cursor=page.next_cursor)


def _changes(body: PatchSandbox, defaults: Limits) -> dict[str, object]:
    """Return what the request names. `network` can only be `none` in this release, which it is."""
    given = body.model_dump(exclude_unset=True, exclude={"limits", "network", "peers"})
    if "limits" in body.model_fields_set:
        given["limits"] = _limits(body.limits, asdict(defaults))
    if "peers" in body.model_fields_set:
        given["peers"] = peers_of(body.peers or ())
    if "metadata" in given and given["metadata"] is None:
        given["metadata"] = {}
    return given


def _limits(asked: LimitsRequest | None, defaults: dict[str, float]) -> dict[str, float]:
    """Return what the request makes of limits: `null`, of one or of all, is the server's default again."""
    named = defaults if asked is None else asked.model_dump(exclude_unset=True)
    return {name: defaults[name] if named[name] is None else named[name] for name in named.keys() & defaults}
