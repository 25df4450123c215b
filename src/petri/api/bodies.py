"""JSON bodies: parsed as JSON whatever the content type says, and never larger than allowed.

`curl -d` without a header calls its body a form. What a strict content type would protect a local server
from is kept out by `guard.py` instead.
"""

from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from fastapi.routing import APIRoute

from petri.errors import TooLarge


class JsonRoute(APIRoute):
    """A route whose body is JSON; no body at all is an empty object."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler FastAPI made, behind a request whose body was read with a limit."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if self.body_field is None:
                return await handle(request)
            limit: int = request.app.state.max_body_bytes
            body = await read_body(request, limit)
            scope = {**request.scope, "headers": _as_json(request.scope["headers"])}
            return await handle(_Read(scope, body or b"{}"))

        return handle_json


class _Read(Request):
    """A request whose body is in hand."""

    def __init__(self, scope: dict[str, object], body: bytes) -> None:
        super().__init__(scope)
        self._body = body


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body, or raise `TooLarge` as soon as it is more than `limit`."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"a JSON body may be {limit} bytes at most here (PETRI_MAX_BODY_BYTES); upload files by /files"
    )


def _as_json(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    rest = [(name, value) for name, value in headers if name != b"content-type"]
    return [*rest, (b"content-type", b"application/json")]
