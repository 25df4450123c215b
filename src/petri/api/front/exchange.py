"""One request and its answer, between the application and the connection it came by."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Message

from petri.api.front.heads import Head
from petri.api.front.patience import UNREAD_BYTES, Pace
from petri.api.front.refusals import Headers, head_of
from petri.api.hardening import HARDENED
from petri.api.problems import bug

_log = logging.getLogger("petri.api")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_BODILESS = (204, 304)
_OURS = (b"connection", b"transfer-encoding")
"""Headers that only the one who frames the answer can know."""
_SHORT_BYTES = 1 << 16
"""An answer no longer than this comes in one piece, right behind its head, and is sent together with it: to
send twice costs both sides twice."""


class Line(Protocol):
    """What an exchange needs of its connection."""

    def default_headers(self) -> Headers:
        """Return what stands in every answer: the date."""

    def write(self, data: bytes) -> None:
        """Send `data`, in its turn."""

    async def drained(self) -> None:
        """Wait until the client has taken most of what it was sent, or is gone."""

    def begin_waiting(self, exchange: "Exchange") -> None:
        """The application waits for more of the body."""

    def stop_waiting(self, exchange: "Exchange") -> None:
        """It does not any more."""

    def on_answered(self, exchange: "Exchange") -> None:
        """The answer is whole."""

    def break_off(self, exchange: "Exchange") -> None:
        """The answer will never be whole: the client must not take it for one."""


class Exchange:
    """A request, and what the application answers. Its fields are the connection's to look at."""

    def __init__(self, line: Line, head: Head, scope: dict[str, Any], pace: Pace) -> None:
        self._line = line
        self.scope = scope
        self.pace = pace
        self.keep_alive = False
        """Whether another request may follow on this connection."""
        self.is_begun = False
        """The application was told of it."""
        self.is_whole = False
        """The request has come to its end."""
        self.is_answering = False
        self.is_answered = False
        self.is_lost = False
        """The client is gone, or was told otherwise than by the application."""
        self.held_bytes = 0
        self._method = head.method
        self._version = head.version
        self._held: list[bytes] = []
        self._unread_bytes = head.body_bytes
        self._owes_continue = head.expects_continue
        self._was_told_whole = False
        self._news = asyncio.Event()
        self._owed_bytes: int | None = 0
        """Of the answer; None if its end is marked otherwise."""
        self._is_chunked = False
        self._unsent = b""
        """The head of a short answer, until its body is here."""

    # ------------------------------------------------------------------------ for the connection

    def take(self, piece: bytes) -> None:
        """Take some of the body. What comes after the answer is thrown away."""
        if self._unread_bytes is not None:
            self._unread_bytes -= len(piece)
        if not (self.is_answered or self.is_lost):
            self._held.append(piece)
            self.held_bytes += len(piece)
            self.pace.move(len(piece))
            self._news.set()

    def end(self) -> None:
        """There is no more of the body."""
        self.is_whole = True
        self._news.set()

    def lose(self) -> None:
        """Tell the application that nobody listens any more."""
        self.is_lost = True
        self._held.clear()
        self._news.set()

    async def run(self, app: ASGIApp) -> None:
        """Have the application answer. Whatever it does, there is an answer, or the line is cut."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:  # the server is ending
            self._line.break_off(self)
            raise
        except Exception:  # noqa: BLE001 - whatever it was, the client is answered
            # Of an answer that was begun, the application has told the log itself.
            if not self.is_answering:
                _log.exception("%s %s failed", self._method, self.scope["path"])
        if self.is_answering and not self.is_answered:
            self._line.break_off(self)
        elif not self.is_answering:
            await self._answer(bug())

    async def _answer(self, problem: Response) -> None:
        head = {"status": problem.status_code, "headers": [*problem.raw_headers, *HARDENED]}
        await self.send({"type": "http.response.start", **head})
        await self.send({"type": "http.response.body", "body": problem.body})

    # ----------------------------------------------------------------------- for the application

    async def receive(self) -> Message:
        """Return the next piece of the body, or that the client is gone."""
        if self._owes_continue and not (self._held or self.is_whole or self.is_lost):
            self._line.write(_CONTINUE)
        self._owes_continue = False
        while not self._has_news():
            self._news.clear()
            self._line.begin_waiting(self)
            try:
                await self._news.wait()
            finally:
                self._line.stop_waiting(self)
        if self.is_lost or self.is_answered:
            return {"type": "http.disconnect"}
        body, self._held, self.held_bytes = b"".join(self._held), [], 0
        self._was_told_whole = self.is_whole
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    def _has_news(self) -> bool:
        ended = self.is_whole and not self._was_told_whole
        return bool(self._held) or ended or self.is_lost or self.is_answered

    async def send(self, message: Message) -> None:
        """Send the answer's head, or some of its body. To nobody, if the client is gone."""
        await self._line.drained()
        if self.is_lost or (self.is_answered and self._method == "HEAD"):
            return
        if message["type"] == "http.response.start" and not self.is_answering:
            self._send_head(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.is_answering and not self.is_answered:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} does not come at this point of an answer")

    def _send_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        lengths = [int(value) for name, value in headers if name.lower() == b"content-length"]
        self.keep_alive &= self._can_be_followed()
        self._is_chunked = False
        framing: list[tuple[bytes, bytes]] = []
        if self._method == "HEAD" or status in _BODILESS:
            self._owed_bytes = 0
        elif lengths:
            self._owed_bytes = lengths[0]
        else:
            self._owed_bytes = None
            self._is_chunked = self._version == "1.1"
            if self._is_chunked:
                framing.append((b"transfer-encoding", b"chunked"))
            else:
                self.keep_alive = False  # HTTP/1.0 knows no other end of such an answer
        if not self.keep_alive:
            framing.append((b"connection", b"close"))
        theirs = [(name, value) for name, value in headers if name.lower() not in _OURS]
        head = head_of(status, (*self._line.default_headers(), *theirs, *framing))
        if self._owed_bytes and self._owed_bytes <= _SHORT_BYTES:
            self._unsent = head
        else:
            self._line.write(head)
        self.is_answering = True

    def _can_be_followed(self) -> bool:
        """Whether the next request will be found where it begins, at little cost."""
        if self.is_whole:
            return True
        # One that still waits for our word may never send its body; nobody can tell then what comes next.
        return (
            not self._owes_continue and self._unread_bytes is not None and self._unread_bytes <= UNREAD_BYTES
        )

    def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._line.write(chunk + b"0\r\n\r\n" if is_last else chunk)
        elif self._owed_bytes is None:
            self._line.write(body)
        elif self._method == "HEAD":
            is_last = True  # however much GET would have to say
        else:
            if len(body) > self._owed_bytes:
                raise RuntimeError(f"the answer is longer than its Content-Length, by {len(body)} at least")
            self._owed_bytes -= len(body)
            self._line.write(self._unsent + body)
            self._unsent = b""
        if is_last:
            self._finish()

    def _finish(self) -> None:
        if self._owed_bytes:
            missing = f"{self._owed_bytes} bytes of its answer are missing"
            _log.warning("%s %s: %s; the connection was cut", self._method, self.scope["path"], missing)
            self._line.break_off(self)
            return
        self.is_answered = True
        # Nobody will ask for it now; were it still counted as held, the rest would never be read.
        self._held, self.held_bytes = [], 0
        self._news.set()
        self._line.on_answered(self)
