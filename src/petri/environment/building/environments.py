"""From what a run wants to the environment it gets, built once however many ask.

The first who wants something waits for it to be resolved and installed; everybody after that pays for two
look-ups. What cannot be had is told in words and remembered for a while, and the run starts without it.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from blake3 import blake3

from petri.environment.building.asking import Asking, Packages, Rules
from petri.environment.building.failures import NotInstalled
from petri.environment.building.flights import Flights
from petri.environment.building.locks import Ecosystem, Lock
from petri.environment.building.prefix import runs_code_at_start
from petri.environment.building.progress import Progress, Tell
from petri.environment.building.shelf import Environment, Record, Shelf, write_record
from petri.environment.building.tidying import forget, make_room
from petri.environment.needs.nouns import Lock as Pins
from petri.environment.needs.nouns import Pin, Refusal, Requirement, Wanted
from petri.threads import in_own_thread

_log = logging.getLogger("petri.environment")
_FRESH_S = 7 * 86_400
"""How long an answer of the index is good for: the same program gets the same packages tomorrow, and in the
end newer ones."""
_AGAIN_S, _SOON_S = 600.0, 15.0
"""How long a refusal is remembered, and one that another time may mend."""
_TOO_LONG = (
    "the packages were not all here after {:g} s; what was fetched and built by then is kept, so another "
    "run may come further"
)
_MOST_DROPPED = 4
_MOST_ANSWERS = 4_096
"""In memory; what was installed is remembered on disk, too."""


@dataclass(frozen=True, slots=True)
class Outfit:
    """What a run gets of what it wanted. Whoever has it gives it back."""

    environments: tuple[Environment, ...] = ()
    refused: tuple[Refusal, ...] = ()
    wanted: Wanted | None = None

    @property
    def address(self) -> str | None:
        """What goes on record: where a command runs two languages, two addresses."""
        return "+".join(each.address for each in self.environments) or None

    @property
    def runs_code_at_start(self) -> bool:
        """Whether some of it is run by every start of the interpreter, whatever that is started for."""
        return any(runs_code_at_start(each.folder) for each in self.environments)

    @property
    def installed(self) -> list[str]:
        """Every package that the run has, as in `numpy==2.3.1`."""
        return [pinned for each in self.environments for pinned in each.record.lock.pinned]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What something that was wanted came to."""

    address: str | None
    refused: tuple[Refusal, ...]
    good_until: float


Completing = Callable[[Environment], Awaitable[None]]
"""What is left to do once an environment is in use: checking and compiling."""


