"""Uploads: from the socket to the disk, a piece at a time, never whole in memory.

Pieces are parsed, hashed and written in a worker thread, one hop for each; the event loop only carries them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from petri.api.presence import while_there
from petri.errors import Invalid, InvalidField, TooLarge
from petri.threads import begun_in_thread, settled
from petri.workspace import Intake, StagedFile

_PIECE_BYTES = 1 << 20
_HEADER_BYTES = 16_384
_MOST_HEADERS = 32
_LONGEST_BOUNDARY = 200
"""RFC 2046 allows 70."""
_FRAMING_BYTES = 4 * _PIECE_BYTES
"""What lies before the first part and behind the last; a few bytes in what any client sends."""


async def in_pieces(request: Request, take: Callable[[bytes], object], call_off: Callable[[], None]) -> None:
    """Have `take` called in a worker thread with everything the body brings, about a megabyte at a time.

    The next piece is received while the last one is written. On every way out no thread is still at work:
    it would write to a file that its caller is about to close. What takes long there is told by `call_off`
    that nobody waits for it any more.
    """
    working: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    working.set_result(None)
    try:
        async for piece in _pieces(request.stream()):
            await settled(working)
            working.result()
            working = begun_in_thread(take, piece)
        await while_there(request, call_off, settled(working))
    except BaseException:
        call_off()
        raise
    finally:
        await settled(working)
    working.result()


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held, held_bytes = [], 0
    async for chunk in stream:
        held.append(chunk)
        held_bytes += len(chunk)
        if held_bytes >= _PIECE_BYTES:
            yield b"".join(held)
            held, held_bytes = [], 0
    if held:
        yield b"".join(held)


class Form:
    """A multipart body whose `file` parts go straight into an intake."""

    def __init__(self, content_type: str, intake: Intake, *, extract: bool) -> None:
        self._intake = intake
        self._extract = extract
        self._file: StagedFile | None = None
        self._name = ""
        self._headers: dict[bytes, bytes] = {}
        self._header_name, self._header_value = bytearray(), bytearray()
        self._ended = False
        self._silent_bytes = 0
        """How much came since there was last a header or some of a file in it."""
        self.count = 0
        self._parser = MultipartParser(
            _boundary(content_type),
            {
                "on_part_begin": self._on_part_begin,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_end": self._on_end,
            },
        )

    def take(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        self._bound_framing(len(piece))
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise Invalid(f"the multipart body is malformed: {error}") from error

    def finish(self) -> None:
        """Check that the body was whole. Called after the last piece."""
        if not self._ended:
            raise Invalid("the multipart body ends in the middle; nothing was written")
        if self.count == 0:
            raise InvalidField("file", "the form has no part named `file`; try: curl -F file=@main.py")

    def _on_part_begin(self) -> None:
        self._headers = {}

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]
        self._bound(len(self._header_name))

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        self._bound(len(self._header_value))

    def _on_header_end(self) -> None:
        self._silent_bytes = 0
        self._headers[bytes(self._header_name).lower()] = bytes(self._header_value)
        self._header_name, self._header_value = bytearray(), bytearray()
        if len(self._headers) > _MOST_HEADERS:
            raise Invalid(f"a part of the form has more than {_MOST_HEADERS} headers")

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"")
        if name != b"file":
            raise InvalidField("file", f"a part is named {_shown(name)}; every part must be named `file`")
        if b"filename" not in options:
            raise InvalidField(
                "file", "a part has no filename; try: curl -F 'file=@main.py;filename=pkg/main.py'"
            )
        self._name = _decoded(options[b"filename"])
        self._file = self._intake.file(self._name)
        self.count += 1

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        assert self._file is not None
        self._silent_bytes = 0
        self._file.write(data[start:end])

    def _on_part_end(self) -> None:
        assert self._file is not None
        self._file.close()
        if self._extract:
            self._intake.extract(self._file, self._name, into=self._name.rpartition("/")[0])
        self._file = None

    def _on_end(self) -> None:
        self._ended = True

    def _bound_framing(self, size: int) -> None:
        """Refuse a form that goes on without saying anything: before its first part, or after its last."""
        if self._silent_bytes > _FRAMING_BYTES:
            raise Invalid(f"more than {_FRAMING_BYTES} bytes of the body belong to no part of the form")
        self._silent_bytes += size

    def _bound(self, size: int) -> None:
        if size > _HEADER_BYTES:
            raise TooLarge(f"a header of a form's part is longer than {_HEADER_BYTES} bytes")


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= _LONGEST_BOUNDARY:
        raise Invalid(
            "send the files as multipart/form-data with a boundary, as `curl -F file=@main.py` does"
        )
    return boundary


def _shown(name: bytes) -> str:
    return repr(name[:80].decode(errors="replace"))


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise Invalid(f"the filename {name[:80]!r} is not UTF-8") from None
