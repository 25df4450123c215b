"""A run as server-sent events: `started`, `stdout`, `stderr`, `done`, and `failed` when the engine did.

An event's id is a position in the run's transcript: whoever lost the line goes on from the last one seen.
"""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi.responses import StreamingResponse

from petri.api.problems import problem
from petri.api.shapes import exec_answer
from petri.errors import EngineFailed, PetriError
from petri.model import Run, RunState, Stream
from petri.operations import Host, LiveRun, history

_KEEP_ALIVE_S = 10
MEDIA = "text/event-stream"
DOCUMENTED: dict[str, Any] = {
    MEDIA: {
        "schema": {
            "description": "One event. `data` is JSON; an `id` is where to go on with `from`.",
            "type": "object",
            "properties": {
                "id": {"type": "string", "pattern": "^[0-9]+$"},
                "event": {"enum": ["started", "stdout", "stderr", "done", "failed"]},
                "data": {"type": "string", "contentMediaType": "application/json"},
            },
            "required": ["id", "event", "data"],
        }
    }
}
STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a run's transcript."""

    position: int = 0
    before: Mapping[Stream, bytes] = field(default_factory=dict)
    """The last bytes of each stream before it: they may be the first half of a character."""


BEGINNING = Point()


def run_stream(host: Host, run: Run, live: LiveRun | None, start: Point = BEGINNING) -> StreamingResponse:
    """Return everything `run` does from `start` on, as it happens or as it happened."""
    headers = {"X-Accel-Buffering": "no"}
    events = _kept_alive(_events(host, run, live, start))
    return StreamingResponse(events, 200, headers, MEDIA)


async def _events(host: Host, run: Run, live: LiveRun | None, start: Point) -> AsyncIterator[str]:
    position = start.position
    said = {"run_id": run.id, "sandbox_id": run.sandbox_id, "state": str(run.state)}
    yield _event("started", said, position)
    decoders = {stream: _decoder(start.before.get(stream, b"")) for stream in STREAMS}
    async for chunk in history.follow(host, live, run.id, position):
        position = chunk.position
        if text := decoders[chunk.stream].decode(chunk.content):
            yield _event(chunk.stream, {"text": text}, position)
    for stream, decoder in decoders.items():
        if text := decoder.decode(b"", final=True):
            yield _event(stream, {"text": text}, position)
    yield await _last(host, run, live, position)


def _decoder(before: bytes) -> codecs.IncrementalDecoder:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(before)  # what this gives was sent before; what it keeps is half a character
    return decoder


async def _last(host: Host, run: Run, live: LiveRun | None, position: int) -> str:
    try:
        ended = await asyncio.shield(live.ended) if live is not None else run
        if ended.state is RunState.FAILED:
            raise EngineFailed(ended.failure or "the engine failed")
    except PetriError as error:
        return _event("failed", problem(error).model_dump(exclude_none=True), position)
    told = await history.tell(host, ended)
    return _event("done", exec_answer(told).model_dump(), position)


def _event(kind: str, content: dict[str, Any], position: int) -> str:
    return f"id: {position}\nevent: {kind}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"


async def _kept_alive(events: AsyncIterator[str]) -> AsyncIterator[str]:
    """Hand events on, with a comment whenever nothing happened for a while, so that proxies hold the line."""
    upcoming = asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait((upcoming,), timeout=_KEEP_ALIVE_S)
            if not done:
                yield ": keep-alive\n\n"
                continue
            try:
                event = upcoming.result()
            except StopAsyncIteration:
                return
            upcoming = asyncio.ensure_future(anext(events))
            yield event
    finally:
        upcoming.cancel()
