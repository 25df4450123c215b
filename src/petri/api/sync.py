"""/v1/sandboxes/{id}/sync: a folder of the client and the sandbox's files, brought together."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from petri.api.bodies import read_body
from petri.api.context import CallerOf, HostOf
from petri.api.downloads import bytes_response
from petri.api.pipes import while_it_comes
from petri.api.problems import DOCUMENTED
from petri.operations import sync
from petri.operations.sync import Wish
from petri.threads import in_thread

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/sync", responses=DOCUMENTED, tags=["sync"])

MEDIA = "application/vnd.petri.sync"
_AT_ONCE = 64 * 1024
"""An answer up to this length is sent in one piece."""
_BYTES: dict[str, Any] = {MEDIA: {"schema": {"type": "string", "format": "binary"}}}
_STREAM = {"requestBody": {"required": True, "content": {"application/octet-stream": _BYTES[MEDIA]}}}
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"description": "Records: what becomes of the folder, and what it lacks.", "content": _BYTES}
}
_HELD: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A bit for each digest, and how much has come of those that broke off.",
        "content": _BYTES,
    }
}
_DIGEST_BYTES = 32
_MOST_DIGESTS = 100_000
_TOO_MANY = f"one question may hold {_MOST_DIGESTS} digests at most; ask for the others in another"


async def _wish(
    mode: Annotated[Literal["push", "pull", "sync"], Query(description="Which side changes.")],
    prefer: Annotated[
        Literal["local", "sandbox"] | None, Query(description="Whose version of a conflict counts.")
    ] = None,
    dry_run: Annotated[bool, Query(description="Say what would happen.")] = False,
    whole: Annotated[bool, Query(description="Send large files as they are, not what changed.")] = False,
) -> Wish:
    return Wish(mode, prefer, dry_run, whole)


@router.post("", response_class=Response, openapi_extra=_STREAM, responses=_ANSWER)
async def sync_folder(
    sandbox_id: str, request: Request, host: HostOf, caller: CallerOf, wish: Annotated[Wish, Depends(_wish)]
) -> Response:
    """Bring a folder and the sandbox together, from the tree last agreed on. Decision 19 has the records."""
    async with sync.begin(host, caller, sandbox_id, wish) as syncing:
        with request.app.state.body_room.stay() as grow:
            await while_it_comes(request, partial(syncing.take, grow=grow))
            answer = await syncing.settle()
    return await _response(answer.stream())


@router.post("/have", response_class=Response, openapi_extra=_STREAM, responses=_HELD)
async def ask_for_contents(sandbox_id: str, request: Request, host: HostOf, caller: CallerOf) -> Response:
    """Say which contents are here already: digests of 32 bytes each, one behind the other."""
    with request.app.state.body_room.stay() as grow:
        question = await read_body(request, _MOST_DIGESTS * _DIGEST_BYTES, grow, _TOO_MANY)
        return Response(await sync.held(host, caller, sandbox_id, question), media_type=MEDIA)


async def _response(pieces: Iterator[bytes]) -> Response:
    begin = await in_thread(_beginning, pieces)
    if len(begin) <= _AT_ONCE:
        return Response(begin, media_type=MEDIA)
    return await bytes_response(_joined(begin, pieces), "sync", MEDIA)


def _beginning(pieces: Iterator[bytes]) -> bytes:
    """Return the first pieces, more than are sent at once; or all there are."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) > _AT_ONCE:
            break
    return bytes(held)


def _joined(begin: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield begin
    yield from rest
