"""Run something: in a sandbox, or once."""

import base64
from typing import Any

from fastapi import APIRouter, Request, Response

from petri.api import streams
from petri.api.bodies import JsonRoute
from petri.api.context import CallerOf, HostOf
from petri.api.problems import DOCUMENTED
from petri.api.shapes import ask_of, exec_answer
from petri.api.shortcut import Short
from petri.api.streams import MEDIA, run_stream
from petri.errors import InvalidField
from petri.operations import Caller, Host, LiveRun, history
from petri.operations.create import Wish
from petri.operations.exec import begin, end_on_record, outcome_of
from petri.operations.once import exec_once
from petri.wire import Base64, ExecAnswer, ExecOnce, ExecRequest

router = APIRouter(prefix="/v1", route_class=JsonRoute, responses=DOCUMENTED, tags=["exec"])

_ENDED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The command ended, whatever its exit code; or the events of its run as they come.",
        "content": streams.DOCUMENTED,
    }
}


@router.post("/sandboxes/{sandbox_id}/exec", response_model=ExecAnswer, responses=_ENDED)
async def exec_in_sandbox(sandbox_id: str, body: ExecRequest, request: Request) -> Any:
    """Run a file, a command or code in a fresh cell over the sandbox's files."""
    host: Host = request.app.state.host
    caller: Caller = request.state.caller
    live = await begin(host, caller, sandbox_id, ask_of(body, caller.key_name))
    return await _answer(host, request, live)


SHORT = Short("POST", "/v1/sandboxes/{sandbox_id}/exec", exec_in_sandbox, ExecRequest)
"""What is asked most."""


@router.post("/exec", response_model=ExecAnswer, responses=_ENDED)
async def exec_without_sandbox(body: ExecOnce, request: Request, host: HostOf, caller: CallerOf) -> Any:
    """Run something once: files and command in, outcome out, nothing left."""
    ask = ask_of(body, caller.key_name)
    wish = Wish(
        language=body.language or "python",
        engine=body.engine,
        lifetime="ephemeral",
        limits=body.limits.model_dump(exclude_none=True),
        asker=ask.asker,
    )
    live = await exec_once(host, caller, wish, _contents(body), ask)
    return await _answer(host, request, live)


async def _answer(host: Host, request: Request, live: LiveRun) -> Response:
    if MEDIA in request.headers.get("accept", ""):
        return run_stream(host, live.run, live)
    # What there is to say is put together while the cell is taken apart, and said when nothing of it is left.
    ended = await end_on_record(live)
    try:
        answer = exec_answer(await history.tell(host, ended, live))
        # As a finished response: FastAPI would check and convert what is known to be right.
        return Response(answer.model_dump_json(), media_type="application/json")
    finally:
        await outcome_of(live)


def _contents(body: ExecOnce) -> dict[str, bytes]:
    return {path: _bytes(path, content) for path, content in body.files.items()}


def _bytes(path: str, content: str | Base64) -> bytes:
    if isinstance(content, str):
        return content.encode()
    try:
        return base64.b64decode(content.base64, validate=True)
    except ValueError as error:
        raise InvalidField(f"files.{path[:80]}", f"this is not base64: {error}") from error
