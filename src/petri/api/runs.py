"""/v1/runs: what ran, what it wrote, and how to watch or end it."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from petri.api import streams
from petri.api.context import CallerOf, HostOf
from petri.api.downloads import bytes_response
from petri.api.problems import DOCUMENTED
from petri.api.shapes import run_answer
from petri.api.streams import Point, run_stream
from petri.model import Stream
from petri.operations import Caller, Host, history
from petri.operations.cancel import cancel
from petri.wire import RunAnswer

router = APIRouter(prefix="/v1/runs", responses=DOCUMENTED, tags=["runs"])

_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_RAW: dict[int | str, dict[str, Any]] = {
    200: {"description": "The exact bytes.", "content": {"application/octet-stream": _BYTES}}
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The run's events.", "content": streams.DOCUMENTED}
}
Position = Annotated[int | None, Query(alias="from", ge=0, le=2**53, description="Replay what comes after.")]


@router.get("/{run_id}")
async def show_run(run_id: str, host: HostOf, caller: CallerOf) -> RunAnswer:
    """Show one run: who asked, what ran, how it ended."""
    return run_answer(await history.run(host, caller, run_id))


@router.get("/{run_id}/events", responses=_EVENTS, response_class=StreamingResponse)
async def follow_run(
    run_id: str,
    host: HostOf,
    caller: CallerOf,
    position: Position = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None,
) -> Response:
    """Attach to a run's events, while it runs or after."""
    live = host.live.get(run_id)  # asked first: what is not live any more has its ending in the ledger
    run = await history.run(host, caller, run_id)
    start = position if position is not None else last_event_id or 0
    cut = await history.before(host, run_id, start)
    return run_stream(host, run, live, Point(start, cut))


@router.get("/{run_id}/stdout", responses=_RAW, response_class=Response)
async def get_stdout(run_id: str, host: HostOf, caller: CallerOf) -> Response:
    """Download the exact bytes a run wrote to stdout."""
    return await _output(run_id, "stdout", host, caller)


@router.get("/{run_id}/stderr", responses=_RAW, response_class=Response)
async def get_stderr(run_id: str, host: HostOf, caller: CallerOf) -> Response:
    """Download the exact bytes a run wrote to stderr."""
    return await _output(run_id, "stderr", host, caller)


async def _output(run_id: str, stream: Stream, host: Host, caller: Caller) -> Response:
    run = await history.run(host, caller, run_id)
    pieces = await history.output(host, caller, run_id, stream)
    kept = run.stdout if stream == "stdout" else run.stderr
    # Nobody counted what a run wrote that a crash cut off; one that goes on is not at its end.
    size = kept.kept_bytes if kept.digest else None
    return await bytes_response(pieces, f"{run_id}.{stream}", "application/octet-stream", size)


@router.post("/{run_id}/cancel")
async def cancel_run(run_id: str, host: HostOf, caller: CallerOf) -> RunAnswer:
    """End a run, running or waiting; answers when nothing of it is left."""
    return run_answer(await cancel(host, caller, run_id))
