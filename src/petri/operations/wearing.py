"""What a run has of packages while it runs, and how it comes to see them.

Most have an environment mounted or none at all. A run that may ask for more sees a window instead, in which
environments can be exchanged; its door is there, too.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from petri.engine import Link, Mount, Place
from petri.environment import Member, Wanted
from petri.environment.building import (
    BESIDE_MEMBERS,
    CONTINUING,
    NODE_MODULES,
    PIP_PYTHON,
    SHELF_AT,
    WINDOW_AT,
    Environment,
    Outfit,
    Window,
    node_modules,
)
from petri.model import Addition, Command, Sandbox
from petri.operations import Host, LiveRun
from petri.operations.command import BASE_ENV, Decided
from petri.operations.looking import Glimpse

_log = logging.getLogger("petri.outfits")
_SEEN_AT = {"python": ("prefix", f"{WINDOW_AT}/python"), "javascript": ("node_modules", NODE_MODULES)}
"""For each ecosystem: which folder of an environment cells see, and where."""
_PROGRAMS = {"python": f"{WINDOW_AT}/python/bin", "javascript": f"{NODE_MODULES}/.bin"}
_ASKING = f"{WINDOW_AT}/bin"
_NOTHING = Outfit()


@dataclass(slots=True)
class Wearing:
    """A run's packages. It is one run's alone, and changes while that goes on."""

    seen: Glimpse | None = None
    """Its files, when that was looked for in them."""
    found: Wanted | None = None
    """What it was found to want, without what was asked for by name."""
    outfit: Outfit = _NOTHING
    added: tuple[Addition, ...] = ()
    """All that this run and earlier ones of its sandbox asked for."""
    is_news: bool = False
    """Some of that is not on record yet: whether it will be depends on how the run ends."""
    window: Window | None = None
    bare: Environment | None = None
    """What it sees where there is no environment of its own yet."""
    former: list[Outfit] = field(default_factory=list)
    """What it had before it asked for more: programs it started may still use that."""

    @property
    def members(self) -> tuple[Member, ...]:
        """The project's own packages, which its JavaScript imports by name."""
        parts = () if self.found is None else (self.found, *self.found.also)
        return tuple(member for part in parts for member in part.members)

    @property
    def held_bytes(self) -> int:
        """What all of it takes of the disk, as long as the run goes on."""
        outfits = (self.outfit, *self.former)
        held = {each.address: each.record.size for outfit in outfits for each in outfit.environments}
        return sum(held.values())

    def exchange(self, outfit: Outfit) -> None:
        """Have the run see `outfit` from now on."""
        self.former.append(self.outfit)
        self.outfit = outfit
        if self.window is not None:
            for environment in outfit.environments:
                self.window.show(environment)


@contextmanager
def held(host: Host, wearing: Wearing) -> Iterator[None]:
    """Keep what a run has for as long as it runs; nothing of it is left behind then."""
    try:
        yield
    finally:
        if wearing.window is not None:
            wearing.window.close()
        if host.outfitter is not None:
            environments = host.outfitter.environments
            for outfit in (wearing.outfit, *wearing.former):
                environments.give_back(outfit)
            if wearing.bare is not None:
                environments.shelf.give_back(wearing.bare)


async def open_window(
    host: Host, sandbox: Sandbox, live: LiveRun, decided: Decided, wearing: Wearing
) -> None:
    """Let a run ask for packages, if it is one that may. Without, it runs all the same."""
    found = wearing.found
    if host.outfitter is None or found is None or not (found.asks or decided.missing == "continue"):
        return
    try:
        window = host.outfitter.windows.open(host.owner_of(sandbox), wearing.members)
    except OSError as error:
        _log.warning("run %s cannot ask for packages: %s", live.run.id, error)
        return
    wearing.window = window
    shown = wearing.outfit.environments
    if not any(each.record.lock.ecosystem == "python" for each in shown):
        wearing.bare = await host.outfitter.environments.bare("python", live.steps)
    for environment in (*shown, *filter(None, (wearing.bare,))):
        window.show(environment)


def worn(host: Host, place: Place, decided: Decided, wearing: Wearing) -> tuple[Place, Command]:
    """Return place and command such that the command finds the packages of a run."""
    command = decided.command
    shown = (*wearing.outfit.environments, *filter(None, (wearing.bare,)))
    if wearing.window is not None and host.outfitter is not None:
        mounts = (Mount(host.outfitter.windows.shelf, SHELF_AT),)
        links = (Link(wearing.window.seen_at, WINDOW_AT), Link(f"{WINDOW_AT}/node_modules", NODE_MODULES))
        place = replace(place, mounts=(*place.mounts, *mounts), links=(*place.links, *links))
        command = _asking(command, decided)
    elif wearing.members:
        place = _with_members(place, wearing, shown)
    elif shown:
        place = replace(place, mounts=(*place.mounts, *(_mount(each) for each in shown)))
    if any(each.programs for each in wearing.members):
        command = _with_programs(command, decided.language, "javascript")
    for environment in shown:
        command = _with_programs(command, decided.language, environment.record.lock.ecosystem)
    return place, command


def _mount(environment: Environment) -> Mount:
    inner, at = _SEEN_AT[environment.record.lock.ecosystem]
    return Mount(environment.folder / inner, at)


def _with_members(place: Place, wearing: Wearing, shown: tuple[Environment, ...]) -> Place:
    """Return `place` such that node finds the project's own packages beside what is installed."""
    mounts = [_mount(each) for each in shown]
    beside = [replace(each, at=BESIDE_MEMBERS) if each.at == NODE_MODULES else each for each in mounts]
    installed = next((each.folder for each in mounts if each.at == NODE_MODULES), None)
    wanted = wearing.outfit.wanted
    parts = () if wanted is None else (wanted, *wanted.also)
    first = {each.name for part in parts for each in part.requirements}
    found = node_modules(wearing.members, installed, BESIDE_MEMBERS, first)
    links = (Link(leads, f"{NODE_MODULES}/{name}") for name, leads in found.items())
    return replace(place, mounts=(*place.mounts, *beside), links=(*place.links, *links))


def _asking(command: Command, decided: Decided) -> Command:
    """Return `command` such that whatever asks the server for packages is found before anything else."""
    env = dict(command.env)
    if _is_ours(env):
        env["PATH"] = ":".join((_ASKING, *_PROGRAMS.values(), env["PATH"]))
    env.setdefault("PIP_PYTHON", f"{_ASKING}/{PIP_PYTHON}")
    if decided.missing == "continue":
        env["PYTHONPATH"] = ":".join(filter(None, (CONTINUING, env.get("PYTHONPATH"))))
    return replace(command, env=env)


def _is_ours(env: dict[str, str]) -> bool:
    """Say whether `PATH` is for us to change: whoever sets one of their own has said where to look."""
    return env.get("PATH", "").endswith(BASE_ENV["PATH"])


def _with_programs(command: Command, language: str | None, ecosystem: str) -> Command:
    """Return `command` such that its packages' programs, and their interpreter, come first."""
    env = dict(command.env)
    if _is_ours(env) and _PROGRAMS[ecosystem] not in env["PATH"].split(":"):
        env["PATH"] = f"{_PROGRAMS[ecosystem]}:{env['PATH']}"
    if ecosystem == "python":
        env.setdefault("VIRTUAL_ENV", _SEEN_AT["python"][1])
    argv = command.argv
    if ecosystem == language == "python":
        argv = (f"{_PROGRAMS['python']}/python3", *argv[1:])
    return replace(command, argv=argv, env=env)
