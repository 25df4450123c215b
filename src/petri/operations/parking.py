"""The next cell of a sandbox that is in use stands ready before anybody asks for it.

Most of a short run is the making of its cell and the start of its interpreter, and neither depends on what is
run. So both are done ahead, while nobody waits. A cell that stands ready is one like any other: its own
namespaces, uid, cgroup and filter, for one run and no more. Whoever runs something in the sandbox takes it if
it is what they would have had made; if not, it is ended, and they have another made.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from petri.engine import Ahead, Engine, Fallen, Leash, Output, Parks, Place, Standing
from petri.errors import PetriError
from petri.model import Command, Limits, Outcome, Sandbox

_log = logging.getLogger("petri.parking")
CELL_BYTES = 8 << 20
"""What a cell takes while it stands: bubblewrap, init and an interpreter that has done nothing yet."""
_IDLE_S = 60.0
"""How long a cell stands for nobody."""
_BUSY_S = 0.1
"""Where one run follows another sooner than this, the next may come before its cell could be made."""
_MAKING_S = 1.0
"""How long one may be in the making before nobody waits for it any more: some 10 ms are usual, and more on a
machine that has no processor left for it."""
_GONE_S = 10.0
"""How long after a sandbox went somebody may still ask for a cell in it."""
_SETTLED_S = 5.0
"""A cell that has stood for less does not make way for another of its tenant's: where more sandboxes are in
use than cells may stand, each would otherwise end the next one's, and all would pay twice."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be run, where, and what may be started for the like of it before it is known."""

    place: Place
    command: Command
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Parked:
    cell: Standing
    place: Place
    ahead: Ahead | None
    tenant: str
    folders: tuple[tuple[int, int], ...]
    """Which folders it sees: a name may mean another one by now."""
    since: float