class Environments:
    """Everything this host has installed, and how more comes to be."""

    def __init__(
        self,
        shelf: Shelf,
        packages: Mapping[str, Packages],
        rules: Rules,
        tasks: asyncio.TaskGroup,
        complete: Completing,
    ) -> None:
        self.shelf = shelf
        self.most_for_one = rules.budget_bytes // 4
        """Bytes: what a single run may have installed for itself."""
        self._packages = packages
        self._rules = rules
        self._tasks = tasks
        self._complete = complete
        self._answers: dict[str, _Answer] = {}
        self._asked: Flights[_Answer] = Flights(tasks)
        self._builds: Flights[Environment] = Flights(tasks)
        self._finishing: set[asyncio.Task[None]] = set()

    def resume(self) -> None:
        """Complete what an earlier life of the server built and did not come to. Called once, at start."""
        for environment in self.shelf.incomplete:
            self._finish(environment)
        self.shelf.incomplete.clear()

    def stop(self) -> None:
        """Leave what is being completed: the server is ending. Called once, by `app`."""
        for task in self._finishing:
            task.cancel()

    # ------------------------------------------------------------------------------------------ asking

    def at_hand(self, wanted: Wanted) -> Outfit | None:
        """Return what a run gets if that takes no waiting."""
        answers = []
        for part in (wanted, *wanted.also):
            answer = self._answer(part)
            if answer is None or (answer.address and self.shelf.find(answer.address) is None):
                return None
            answers.append(answer)
        return self._outfit(wanted, answers)

    async def prepare(self, wanted: Wanted, tell: Tell, tenant: str = "") -> Outfit:
        """Return what a run of `tenant` gets, made now if need be. Nothing that goes wrong is raised."""
        answers = []
        for part in (wanted, *wanted.also):
            answer = self._answer(part)
            if answer is None or (answer.address and self.shelf.find(answer.address) is None):
                key = self._key(part)
                answer = await self._asked.join(key, partial(self._find_out, part, tenant), tell)
            answers.append(answer)
        return self._outfit(wanted, answers)

    def widened(self, part: Wanted, added: Sequence[Requirement], *, is_loose: bool) -> Wanted:
        """Return what `part` wants together with what a run asked for by name.

        What `part` comes to by itself keeps its versions, so that nothing changes beneath a program that
        runs; unless `is_loose`, where no such set is to be had.
        """
        answer = self._answer(part)
        without = {each.name for each in answer.refused} if answer is not None else set()
        named = {each.name for each in added}
        wanted = [each for each in part.requirements if each.name not in without | named]
        record = self.shelf.record(answer.address) if answer is not None and answer.address else None
        lock = part.lock
        if record is not None and not is_loose:
            theirs = lock.pins if lock is not None else ()
            known = {pin.name for pin in theirs} | {each.name for each in added if not _takes_any(each)}
            pins = [Pin(each.name, each.version) for each in record.lock.packages if each.name not in known]
            lock = Pins("", "", (*theirs, *pins))
        why = f"{part.why}; runs asked for {', '.join(sorted(named))}".removeprefix("; ")
        source = part.source if part.source not in ("imports", "none") else "added"
        return replace(part, requirements=(*wanted, *added), lock=lock, source=source, why=why)

    async def bare(self, ecosystem: Ecosystem, tell: Tell) -> Environment | None:
        """Return an environment without a package, in use; None if it cannot be made."""
        lock = Lock(ecosystem, (), "", "pylock.toml")
        try:
            platform = await self._packages[ecosystem].platform()
            record = Record(lock.address(platform), lock, platform, time.time())
            environment = self.shelf.find(record.address) or await self._builds.join(
                record.address, lambda told: self._build(record, told), tell
            )
        except Exception as error:  # noqa: BLE001 - without it, the host's own interpreter does
            _log.warning("an empty environment could not be made: %s", error)
            return None
        self.shelf.use(environment)
        return environment

    def give_back(self, outfit: Outfit) -> None:
        """Use an outfit no longer."""
        for environment in outfit.environments:
            self.shelf.give_back(environment)

    def _outfit(self, wanted: Wanted, answers: list[_Answer]) -> Outfit:
        found = [self.shelf.find(answer.address) for answer in answers]
        environments = tuple(each for each in found if each is not None)
        for environment in environments:
            self.shelf.use(environment)
        refused = [each for part in (wanted, *wanted.also) for each in part.refused]
        refused += [each for answer in answers for each in answer.refused]
        return Outfit(environments, tuple(refused), wanted)

    def _answer(self, part: Wanted) -> _Answer | None:
        if not part.requirements or part.language not in self._packages:
            return _Answer(None, (), 0)
        key = self._key(part)
        answer = self._answers.get(key) or self._remembered(key)
        return answer if answer is not None and answer.good_until > time.time() else None

    def _key(self, part: Wanted) -> str:
        pins = part.lock.pins if part.lock is not None else ()
        told = [
            part.language,
            sorted(each.text for each in part.requirements),
            sorted((pin.name, pin.version, *pin.hashes, pin.marker or "") for pin in pins),
            (self._rules.exclude_newer_days, self._rules.index_url, sorted(self._rules.deny)),
            part.source == "imports",
            *(("build",) if part.source == "build" else ()),
            *(() if self._rules.builds == "cell" else ("no builds",)),
        ]
        return blake3(json.dumps(told).encode()).hexdigest()

    def _remembered(self, key: str) -> _Answer | None:
        kept = self.shelf.answer(key)
        if kept is None:
            return None
        refused = tuple(Refusal(*each) for each in kept["refused"])
        return self._keep(key, _Answer(kept["address"], refused, kept["at"] + _FRESH_S))

    def _keep(self, key: str, answer: _Answer) -> _Answer:
        """Remember and return an answer; the oldest goes when there are too many."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        return answer

    # ------------------------------------------------------------------------------------------ making

    async def _find_out(self, part: Wanted, tenant: str, tell: Tell) -> _Answer:
        key, patience_s = self._key(part), self._rules.patience_s
        try:
            async with asyncio.timeout(patience_s) as deadline:
                answer = await self._resolved(part, tenant, tell)
                assert answer.address is not None
                record = self.shelf.record(answer.address)
                assert record is not None
                await self._builds.join(answer.address, lambda told: self._build(record, told), tell)
        except TimeoutError:
            if not deadline.expired():
                raise
            _log.warning("not installed: %s", _TOO_LONG.format(patience_s))
            answer = _refusal(part, NotInstalled(_TOO_LONG.format(patience_s), is_passing=True))
        except NotInstalled as error:
            _log.info("not installed: %s", error.sentence)
            answer = _refusal(part, error)
        except Exception:  # noqa: BLE001 - whatever it is, it is no reason for a run not to start
            _log.exception("packages could not be installed")
            answer = _refusal(part, NotInstalled("this host could not install packages", is_passing=True))
        return self._keep(key, answer)

    async def _resolved(self, part: Wanted, tenant: str, tell: Tell) -> _Answer:
        """Return what `part` comes to, on record; an older answer where no newer one is to be had."""
        key = self._key(part)
        before = self._answers.get(key) or self._remembered(key)
        known = before if before is not None and self._can_be_built(before.address) else None
        if known is not None and known.good_until > time.time():
            return known  # only the folder is gone
        try:
            lock, refused = await self._resolve(part, tenant, tell)
        except NotInstalled as error:
            if known is None or not error.is_passing:
                raise
            return replace(known, good_until=time.time() + _AGAIN_S)
        record = await self._recorded(part, lock)
        at = time.time()
        told = [(each.name, each.sentence) for each in refused]
        kept = {"address": record.address, "refused": told, "at": at}
        self.shelf.keep_answer(key, kept)
        return _Answer(record.address, refused, at + _FRESH_S)

    def _can_be_built(self, address: str | None) -> bool:
        """Say whether an environment is on record, and so are the wheels that no index has."""
        record = self.shelf.record(address) if address else None
        packages = record.lock.packages if record is not None else ()
        built = [each.built.key for each in packages if each.built is not None]
        return record is not None and all(self.shelf.built.has(key) for key in built)

    @asynccontextmanager
    async def _lent(self, tenant: str, wanted: Wanted, tell: Tell) -> AsyncIterator[Environment]:
        """Lend an environment to whoever builds something; `NotInstalled` if there is none."""
        outfit = await self.prepare(wanted, tell, tenant) if wanted.requirements else Outfit()
        bare = await self.bare("python", tell) if not wanted.requirements else None
        found = (*outfit.environments, *filter(None, (bare,)))
        try:
            if outfit.refused or not found:
                why = "; ".join(dict.fromkeys(each.sentence for each in outfit.refused))
                raise NotInstalled(why or "an environment could not be made")
            yield found[0]
        finally:
            for environment in found:
                self.shelf.give_back(environment)

    async def _resolve(self, part: Wanted, tenant: str, tell: Tell) -> tuple[Lock, tuple[Refusal, ...]]:
        """Return a lock, and what had to be left out of it: an import nobody has must not cost the others."""
        refused: list[Refusal] = []
        packages = self._packages[part.language]
        while True:
            with self.shelf.staging() as scratch:
                try:
                    asking = Asking(scratch, self._newest(), tell, partial(self._lent, tenant), tenant)
                    lock = await packages.resolve(part, asking)
                    self._refuse_denied(lock)
                    return lock, tuple(refused)
                except NotInstalled as error:
                    left = tuple(each for each in part.requirements if each.name not in error.names)
                    may_drop = (
                        part.source == "imports" and error.is_impossible and len(refused) < _MOST_DROPPED
                    )
                    if not may_drop or not left or len(left) == len(part.requirements):
                        raise
                    refused += [Refusal(name, error.sentence) for name in error.names]
                    part = replace(part, requirements=left)

    def _refuse_denied(self, lock: Lock) -> None:
        """Refuse what brings along a package that is not to be installed, whoever needs it."""
        denied = [each.name for each in lock.packages if each.name in self._rules.deny]
        if denied:
            raise NotInstalled(
                f"it needs {denied[0]}, which is never installed on this server (PETRI_DENY_PACKAGES)"
            )

    def _newest(self) -> str | None:
        """Return the day before which a file must have been published: a whole one, so that answers agree."""
        if not self._rules.exclude_newer_days:
            return None
        day = datetime.now(UTC) - timedelta(days=self._rules.exclude_newer_days)
        return day.strftime("%Y-%m-%dT00:00:00Z")

    async def _recorded(self, part: Wanted, lock: Lock) -> Record:
        platform = await self._packages[part.language].platform()
        address = lock.address(platform)
        record = self.shelf.record(address) or Record(address, lock, platform, time.time())
        self.shelf.note_record(record)
        return record

    async def _build(self, record: Record, tell: Tell) -> Environment:
        found = self.shelf.find(record.address) or await in_own_thread(self.shelf.examine, record.address)
        if found is not None:
            return found
        begun = time.monotonic()
        with self.shelf.staging() as folder:
            packages = self._packages[record.lock.ecosystem]
            weighed, needed_by = await packages.install(record.lock, folder, tell)
            record = replace(record, **asdict(weighed), needed_by=needed_by, built_at=time.time())
            write_record(folder, record)
            await in_own_thread(self.shelf.keep_record, record)
            environment = self.shelf.put(folder, record)
        tell(Progress("installed", tuple(record.lock.pinned), record.size))
        _log.info(
            "installed %s: %d packages, %d bytes, %.1f s",
            *(record.address, len(record.lock.packages), record.size, time.monotonic() - begun),
        )
        self._finish(environment)
        return environment

    # ------------------------------------------------------------------------------------------ tidying

    def _finish(self, environment: Environment) -> None:
        self.shelf.use(environment)  # from now on, not from when the task begins
        task = self._tasks.create_task(self._see_complete(environment))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _see_complete(self, environment: Environment) -> None:
        """Have an environment checked, compiled and trusted. Never raises: it shares a task group."""
        try:
            await self._complete(environment)
            await in_own_thread(self.shelf.mark_whole, environment)
            await self.sweep()
        except Exception as error:  # noqa: BLE001 - without the mark, the next life tries again
            _log.warning("environment %s is not complete: %s", environment.address, error)
        finally:
            self.shelf.give_back(environment)

    async def sweep(self) -> None:
        """Have environments take no more of the disk than they may. Called by `app`, and after each build."""
        budget = self._rules.budget_bytes
        await make_room(self.shelf, budget, is_idle=self._is_idle, goes=_say_it_goes)

    def _is_idle(self) -> bool:
        return not len(self._builds) and not len(self._asked)

    async def forget(self, run_in: Callable[[], Awaitable[set[str]]]) -> None:
        """Forget what nobody will ask for; `run_in` says which environments runs had. Called by `app`."""
        if number := await forget(self.shelf, run_in):
            _log.info("%d answers and records of environments were of no use any more", number)


def _say_it_goes(environment: Environment) -> None:
    _log.info("environment %s goes, to make room", environment.address)


def _refusal(part: Wanted, error: NotInstalled) -> _Answer:
    names = error.names or tuple(each.name for each in part.requirements)
    until = time.time() + (_SOON_S if error.is_passing else _AGAIN_S)
    return _Answer(None, tuple(Refusal(name, error.sentence) for name in names), until)


def _takes_any(wanted: Requirement) -> bool:
    """Say whether any version will do: then the one that is there does."""
    return re.sub(r"\[.*?\]", "", wanted.text).removeprefix(wanted.name).strip("@*") == ""
