"""Packages that a run asks for while it runs: found out by the same rules, installed, on record, and seen.

`pip install x`, `npm install x` and a module that turned out to be missing all end here. What is added is
there for every later run of the sandbox, too. Of a run whose changes are thrown away, so is this.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from petri.environment import Policy, Refusal, Requirement, Wanted, meaning, vetted
from petri.environment.building import Outfit, Progress, Window
from petri.errors import PetriError
from petri.model import Addition, Sandbox, last_words
from petri.operations import Host, LiveRun, outfits
from petri.operations.command import Decided
from petri.operations.door import Answer, Question, Say, attend
from petri.operations.outfitter import Outfitter
from petri.operations.wearing import Wearing
from petri.threads import settled

_MOST_ADDED = 400
_MOST_SAID = 200
_TOO_MANY = f"runs of this sandbox have asked for {_MOST_ADDED} packages already; declare them in a manifest"
_ONLY_DECLARED = "only what a manifest declares is installed here (`manifest-only`): declare {} there"
_TOO_MUCH = (
    "this run has had {} bytes of packages installed, which stay as long as it runs, and no more than a "
    "quarter of PETRI_ENVIRONMENTS_BYTES is for one run; ask for them in a run of their own, or declare them"
)
_PHASES = {
    **{"resolving": "Collecting", "downloading": "Downloading"},
    **{"building": "Building", "installing": "Installing"},
}


@dataclass(frozen=True, slots=True)
class Adding:
    """Answers what one run asks."""

    host: Host
    outfitter: Outfitter
    sandbox: Sandbox
    live: LiveRun
    decided: Decided
    wearing: Wearing

    async def __call__(self, question: Question, say: Say) -> Answer:
        """Have what a run asks for installed, on record and seen by it; or say why not."""
        policy = outfits.policy_of(self.outfitter, self.decided)
        wants = _wants(question, policy)
        if refused := [each.sentence for each in wants if isinstance(each, Refusal)]:
            return _no("; ".join(refused))
        new = [each for each in wants if isinstance(each, Requirement)]
        if policy.mode != "auto":
            absent = _absent(self.wearing.outfit, question.language, new)
            return _no(_ONLY_DECLARED.format(", ".join(absent))) if absent else self._yes(())
        held = self.wearing.held_bytes
        if held > self.outfitter.environments.most_for_one:
            return _no(_TOO_MUCH.format(held))
        said = f"{self.live.run.id} {question.said or f'import {question.want[0]}'}"[:_MOST_SAID]
        additions = [Addition(question.language, each.name, each.text, said) for each in new]
        return await self._add(additions, policy, say)

    async def _add(self, new: Sequence[Addition], policy: Policy, say: Say) -> Answer:
        """Have `new` beside all that is there: with its versions as they are, or else with others."""
        why_not = _TOO_MANY
        for is_loose in (False, True):
            additions = merged(self.wearing.added, [replace(each, is_loose=is_loose) for each in new])
            if len(additions) > _MOST_ADDED:
                break
            outfit = await self._prepared(additions, policy, say)
            if _has(outfit, new[0].language):
                return await self._exchange(outfit, additions)
            self.outfitter.environments.give_back(outfit)
            why_not = _why_not(outfit, self.wearing.outfit)
            if not _has(self.wearing.outfit, new[0].language):
                break  # there are no versions to let go of
        return _no(why_not)

    async def _prepared(self, additions: tuple[Addition, ...], policy: Policy, say: Say) -> Outfit:
        assert self.wearing.found is not None
        wanted = outfits.widened(self.outfitter, self.wearing.found, additions, policy)

        def tell(progress: Progress) -> None:
            if progress.phase in _PHASES:
                size = f" ({progress.size} bytes)" if progress.size else ""
                say(f"{_PHASES[progress.phase]} {', '.join(progress.packages[:20])}{size}")

        return await self.outfitter.environments.prepare(wanted, tell, self.sandbox.tenant)

    async def _exchange(self, outfit: Outfit, additions: tuple[Addition, ...]) -> Answer:
        """Put it on record; only then the run sees it, and is told."""
        before = self.live.run
        self.live.run = outfits.on_record(before, outfit)
        try:
            await self._record(additions)
        except PetriError as error:
            self.live.run = before
            self.outfitter.environments.give_back(outfit)
            return _no(f"it could not be put on record: {error.message}")
        had = set(self.wearing.outfit.installed)
        self.wearing.exchange(outfit)
        return self._yes(tuple(each for each in outfit.installed if each not in had))

    async def _record(self, additions: tuple[Addition, ...]) -> None:
        self.wearing.added = additions
        self.wearing.is_news = True
        if self.live.run.keep == "always":
            await keep_added(self.host, self.sandbox, self.live, self.wearing)

    def _yes(self, new: tuple[str, ...]) -> Answer:
        return Answer(is_done=True, installed=tuple(self.wearing.outfit.installed), new=new)


def with_added(host: Host, sandbox: Sandbox, decided: Decided, wearing: Wearing) -> Wanted | None:
    """Return what a run wants, with what earlier ones of its sandbox asked for."""
    if wearing.found is None or host.outfitter is None:
        return None
    wearing.added = host.outfitter.added_to(sandbox)
    if not wearing.added:
        return wearing.found
    policy = outfits.policy_of(host.outfitter, decided)
    return outfits.widened(host.outfitter, wearing.found, wearing.added, policy)


@asynccontextmanager
async def attended(adding: Adding, window: Window) -> AsyncIterator[None]:
    """Answer what a run asks at the door of its window, as long as it runs."""
    attending = adding.host.tasks.create_task(attend(window.door, adding))
    try:
        yield
    finally:
        attending.cancel()
        await settled(attending)


async def keep_added(host: Host, sandbox: Sandbox, live: LiveRun, wearing: Wearing) -> None:
    """Have later runs of a sandbox have what this one asked for, if it asked for anything."""
    if wearing.is_news and sandbox.lifetime != "ephemeral" and host.outfitter is not None:
        host.outfitter.added.pop(sandbox.id, None)  # cancelled half way, the ledger alone knows
        await host.ledger.set_added(live.run, wearing.added)
        host.outfitter.note_added(sandbox.id, wearing.added)
        wearing.is_news = False


def _wants(question: Question, policy: Policy) -> list[Requirement | Refusal]:
    """Return what each word of a question comes to."""
    look_up = meaning if question.ask == "module" else vetted
    return [look_up(each, question.language, policy) for each in question.want]


def _absent(outfit: Outfit, language: str, wanted: Sequence[Requirement]) -> list[str]:
    locks = [each.record.lock for each in outfit.environments]
    there = {package.name for lock in locks if lock.ecosystem == language for package in lock.packages}
    return [each.name for each in wanted if each.name not in there]


def merged(known: Sequence[Addition], new: Sequence[Addition]) -> tuple[Addition, ...]:
    """Return additions with the last word of each run on each name: whoever undoes one has the one before.

    A run that says what was said last anyhow adds nothing: many begin by asking for what they always do.
    Where they come to too many all the same, those that others came after go, the oldest first.
    """
    instead = {(each.language, each.name, each.run_id) for each in new}
    before = [each for each in known if (each.language, each.name, each.run_id) not in instead]
    said = {replace(each, said="") for each in last_words(before)}
    all_of_it = [*before, *(each for each in new if replace(each, said="") not in said)]
    last = set(last_words(all_of_it))
    spare = [each for each in all_of_it if each not in last][: max(0, len(all_of_it) - _MOST_ADDED)]
    return tuple(each for each in all_of_it if each not in spare)


def _has(outfit: Outfit, language: str) -> bool:
    return any(each.record.lock.ecosystem == language for each in outfit.environments)


def _why_not(outfit: Outfit, before: Outfit) -> str:
    """Return the reasons that were not there before."""
    known = {each.sentence for each in before.refused}
    reasons = dict.fromkeys(each.sentence for each in outfit.refused if each.sentence not in known)
    return "; ".join(reasons) or "it cannot be had here"


def _no(said: str) -> Answer:
    return Answer(is_done=False, said=said)
