"""Give a run the packages it wants: found out from its files, installed once, seen in its cell.

Nothing in here keeps a run from starting. What cannot be had is said in its answer, and it starts without.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from petri.environment import (
    Ask,
    Because,
    Code,
    File,
    Policy,
    Refusal,
    Requirement,
    Wanted,
    Words,
    vetted,
    wanted,
)
from petri.environment.building import Outfit
from petri.errors import PetriError
from petri.model import Addition, Missing, Packages, Run, Sandbox, last_words
from petri.operations import Host, LiveRun
from petri.operations.command import WORKSPACE, Decided, Dependencies
from petri.operations.looking import Glimpse
from petri.operations.outfitter import Outfitter
from petri.threads import in_thread

_log = logging.getLogger("petri.outfits")
_NOTHING = Outfit()
_MOST_SAID = 200
_MOST_LINES = 20
Packaged = Literal["python", "javascript"]
_MODES = ("auto", "manifest-only", "off")
_LANGUAGES = frozenset({"python", "javascript", "typescript", "bash"})


async def find_out(host: Host, sandbox: Sandbox, decided: Decided, seen: Glimpse | None) -> Wanted | None:
    """Return what a run wants beyond its files, which were `seen` just now; None where nobody is to ask."""
    ask = _ask(host, decided)
    if host.outfitter is None or ask is None:
        return None
    known = host.outfitter.known.get((seen.tree, ask)) if seen is not None else None
    if known is not None:
        return known
    try:
        found = await in_thread(_look_through, host, sandbox.id, ask)
    except PetriError:
        return None  # there is no workspace, and the run will say so itself
    except Exception:  # noqa: BLE001 - a project may be anything, and is run whether we understand it or not
        _log.exception("what a run in sandbox %s wants could not be found out", sandbox.id)
        return None
    if seen is not None:
        host.outfitter.remember((seen.tree, ask), found)
    return found


def at_hand(host: Host, found: Wanted | None) -> Outfit | None:
    """Return what a run gets, if it need not wait for it."""
    if found is None or host.outfitter is None:
        return _NOTHING
    return host.outfitter.environments.at_hand(found)


async def outfitted(host: Host, live: LiveRun, found: Wanted | None) -> Outfit | None:
    """Return what a run gets, waiting for it if need be; None if the run is cancelled meanwhile."""
    if found is None or host.outfitter is None:
        return _NOTHING
    async with asyncio.TaskGroup() as waiting:
        preparing = waiting.create_task(
            host.outfitter.environments.prepare(found, live.steps, live.run.tenant)
        )
        await asyncio.wait((preparing, live.leash.cancelled), return_when=asyncio.FIRST_COMPLETED)
        if not preparing.done():
            preparing.cancel()
    return None if preparing.cancelled() else preparing.result()


def on_record(run: Run, outfit: Outfit) -> Run:
    """Return `run` with what it gets, and why."""
    found = outfit.wanted
    if found is None or not (found.requirements or outfit.refused or outfit.environments):
        return run
    parts = (found, *found.also)
    speaks = next((part for part in parts if part.requirements), found)
    repeated = run.packages is not None and run.packages.repeated
    # What its own words did not get, a run may have asked for meanwhile by another's rules.
    there = {package.name for each in outfit.environments for package in each.record.lock.packages}
    packages = Packages(
        installed=tuple(outfit.installed),
        missing=tuple(
            Missing(each.name, each.sentence, each.suggestion)
            for each in outfit.refused
            if each.name not in there
        ),
        source=speaks.source,
        why=speaks.why,
        because={
            each.name: tuple(_line(because) for because in each.because[:_MOST_LINES])
            for part in parts
            for each in part.requirements
        },
        repeated=repeated,
    )
    return replace(run, environment=outfit.address, packages=packages)


def widened(outfitter: Outfitter, found: Wanted, added: Sequence[Addition], policy: Policy) -> Wanted:
    """Return what a run wants, with what runs of its sandbox asked for by name."""
    for language in ("python", "javascript"):
        theirs = [each for each in last_words(added) if each.language == language]
        if theirs:
            found = _with(found, _part(outfitter, found, language, theirs, policy))
    return found


def _part(
    outfitter: Outfitter, found: Wanted, language: Packaged, added: Sequence[Addition], policy: Policy
) -> Wanted:
    part = next((each for each in (found, *found.also) if each.language == language), Wanted(language))
    wants = [_vetted(each, language, policy) for each in added]
    requirements = [each for each in wants if isinstance(each, Requirement)]
    refused = [each for each in wants if isinstance(each, Refusal)]  # the rules may have changed since
    is_loose = any(each.is_loose for each in added)
    part = outfitter.environments.widened(part, requirements, is_loose=is_loose) if requirements else part
    return replace(part, refused=(*part.refused, *refused))


def _vetted(addition: Addition, language: Packaged, policy: Policy) -> Requirement | Refusal:
    verdict = vetted(addition.text, language, policy)
    run_id, _, said = addition.said.partition(" ")
    return replace(verdict, because=(Because(run_id, None, said),))


def _with(found: Wanted, part: Wanted) -> Wanted:
    """Return `found` with `part` in place of what it has for that language."""
    if found.language == part.language:
        return replace(part, also=found.also, asks=found.asks)
    others = tuple(each for each in found.also if each.language != part.language)
    return replace(found, also=(*others, replace(part, also=())))


def policy_of(outfitter: Outfitter, decided: Decided) -> Policy:
    """Return the operator's policy, or what the caller asked for if that allows less."""
    return _stricter(outfitter.policy, decided.dependencies)


def _ask(host: Host, decided: Decided) -> Ask | None:
    if host.outfitter is None:
        return None
    policy = policy_of(host.outfitter, decided)
    if policy.mode == "off":
        return None
    entry: File | Code | Words
    if decided.form == "filename":
        entry = File(decided.path or "")
    elif decided.form == "code":
        entry = Code(decided.said)
    else:
        entry = Words(decided.command.argv)
    language = decided.language if decided.language in _LANGUAGES else "bash"
    return Ask(
        entry,
        language,  # type: ignore[arg-type] # it is one of them
        policy,
        decided.command.cwd.removeprefix(WORKSPACE).strip("/"),
        host.outfitter.python,
        host.outfitter.commands,
    )


def _stricter(policy: Policy, asked: Dependencies | None) -> Policy:
    if asked is None or _MODES.index(asked) <= _MODES.index(policy.mode):
        return policy
    return replace(policy, mode=asked)


def _look_through(host: Host, sandbox_id: str, ask: Ask) -> Wanted:
    with host.workspaces.view(sandbox_id) as view:
        return wanted(view, ask)


def _line(because: Because) -> str:
    where = because.path or "code"
    number = f":{because.line}" if because.line is not None else ""
    return f"{where}{number} {because.said}"[:_MOST_SAID]
