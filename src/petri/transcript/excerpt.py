"""The head and the tail of a stream: what of it fits into an answer."""

from collections import deque

from petri.errors import counted


class Excerpt:
    """Keeps the first and the last half of a limit, however much comes."""

    def __init__(self, limit_bytes: int) -> None:
        self._half = limit_bytes // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.total_bytes = 0

    def take(self, content: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total_bytes += len(content)
        room = self._half - len(self._head)
        if room > 0:
            self._head += content[:room]
            content = content[room:]
        if content:
            self._tail.append(content[-self._half :])
            self._tail_bytes += len(self._tail[-1])
            while self._tail_bytes - len(self._tail[0]) >= self._half:
                self._tail_bytes -= len(self._tail.popleft())

    @property
    def truncated(self) -> bool:
        """Whether something between head and tail is missing."""
        return self.total_bytes > 2 * self._half

    def text(self) -> str:
        """Return the excerpt as text; undecodable bytes are replaced, and a gap says how large it is."""
        tail = b"".join(self._tail)[-self._half :]
        if not self.truncated:
            return (bytes(self._head) + tail).decode(errors="replace")
        left_out = self.total_bytes - 2 * self._half
        gap = f"\n[… {counted(left_out, 'byte')} left out …]\n"
        return self._head.decode(errors="replace") + gap + tail.decode(errors="replace")
