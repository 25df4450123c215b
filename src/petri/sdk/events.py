"""What a run tells while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from petri.wire import ExecAnswer

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Started:
    """The run is on record and has a name; always the first event."""

    run_id: str
    sandbox_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Installing:
    """Packages are being fetched before the command starts."""

    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of what the command wrote."""

    stream: Stream
    text: str
    """UTF-8 with undecodable bytes replaced; `run_output` has every byte as it was."""
    position: int
    """Where the stream is after this piece: `attach(run_id, from_=position)` goes on from there."""


@dataclass(frozen=True, slots=True)
class Done:
    """The run ended, however it ended; always the last event."""

    answer: ExecAnswer


Event = Started | Installing | Output | Done
