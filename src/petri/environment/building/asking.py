"""How packages are asked for: under which terms, and whom to tell."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from petri.environment.building.locks import Lock
from petri.environment.building.prefix import Weighed
from petri.environment.building.progress import Tell
from petri.environment.building.shelf import Environment
from petri.environment.needs.nouns import Wanted

Lend = Callable[[Wanted, Tell], AbstractAsyncContextManager[Environment]]
"""Lends an environment, made now if need be; `NotInstalled` says why there is none."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One resolving."""

    scratch: Path
    """A folder of its own."""
    newest: str | None
    """The moment before which a file must have been published."""
    tell: Tell
    lend: Lend
    """What it takes to build a package is packages, too."""
    tenant: str = ""
    """For whom: nobody's builds take every place."""


class Packages(Protocol):
    """One ecosystem: how what is wanted becomes a lock, and a lock a folder."""

    async def platform(self) -> str:
        """Return what decides, beside a lock, what is installed."""

    async def resolve(self, wanted: Wanted, asking: Asking) -> Lock:
        """Return the packages that `wanted` comes to; `NotInstalled` says why it comes to none."""

    async def install(
        self, lock: Lock, folder: Path, tell: Tell
    ) -> tuple[Weighed, dict[str, tuple[str, ...]]]:
        """Fill `folder` with what `lock` says; return what it weighs, and who of it needs whom."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator decided about environments."""

    exclude_newer_days: int = 7
    """Nothing younger than this is installed; 0 for anything."""
    budget_bytes: int = 20 << 30
    """What environments, and what the installers keep, may take of the disk."""
    index_url: str | None = None
    deny: frozenset[str] = frozenset()
    """Names of packages that are never installed, as little as what needs them."""
    builds: Literal["cell", "off"] = "cell"
    """Where a package is built that has no wheel; nowhere but in a cell."""
    patience_s: float = 1800
    """How long a run waits for all that it wants, from the first question to the index to the last file."""
