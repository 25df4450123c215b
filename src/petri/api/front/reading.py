"""From bytes to requests: httptools, kept within bounds, and never led to another protocol."""

from typing import Protocol

import httptools

from petri.api.front.heads import Head
from petri.api.front.patience import FRAMING_BYTES
from petri.api.front.refusals import Refused, nonsense


class Listener(Protocol):
    """Who is told of requests."""

    def on_request(self, head: Head, *, may_be_followed: bool) -> None:
        """A head is whole, and makes sense."""

    def on_piece(self, piece: bytes) -> None:
        """Some of that request's body came."""

    def on_end(self) -> None:
        """That request is whole."""


class _Stopped(Exception):
    """Nothing more is to be read as a request."""


class Reader:
    """Reads requests for a listener, until it is stopped."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._head: Head | None = None
        self._wishes: Head | None = None
        """A head that asks for another protocol, which is not heard."""
        self._silent_bytes = 0
        """How much came since the parser last had something to say."""
        self.is_stopped = False

    @property
    def is_in_head(self) -> bool:
        """Whether a head has begun to come in."""
        return self._head is not None

    def stop(self) -> None:
        """Read nothing more."""
        self.is_stopped = True

    def close(self) -> None:
        """Let go of the parser: it holds our methods, and we hold it."""
        self.is_stopped = True
        self._parser = None

    def feed(self, data: bytes) -> None:
        """Read `data`; raise `Refused` if it is no HTTP or more than there may be, and read nothing more."""
        if self.is_stopped:
            return
        try:
            self._silent_bytes += len(data)
            while data:
                data = self._feed_until_upgrade(data)
            self._check_silence()
        except _Stopped:
            pass
        except Refused:
            self.is_stopped = True
            raise

    def _feed_until_upgrade(self, data: bytes) -> bytes:
        """Return what is to be fed again: the parser stops at a head that wishes for another protocol."""
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            assert self._wishes is not None
            head, self._wishes = self._wishes, None
            self._parser = httptools.HttpRequestParser(self)
            return head.without_upgrade() + data[stop.args[0] :]
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            if self.is_stopped:
                raise _Stopped from None
            raise nonsense(f"this is no HTTP/1.1 request: {error}") from None
        return b""

    def _check_silence(self) -> None:
        if self._head is not None:
            self._head.check_size(self._silent_bytes)
        elif self._silent_bytes > FRAMING_BYTES:
            detail = f"more than {FRAMING_BYTES} bytes came between two pieces of the body"
            raise Refused(431, "headers_too_large", detail)

    # --------------------------------------------------------------------------------- for the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.is_stopped:
            raise _Stopped
        self._head = Head()

    def on_url(self, url: bytes) -> None:
        """Some of its address came."""
        assert self._head is not None
        self._silent_bytes = 0
        self._head.take_target(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer: what comes after the body, nobody asked for."""
        if self._head is not None:
            self._silent_bytes = 0
            self._head.take_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        assert self._head is not None
        assert self._parser is not None
        head, self._head = self._head, None
        head.check(self._parser.get_method().decode(), self._parser.get_http_version())
        if self._parser.should_upgrade():
            self._wishes = head
            return
        may_be_followed = head.version == "1.1" and self._parser.should_keep_alive()
        self._listener.on_request(head, may_be_followed=may_be_followed)

    def on_body(self, body: bytes) -> None:
        """Some of its body came."""
        self._silent_bytes = 0
        self._listener.on_piece(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._silent_bytes = 0
        if self._wishes is None:
            self._listener.on_end()
