"""Heads of requests: which of them make sense, and what they ask for.

llhttp, under httptools, refuses most of what two parsers could read in two ways: Content-Length twice or
beside Transfer-Encoding, folded lines, bare line feeds, NUL. What it lets pass is refused here.
"""

import urllib.parse
from typing import Any

from petri.api.front.patience import HEAD_BYTES, HEADERS, TARGET_BYTES
from petri.api.front.refusals import Refused, nonsense

_LINE_BYTES = 4
"""The colon, the space and the line's end."""
_SPOKEN = ("1.0", "1.1")


class Head:
    """A request's head, as it comes in: bounded, and then checked."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.bytes = 0
        self.method = ""
        self.version = ""

    def take_target(self, piece: bytes) -> None:
        """Take some of the address."""
        self.target += piece
        if len(self.target) > TARGET_BYTES:
            detail = f"the address is longer than {TARGET_BYTES} bytes; send what is long in the body"
            raise Refused(414, "uri_too_long", detail)
        self._count(len(piece))

    def take_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        self.headers.append((name.lower(), value))
        self._count(len(name) + len(value) + _LINE_BYTES)
        if len(self.headers) > HEADERS:
            raise Refused(431, "headers_too_large", f"the request has more than {HEADERS} headers")

    def check_size(self, unfinished: int = 0) -> None:
        """Refuse a head that is too large, with so much of it not yet taken."""
        if self.bytes + unfinished > HEAD_BYTES:
            detail = f"request line and headers are more than {HEAD_BYTES} bytes"
            raise Refused(431, "headers_too_large", detail)

    def _count(self, size: int) -> None:
        self.bytes += size
        self.check_size()

    def check(self, method: str, version: str) -> None:
        """Refuse what HTTP does not allow, or leaves open to two readings. Called once it is whole."""
        self.method, self.version = method, version
        if version not in _SPOKEN:
            raise nonsense(f"this is HTTP/{version}; this server speaks HTTP/1.1")
        if method == "CONNECT":
            raise nonsense("CONNECT is for proxies, and this is none")
        hosts = self.values(b"host")
        if len(hosts) > 1 or (version == "1.1" and not hosts):
            raise nonsense(f"the request has {len(hosts) or 'no'} Host headers; HTTP/1.1 wants exactly one")
        encodings = self.values(b"transfer-encoding")
        if encodings and (version == "1.0" or [each.lower() for each in encodings] != [b"chunked"]):
            raise nonsense("the only Transfer-Encoding this server knows is `chunked`, once, in HTTP/1.1")

    def values(self, name: bytes) -> list[bytes]:
        """Return every value of one header."""
        return [value for each, value in self.headers if each == name]

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        return self.version == "1.1" and any(
            value.lower() == b"100-continue" for value in self.values(b"expect")
        )

    @property
    def body_bytes(self) -> int | None:
        """How large the body is; None if only its end will tell."""
        if self.values(b"transfer-encoding"):
            return None
        lengths = self.values(b"content-length")
        return int(lengths[0]) if lengths else 0

    def scope(self) -> dict[str, Any]:
        """Return what ASGI calls the request by, but for the two ends of the connection."""
        path, query = self._address()
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.version,
            "method": self.method,
            "scheme": "http",
            "root_path": "",
            "path": urllib.parse.unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": self.headers,
        }

    def without_upgrade(self) -> bytes:
        """Return the head as a client would have sent it that wishes for no other protocol."""
        lines = [b"%s %s HTTP/1.1\r\n" % (self.method.encode(), self.target)]
        lines += [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"".join((*lines, b"\r\n"))

    def _address(self) -> tuple[bytes, bytes]:
        """Return path and query. llhttp has seen to it that the address is ASCII without spaces."""
        target, _, _ = self.target.partition(b"#")
        if not target.startswith(b"/") and target != b"*":
            target = self._origin_form(target)
        path, _, query = target.partition(b"?")
        return path, query

    def _origin_form(self, target: bytes) -> bytes:
        """Return the address without the server it names, if that is the one the Host header names."""
        scheme, found, rest = target.partition(b"://")
        if not found or scheme.lower() not in (b"http", b"https"):
            raise nonsense("the address must begin with /, or be a whole http:// address")
        ends = [end for mark in (b"/", b"?") if (end := rest.find(mark)) >= 0]
        authority, path = rest[: min(ends)] if ends else rest, rest[min(ends) :] if ends else b""
        if [authority.lower()] != [host.lower() for host in self.values(b"host")]:
            raise nonsense("the address names another server than the Host header")
        return path if path.startswith(b"/") else b"/" + path
