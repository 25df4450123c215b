"""Bare connections: for what no HTTP library would say, and for seeing exactly what comes back."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.calls import OURS
from tests.conftest import Server

HOST = b"Host: localhost\r\n"


@dataclass(frozen=True)
class Heard:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self, status: int, code: str) -> dict[str, Any]:
        """Return the problem that this must be, on a connection that is then closed."""
        assert self.status == status, self
        assert self.headers["content-type"] == "application/problem+json"
        assert self.headers["connection"] == "close"
        assert self.headers["x-content-type-options"] == "nosniff"
        assert self.headers["cache-control"] == "no-store"
        told: dict[str, Any] = json.loads(self.body)
        assert (told["status"], told["code"], told["type"]) == (status, code, f"urn:petri:{code}")
        assert told["title"]
        assert told["detail"]
        assert not [secret for secret in OURS if secret in told["detail"]]
        return told


class Line:
    """One connection to a server."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._file = connection.makefile("rb")

    def say(self, *pieces: bytes) -> "Line":
        """Send bytes as they are. A server may have stopped listening, which is its answer."""
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return self

    def hear(self, method: str = "GET") -> Heard:
        """Return the next answer."""
        return self._read(self._file.readline(), method)

    def rest(self) -> list[Heard]:
        """Return every answer until the server closes the line."""
        answers = []
        while first := self._line_or_end():
            answers.append(self._read(first, "GET"))
        return answers

    def is_over(self) -> bool:
        """Wait until something comes, and say whether it was the end."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self.socket.close()

    def _line_or_end(self) -> bytes:
        try:
            return self._file.readline()
        except ConnectionResetError:
            return b""

    def _read(self, first: bytes, method: str) -> Heard:
        version, status = first.split(b" ", 2)[:2]
        assert version == b"HTTP/1.1", first
        headers = {}
        while line := self._file.readline().rstrip(b"\r\n"):
            name, _, value = line.partition(b": ")
            assert name.decode() not in headers, f"{name!r} comes twice"
            headers[name.decode()] = value.decode("latin-1")
        return Heard(int(status), headers, self._body(method, int(status), headers))

    def _body(self, method: str, status: int, headers: dict[str, str]) -> bytes:
        if method == "HEAD" or status in (100, 204, 304):
            return b""
        if "content-length" in headers:
            return self._file.read(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return self._file.read()
        body = b""
        while size := int(self._file.readline(), 16):
            body += self._file.read(size)
            assert self._file.readline() == b"\r\n"
        assert self._file.readline() == b"\r\n"
        return body


@contextmanager
def dial(server: Server, *, timeout_s: float = 20, buffer_bytes: int | None = None) -> Iterator[Line]:
    """Hold a bare connection; with `buffer_bytes` one that takes little before it is read from."""
    where = urlsplit(server.url)
    assert where.hostname is not None
    with socket.socket() as connection:
        if buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        connection.settimeout(timeout_s)
        connection.connect((where.hostname, where.port or 80))
        line = Line(connection)
        try:
            yield line
        finally:
            line.close()


def ask_raw(server: Server, *pieces: bytes) -> Heard:
    """Send bytes as they are, and return the one answer; the server must then close the line."""
    with dial(server) as line:
        answers = line.say(*pieces).rest()
    assert len(answers) == 1, answers
    return answers[0]
