"""Who may knock: keys where there are any, and only this machine's own programs where there are none.

A server without a key listens on loopback alone. But a web page in the user's browser can send requests
there too, directly or through a name it rebinds to 127.0.0.1. Browsers tell on themselves: by `Origin`, by
`Sec-Fetch-Site`, and by the `Host` they believe to be talking to.
"""

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from petri import model
from petri.api.hardening import HARDENED
from petri.api.problems import answer
from petri.errors import Forbidden, PetriError, Unauthorized
from petri.operations import ANYBODY, STRANGER, Access, Caller

_EVERYBODY = frozenset({"/health", "/docs", "/openapi.json"})
"""What needs no key: whether the server is well, and how to talk to it."""
_ADMINISTRATION = ("/v1/keys", "/v1/tenants")
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(
    r"(?:(?P<name>[a-z0-9.-]+)|\[(?P<six>[0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII
)
"""What `Host` may look like to us. A URL's parser takes much more: in `localhost#x` it finds localhost."""


def scope_for(method: str, path: str) -> model.Scope | None:
    """Return the scope a key needs for a request; None if it needs no key.

    By method and address, not by what each route declares: a route that forgets to is still closed to
    those who may only look.
    """
    if path in _EVERYBODY:
        return None
    if any(path == place or path.startswith(f"{place}/") for place in _ADMINISTRATION):
        return model.Scope.ADMIN
    return model.Scope.READ if method in _LOOKING else model.Scope.RUN


class Guard:
    """ASGI middleware that lets a request in, with its `Caller`, or answers it."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then hand it on with headers every answer carries."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope["state"]["caller"] = self._caller(scope["method"], scope["path"], Headers(scope=scope))
        except PetriError as error:
            await answer(error)(scope, receive, _hardened(send))
        else:
            await self._app(scope, receive, _hardened(send))

    def _caller(self, method: str, path: str, headers: Headers) -> Caller:
        if self._access.is_open:
            _refuse_browsers(headers)
            return ANYBODY
        needed = scope_for(method, path)
        if needed is None:
            return STRANGER
        caller = self._access.caller(_shown(headers))
        if caller is None:
            raise Unauthorized("this server wants a key: send `Authorization: Bearer KEY` (PETRI_API_KEY)")
        if not caller.scope.covers(needed):
            raise Forbidden(
                f"this takes a key of scope `{needed}`; the key {caller.key_name} has `{caller.scope}`"
            )
        return caller


def _shown(headers: Headers) -> bytes:
    kind, _, key = headers.get("authorization", "").partition(" ")
    shown = key.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")
    return shown.encode("latin-1")


def _refuse_browsers(headers: Headers) -> None:
    host = headers.get("host", "")
    if not is_loopback(_name(host)):
        raise Forbidden("this server has no key and answers to localhost only; Host names somebody else")
    # Of each there may be several, and who reads only one must know which: so all of them count.
    if not all(_is_ours(origin, host) for origin in headers.getlist("origin")):
        raise Forbidden("this server has no key and takes no requests from other web pages (Origin)")
    if not {"none", "same-origin"}.issuperset(headers.getlist("sec-fetch-site")):
        raise Forbidden("this server has no key and takes no requests from other web pages (Sec-Fetch-Site)")


def _is_ours(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _name(host: str) -> str:
    """Return the name in a `Host` header; nothing if it is not written as a name, or a name and a port."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found["name"] or found["six"]


@lru_cache(64)  # the same few names come with every request
def is_loopback(name: str) -> bool:
    """Say whether a host name can only mean this machine."""
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _hardened(send: Send) -> Send:
    async def send_hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            there = {name.lower() for name, _ in headers}
            message["headers"] = [*headers, *(each for each in HARDENED if each[0] not in there)]
        await send(message)

    return send_hardened
