"""Where commands run: the front door of every way of making cells.

Imported by: `operations`, `api`, `app`. Imports: `petri.model`, `petri.errors`. No driver is imported here.

The split every driver keeps: what the *command* did is an `Outcome`; what the *engine* failed to do is
raised, as `EngineFailed` or `Unavailable`. `tests/test_engine_contract.py` holds every driver to it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from petri.model import Command, Limits, Outcome, Stream


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder that the command sees at `at`, to read only: no file of it can be changed or be a device."""

    folder: Path
    """On this host, below the folder of checkouts that the engine was told of; everybody may read it."""
    at: str
    """An absolute path inside the cell, at which there is nothing else."""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link that the command finds at `at`."""

    target: str
    """As a path inside the cell; there may be nothing yet."""
    at: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: the files it sees as `/workspace`, whose they are, and what it may use."""

    sandbox_id: str
    folder: Path
    """The workspace on this host. A driver on another machine would take a tree's address instead (ADR 4)."""
    owner: int | None
    """The host uid the files belong to, and the command runs under; None when the server is not root."""
    limits: Limits
    mounts: tuple[Mount, ...] = ()
    """What it sees beside its own files."""
    links: tuple[Link, ...] = ()
    file_bytes: int | None = None
    """How large any file may become; None for as large as `limits.disk_bytes`."""


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
    quiet: asyncio.Future[Outcome] | None = None
    """Resolved by an engine that can tell, once the command has ended and nobody is left in the cell: nothing
    can change any more, while the cell itself is still on its way out."""

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


@dataclass(frozen=True, slots=True)
class Ahead:
    """A Python that is started in a cell before anybody knows what it will run."""

    interpreter: str
    """Where it lies inside the cell."""
    form: Literal["file", "code"]
    """Whether it will run a file, or code from its command line."""


class Fallen(Exception):
    """A cell that stood ready was gone before its command could begin. Nothing was run."""


class Standing(Protocol):
    """A cell that stands ready for one command, and for no other after it."""

    @property
    def stands(self) -> bool:
        """Whether it can still take a command, as far as is known."""

    def when_gone(self, tell: Callable[[], None]) -> None:
        """Have `tell` called, soon, once it is gone, for whatever reason."""

    async def made(self) -> None:
        """Return when it takes no processor any more until it has a command; or has one, or is gone."""

    async def exec(
        self, command: Command, output: Output, leash: Leash, file_bytes: int | None = None
    ) -> Outcome:
        """Run `command` to its end, as `Engine.exec` does; `Fallen` if it could not begin."""

    async def end(self) -> None:
        """End it unused. Returns when nothing of it is left."""


@runtime_checkable
class Parks(Protocol):
    """What an engine may also do: have a cell stand ready before there is a command for it."""

    async def park(self, place: Place, ahead: Ahead | None) -> Standing:
        """Have a cell made, and a Python started in it if one is wanted; returns while that goes on.

        Whoever asked uses the cell or ends it. It is walled as any other is.
        """
