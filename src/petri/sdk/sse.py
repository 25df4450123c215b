"""Server-sent events, without I/O: bytes in, whole messages out, so that one parser serves both clients."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One event as it came over the wire."""

    event: str
    data: str
    id: str | None


class Decoder:
    """Cuts a stream into messages, wherever the network cut it into pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield every message that `data` completes. Comments, such as keep-alives, yield nothing."""
        # Lines are cut as bytes and decoded whole: a piece may end inside a character.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = self._line(line.removesuffix(b"\r").decode(errors="replace"))
            if message is not None:
                yield message

    def _line(self, line: str) -> Message | None:
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return Message(
            event=fields.get("event", ["message"])[-1],
            data="\n".join(fields["data"]),
            id=fields["id"][-1] if "id" in fields else None,
        )
