"""How much of a client we put up with, and for how long: the bounds, the deadlines, and the slowest pace."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

HEAD_BYTES = 65_536
"""Request line and headers together. Keys, conditions and a long path are a few thousand."""
HEADERS = 100
TARGET_BYTES = 16_384
"""Of an address: a path of 4,096 bytes is three times as long with every byte of it percent-encoded."""
FRAMING_BYTES = 65_536
"""What may come of a chunked body without a byte of content: sizes, their extensions, trailers."""
BUFFERED_BYTES = 65_536
"""Of a body, before we stop reading until the application has taken some."""
PIPELINED = 8
"""Requests that may come before the first of them is answered. What comes after is not read."""
UNREAD_BYTES = 65_536
"""Of a body nobody wanted: so little is thrown away, and the connection can be used again."""
LINGER_S = 2.0
"""After the last word, for a client that is still talking: were the connection closed at once, the client's
kernel could throw away the answer with the rest."""
IGNORED_BYTES = 64 << 20
"""Of what comes when nothing is read as a request any more; then we stop reading at all. Many clients say all
they have before they listen: of a body somewhat too large, they would hear a broken pipe and not 413."""
_SECOND_LOOK_S = 0.02
SLOWEST_BYTES_PER_S = 1024
"""A modem of 1985 was as fast. Whoever is slower, sending or taking, only wants to hold the line."""


@dataclass(frozen=True, slots=True)
class Patience:
    """What the operator decided."""

    connections: int
    """At one time; one more is told to come back."""
    head_s: float
    """For a request's head, from the connection or the first byte on."""
    idle_s: float
    """For the next request on a connection that is kept."""
    body_s: float
    """In any time this long that we waited for a body, it has to move on."""
    take_s: float
    """In any time this long that we waited for a client to take its answer, it has to."""


class Pace:
    """Whether something moves on: `SLOWEST_BYTES_PER_S` in every window of waiting for it.

    Only waiting counts. A body that does not come because nobody asks for it is nobody's fault.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._since: float | None = None
        self._waited_s = 0.0
        self._moved_bytes = 0

    @property
    def left_s(self) -> float:
        """How much more waiting there may be before it is judged."""
        return max(0.0, self._window_s - self._waited_s)

    def move(self, count: int) -> None:
        """Some more of it came."""
        self._moved_bytes += count

    def begin_waiting(self, now: float) -> None:
        """From here on it is waited for."""
        self._since = now

    def stop_waiting(self, now: float) -> None:
        """It is not any more. Stopping twice is fine."""
        if self._since is not None:
            self._waited_s += now - self._since
            self._since = None

    def is_too_slow(self) -> bool:
        """Judge it by what came while it was waited for, and begin another window."""
        slow = self._moved_bytes < SLOWEST_BYTES_PER_S * self._waited_s
        self._waited_s, self._moved_bytes = 0.0, 0
        return slow


class Deadline:
    """One timer, for one thing at a time. Whoever owns it clears it in the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._then: Callable[[], None] | None = None

    def is_for(self, then: Callable[[], None]) -> bool:
        """Say whether `then` is what will be called."""
        return self._then == then

    def set(self, seconds: float, then: Callable[[], None]) -> None:
        """Have `then` called in `seconds`, in place of whatever was to be called."""
        self.clear()
        self._then = then
        self._timer = self._loop.call_later(seconds, self._ring)

    def clear(self) -> None:
        """Have nothing called. Clearing twice is fine."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._then = None

    def _ring(self) -> None:
        # Timers come before what clients have sent. If we were held up ourselves, it may lie there unread.
        self._timer = self._loop.call_later(_SECOND_LOOK_S, self._act)

    def _act(self) -> None:
        then = self._then
        self._timer = self._then = None
        if then is not None:
            then()
