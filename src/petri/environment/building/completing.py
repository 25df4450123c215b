"""What is left to do once an environment is in use: every file is checked, every module compiled.

Whoever came first does not wait for it. An environment that is not what its packages say it is goes.
"""

import asyncio
import base64
import csv
import hashlib
import os
import stat
from pathlib import Path

from petri.engine import Engine
from petri.environment.building.compiling import compile_all
from petri.environment.building.prefix import close, site_packages
from petri.environment.building.python import PythonPackages
from petri.environment.building.shelf import Environment, Shelf
from petri.errors import Unavailable
from petri.threads import in_own_thread

_LATER_S = 0.5
"""After an environment is there, this begins: whoever waited for it first has the processors to start."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Completion:
    """Completes environments, with cells of `engine` that belong to `owner`."""

    def __init__(self, shelf: Shelf, python: PythonPackages, engine: Engine, owner: int | None) -> None:
        self._shelf = shelf
        self._python = python
        self._engine = engine
        self._owner = owner

    async def __call__(self, environment: Environment) -> None:
        """Have `environment` checked and compiled; `Unavailable` if it is not what it says it is."""
        if environment.record.lock.ecosystem != "python":
            return
        await asyncio.sleep(_LATER_S)
        interpreter = await self._python.interpreter()
        prefix = environment.folder / "prefix"
        await in_own_thread(close, prefix)
        wrong = await in_own_thread(first_wrong, site_packages(prefix, interpreter.version))
        if wrong is not None:
            await in_own_thread(self._shelf.drop, environment)
            raise Unavailable(f"{wrong} is not the file that its package has")
        await compile_all(self._engine, self._shelf.folder, prefix, interpreter, self._owner)


def first_wrong(packages: Path) -> str | None:
    """Return the first file that is not what the record of its package says, if one is not. Takes long."""
    for record in sorted(packages.glob("*.dist-info/RECORD")):
        with record.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in csv.reader(file):
                if _promises(row) and not _is(packages / row[0], row[1]):
                    return row[0]
    return None


def _promises(row: list[str]) -> bool:
    # What lies outside are programs, whose first line names another interpreter by now. And a record is a
    # stranger's word: by `x/../../dev/zero` it would have us read for ever.
    if len(row) != 3 or not row[1].startswith("sha256="):
        return False
    return not row[0].startswith("/") and ".." not in row[0].split("/")


def _is(path: Path, promised: str) -> bool:
    try:
        with os.fdopen(os.open(path, _FILE), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False
            digest = hashlib.file_digest(file, "sha256").digest()
    except (OSError, ValueError):
        return False
    return promised == "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
