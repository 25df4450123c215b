"""What a run sees of environments where that may change while it runs.

A run that cannot ask for packages has its environment mounted, and that is that. One that can ask sees the
whole shelf, whose environments are for everybody anyhow, and a *window*: a folder of links to those that it
has, at a place nobody else is told. Where the links lead is changed from here, by a rename, and the run sees
it at once; nothing of it can be changed from inside.
"""

import os
import secrets
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from petri.environment.building.members import node_modules
from petri.environment.building.shelf import Environment
from petri.environment.needs.nouns import Member

SHELF_AT = "/run/petri/environments"
"""Where cells see the shelf, if they do."""
WINDOW_AT = "/environment"
"""Where they see their window."""
NODE_MODULES = "/node_modules"
BESIDE_MEMBERS = f"{WINDOW_AT}/node_modules"
"""Where cells see what is installed if `NODE_MODULES` is made of links."""
CONTINUING = f"{WINDOW_AT}/lib/petri/cell/tools/continuing"
"""What Python finds there goes on where a module is missing."""
_SHOWN = {"python": "prefix", "javascript": "node_modules"}
_LINKS = {"python": "python", "javascript": "node_modules"}
_NOT_LISTED = 0o311
"""Also not by its owner: where the server is no root, that is whom cells run as."""
_BACKLOG = 8
_TOOLS = Path(__file__).parents[2] / "cell" / "tools"
_COMMANDS = {"pip": "pip", "pip3": "pip", "uv": "pip", "npm": "npm", "yarn": "npm", "pnpm": "npm"}
COMMANDS = frozenset(_COMMANDS)
"""What can be typed in there to ask for packages."""
PIP_PYTHON = "pip-python"
"""What a pip that is not ours starts instead of going on itself: see `cell.tools.own_pip`."""
_COMMAND = """#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "{at}/lib")
from petri.cell.tools.{module} import main
sys.exit(main(sys.argv))
"""


class Window:
    """One run's. Closed by whoever opened it."""

    def __init__(self, folder: Path, owner: int | None, members: Sequence[Member] = ()) -> None:
        self.folder = folder
        self._members = members
        folder.mkdir()
        folder.chmod(0o755)
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            for name in ("bin", "lib"):
                (folder / name).symlink_to(f"../../.tools/{name}")
            if members:
                self._link("javascript", self._with_members(None))
            self._listen(owner)
        except BaseException:
            self.close()
            raise

    def _listen(self, owner: int | None) -> None:
        """Have the run's door: a socket that nobody else may open."""
        descriptor = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By its descriptor, since the folder's own path may be too long for a socket.
            self.door.bind(f"/proc/self/fd/{descriptor}/door")
            (self.folder / "door").chmod(0o600)
            if owner is not None:
                os.chown(self.folder / "door", owner, owner)
            self.door.listen(_BACKLOG)
        finally:
            os.close(descriptor)

    @property
    def seen_at(self) -> str:
        """Where the cell has it, before any link."""
        return f"{SHELF_AT}/.windows/{self.folder.name}"

    def show(self, environment: Environment) -> None:
        """Have the run see `environment` in place of the one of its ecosystem that it saw before."""
        ecosystem = environment.record.lock.ecosystem
        leads = f"../../{environment.address}/{_SHOWN[ecosystem]}"
        if ecosystem == "javascript" and self._members:
            leads = self._with_members(environment)
        self._link(ecosystem, leads)

    def _link(self, ecosystem: str, leads: str) -> None:
        new = self.folder / f".{secrets.token_hex(8)}"
        new.symlink_to(leads)
        new.rename(self.folder / _LINKS[ecosystem])

    def _with_members(self, environment: Environment | None) -> str:
        """Return a new folder in here, of links to the project's own packages and to installed ones."""
        folder = self.folder / secrets.token_hex(8)
        folder.mkdir()
        shown = _SHOWN["javascript"]
        installed = None if environment is None else environment.folder / shown
        seen_at = "" if environment is None else f"{SHELF_AT}/{environment.address}/{shown}"
        for name, leads in node_modules(self._members, installed, seen_at).items():
            link = folder / name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(leads)
        for each in (folder, *(each for each in folder.iterdir() if not each.is_symlink())):
            each.chmod(0o755)
        return folder.name

    def close(self) -> None:
        """Have it gone. Closing twice is fine."""
        self.door.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Windows:
    """All of them, on one shelf, and the commands that every one has."""

    def __init__(self, shelf: Path) -> None:
        self.shelf = shelf
        self._folder = shelf / ".windows"
        if self._folder.exists():
            self._folder.chmod(0o700)
            shutil.rmtree(self._folder)
        self._folder.mkdir()
        self._folder.chmod(_NOT_LISTED)
        _build_tools(shelf / ".tools")

    def open(self, owner: int | None, members: Sequence[Member] = ()) -> Window:
        """Return a new window, whose door opens to the cells of `owner`, onto a project of `members`."""
        return Window(self._folder / secrets.token_hex(16), owner, members)


def _build_tools(folder: Path) -> None:
    """Have in `folder` what is typed to ask for packages, and what that is made of."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_TOOLS, folder / "lib/petri/cell/tools", ignore=ignored)
    (folder / "bin").mkdir()
    for name, module in (*_COMMANDS.items(), (PIP_PYTHON, "own_pip")):
        (folder / "bin" / name).write_text(_COMMAND.format(at=WINDOW_AT, module=module))
        (folder / "bin" / name).chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
