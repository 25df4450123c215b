"""A module that turned out to be missing when a run needed it: told, or installed and the run repeated once.

Imports are read before a run; what is imported by a name made at run time, or tried by a package for itself,
shows only when it fails. What a program writes as it fails is a stranger's word, so it is a hint and no more:
the name in it is looked up like any other, and nothing comes of it that `pip install` would not do.
"""

import asyncio
import re
from dataclasses import dataclass, replace

from petri.engine import Output
from petri.environment import Requirement, meaning
from petri.errors import PetriError
from petri.model import Missing, Outcome, Packages, Run, Sandbox, Stream
from petri.operations import Host, outfits, trees
from petri.operations.adding import Adding
from petri.operations.becoming import settling
from petri.operations.door import Answer, Question
from petri.operations.outfits import Packaged

_TAIL_BYTES = 1 << 13
_COMPLAINTS: tuple[tuple[Packaged, re.Pattern[str]], ...] = (
    ("python", re.compile(r"^(?:\w+\.)*ModuleNotFoundError: No module named '([\w.]{1,200})'", re.MULTILINE)),
    (
        "python",
        re.compile(r"^(?:\w+\.)*ImportError: Missing optional dependency '([\w.]{1,200})'", re.MULTILINE),
    ),
    ("javascript", re.compile(r"Error: Cannot find module '([\w@./-]{1,200})'")),
    ("javascript", re.compile(r"Cannot find package '([\w@./-]{1,200})' imported from")),
)
_TYPED = {"python": "pip install", "javascript": "npm install"}


@dataclass(frozen=True, slots=True)
class Missed:
    """A module that was not there, and the package that brings it."""

    language: Packaged
    module: str
    package: Requirement


class LastWords:
    """Hands a run's output on, and keeps the end of what it complained of."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._tail = b""

    def __call__(self, stream: Stream, chunk: bytes, /) -> None:
        """Take one chunk."""
        self._output(stream, chunk)
        if stream == "stderr":
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    @property
    def text(self) -> str:
        """Return what is kept."""
        return self._tail.decode(errors="replace")


def missed(adding: Adding, outcome: Outcome, said: str) -> Missed | None:
    """Return what a run failed for, if a package that it has not would have helped."""
    policy = outfits.policy_of(adding.outfitter, adding.decided)
    if outcome.exit_code in (0, None) or policy.mode != "auto":
        return None
    found = last_complaint(said)
    means = meaning(found[1], found[0], policy) if found is not None else None
    there = {name for name, _, _ in map(_split, adding.wearing.outfit.installed)}
    if found is None or not isinstance(means, Requirement) or means.name in there:
        return None
    return Missed(*found, means)


def _split(pinned: str) -> tuple[str, str, str]:
    return pinned.partition("==") if "==" in pinned else pinned.rpartition("@")


def last_complaint(said: str) -> tuple[Packaged, str] | None:
    """Return the module that was missing, by the last of such complaints."""
    found = [
        (match.start(), language, match[1]) for language, each in _COMPLAINTS for match in each.finditer(said)
    ]
    return max(found)[1:] if found else None


def told(run: Run, missing: Missed | None) -> Run:
    """Return `run` with the package that it missed, and what to do about it."""
    if missing is None:
        return run
    name = missing.package.name
    why = (
        f"`{missing.module}` was missing when the run needed it, and nothing had told so before: the package "
        f"`{name}` brings it. Declare it, type `{_TYPED[missing.language]} {name}` in a run, or run it once "
        "more with `missing` set to `repeat`"
    )
    packages = run.packages or Packages()
    known = [each for each in packages.missing if each.name != missing.module]
    refused = (*known, Missing(missing.module, why, name))
    return replace(run, packages=replace(packages, missing=refused))


async def ready_to_repeat(adding: Adding, missing: Missed) -> bool:
    """Have what a run missed, and the files as before it; False if either cannot be, or it is cancelled."""
    host, sandbox, live = adding.host, adding.sandbox, adding.live
    tree, _ = await trees.after(host, sandbox)
    if tree != live.run.tree_before and (tree is None or sandbox.lifetime == "ephemeral"):
        return False  # nobody has kept what the files were
    answer = await _added(adding, missing)
    if answer is None or not answer.is_done:
        return False
    if tree != live.run.tree_before:
        await _go_back(host, sandbox, live.run)
    assert live.run.packages is not None
    live.run = replace(live.run, packages=replace(live.run.packages, repeated=True))
    new = ", ".join(answer.new) or missing.package.name
    said = f"petri: `{missing.module}` was missing. {new} is installed, and the command is run once more.\n"
    live.transcript("stderr", said.encode())
    return True


async def _added(adding: Adding, missing: Missed) -> Answer | None:
    """Return what came of asking for the package; None if the run is cancelled meanwhile."""
    question = Question("module", missing.language, (missing.module,), f"import {missing.module}")
    cancelled = adding.live.leash.cancelled
    async with asyncio.TaskGroup() as waiting:
        asking = waiting.create_task(adding(question, lambda _: None))
        await asyncio.wait((asking, cancelled), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
    return None if asking.cancelled() else asking.result()


async def _go_back(host: Host, sandbox: Sandbox, run: Run) -> None:
    """Have the files as they were before `run`; on record until they are, as whenever they become others."""
    assert run.tree_before is not None
    host.becomings.put(sandbox.id, run.tree_before)
    try:
        await host.ledger.begin_becoming(sandbox.id, run.tree_before, "run.repeat", {"run_id": run.id})
    except PetriError:
        host.becomings.put(sandbox.id, None)
        raise
    await asyncio.shield(settling(host, sandbox))
    await host.ledger.foresee(run)
