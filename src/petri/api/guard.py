"""Who may knock: keys where there are any, and only this machine's own programs where there are none.

A server without a key listens on loopback alone. But a web page in the user's browser can send requests
there too, directly or through a name it rebinds to 127.0.0.1. Browsers tell on themselves: by `Origin`, by
`Sec-Fetch-Site`, and by the `Host` they believe to be talking to.
"""

import hashlib
import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from petri.api.problems import answer
from petri.errors import Forbidden, PetriError, Unauthorized
from petri.operations import Caller

_EVERYBODY = frozenset({"/health", "/docs", "/openapi.json"})
"""What needs no key: whether the server is well, and how to talk to it."""
TENANT = "default"


class Guard:
    """ASGI middleware that lets a request in, with its `Caller`, or answers it."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app = app
        self._key_hash = hashlib.sha256(api_key.encode()).digest() if api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then hand it on with headers every answer carries."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope["state"]["caller"] = self._caller(scope["path"], Headers(scope=scope))
        except PetriError as error:
            await answer(error)(scope, receive, _hardened(send))
        else:
            await self._app(scope, receive, _hardened(send))

    def _caller(self, path: str, headers: Headers) -> Caller:
        if self._key_hash is None:
            _refuse_browsers(headers)
            return Caller(TENANT)
        if path in _EVERYBODY:
            return Caller(TENANT)
        if not hmac.compare_digest(hashlib.sha256(_shown(headers)).digest(), self._key_hash):
            raise Unauthorized("this server wants a key: send `Authorization: Bearer KEY` (PETRI_API_KEY)")
        return Caller(TENANT, key_name="default")


def _shown(headers: Headers) -> bytes:
    kind, _, key = headers.get("authorization", "").partition(" ")
    shown = key.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")
    return shown.encode("latin-1")


def _refuse_browsers(headers: Headers) -> None:
    host = headers.get("host", "")
    if not is_loopback(_name(host)):
        raise Forbidden("this server has no key and answers to localhost only; Host names somebody else")
    origin = headers.get("origin")
    if origin is not None and not _is_ours(origin, host):
        raise Forbidden("this server has no key and takes no requests from other web pages (Origin)")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("this server has no key and takes no requests from other web pages (Sec-Fetch-Site)")


def _is_ours(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


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
            headers = MutableHeaders(scope=message)
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_hardened
