"""A run as server-sent events: `started`, `installing`, `stdout`, `stderr`, and `done` or `failed`.

An event's id is a position in the run's transcript: whoever lost the line goes on from the last one seen.
"""

import asyncio
import codecs
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from petri.api.problems import breaking_off, problem
from petri.api.shapes import exec_answer
from petri.errors import EngineFailed, PetriError
from petri.model import Run, RunState, Stream
from petri.operations import Host, LiveRun, history
from petri.operations.steps import Step

_KEEP_ALIVE_S = 10
_NOTHING_NEW = ": keep-alive\n\n"
"""A comment, said after so much silence: proxies then hold the line, and we notice who has gone."""
MEDIA = "text/event-stream"
DOCUMENTED: dict[str, Any] = {
    MEDIA: {
        "schema": {
            "description": "One event. `data` is JSON; an `id` is where to go on with `from`.",
            "type": "object",
            "properties": {
                "id": {"type": "string", "pattern": "^[0-9]+$"},
                "event": {"enum": ["started", "installing", "stdout", "stderr", "done", "failed"]},
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
    return _Events(_events(host, run, live, start), 200, {"X-Accel-Buffering": "no"}, MEDIA)


class _Events(StreamingResponse):
    """Events whose source is closed in the end, however that came."""

    def __init__(self, events: AsyncGenerator[str], status: int, headers: dict[str, str], media: str) -> None:
        super().__init__(events, status, headers, media)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            with breaking_off(scope):
                await super().__call__(scope, receive, send)


async def _events(host: Host, run: Run, live: LiveRun | None, start: Point) -> AsyncGenerator[str]:
    position = start.position
    said = {"run_id": run.id, "sandbox_id": run.sandbox_id, "state": str(run.state)}
    yield _event("started", said, position)
    if live is not None:
        async with aclosing(live.steps.follow(_KEEP_ALIVE_S)) as steps:
            async for step in steps:
                yield _NOTHING_NEW if step is None else _event("installing", _step(step), position)
    decoders = {stream: _decoder(start.before.get(stream, b"")) for stream in STREAMS}
    async with aclosing(history.follow(host, live, run.id, position, _KEEP_ALIVE_S)) as output:
        async for chunk in output:
            if chunk is None:
                yield _NOTHING_NEW
                continue
            position = chunk.position
            if text := decoders[chunk.stream].decode(chunk.content):
                yield _event(chunk.stream, {"text": text}, position)
    for stream, decoder in decoders.items():
        if text := decoder.decode(b"", final=True):
            yield _event(stream, {"text": text}, position)
    while live is not None and not await _ended(live):
        yield _NOTHING_NEW
    yield await _last(host, run, live, position)


def _step(step: Step) -> dict[str, Any]:
    return {"phase": step.phase, "packages": list(step.packages), "bytes": step.size}


def _decoder(before: bytes) -> codecs.IncrementalDecoder:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(before)  # what this gives was sent before; what it keeps is half a character
    return decoder


async def _ended(live: LiveRun) -> bool:
    """Wait for a run's end, which comes a moment after its output's; but not for too long without a word."""
    ended, _ = await asyncio.wait((live.ended,), timeout=_KEEP_ALIVE_S)
    return bool(ended)


async def _last(host: Host, run: Run, live: LiveRun | None, position: int) -> str:
    try:
        ended = live.ended.result() if live is not None else run
        if ended.state is RunState.FAILED:
            raise EngineFailed(ended.failure or "the engine failed")
    except PetriError as error:
        return _event("failed", problem(error).model_dump(exclude_none=True), position)
    told = await history.tell(host, ended, live)
    return _event("done", exec_answer(told).model_dump(), position)


def _event(kind: str, content: dict[str, Any], position: int) -> str:
    return f"id: {position}\nevent: {kind}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"
