"""Where commands run: the front door of every way of making cells.

Imported by: `operations`, `api`, `app`. Imports: `petri.model`, `petri.errors`. No driver is imported here.

The split every driver keeps: what the *command* did is an `Outcome`; what the *engine* failed to do is
raised, as `EngineFailed` or `Unavailable`. `tests/test_engine_contract.py` holds every driver to it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from petri.model import Command, Limits, Outcome, Stream


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: the files it sees as `/workspace`, whose they are, and what it may use."""

    sandbox_id: str
    folder: Path
    """The workspace on this host. A driver on another machine would take a tree's address instead (ADR 4)."""
    owner: int | None
    """The host uid the files belong to, and the command runs under; None when the server is not root."""
    limits: Limits


@dataclass(frozen=True, slots=True)
class Layer:
    """One protective layer, and whether it stands."""

    name: str
    on: bool
    says: str
    """What it keeps out, or why it is off."""
    required: bool = True
    remedy: str | None = None
    """The command that would switch it on or, where it is on, make it stronger."""


@dataclass(frozen=True, slots=True)
class Leash:
    """How a run is held: when it may start, and that it must end."""

    go: asyncio.Future[None]
    """A cell may be made before, but the command starts only once this is resolved."""
    cancelled: asyncio.Future[None]
    """Resolving this ends the command early, started or not."""

    @classmethod
    def loose(cls) -> "Leash":
        """Return a leash for a command that may start at once and that nobody will cancel."""
        loop = asyncio.get_running_loop()
        leash = cls(loop.create_future(), loop.create_future())
        leash.go.set_result(None)
        return leash


class Output(Protocol):
    """Takes what the command writes, as it comes. Must not raise and must not block for long."""

    def __call__(self, stream: Stream, chunk: bytes, /) -> None:
        """Take one chunk."""


class Engine(Protocol):
    """One way of keeping a command in."""

    name: str

    async def start(self) -> None:
        """Get ready, and end whatever an earlier life of this server left running. Called once by `app`."""

    async def stop(self) -> None:
        """End every cell, then everything else of the engine's. Called once by `app`."""

    async def layers(self) -> Sequence[Layer]:
        """Say which protective layers stand. Called by `operations.health`."""

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        """Run `command` to its end in a fresh cell.

        One that is cancelled by its leash has an outcome that says so. Cancelling this call ends it too.
        On every way out of here nothing of the cell is left: no process, no mount, no cgroup.
        """
