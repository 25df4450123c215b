"""A short way to the endpoints that are asked most: FastAPI's takes a tenth of all an exec costs the server,
and half of all that a new sandbox does.

It is a way, not another endpoint: what it cannot answer as it comes, such as a body that is not right, goes
the usual way from the beginning, and is told there what is wrong. The OpenAPI document knows nothing of it.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from petri.api.bodies import BodyRoom, read_body, refuse_crowded, too_long
from petri.api.problems import answer_logged
from petri.errors import PetriError


@dataclass(frozen=True, slots=True)
class Short:
    """An endpoint that has a short way.

    It takes what stands in the path as text, `body` and `request`, and returns a finished response.
    """

    method: str
    path: str
    endpoint: Callable[..., Awaitable[Response]]
    body: type[BaseModel]


class ShortCut:
    """ASGI middleware that asks some endpoints itself, and leaves the rest to the router behind it."""

    def __init__(self, app: ASGIApp, *shorts: Short) -> None:
        self._app = app
        self._shorts = [(short, compile_path(short.path)[0]) for short in shorts]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, if it is for such an endpoint and as it should be."""
        if scope["type"] == "http":
            for short, path in self._shorts:
                if short.method == scope["method"] and (found := path.match(scope["path"])) is not None:
                    await self._shorten(short, found.groupdict(), scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _shorten(
        self, short: Short, path: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        request = Request(scope, receive)
        try:
            response = await _answer(short, request, path)
        except (PetriError, ClientDisconnect) as error:
            response = await answer_logged(request, error)
        except _Unread as unread:
            await self._app(scope, unread.again(receive), send)
            return
        await response(scope, receive, send)


async def _answer(short: Short, request: Request, path: dict[str, str]) -> Response:
    room: BodyRoom = request.app.state.body_room
    with room.stay() as grow:
        limit: int = request.app.state.max_body_bytes
        sent = await read_body(request, limit, grow, too_long(limit))
        refuse_crowded(sent)
        try:
            body = short.body.model_validate(json.loads(sent or b"{}"))
        except (ValueError, RecursionError):
            raise _Unread(sent) from None
        return await short.endpoint(body=body, request=request, **path)


class _Unread(Exception):
    """A body that is not what the endpoint takes."""

    def __init__(self, sent: bytes) -> None:
        super().__init__("not what this endpoint takes")
        self._sent = sent

    def again(self, receive: Receive) -> Receive:
        """Return how somebody else receives it, and whatever comes after it."""
        unread = [self._sent]

        async def receive_again() -> Message:
            if not unread:
                return await receive()
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        return receive_again
