"""The short way to an endpoint: what goes by it, and what goes the usual way untouched."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from petri.api.bodies import BodyRoom
from petri.api.shortcut import Short, ShortCut
from petri.errors import NotFound


class Body(BaseModel):
    """What the endpoint takes."""

    model_config = ConfigDict(extra="forbid")
    word: str = "none"


async def _endpoint(thing: str, body: Body, request: Request) -> Response:
    if thing == "missing":
        raise NotFound("there is no such thing")
    return Response(f"{request.method} {thing} {body.word}")


async def _made(body: Body, request: Request) -> Response:
    return Response(f"made {body.word}", 201)


async def _behind(scope: Scope, receive: Receive, send: Send) -> None:
    sent = await Request(scope, receive).body()
    await Response(b"behind: " + sent)(scope, receive, send)


async def _ask(method: str, path: str, *pieces: bytes, most: int = 1000) -> tuple[int, bytes]:
    coming = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    coming.append({"type": "http.request", "body": b"", "more_body": False})
    told: list[Message] = []

    async def receive() -> Message:
        return coming.pop(0)

    async def send(message: Message) -> None:
        told.append(message)

    state = SimpleNamespace(max_body_bytes=most, body_room=BodyRoom(10 * most))
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": []}
    scope["app"] = SimpleNamespace(state=state)
    shorts = [
        Short("POST", "/v1/things", _made, Body),
        Short("POST", "/v1/things/{thing}/do", _endpoint, Body),
    ]
    await ShortCut(_behind, *shorts)(scope, receive, send)
    return told[0]["status"], b"".join(message.get("body", b"") for message in told[1:])


async def test_what_the_endpoint_takes_is_answered_by_it() -> None:
    assert await _ask("POST", "/v1/things/a/do", b'{"word":', b' "yes"}') == (200, b"POST a yes")


async def test_each_endpoint_has_a_short_way_of_its_own() -> None:
    assert await _ask("POST", "/v1/things", b'{"word": "it"}') == (201, b"made it")


async def test_no_body_is_an_empty_object() -> None:
    assert await _ask("POST", "/v1/things/a/do") == (200, b"POST a none")


@pytest.mark.parametrize(
    "sent", [b'{"word": 5}', b'{"other": 1}', b"no JSON", b"[]", b"\xff", b"[" * 900, b"1" * 999], ids=repr
)
async def test_what_it_does_not_take_goes_the_usual_way_as_it_came(sent: bytes) -> None:
    assert await _ask("POST", "/v1/things/a/do", sent) == (200, b"behind: " + sent)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/things/a/do"), ("POST", "/v1/things/a"), ("POST", "/v1/things/a/b/do")],
    ids=str,
)
async def test_what_is_for_somebody_else_goes_the_usual_way(method: str, path: str) -> None:
    assert await _ask(method, path, b"{}") == (200, b"behind: {}")


async def test_a_refusal_is_a_problem_as_anywhere_else() -> None:
    status, body = await _ask("POST", "/v1/things/missing/do", b"{}")

    assert (status, b'"code":"not_found"' in body) == (404, True)


async def test_a_body_that_is_too_large_is_refused() -> None:
    status, body = await _ask("POST", "/v1/things/a/do", b"{" + b" " * 1000, most=1000)

    assert (status, b'"code":"too_large"' in body) == (413, True)
