"""Downloads: files with ETags and ranges, folders as archives; never shown as a page of ours."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.responses import Content
from starlette.types import Receive, Scope, Send

from petri.api.problems import answer, breaking_off
from petri.errors import BadRange, PreconditionFailed, counted
from petri.operations.files import Archive
from petri.threads import in_thread
from petri.workspace import OpenFile

_PIECE_BYTES = 1 << 18
"""As much again waits in memory for a client that is slow to take it."""
_RANGE = re.compile(r"bytes=([0-9]{0,20})-([0-9]{0,20})")
MEDIA = {
    "tar": "application/x-tar",
    "tar.gz": "application/gzip",
    "tar.zst": "application/zstd",
    "zip": "application/zip",
}


def file_response(request: Request, file: OpenFile, name: str) -> Response:
    """Return the answer to a GET or HEAD of one file; takes over `file` and closes it."""
    headers = {"ETag": file.version.etag, "Accept-Ranges": "bytes", **attachment(name)}
    try:
        _refuse_unless(request.headers.get("if-match"), file)
        if (known := request.headers.get("if-none-match")) and file.version.is_named(known, surely=False):
            file.close()
            return Response(status_code=304, headers=headers)
        start, end, status = _wanted(request, file)
    except BadRange as error:
        file.close()
        refusal = answer(error)
        refusal.headers["Content-Range"] = f"bytes */{file.size}"
        return refusal
    except BaseException:
        file.close()
        raise
    if status == 206:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    headers["Content-Length"] = str(end - start)
    if request.method == "HEAD":
        file.close()
        return Response(status_code=status, headers=headers, media_type="application/octet-stream")
    pieces = _pieces(file, start, end)
    return _Streamed(pieces, lambda: in_thread(file.close), status, headers, "application/octet-stream")


def named_versions(request: Request) -> tuple[str | None, ...]:
    """Return the headers in which a download names versions."""
    return tuple(request.headers.get(name) for name in ("if-match", "if-none-match", "if-range"))


def _refuse_unless(condition: str | None, file: OpenFile) -> None:
    if condition is not None and not file.version.is_named(condition, surely=True):
        raise PreconditionFailed(
            f"the file is another version than If-Match names: it is {file.version.etag}"
        )


async def archive_response(archive: Archive, name: str, media: str) -> Response:
    """Return a folder as the answer; takes over `archive`, closes it. Raises if there is no first piece."""
    source = _Source(archive.pieces)

    async def close() -> None:
        try:
            await in_thread(source.close)
        finally:
            await archive.close()

    response = _Streamed(_in_threads(source), close, 200, attachment(name), media)
    await response.begin()
    return response


async def bytes_response(pieces: Iterator[bytes], name: str, media: str, size: int | None = None) -> Response:
    """Return an answer made of `pieces`, which are fetched in a thread; raises if there is no first."""
    headers = attachment(name)
    if size is not None:
        headers["Content-Length"] = str(size)
    source = _Source(pieces)
    response = _Streamed(_in_threads(source), lambda: in_thread(source.close), 200, headers, media)
    await response.begin()
    return response


class _Streamed(StreamingResponse):
    """A stream whose source is closed in the end, also when the client left before the first byte."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        close: Callable[[], Coroutine[Any, Any, None]],
        status: int,
        headers: dict[str, str],
        media: str,
    ) -> None:
        super().__init__(pieces, status, headers, media)
        self._close = close

    async def begin(self) -> None:
        """Have the first piece in hand; raise whatever keeps it away, while that can still be said."""
        pieces = aiter(self.body_iterator)
        try:
            first = await anext(pieces, b"")
        except BaseException:
            await asyncio.shield(self._close())
            raise
        self.body_iterator = _joined(first, pieces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with breaking_off(scope):
                await super().__call__(scope, receive, send)
        finally:
            await asyncio.shield(self._close())


class _Source:
    """Pieces for threads: whoever closes waits for the thread that still fetches one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()

    def fetch(self) -> bytes | None:
        with self._lock:
            return next(self._pieces, None)

    def close(self) -> None:
        with self._lock:
            if isinstance(self._pieces, Generator):
                self._pieces.close()


def attachment(name: str) -> dict[str, str]:
    """Return headers that make a browser save the answer and never show it as ours."""
    safe = quote(name.encode("utf-8", "surrogateescape"))
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{safe}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }


def _wanted(request: Request, file: OpenFile) -> tuple[int, int, int]:
    """Return which bytes to send, and 206 if they are a part; several ranges at once get the whole."""
    # Only GET has ranges: HEAD is about the whole.
    found = _RANGE.fullmatch(request.headers.get("range", "").strip()) if request.method == "GET" else None
    had = request.headers.get("if-range")
    is_other = had is not None and not file.version.is_named(had, surely=True)
    if found is None or not (found[1] or found[2]) or is_other:
        return 0, file.size, 200
    if found[1]:
        start = int(found[1])
        end = min(file.size, int(found[2]) + 1) if found[2] else file.size
        if found[2] and int(found[2]) < start:
            return 0, file.size, 200
    else:
        start, end = max(0, file.size - int(found[2])), file.size
    if start >= end:
        raise BadRange(f"the file has {counted(file.size, 'byte')}; there is nothing at {found[0]}")
    return start, end, 206


async def _pieces(file: OpenFile, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        piece = await in_thread(file.read, start, min(_PIECE_BYTES, end - start))
        if not piece:  # it was cut short meanwhile; the missing length tells the client
            return
        start += len(piece)
        yield piece


async def _joined(first: Content, rest: AsyncIterator[Content]) -> AsyncIterator[Content]:
    yield first
    async for piece in rest:
        yield piece


async def _in_threads(source: _Source) -> AsyncIterator[bytes]:
    while (piece := await in_thread(source.fetch)) is not None:
        yield piece
