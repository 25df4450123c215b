"""One connection to a server, kept open between calls. HTTP/1.1 as far as a sync needs it, and no further.

`http.client` would do, but importing it takes 20 ms, and a whole sync with nothing to say should take 100.
A short request is sent in one piece, with its length; a longer one goes out as it grows, in chunks.
"""

import select
import socket
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from petri import __version__
from petri.errors import PetriError, Unavailable
from petri.sdk.codes import no_server, not_ours
from petri.sdk.config import Address, address

CONNECT_S = 5.0
QUICK_S = 0.002
"""A line on which connecting takes less is as good as none: there, time is worth more than bytes."""
HELD_BYTES = 32 * 1024
"""A body is held back until it is longer than this, since it may be all there is."""
LONGEST_HEAD = 64 * 1024
PIECE_BYTES = 256 * 1024


class Line:
    """A server, and a connection to it if there is one. For one thread at a time."""

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self.url = url
        self._address = address(url)
        self._timeout_s = timeout_s
        self._head = _common(self._address, key)
        self._socket: socket.socket | None = None
        self.is_quick = True
        """Whether the server is near."""
        self.bytes_sent = 0
        self.bytes_received = 0

    def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> "Answer":
        """Send one request and return the answer, its body still to come."""
        sending = self.begin(method, path, headers)
        sending.write(body)
        sending.end()
        return Answer(self)

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> "Sending":
        """Begin a request whose body is yet to be written."""
        lines = [f"{method} {self._address.prefix}{path} HTTP/1.1", self._head]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return Sending(self, "\r\n".join(lines).encode("ascii"))

    def close(self) -> None:
        """Close the connection; the next call makes another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, data: bytes) -> bool:
        """Send bytes of a request, connecting first if need be; say whether the connection took them."""
        connected = self._connected()
        try:
            connected.sendall(data)
        except TimeoutError as failure:
            self.broke(failure)
        except OSError:
            return False  # what the server said before it hung up may still be there to be read
        self.bytes_sent += len(data)
        return True

    def receive(self, most: int) -> bytes:
        """Return bytes of an answer; none at the end of the connection."""
        assert self._socket is not None
        try:
            data = self._socket.recv(most)
        except OSError as failure:
            self.broke(failure)
        self.bytes_received += len(data)
        return data

    def has_something(self) -> bool:
        """Say whether the server has sent something, or has closed the connection."""
        if self._socket is None:
            return False
        polled = select.poll()
        polled.register(self._socket, select.POLLIN)
        return bool(polled.poll(0))

    def renew(self) -> None:
        """See to it that the connection can take a request: a server closes those that are idle."""
        if self.has_something():
            self.close()

    def broke(self, failure: OSError | None = None) -> NoReturn:
        """Close the connection and raise what became of it."""
        self.close()
        if isinstance(failure, TimeoutError):
            raise Unavailable(f"the server at {self.url} fell silent", detail=repr(failure))
        raise Broken(f"the connection to {self.url} broke before the answer was whole", detail=repr(failure))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            begun = time.monotonic()
            try:
                self._socket = _connect(self._address, self._timeout_s)
            except OSError as failure:
                raise no_server(self.url, str(failure)) from failure
            self.is_quick = time.monotonic() - begun < QUICK_S
        return self._socket


class Broken(Unavailable):
    """The connection broke, so that nobody here knows how far the request got."""


class Sending:
    """A request on its way."""

    def __init__(self, line: Line, head: bytes) -> None:
        self._line = line
        self._head = head
        self._held = bytearray()
        self._has_begun = False
        self._is_refused = False

    def write(self, data: bytes) -> None:
        """Send more of the body; nothing, once the server has answered before its end."""
        if self._is_refused:
            return
        if not self._has_begun and len(self._held) + len(data) <= HELD_BYTES:
            self._held += data
            return
        if not self._has_begun:
            self._line.renew()
            self._send(self._head + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
            self._has_begun = True
            data = bytes(self._held) + data
        self._chunk(data)

    def end(self) -> None:
        """End the request. Its answer can be read now, as an `Answer`."""
        if self._has_begun:
            self._send(b"0\r\n\r\n")
        else:
            self._line.renew()
            self._send(b"%s\r\nContent-Length: %d\r\n\r\n%s" % (self._head, len(self._held), self._held))

    def give_up(self) -> None:
        """Break off: without its end, a request changes nothing."""
        if self._has_begun:
            self._line.close()

    def _chunk(self, data: bytes) -> None:
        # An answer that comes before the request has ended is a refusal; more would never be read.
        if self._line.has_something():
            self._is_refused = True
        else:
            self._send(b"%x\r\n%s\r\n" % (len(data), data))

    def _send(self, data: bytes) -> None:
        if not self._is_refused and not self._line.send(data):
            self._is_refused = True


class Answer:
    """An answer: its status and headers; its body is read piece by piece, or whole."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._buffer = b""
        self.status, self.reason, self.headers = self._read_head()
        self._is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self._left = self._length()
        self._has_ended = self.status in (204, 304) or (not self._is_chunked and self._left == 0)

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes of the body, none at its end; raises if it is cut short."""
        if self._has_ended:
            return b""
        if self._is_chunked and not self._left:
            self._next_chunk()
            if self._has_ended:
                return b""
        most = size if self._left is None else min(size, self._left)
        data = self._buffer[:most] or self._line.receive(min(most, PIECE_BYTES))
        self._buffer = self._buffer[len(data) :] if self._buffer else b""
        if not data:
            if self._left is not None:
                self._line.broke()
            self._end()
            return b""
        if self._left is not None:
            self._left -= len(data)
            if not self._is_chunked and not self._left:
                self._end()
        return data

    def read_all(self, most: int = 2**24) -> bytes:
        """Return the rest of the body."""
        parts = []
        while data := self.read(PIECE_BYTES):
            parts.append(data)
            most -= len(data)
            if most < 0:
                self._line.close()
                raise PetriError(f"{self._line.url} answered with more than anybody asked for")
        return b"".join(parts)

    def _end(self) -> None:
        self._has_ended = True
        if self._left is None or self._buffer or self.headers.get("connection", "").lower() == "close":
            self._line.close()

    def _read_head(self) -> tuple[int, str, dict[str, str]]:
        while True:
            lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            version, _, said = lines[0].partition(" ")
            status, _, reason = said.partition(" ")
            if not version.startswith("HTTP/1.") or len(status) != 3 or not status.isdecimal():
                self._not_http(lines[0])
            if status >= "200":
                parts = [line.partition(":") for line in lines[1:]]
                return int(status), reason, {name.strip().lower(): value.strip() for name, _, value in parts}

    def _length(self) -> int | None:
        """Return how long the body is; 0 if its chunks will say, None if the connection will, by its end."""
        if self._is_chunked:
            return 0
        told = self.headers.get("content-length")
        if told is not None and not told.isdecimal():
            self._not_http(f"Content-Length: {told}")
        return None if told is None else int(told)

    def _next_chunk(self) -> None:
        size = self._until(b"\r\n") or self._until(b"\r\n")
        try:
            self._left = int(size.partition(b";")[0], 16)
        except ValueError:
            self._not_http(size.decode("latin-1"))
        if not self._left:
            while self._until(b"\r\n"):
                pass  # trailers
            self._end()

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            data = self._line.receive(LONGEST_HEAD)
            if not data or len(self._buffer) > LONGEST_HEAD:
                self._line.broke()
            self._buffer += data
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _not_http(self, said: str) -> NoReturn:
        self._line.close()
        raise not_ours(self._line.url, repr(said[:80]))


def _common(to: Address, key: str | None) -> str:
    host = f"[{to.host}]" if ":" in to.host else to.host
    lines = [f"Host: {host}:{to.port}", f"User-Agent: petri-python/{__version__}"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join(lines)


def _connect(to: Address, timeout_s: float) -> socket.socket:
    plain = socket.create_connection((to.host, to.port), min(CONNECT_S, timeout_s))
    plain.settimeout(timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _secured(plain, to.host) if to.is_secure else plain


def _secured(plain: socket.socket, host: str) -> Any:
    import ssl  # on use: it takes as long to load as the rest of this

    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    except OSError:
        plain.close()
        raise
