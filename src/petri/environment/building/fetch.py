"""Fetch one file by its hash, as a program: fetch TARGET SHA256 MOST_BYTES. Standard library only.

It runs apart from the server so that it can be ended at any moment, and so that whatever a server on the
network sends is read by nobody else. What came is at TARGET only if it is the file that was promised.

Where it is and which index says so are the two lines of its input, which nobody else on this host can read:
there may be a password in them. Wherever the index sends us, we go by HTTPS, or as the index itself is
reached; to this host, or into its network, only if the index is there, too.
"""

import base64
import hashlib
import socket
import sys
from collections.abc import Iterable
from email.message import Message
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener, getproxies

OTHER_FILE, TOO_LARGE, ELSEWHERE = 3, 4, 5
_PIECE = 1 << 16
_SILENCE_S = 20
_MOST_HOPS = 5
_TRANSLATED = IPv6Network("64:ff9b::/96")


class Elsewhere(OSError):
    """It is said to be where nothing is fetched from."""


def main(target: str, digest: str, most_bytes: str) -> int:
    """Fetch it; return the exit code."""
    url, index = sys.stdin.read().split("\n")
    try:
        return _fetch(url, index or url, target, digest, int(most_bytes))
    except OSError as error:
        why = error.reason if isinstance(error, URLError) else error
        print(type(why).__name__, getattr(why, "strerror", None) or "", file=sys.stderr)
        is_hop = isinstance(error, HTTPError) and 300 <= error.code < 400
        return ELSEWHERE if is_hop or isinstance(why, Elsewhere) else 1


def _fetch(url: str, index: str, target: str, digest: str, most_bytes: int) -> int:
    new, seen, size = Path(f"{target}.new"), hashlib.sha256(), 0
    bounds = Bounds(index)
    bounds.refuse(url)
    opener = build_opener(_Redirects(bounds), _Plain(bounds), _Encrypted(bounds))
    try:
        with opener.open(_asked(url), timeout=_SILENCE_S) as answer, new.open("wb") as file:
            while piece := answer.read(_PIECE):
                size += len(piece)
                if size > most_bytes:
                    return TOO_LARGE
                seen.update(piece)
                file.write(piece)
        if seen.hexdigest() != digest:
            return OTHER_FILE
        new.rename(target)
        return 0
    finally:
        new.unlink(missing_ok=True)


def _asked(url: str) -> Request:
    """Return the request, with who asks told to that host alone, wherever it sends us."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    request = Request(urlunsplit(parts._replace(netloc=host, fragment="")))
    if parts.username is not None:
        said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(said.encode()).decode()}")
    return request


class Bounds:
    """Where an index may send us."""

    def __init__(self, index: str) -> None:
        parts = urlsplit(index)
        self._schemes = {"https", parts.scheme} & {"http", "https"}
        self._proxies = {_host_and_port(each) for each in getproxies().values()}
        self._kinds = {"public", *map(kind_of, _addresses(parts.hostname or ""))}

    def refuse(self, url: str) -> None:
        """Raise if `url` is not to be asked, as far as it says so itself."""
        parts = urlsplit(url)
        if parts.scheme not in self._schemes:
            raise Elsewhere("it is not reached as the index is")
        if _is_literal(parts.hostname or "") and kind_of(parts.hostname or "") not in self._kinds:
            raise Elsewhere("it is inside of this network")

    def connect(self, address: tuple[str, int], *rest: Any) -> socket.socket:
        """Return a connection to where a name leads, if that is a place to ask.

        Looked at and connected to is the same address: asked once more, a name may lead elsewhere.
        """
        if address in self._proxies:
            return socket.create_connection(address, *rest)  # the operator's, who bounds it as they like
        found = _addresses(address[0])
        if any(kind_of(each) not in self._kinds for each in found):
            raise Elsewhere("it is inside of this network")
        return _first_of(((each, address[1]) for each in found), *rest)


def _first_of(addresses: Iterable[tuple[str, int]], *rest: Any) -> socket.socket:
    why = OSError("there is no such host")
    for each in addresses:
        try:
            return socket.create_connection(each, *rest)
        except OSError as error:
            why = error
    raise why


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []  # a proxy may know it
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def kind_of(address: str) -> str:
    """Say what an address leads to."""
    ip = _inner(ip_address(address.partition("%")[0]))
    if ip.is_loopback or ip.is_unspecified:
        return "this host"
    if ip.is_link_local:
        return "this link"
    return "public" if ip.is_global and not ip.is_multicast else "this network"


def _inner(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the older kind of address that a newer one stands for, if it does."""
    if isinstance(ip, IPv4Address):
        return ip
    translated = IPv4Address(int(ip) & 0xFFFF_FFFF) if ip in _TRANSLATED else None
    return ip.ipv4_mapped or ip.sixtofour or translated or ip


def _is_literal(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _host_and_port(proxy: str) -> tuple[str, int]:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


class _Redirects(HTTPRedirectHandler):
    max_redirections = _MOST_HOPS

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        self._bounds.refuse(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


class _Plain(HTTPHandler):
    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self._bounds = bounds

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(lambda *args, **more: _bounded(HTTPConnection(*args, **more), self._bounds), req)


class _Encrypted(HTTPSHandler):
    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self._bounds = bounds

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(lambda *args, **more: _bounded(HTTPSConnection(*args, **more), self._bounds), req)


def _bounded(connection: HTTPConnection, bounds: Bounds) -> HTTPConnection:
    connection._create_connection = bounds.connect  # type: ignore[attr-defined]
    return connection


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
