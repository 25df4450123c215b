"""Who has packages installed: what is there, under which rules, and what was found out so far."""

import asyncio
import logging
import os
import shutil
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from petri.engine import Engine
from petri.environment import Ask, Code, Policy, Wanted, Words
from petri.environment.building import (
    COMMANDS,
    Completion,
    Environments,
    Fetching,
    JavaScriptPackages,
    NotInstalled,
    Packages,
    PythonPackages,
    Rules,
    Shelf,
    SourcePackages,
    Uv,
    Windows,
    Yard,
)
from petri.errors import PetriError, Unavailable
from petri.model import Addition, Sandbox
from petri.operations.languages import PATH
from petri.workspace import raze

_log = logging.getLogger("petri.outfits")
_PYTHON = "/usr/bin/python3"
"""The interpreter that cells have, under the same name on this host: they see its `/usr`."""
_MOST_KNOWN = 4_096
_MOST_KNOWN_BYTES = 64 << 20
_EACH_BYTES = 512
"""What one requirement, refusal or pin takes of memory, more or less."""
_SWEEP_S = 60.0
_FORGET_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Installing:
    """What the operator decided about packages, and how installers reach an index."""

    policy: Policy
    rules: Rules
    env: Mapping[str, str]
    """What installers are started with."""
    has_room: Callable[[], bool]
    """Says whether the disk has space for more."""


@dataclass(slots=True)
class Outfitter:
    """What it takes to find out what a run wants, and to have it."""

    environments: Environments
    policy: Policy
    windows: Windows
    commands: frozenset[str] = frozenset()
    """The programs that every cell has."""
    python: tuple[int, int] = (3, 11)
    starting: asyncio.Task[None] | None = None
    """What an installer is told at start; nobody waits for it."""
    known: OrderedDict[tuple[str, Ask], Wanted] = field(default_factory=OrderedDict)
    """What was found out, by the tree it was found in: the same files want the same."""
    known_bytes: int = 0
    """What that takes of memory, more or less: who asks decides how long the question is."""

    added: OrderedDict[str, tuple[Addition, ...]] = field(default_factory=OrderedDict)
    """What runs asked for of late, by sandbox: whoever waited in line meanwhile must have it, too."""

    def stop(self) -> None:
        """Leave whatever nobody waits for: the server is ending. Called once, by `app`."""
        if self.starting is not None:
            self.starting.cancel()
        self.environments.stop()

    def note_added(self, sandbox_id: str, added: tuple[Addition, ...]) -> None:
        """Keep what is on record by now, for those who looked there before."""
        self.added[sandbox_id] = added
        self.added.move_to_end(sandbox_id)
        if len(self.added) > _MOST_KNOWN:
            self.added.popitem(last=False)

    def added_to(self, sandbox: Sandbox) -> tuple[Addition, ...]:
        """Return what runs of a sandbox asked for so far."""
        return self.added.get(sandbox.id, sandbox.added)

    def remember(self, key: tuple[str, Ask], found: Wanted) -> None:
        """Keep what was found out, until much else was."""
        if key in self.known:
            self.known_bytes -= _weight(key[1], self.known.pop(key))
        self.known[key] = found
        self.known_bytes += _weight(key[1], found)
        while len(self.known) > _MOST_KNOWN or self.known_bytes > _MOST_KNOWN_BYTES:
            (_, ask), oldest = self.known.popitem(last=False)
            self.known_bytes -= _weight(ask, oldest)

    async def sweep_forever(self, run_in: Callable[[], Awaitable[set[str]]]) -> None:
        """Hold environments to what they may take of the disk; `run_in` says which ones runs had."""
        forget_at = 0.0
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                await self.environments.sweep()
                if time.monotonic() >= forget_at:
                    forget_at = time.monotonic() + _FORGET_S
                    await self.environments.forget(run_in)
            except (OSError, PetriError) as error:
                _log.warning("environments could not be swept: %s", error)


def _weight(ask: Ask, found: Wanted) -> int:
    parts = (found, *found.also)
    each = sum(len(part.requirements) + len(part.refused) + len(part.members) for part in parts)
    pins = sum(len(part.lock.pins) for part in parts if part.lock is not None)
    return sum(map(len, _said(ask))) + _EACH_BYTES * (1 + each + pins)


def _said(ask: Ask) -> tuple[str, ...]:
    if isinstance(ask.entry, Words):
        return ask.entry.argv
    return (ask.entry.text if isinstance(ask.entry, Code) else ask.entry.path,)


async def open_outfitter(
    shelf: Shelf, installing: Installing, engine: Engine, owner: int | None, tasks: asyncio.TaskGroup
) -> Outfitter | None:
    """Return who has packages installed; None where nobody is to, or there is nothing to do it with."""
    program = _find_uv()
    if installing.policy.mode == "off" or program is None or not os.access(_PYTHON, os.X_OK):
        return None
    uv = Uv(program, _PYTHON, shelf.cache, installing.rules.index_url)
    python = PythonPackages(uv, installing.env, installing.has_room)
    complete = Completion(shelf, python, engine, owner)
    days = installing.rules.exclude_newer_days
    javascript = JavaScriptPackages(shelf.tools, shelf.cache, installing.env, installing.has_room, days)
    packages: dict[str, Packages] = {"python": python, "javascript": javascript}
    if installing.rules.builds == "cell":
        yard = Yard(engine, shelf.folder, owner, raze, installing.has_room)
        fetching = Fetching(
            installing.env, installing.rules.index_url, installing.has_room, installing.policy
        )
        packages["python"] = SourcePackages(python, yard, shelf, fetching, tasks)
    environments = Environments(shelf, packages, installing.rules, tasks, complete)
    try:
        interpreter = await python.interpreter()
    except (NotInstalled, Unavailable) as error:
        _log.warning("no packages are installed by this server: %s", error)
        return None
    starting = tasks.create_task(python.acquaint())
    environments.resume()
    major, minor = interpreter.version.split(".")
    windows = Windows(shelf.folder)
    commands, version = _programs() | COMMANDS, (int(major), int(minor))
    return Outfitter(environments, installing.policy, windows, commands, version, starting)


def _find_uv() -> str | None:
    """Return where uv is: beside this server's own interpreter, where it was installed with it."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def _programs() -> frozenset[str]:
    """Return the names of all programs that cells have."""
    found: set[str] = set()
    for folder in PATH.split(":"):
        with suppress(OSError):
            found.update(each.name for each in Path(folder).iterdir())
    return frozenset(found)
