"""An index of our own, and everything it takes to install from it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from petri.environment import Because, Requirement, Wanted
from petri.environment.building import (
    Environment,
    Environments,
    NotInstalled,
    Outfit,
    Progress,
    PythonPackages,
    Rules,
    Shelf,
    Tell,
    Uv,
)
from petri.environment.building.asking import Asking
from petri.settings import for_installers
from tests.package_index import PackageIndex

UV = str(Path(sys.executable).parent / "uv")
PYTHON = "/usr/bin/python3"
YESTERDAY = time.strftime("%Y-%m-%dT00:00:00Z", time.gmtime(time.time() - 86_400))


@asynccontextmanager
async def opened(
    root: Path, index: PackageIndex | None, rules: Rules | None = None, *, room: list[bool] | None = None
) -> AsyncIterator[Environments]:
    """Hold open everything it takes to install, with nothing to compile by."""
    shelf = Shelf(root)
    uv = Uv(UV, PYTHON, shelf.cache, index.url if index else None)
    env = {**for_installers(), "UV_HTTP_RETRIES": "0"}
    room = room if room is not None else [True]
    packages = PythonPackages(uv, env, lambda: room[0])

    async def complete(_: Environment) -> None:
        pass

    async with asyncio.TaskGroup() as tasks:
        environments = Environments(shelf, {"python": packages}, rules or Rules(), tasks, complete)
        yield environments
        environments.stop()


def want(*texts: str, **others: object) -> Wanted:
    """Return a wish for these requirements, found by imports."""
    requirements = tuple(Requirement(_name(text), text, (Because("main.py", 1, text),)) for text in texts)
    return replace(Wanted("python", requirements, source="imports"), **others)  # type: ignore[arg-type]


def _name(text: str) -> str:
    return text.replace("<", "=").replace(">", "=").split("=")[0].strip()


def silent(_: Progress) -> None:
    """Listen to nothing."""


def asking(scratch: Path) -> Asking:
    """Return how packages are asked for where nothing is lent."""

    @asynccontextmanager
    async def lend(_: Wanted, __: Tell) -> AsyncIterator[Environment]:
        raise NotInstalled("nothing is lent")
        yield

    return Asking(scratch, None, silent, lend)


def imported(outfit: Outfit, module: str) -> str:
    """Return what a module of an environment says of itself, asked of the interpreter that cells have."""
    (environment,) = outfit.environments
    site = next((environment.folder / "prefix/lib").glob("python3*/site-packages"))
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {module}; print({module}.version)"
    done = subprocess.run(
        [PYTHON, "-I", "-B", "-c", code, str(site)], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def downloads(index: PackageIndex) -> list[str]:
    return [path for path in index.fetched if path.endswith(".whl")]


async def downloading(index: PackageIndex) -> None:
    """Wait until the installer asks for a wheel."""
    async with asyncio.timeout(20):
        while not downloads(index):  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.01)
