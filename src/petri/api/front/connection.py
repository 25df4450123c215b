"""One client's connection: its requests are answered in order, and it is waited for so long and no longer.

At any time one of these is true, and has its deadline:

    nothing was said yet, or a head is coming      `head_s`, then 408, or just the end if nothing was said
    a request is being answered                    none, but `body_s` while the application waits for a body
    every request was answered                     `idle_s`, then the end
    the last word was said                         `LINGER_S`, then the line is cut

and, whatever else is true: a client that does not take what it is sent within `take_s` is cut off.
"""

import asyncio
import socket
import struct
from collections import deque
from typing import Any

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from petri.api.front.exchange import Exchange
from petri.api.front.heads import Head
from petri.api.front.patience import (
    BUFFERED_BYTES,
    IGNORED_BYTES,
    LINGER_S,
    PIPELINED,
    SLOWEST_BYTES_PER_S,
    Deadline,
    Pace,
    Patience,
)
from petri.api.front.reading import Reader
from petri.api.front.refusals import Headers, Refused, answer_to, too_slow, turned_away
from petri.api.front.seldom import Seldom

_ACKNOWLEDGED = struct.Struct("=120xQ")
"""`tcpi_bytes_acked` in what Linux tells of a connection (`struct tcp_info` in linux/tcp.h)."""

_full = Seldom("as many connections are open as may be (PETRI_MAX_CONNECTIONS); others are turned away")
_slow = Seldom("a client was cut off because it sent or took next to nothing")