class Parking:
    """Every cell that stands ready, the one that has stood for longest first."""

    def __init__(self, most_bytes: int, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._most = most_bytes // CELL_BYTES
        self._spawn = spawn
        """Gives a piece of work an owner."""
        self._parked: list[_Parked] = []
        self._leaving: dict[_Parked, asyncio.Future[None]] = {}
        """Those that are being ended, and the end of that."""
        self._idling: asyncio.TimerHandle | None = None
        """One for all of them: a timer for each would keep what a cell has served for as long as it runs."""
        self._making: dict[str, asyncio.Future[None]] = {}
        """Sandboxes for which one is being made, and the end of that."""
        self._gone: dict[str, float] = {}
        """Sandboxes that went a moment ago: somebody may still ask for a cell in one."""
        self._changed: dict[str, Limits] = {}
        """The limits of sandboxes that were given other ones: who read of one before knows the former."""
        self._ran_at: dict[str, float] = {}
        """When each sandbox last ran something; only those of a moment ago are of interest."""
        self._hurried_at: dict[str, float] = {}
        """When each last ran something a moment after the run before."""
        self._is_closed = False
        self.used = 0
        """How many have served a run since the server began."""
        self.fitted = 0
        """How many of these had been made for a run of that kind."""

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def is_open(self) -> bool:
        """Whether any cell may stand here."""
        return self._most > 0 and not self._is_closed

    async def exec(self, engine: Engine, task: Task, output: Output, leash: Leash) -> Outcome:
        """Run a command as `Engine.exec` does, in the cell that stands ready for it if there is one."""
        place, command = task.place, task.command
        parked = self._take(task)
        if parked is not None:
            try:
                outcome = await parked.cell.exec(command, output, leash, place.file_bytes)
            except Fallen as fallen:
                _log.info("the cell that stood ready for %s was gone: %s", place.sandbox_id, fallen)
            else:
                self.used += 1
                self.fitted += parked.ahead == task.ahead
                return outcome
        return await engine.exec(place, command, output, leash)

    def has_one(self, sandbox_id: str) -> bool:
        """Say whether a cell stands ready in a sandbox, or will soon."""
        return sandbox_id in self._making or bool(self._of(sandbox_id))

    async def prepare(self, engine: Engine, place: Place, ahead: Ahead | None, tenant: str) -> None:
        """Have as many cells stand ready in `place` as there are to be, as far as there is room for them.

        Returns when that takes no processor any more.
        """
        sandbox_id = place.sandbox_id
        if _can_park(engine) and sandbox_id not in self._making and self._may_park(sandbox_id, ahead, tenant):
            self._making[sandbox_id] = asyncio.get_running_loop().create_future()
            cells = await self._park(engine, place, ahead, tenant)
            with suppress(TimeoutError):
                async with asyncio.timeout(_MAKING_S):
                    for cell in cells:
                        await cell.made()

    async def clear(self, sandbox_id: str) -> None:
        """Have no cell stand ready in a sandbox that is no more. Returns when nothing of them is left."""
        _note(self._gone, sandbox_id, _GONE_S)
        self._changed.pop(sandbox_id, None)
        await self.discard(sandbox_id)

    async def change(self, sandbox: Sandbox) -> None:
        """Have no cell stand that has other limits than a sandbox has now. Returns when none is left."""
        self._changed[sandbox.id] = sandbox.limits
        await self.discard(sandbox.id)

    def is_outdated(self, sandbox: Sandbox) -> bool:
        """Say whether a sandbox has other limits by now than when it was read."""
        return self._changed.get(sandbox.id, sandbox.limits) != sandbox.limits

    async def discard(self, sandbox_id: str) -> None:
        """End the cells that stand ready in a sandbox, or soon will. Returns when nothing of them is left."""
        if making := self._making.get(sandbox_id):
            await asyncio.wait((making,))
        self._ran_at.pop(sandbox_id, None)
        self._hurried_at.pop(sandbox_id, None)
        for parked in self._of(sandbox_id):
            self._let_go(parked)
        if leaving := [gone for each, gone in self._leaving.items() if each.place.sandbox_id == sandbox_id]:
            await asyncio.wait(leaving)

    async def close(self) -> None:
        """End every cell that stands, and let no other stand."""
        self._is_closed = True
        if self._idling is not None:
            self._idling.cancel()
        while self._parked:
            await self._parked.pop().cell.end()

    def _of(self, sandbox_id: str) -> list[_Parked]:
        return [parked for parked in self._parked if parked.place.sandbox_id == sandbox_id]

    def _may_park(self, sandbox_id: str, ahead: Ahead | None, tenant: str) -> bool:
        alike = sum(1 for parked in self._of(sandbox_id) if parked.ahead == ahead)
        if not self.is_open or sandbox_id in self._gone or alike >= self._enough(sandbox_id):
            return False
        return len(self._parked) < self._most or self._making_way(sandbox_id, tenant) is not None

    def _making_way(self, sandbox_id: str, tenant: str) -> _Parked | None:
        """Return which one goes where there is no room for one more in a sandbox; None if none has to.

        It is one that has stood for long, or one of whoever has so many that it still has as many: however
        busy a tenant is, it cannot have every cell that stands. Nor has one of its sandboxes two while
        another has none.
        """
        if time.monotonic() - self._parked[0].since > _SETTLED_S:
            return self._parked[0]
        held = Counter(parked.tenant for parked in self._parked)
        [(richest, most)] = held.most_common(1)
        if most > held[tenant] + 1:
            return next(parked for parked in self._parked if parked.tenant == richest)
        return None if self._of(sandbox_id) else self._second_of(tenant)

    def _second_of(self, tenant: str) -> _Parked | None:
        """Return a cell of a tenant's that stands beside another in its sandbox."""
        standing = Counter(parked.place.sandbox_id for parked in self._parked)
        theirs = (parked for parked in self._parked if parked.tenant == tenant)
        return next((parked for parked in theirs if standing[parked.place.sandbox_id] > 1), None)

    def _enough(self, sandbox_id: str) -> int:
        """Return how many are to stand: one more where they go one after the other."""
        return 2 if _is_recent(self._hurried_at, sandbox_id, _BUSY_S) else 1

    def _note_run(self, sandbox_id: str) -> None:
        if _is_recent(self._ran_at, sandbox_id, _BUSY_S):
            _note(self._hurried_at, sandbox_id, _BUSY_S)
        _note(self._ran_at, sandbox_id, _BUSY_S)

    async def _park(self, engine: Parks, place: Place, ahead: Ahead | None, tenant: str) -> list[Standing]:
        place, cells = _shape(place), list[Standing]()
        try:
            folders = _identify(place)
            while self._may_park(place.sandbox_id, ahead, tenant):
                cell = await engine.park(place, ahead)
                cells.append(cell)
                self._add(_Parked(cell, place, ahead, tenant, folders, time.monotonic()))
        except (PetriError, OSError) as error:
            _log.info("no cell stands ready for %s: %s", place.sandbox_id, error)
        finally:
            self._making.pop(place.sandbox_id).set_result(None)
        return cells

    def _add(self, parked: _Parked) -> None:
        theirs = self._of(parked.place.sandbox_id)
        for other in theirs[: len(theirs) + 1 - self._enough(parked.place.sandbox_id)]:
            self._let_go(other)  # for a run of another kind, which was not the last
        goes = parked if self._is_closed else None
        if len(self._parked) >= self._most:
            # Others may have been made since there was room.
            goes = self._making_way(parked.place.sandbox_id, parked.tenant) or parked
        self._parked.append(parked)
        parked.cell.when_gone(lambda: self._has_fallen(parked))
        if goes is not None:
            self._let_go(goes)
        if self._idling is None:
            self._let_idle_go()

    def _take(self, task: Task) -> _Parked | None:
        """Return a cell that stands ready for a run in its place, the right kind first; others are ended."""
        place = task.place
        self._note_run(place.sandbox_id)
        theirs = self._of(place.sandbox_id)
        wanted = _shape(place) if theirs else place
        for parked in sorted(theirs, key=lambda each: each.ahead != task.ahead):
            if parked.cell.stands and parked.place == wanted and _sees(parked, place):
                self._parked.remove(parked)
                return parked
            self._let_go(parked)
        return None

    def _let_idle_go(self) -> None:
        """End what has stood for too long, and look again when the next one has."""
        now = time.monotonic()
        for parked in [each for each in self._parked if now - each.since >= _IDLE_S]:
            self._let_go(parked)
        self._idling = None
        if self._parked:
            next_s = self._parked[0].since + _IDLE_S - now
            self._idling = asyncio.get_running_loop().call_later(next_s, self._let_idle_go)

    def _has_fallen(self, parked: _Parked) -> None:
        """Make room at once for another, should a cell that stands be gone."""
        if parked in self._parked:
            self._let_go(parked)

    def _let_go(self, parked: _Parked) -> None:
        self._parked.remove(parked)
        self._leaving[parked] = asyncio.get_running_loop().create_future()
        self._spawn(self._end(parked))

    async def _end(self, parked: _Parked) -> None:
        try:
            await parked.cell.end()
        finally:
            self._leaving.pop(parked).set_result(None)


def _can_park(engine: Engine) -> TypeGuard[Parks]:
    return _is_parking(type(engine))


@cache  # to tell whether something follows a protocol takes longer than all else in here
def _is_parking(kind: type) -> bool:
    return issubclass(kind, Parks)


def _sees(parked: _Parked, place: Place) -> bool:
    """Say whether the folders that a cell sees are those of `place`, whatever they are called."""
    try:
        return parked.folders == _identify(place)
    except OSError:  # there is none: who has another cell made will hear of it
        return False


def _note(moments: dict[str, float], sandbox_id: str, matters_s: float) -> None:
    """Note that something happened to a sandbox now, and forget what was longer ago than matters."""
    now = time.monotonic()
    moments.pop(sandbox_id, None)
    moments[sandbox_id] = now
    while now - next(iter(moments.values())) > matters_s:
        del moments[next(iter(moments))]


def _is_recent(moments: dict[str, float], sandbox_id: str, within_s: float) -> bool:
    moment = moments.get(sandbox_id)
    return moment is not None and time.monotonic() - moment < within_s


def _shape(place: Place) -> Place:
    """Return `place` as far as it shapes a cell: some limits are kept by others, and set for each run."""
    plain = Limits(
        cpus=place.limits.cpus,
        memory_bytes=place.limits.memory_bytes,
        processes=place.limits.processes,
        timeout_s=0,
        open_files=place.limits.open_files,
        disk_bytes=place.limits.disk_bytes,
        tmp_bytes=place.limits.tmp_bytes,
    )
    return replace(place, limits=plain, file_bytes=None)


def _identify(place: Place) -> tuple[tuple[int, int], ...]:
    return tuple(_identity(folder) for folder in (place.folder, *(mount.folder for mount in place.mounts)))


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino
