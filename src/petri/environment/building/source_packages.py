"""Python packages of which there is no wheel: built in a cell, once, and then as good as any other.

Wheels come first. Only where there is no set of them, and one package's lack of a wheel is why, are source
distributions looked at; those are fetched by hash, unpacked and built in cells alone (`yard`), and what comes
out is checked (`wheels`) and kept (`built`).
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from petri.engine.tools import Tool, run_tool
from petri.environment.building import fetch, locks, sources, uv
from petri.environment.building.asking import Asking
from petri.environment.building.built import Kept, key_of
from petri.environment.building.failures import NO_SPACE, NotInstalled, NoWheel
from petri.environment.building.flights import Flights
from petri.environment.building.locks import Built, Lock, Package
from petri.environment.building.prefix import Weighed
from petri.environment.building.progress import Progress, Tell
from petri.environment.building.python import PythonPackages, pins_of, readable_lock
from petri.environment.building.shelf import Environment, Shelf
from petri.environment.building.sources import BuildSystem, Metadata, Says, Source
from petri.environment.building.wheels import NotAWheel, checked
from petri.environment.building.yard import NotBuilt, Sdist, Yard
from petri.environment.needs import vetted
from petri.environment.needs.nouns import Policy, Refusal, Requirement, Wanted
from petri.threads import in_own_thread

_MOST_SOURCES = 8
MOST_LOOKED_AT = 16
"""Versions, of all of them together: each may take a build, and somebody may have published thousands."""
_FETCH_S = 300
_LARGEST_SDIST = 256 << 20


@dataclass(frozen=True, slots=True)
class Fetching:
    """How source distributions are fetched, and what may be."""

    env: Mapping[str, str]
    """As installers have it: how to reach an index."""
    index_url: str | None
    has_room: Callable[[], bool]
    policy: Policy


@dataclass(frozen=True, slots=True)
class _Known:
    """A source distribution that was looked at."""

    source: Source
    sdist: Path
    says: Says
    kept: Kept | None = None
    """Its wheel, if that had to be built to know what it needs."""

    @property
    def metadata(self) -> Metadata:
        found = self.kept.wheel.metadata if self.kept is not None else self.says.metadata
        return replace(found, name=self.source.name, version=self.source.version)


@dataclass(slots=True)
class _Plan:
    """What resolving has come to so far."""

    names: set[str] = field(default_factory=set)
    """Packages that are taken as source distributions."""
    known: dict[tuple[str, str], _Known] = field(default_factory=dict)

    @property
    def config(self) -> str:
        return sources.config_text(self.names, [each.metadata for each in self.known.values()])


class SourcePackages:
    """What `PythonPackages` does, and builds where it would say that there is no wheel."""

    def __init__(
        self, python: PythonPackages, yard: Yard, shelf: Shelf, fetching: Fetching, tasks: asyncio.TaskGroup
    ) -> None:
        self._python = python
        self._yard = yard
        self._shelf = shelf
        self._fetching = fetching
        self._making: Flights[Kept] = Flights(tasks)

    async def platform(self) -> str:
        """Return what decides, beside a lock, what is installed."""
        return await self._python.platform()

    async def resolve(self, wanted: Wanted, asking: Asking) -> Lock:
        """Return the packages that `wanted` comes to; `NotInstalled` says why it comes to none."""
        try:
            return await self._python.resolve(wanted, asking)
        except NoWheel as error:
            if wanted.source == "build":
                raise  # what builds is not built itself: there would be no end to it
            return await self._with_sources(wanted, asking, error)

    async def install(
        self, lock: Lock, folder: Path, tell: Tell
    ) -> tuple[Weighed, dict[str, tuple[str, ...]]]:
        """Fill `folder` with what `lock` says; return what it weighs, and who of it needs whom."""
        keys = [each.built.key for each in lock.packages if each.built is not None]
        if not keys:
            return await self._python.install(lock, folder, tell)
        with self._shelf.staging() as links:
            for key in keys:
                if (kept := self._shelf.built.find(key)) is None:
                    raise NotInstalled("a wheel that was built here is gone", is_passing=True)
                os.link(kept.path, links / kept.path.name)
            return await self._python.install(lock, folder, tell, links)

    # ------------------------------------------------------------------------------------- resolving

    async def _with_sources(self, wanted: Wanted, asking: Asking, error: NoWheel) -> Lock:
        plan = _Plan({error.package})
        try:
            text = await self._chosen(wanted, asking, plan, error)
            found = [plan.known[each.key] for each in locks.read_sources(text)]
            built = {each.source.name: await self._package(each, asking) for each in found}
        except NotInstalled as why:
            if why.is_passing or why is error:
                raise
            raise NotInstalled(why.sentence, names=error.names, is_impossible=True) from why
        with readable_lock():
            return locks.held_to(locks.with_built(text, built), pins_of(wanted))

    async def _chosen(self, wanted: Wanted, asking: Asking, plan: _Plan, error: NoWheel) -> str:
        """Return a lock with source distributions in it, all of whose needs are known."""
        while True:
            text = await self._compiled(wanted, asking, plan, error)
            with readable_lock():
                new = [each for each in locks.read_sources(text) if each.key not in plan.known]
            if not new:
                return text
            for source in new:
                if len(plan.known) == MOST_LOOKED_AT:
                    raise NotInstalled(
                        f"of what has no wheel {MOST_LOOKED_AT} versions were looked at, and do not go with "
                        f"the rest; {source.name} {source.version} would be one more, and is not tried"
                    )
                plan.known[source.key] = await self._look(source, asking)

    async def _compiled(self, wanted: Wanted, asking: Asking, plan: _Plan, error: NoWheel) -> str:
        while True:
            try:
                return await self._python.compiled(wanted, asking, plan.names, plan.config)
            except NoWheel as another:
                if another.package in plan.names or len(plan.names) >= _MOST_SOURCES:
                    raise error from another
                plan.names.add(another.package)
            except NotInstalled as why:
                if why.is_passing or plan.known:
                    raise
                raise error from why  # there is no source distribution either

    async def _look(self, source: Source, asking: Asking) -> _Known:
        """Return what a source distribution needs: by its own word if that is final, else by its build's."""
        if source.name in self._fetching.policy.deny:
            raise NotInstalled(
                f"it needs {source.name}, which is never installed on this server (PETRI_DENY_PACKAGES)"
            )
        sdist = await self._fetched(source, asking)
        says = await self._said(source, Sdist(sdist, BuildSystem(), asking.tenant))
        known = _Known(source, sdist, says)
        if says.is_final:
            return known
        return replace(known, kept=await self._kept(known, asking))

    async def _said(self, source: Source, sdist: Sdist) -> Says:
        try:
            says = await self._yard.look(sdist, await self._python.interpreter())
        except NotBuilt as error:
            raise _not_built(source, str(error)) from error
        if says.metadata.name and not source.is_of(says.metadata):
            raise _not_built(source, f"its source distribution is of {says.metadata.name[:100]!r}")
        return says

    async def _package(self, known: _Known, asking: Asking) -> Package:
        """Return a source distribution as a package of a lock: by the hash of its wheel."""
        kept = known.kept or await self._kept(known, asking)
        built = Built(kept.key, f"sha256:{known.source.digest}")
        return Package(known.source.name, known.source.version, (f"sha256:{kept.wheel.digest}",), built)

    # -------------------------------------------------------------------------------------- fetching

    async def _fetched(self, source: Source, asking: Asking) -> Path:
        """Return a source distribution, fetched now unless the cache has it."""
        folder = self._shelf.cache / "petri-sdists"
        folder.mkdir(mode=0o700, exist_ok=True)
        kept = folder / source.digest
        if await in_own_thread(_is, kept, source.digest):
            return kept
        asking.tell(Progress("downloading", (source.name,)))
        indexes = sources.named_indexes(self._fetching.index_url, self._fetching.env)
        url = sources.with_credentials(source.url, indexes)
        new = asking.scratch / source.digest
        argv = [sys.executable, "-I", fetch.__file__, str(new), source.digest, str(_LARGEST_SDIST)]
        told = f"{url}\n{sources.without_credentials(indexes[0]) if indexes else ''}".encode()
        env, has_room = self._fetching.env, self._fetching.has_room
        tool = Tool(argv, asking.scratch, env, _FETCH_S, may_go_on=has_room, told=told)
        done = await run_tool(tool)
        if done.status != 0:
            raise self._why_not_fetched(source, done.status, done.stderr)
        new.rename(kept)
        asking.tell(Progress("downloaded", (source.name,)))
        return kept

    def _why_not_fetched(self, source: Source, status: int | None, said: str) -> NotInstalled:
        if not self._fetching.has_room() or "No space left" in said:
            return NotInstalled(NO_SPACE, is_passing=True)
        if status == fetch.OTHER_FILE:
            return NotInstalled(
                f"the source distribution of {source.name} {source.version} is not the file that was "
                "promised, and nothing is installed"
            )
        if status == fetch.ELSEWHERE:
            return NotInstalled(
                f"the package index says that the source distribution of {source.name} {source.version} is "
                "where nothing is fetched from: inside of this server's network, not behind HTTPS, or behind "
                "too many redirects"
            )
        if status == fetch.TOO_LARGE:
            return _not_built(source, f"its source distribution is larger than {_LARGEST_SDIST >> 20} MiB")
        return NotInstalled(
            f"the package index is out of reach for the source distribution of {source.name}", is_passing=True
        )

    # -------------------------------------------------------------------------------------- building

    async def _kept(self, known: _Known, asking: Asking) -> Kept:
        """Return the wheel of a source distribution, built now unless it was before."""
        source = known.source
        try:
            async with self._equipped(source, known.says.system.requires, asking) as environment:
                key = key_of(source, environment.address, await self.platform())
                return self._shelf.built.find(key) or await self._making.join(
                    key,
                    lambda told: self._make(known, key, environment, replace(asking, tell=told)),
                    asking.tell,
                )
        except (NotBuilt, NotAWheel) as error:
            raise _not_built(source, str(error)) from error

    @asynccontextmanager
    async def _equipped(
        self, source: Source, requires: Iterable[str], asking: Asking
    ) -> AsyncIterator[Environment]:
        """Lend what it takes to build `source`: packages, under the same rules as any others, from wheels."""
        verdicts = [vetted(each, "python", self._fetching.policy) for each in requires]
        if refused := [each.sentence for each in verdicts if isinstance(each, Refusal)]:
            raise NotBuilt(f"building it takes what is not installed here: {refused[0]}")
        requirements = tuple(each for each in verdicts if isinstance(each, Requirement))
        why = f"{source.name} {source.version} is built with it"
        wanted = Wanted("python", requirements, source="build", why=why)
        async with AsyncExitStack() as stack:
            try:
                lent = await stack.enter_async_context(asking.lend(wanted, asking.tell))
            except NotInstalled as error:
                if error.is_passing:
                    raise
                raise NotBuilt(f"what that takes cannot be had: {error.sentence}") from error
            yield lent

    async def _make(self, known: _Known, key: str, environment: Environment, asking: Asking) -> Kept:
        source, interpreter = known.source, await self._python.interpreter()
        asking.tell(Progress("building", (f"{source.name}=={source.version}",)))
        sdist = Sdist(known.sdist, known.says.system, asking.tenant)
        with self._shelf.staging() as staged:
            left = staged / "left"
            more = await self._yard.build(sdist, environment, interpreter, left, is_last=False)
            if more:
                requires = (*sdist.system.requires, *more)
                async with self._equipped(source, requires, asking) as wider:
                    await self._yard.build(sdist, wider, interpreter, left, is_last=True)
            wheel = await in_own_thread(checked, left, source)
            _refuse_lies(known.says, wheel.metadata)
            left.rename(staged / wheel.filename)
            return self._shelf.built.put(key, staged, wheel)


def _is(path: Path, digest: str) -> bool:
    """Say whether a file is there whole: a power cut may have kept less of it."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except FileNotFoundError:
        return False


def _refuse_lies(says: Says, metadata: Metadata) -> None:
    """Raise unless a wheel needs what its source distribution says, if it does, and that from the index."""
    if says.is_final and metadata.needs != says.metadata.needs:
        raise NotAWheel("it needs other packages than its source distribution says")
    if bad := uv.unsafe(metadata.requires):
        raise NotAWheel(f"it needs {bad[0][:200]!r}, which is not from the package index")


def _not_built(source: Source, why: str) -> NotInstalled:
    return NotInstalled(
        f"{source.name} {source.version} has no wheel for this platform, and building it from source failed: "
        f"{why}",
        is_impossible=True,
    )
