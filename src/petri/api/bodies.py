"""JSON bodies: parsed as JSON whatever the content type says, and never larger than allowed.

`curl -d` without a header calls its body a form. What a strict content type would protect a local server
from is kept out by `guard.py` instead.
"""

import re
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from fastapi import Request, Response
from fastapi.routing import APIRoute

from petri.errors import Busy, Invalid, TooLarge

Handle = Callable[[Request], Awaitable[Response]]

BODIES_AT_ONCE = 16
"""Of the largest size, or more that are smaller."""
_SMALL_BYTES = 65_536
_MOST_COMMAS = 30_000
"""Between the values of a body: 10,000 files, twice 8,000 arguments and 512 variables are fewer."""
_TO_COMMA = re.compile(rb'(?>[^,"]++|"[^"\\]*+(?>\\.[^"\\]*+)*+"?){0,9999}+,', re.DOTALL)
"""Everything up to a comma that is in no string. Nothing is ever tried twice, so it is linear; and with so
many strings before the next comma it is no JSON, or nested deeper than the parser goes."""


class JsonRoute(APIRoute):
    """A route whose body is JSON; no body at all is an empty object."""

    def get_route_handler(self) -> Handle:  # type: ignore[override]
        """Return the handler FastAPI made, behind a request whose body was read with a limit."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if self.body_field is None:
                return await handle(request)
            limit: int = request.app.state.max_body_bytes
            room: BodyRoom = request.app.state.body_room
            with room.stay() as grow:
                body = await read_body(request, limit, grow, too_long(limit))
                refuse_crowded(body)
                scope = {**request.scope, "headers": _as_json(request.scope["headers"])}
                return await handle(_Read(scope, body or b"{}"))

        return handle_json


class _Read(Request):
    """A request whose body is in hand."""

    def __init__(self, scope: dict[str, object], body: bytes) -> None:
        super().__init__(scope)
        self._body = body


class BodyRoom:
    """The memory that all bodies together may take: with one for each connection they would take it all.

    Safe to use from many threads.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._guard = threading.Lock()

    @contextmanager
    def stay(self) -> Generator[Callable[[int], None]]:
        """Yield what is told how large a body has become, which raises `Busy` if that is too much for all.

        The small ones do not count: nobody is turned away for the large bodies of others.
        """
        ours = 0

        def grow(size: int) -> None:
            nonlocal ours
            if size > self._most_bytes:
                raise TooLarge(f"this request alone takes more than the {self._most_bytes} bytes for all")
            more = max(0, size - _SMALL_BYTES) - ours
            with self._guard:
                if self._held_bytes + more > self._most_bytes:
                    raise Busy(
                        f"the bodies of other requests take most of the {self._most_bytes} bytes they may; "
                        "try again shortly, or upload files by /files"
                    )
                self._held_bytes += more
            ours += more

        try:
            yield grow
        finally:
            with self._guard:
                self._held_bytes -= ours


async def read_body(request: Request, limit: int, grow: Callable[[int], None], says: str) -> bytes:
    """Return the whole body, or raise `TooLarge` once it is more than `limit`. `grow` is told its size."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise TooLarge(says)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLarge(says)
        grow(len(body))
    return bytes(body)


def refuse_crowded(body: bytes) -> None:
    """Refuse what takes long to parse, or gigabytes to complain of: everybody else would wait meanwhile.

    A mebibyte of wrong values comes to 300 MB of complaints. A NUL is never in JSON, but in JSON as UTF-16,
    whose strings look otherwise and would hide what is counted.
    """
    if b"\0" in body:
        raise Invalid("the body is not JSON in UTF-8: there is a zero byte in it")
    if body.count(b",") <= _MOST_COMMAS:
        return
    place = 0
    for _ in range(_MOST_COMMAS + 1):
        if (found := _TO_COMMA.match(body, place)) is None:
            return
        place = found.end()
    raise TooLarge(f"a JSON body may have {_MOST_COMMAS} values at most; upload many files by /files")


def too_long(limit: int) -> str:
    """Return what is said of a JSON body of more than `limit` bytes."""
    return f"a JSON body may be {limit} bytes at most here (PETRI_MAX_BODY_BYTES); upload files by /files"


def _as_json(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    rest = [(name, value) for name, value in headers if name != b"content-type"]
    return [*rest, (b"content-type", b"application/json")]
