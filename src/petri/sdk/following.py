"""Following a run to its end over connections that may break. No I/O: the clients feed it.

A run does not end when its listener goes away, so a broken connection is no reason to give up: as soon as
the run has a name, the listener comes back and asks for everything after the last piece it saw.
"""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from petri.errors import PetriError, Unavailable
from petri.sdk.asking import Ask, segment
from petri.sdk.events import Done, Event, Installing, Output, Started
from petri.sdk.refusals import from_problem
from petri.sdk.sse import Decoder, Message
from petri.wire import ExecAnswer, Problem

ATTEMPTS = 8
"""In a row, with nothing new in between. With the pauses this outlasts a server's restart by far."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


def events_of(run_id: str, position: int) -> Ask:
    """Return the call that replays a run's events after `position` and goes on with new ones."""
    return Ask("GET", f"/v1/runs/{segment(run_id)}/events", params={"from": position}, streams=True)


class Following:
    """Where a listener is in one run's stream."""

    def __init__(self, run_id: str | None = None, position: int = 0) -> None:
        self.ended = False
        self._run_id = run_id
        self._position = position
        self._announced = False
        self._breaks = 0
        self._decoder = Decoder()

    def take(self, data: bytes) -> Iterator[Event]:
        """Yield the events that `data` completes; raise what a `failed` event names."""
        if data.startswith(b":"):
            self._breaks = 0  # a keep-alive: the run may be silent for long, but the line works
        for message in self._decoder.feed(data):
            if message.event != "started":  # which every connection begins with, however short it is
                self._breaks = 0
            event = self._event(message)
            if event is not None:
                yield event

    def broke(self, failure: PetriError) -> tuple[Ask, float]:
        """Return the call that re-attaches, and how long to wait before it; or raise `failure` for good."""
        self._breaks += 1
        if self.ended or self._run_id is None or self._breaks > ATTEMPTS:
            raise failure
        # Half a message of the broken connection must not run into the next one's first.
        self._decoder = Decoder()
        pause_s = min(FIRST_PAUSE_S * 2 ** (self._breaks - 1), LONGEST_PAUSE_S)
        return events_of(self._run_id, self._position), pause_s

    def _event(self, message: Message) -> Event | None:
        if message.id is not None and message.id.isdecimal():
            self._position = int(message.id)
        try:
            return self._read(message)
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            self.ended = True
            raise PetriError("the server sent an event this release cannot read", detail=str(error)) from None

    def _read(self, message: Message) -> Event | None:
        match message.event:
            case "started":
                return self._started(json.loads(message.data))
            case "installing":
                return Installing(json.loads(message.data))
            case "stdout" | "stderr":
                return Output(message.event, json.loads(message.data)["text"], self._position)
            case "done":
                self.ended = True
                return Done(ExecAnswer.model_validate_json(message.data))
            case "failed":
                self.ended = True
                raise from_problem(Problem.model_validate_json(message.data))
            case _:
                return None  # a later server may say more

    def _started(self, said: dict[str, Any]) -> Started | None:
        self._run_id = said["run_id"]
        if self._announced:
            return None  # a re-attached stream begins with it again
        self._announced = True
        return Started(said["run_id"], said["sandbox_id"], said["state"])


def fell_silent() -> Unavailable:
    """Return the error for a stream that closed politely, but before the run's end."""
    return Unavailable("the server closed the stream before the run had ended")
