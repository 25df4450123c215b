"""One call to the server as data, and when it may be made again. No I/O."""

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from petri.errors import InvalidField

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
"""A server that asks for more patience than this gets its refusal passed on to the caller instead."""
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Doing these twice is doing them once."""


class Body(Protocol):
    """What is sent, piece by piece."""

    headers: dict[str, str]
    repeatable: bool
    """False when it comes from a stream that can be read only once."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes, from the beginning each time this is called."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One call."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    body: Body | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    patient: bool = False
    """The answer comes when a command ends, so it is waited for as long as that takes."""
    streams: bool = False
    """The answer is a stream of events."""


def segment(name: str) -> str:
    """Return `name` as one piece of a path, for an id or a name."""
    if not name:
        raise InvalidField("sandbox", "an id or a name is needed here, not an empty string")
    return _piece(name)


def file_path(path: str) -> str:
    """Return a path of the workspace as the end of a URL. Whether it is allowed, the server says."""
    return "/".join(_piece(piece) for piece in path.split("/"))


def as_json(value: Any) -> bytes:
    """Return `value` as JSON; in ASCII, so that a file name that is no UTF-8 still makes valid JSON."""
    return json.dumps(value, default=_plain).encode()


def pause_after_failure(failure: httpx.TransportError, ask: Ask, attempt: int) -> float | None:
    """Return how long to wait before asking again, or None if the call may have started something."""
    if isinstance(failure, httpx.ConnectError) and _can_resend(ask):
        return _backoff(attempt)
    return None


def pause_after_refusal(response: httpx.Response, ask: Ask, attempt: int) -> float | None:
    """Return how long to wait before asking again, or None if asking again is not for us to decide.

    429 means that nothing was started. 503 may come from half-way, so only calls that can be made
    twice are made twice.
    """
    told = retry_after_s(response)
    safe = response.status_code == 429 or (response.status_code == 503 and ask.method in REPEATABLE)
    if told is None or told > LONGEST_PAUSE_S or not safe or not _can_resend(ask):
        return None
    return max(told, _backoff(attempt)) * random.uniform(1.0, 1.25)


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds of `Retry-After`; Petri never sends a date there."""
    told = response.headers.get("retry-after", "")
    return float(told) if told.isdecimal() else None


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")


def _can_resend(ask: Ask) -> bool:
    return ask.body is None or ask.body.repeatable


def _backoff(attempt: int) -> float:
    # Many are refused in the same moment; without the jitter they would all come back in the same one.
    return min(FIRST_PAUSE_S * 2.0**attempt, LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)


def _piece(name: str) -> str:
    # httpx folds `..` away before it sends: `files/..` would become a call on the sandbox itself. Spelt
    # in percents it travels as it is, and the server refuses it.
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(os.fsencode(name), safe="")