class Connection(asyncio.Protocol):
    """The protocol uvicorn makes for each client it accepts."""

    def __init__(
        self,
        patience: Patience,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._patience = patience
        self._app: ASGIApp = config.loaded_app
        self._server = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._ends: dict[str, tuple[str, int] | None]
        """Who is at either end, as ASGI calls them."""
        self._reader = Reader(self)
        self._incoming: Exchange | None = None
        """The exchange whose request is not whole yet, if there is one."""
        self._exchanges: deque[Exchange] = deque()
        """In the order of their requests; the first is being answered."""
        self._last_word: bytes | None = None
        """Said once everything before it is answered."""
        self._is_lingering = False
        """The last word was said; what still comes is not heard."""
        self._ignored_bytes = 0
        """How much came that was not read as a request."""
        self._taken_bytes = 0
        """What the client had taken when it was last looked at."""
        self._is_reading = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._waits = Deadline(self._loop)
        """For something the client has to send."""
        self._takes = Deadline(self._loop)
        """For the client to take what it was sent."""

    # ------------------------------------------------------------------------------ for the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Welcome a client, or turn it away."""
        self._transport = transport
        self._ends = {"client": _end(transport, "peername"), "server": _end(transport, "sockname")}
        if len(self._server.connections) >= self._patience.connections:
            _full.say()
            self._reader.stop()
            transport.write(answer_to(turned_away(self._patience.connections), self.default_headers()))
            self._close()
            return
        self._server.connections.add(self)  # type: ignore[arg-type]
        self._waits.set(self._patience.head_s, self._on_no_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more: whoever answers is told, and nothing is waited for."""
        self._waits.clear()
        self._takes.clear()
        self._server.connections.discard(self)
        self._reader.close()
        for exchange in self._exchanges:
            exchange.lose()
        self._exchanges.clear()
        self._writable.set()

    def eof_received(self) -> None:
        """Let the transport close: who has nothing more to say is taken to be gone."""

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        if self._reader.is_stopped:
            self._ignored_bytes += len(data)
            self._regulate()
            return
        try:
            self._reader.feed(data)
        except Refused as refused:
            self._refuse(refused)
        self._go_on()

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        self._writable.clear()
        self._watch_taking()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        self._writable.set()
        if not self._is_leaving():
            self._takes.clear()

    def shutdown(self) -> None:
        """Take no further request: the server is stopping. Called by uvicorn."""
        self._reader.stop()
        for exchange in self._exchanges:
            exchange.keep_alive = False
        if not self._exchanges:
            self._close()

    # --------------------------------------------------------------------------------- for the reader

    def on_request(self, head: Head, *, may_be_followed: bool) -> None:
        """Have a request answered in its turn."""
        scope = {**head.scope(), **self._ends, "state": self._app_state.copy()}
        self._incoming = Exchange(self, head, scope, Pace(self._patience.body_s))
        self._incoming.keep_alive = may_be_followed
        self._exchanges.append(self._incoming)

    def on_piece(self, piece: bytes) -> None:
        """Hand on some of its body."""
        assert self._incoming is not None
        self._incoming.take(piece)

    def on_end(self) -> None:
        """It is whole; say whether another one may follow."""
        assert self._incoming is not None
        exchange, self._incoming = self._incoming, None
        exchange.end()
        if len(self._exchanges) >= PIPELINED:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            self._reader.stop()

    # ----------------------------------------------------------------------------------- for exchanges

    def default_headers(self) -> Headers:
        """Return what stands in every answer: the date."""
        return self._server.default_headers

    def write(self, data: bytes) -> None:
        """Send `data`: the exchange that does so is the first."""
        self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the client has taken most of what it was sent, or is gone."""
        if not self._writable.is_set():
            await self._writable.wait()

    def begin_waiting(self, exchange: Exchange) -> None:
        """The application waits for more of the body. Once it answers, that is no haste any more."""
        self._regulate()
        if not (exchange.is_whole or exchange.is_answering or exchange.is_lost):
            exchange.pace.begin_waiting(self._loop.time())
            self._waits.set(exchange.pace.left_s, self._on_no_body)

    def stop_waiting(self, exchange: Exchange) -> None:
        """It does not any more."""
        exchange.pace.stop_waiting(self._loop.time())
        if exchange in self._exchanges:
            self._waits.clear()

    def on_answered(self, exchange: Exchange) -> None:
        """Go on with whatever comes after this answer."""
        self._server.total_requests += 1
        self._exchanges.popleft()
        if not exchange.keep_alive:
            self._reader.stop()
            self._last_word = b""
        self._go_on()

    def break_off(self, exchange: Exchange) -> None:
        """Cut the line: what was sent of the answer must not be taken for all of it."""
        if not exchange.is_lost:
            exchange.lose()
            # Without this, an answer that ends with the connection would seem to have ended well.
            self._socket().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    # -------------------------------------------------------------------------------------- what next

    def _go_on(self) -> None:
        """Do what the state of things asks for, and set its deadline."""
        if self._is_leaving():
            return
        if self._exchanges:
            self._begin(self._exchanges[0])
        elif self._last_word is not None:
            self._say_goodbye(self._last_word)
        elif self._reader.is_in_head or self._incoming is not None:
            if not self._waits.is_for(self._on_no_head):
                self._waits.set(self._patience.head_s, self._on_no_head)
        else:
            self._waits.set(self._patience.idle_s, self._close)
        self._regulate()

    def _begin(self, exchange: Exchange) -> None:
        if not exchange.is_begun:
            exchange.is_begun = True
            self._waits.clear()
            task = self._loop.create_task(exchange.run(self._app))
            self._server.tasks.add(task)  # uvicorn waits for them when it stops
            task.add_done_callback(self._server.tasks.discard)

    def _refuse(self, refused: Refused) -> None:
        """Say no to the request that is coming in, once those before it are answered."""
        self._reader.stop()
        self._last_word = answer_to(refused, self.default_headers())
        exchange, self._incoming = self._incoming, None
        if exchange is None or exchange.is_answered:
            return
        if exchange.is_answering:  # nothing else can be said then
            self.break_off(exchange)
        else:
            exchange.lose()
            self._exchanges.remove(exchange)

    def _say_goodbye(self, last_word: bytes) -> None:
        self._is_lingering = True
        self._reader.stop()
        if last_word:
            self._transport.write(last_word)
        self._transport.write_eof()
        self._waits.set(LINGER_S, self._on_lingered)
        self._watch_taking()

    def _close(self) -> None:
        """Close once the client has taken what it was sent, or has had its time to."""
        self._waits.clear()
        self._transport.close()
        self._watch_taking()

    def _is_leaving(self) -> bool:
        return self._is_lingering or self._transport.is_closing()

    def _regulate(self) -> None:
        """Read, unless there is enough to do. Whoever does not read does not notice that the client left."""
        if self._transport.is_closing():
            return
        if self._reader.is_stopped:
            wants = self._ignored_bytes < IGNORED_BYTES
        else:
            wants = self._incoming is None or self._incoming.held_bytes <= BUFFERED_BYTES
        if wants and not self._is_reading:
            self._transport.resume_reading()
        elif self._is_reading and not wants:
            self._transport.pause_reading()
        self._is_reading = wants

    # -------------------------------------------------------------------------------------- deadlines

    def _on_no_head(self) -> None:
        if self._reader.is_in_head:
            self._refuse(too_slow(f"the head of the request did not come within {self._patience.head_s:g} s"))
            self._go_on()
        else:
            self._close()

    def _on_no_body(self) -> None:
        exchange = self._exchanges[0]
        exchange.pace.stop_waiting(self._loop.time())
        if exchange.pace.is_too_slow():
            _slow.say()
            self._refuse(
                too_slow(
                    f"the body came at less than {SLOWEST_BYTES_PER_S} bytes a second "
                    f"for {self._patience.body_s:g} s (PETRI_CLIENT_BODY_S)"
                )
            )
            self._go_on()
        else:
            self.begin_waiting(exchange)

    def _on_lingered(self) -> None:
        if self._transport.get_write_buffer_size() > 0:  # then it is for `_takes` to end it
            self._waits.set(LINGER_S, self._on_lingered)
        else:
            self._transport.abort()

    def _watch_taking(self) -> None:
        """See to it that the client takes what it was sent, if there is anything left of that."""
        if self._transport.get_write_buffer_size() > 0:
            self._taken_bytes = self._count_taken()
            self._takes.set(self._patience.take_s, self._on_not_taken)

    def _on_not_taken(self) -> None:
        taken = self._count_taken() - self._taken_bytes
        if taken < SLOWEST_BYTES_PER_S * self._patience.take_s and self._transport.get_write_buffer_size():
            _slow.say()
            self._transport.abort()
        else:
            self._watch_taking()

    def _count_taken(self) -> int:
        """Return how many bytes the client's kernel has acknowledged, or what grows like it.

        What our own kernel took says little: it would buffer megabytes for somebody who reads nothing.
        """
        try:
            info = self._socket().getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
            (acknowledged,) = _ACKNOWLEDGED.unpack(info)
        except (OSError, struct.error):
            return -self._transport.get_write_buffer_size()
        return int(acknowledged)

    def _socket(self) -> socket.socket:
        found: socket.socket = self._transport.get_extra_info("socket")
        return found


def _end(transport: asyncio.Transport, which: str) -> tuple[str, int] | None:
    address = transport.get_extra_info(which)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
