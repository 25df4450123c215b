"""The ground all workspaces stand on: one folder, ours, with each sandbox's folder directly in it.

Beside them lie `.staging`, where uploads grow until they are whole, `.trash`, and `.indexes`, what is known
of every file. They are on the same file system, so that things move by rename, and closed to every cell.
"""

import itertools
import os
import re
import secrets
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

from petri.errors import Busy, NotFound
from petri.workspace.beneath import Held, trusted
from petri.workspace.digests import Digests
from petri.workspace.errand import Errand
from petri.workspace.kernel import syncfs
from petri.workspace.paths import quoted
from petri.workspace.refusals import refusing
from petri.workspace.removal import Trash

_SANDBOX_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""A DNS label. In particular neither `.staging`, `..` nor anything with a slash."""
_MADE_ID = re.compile(r"sb-[a-z0-9]{20}")
"""What sandboxes of callers are called. The server has folders of its own beside theirs."""
_IN_USE = 128
"""Sandboxes whose folder's path is remembered: each run asks for it ten times."""
_PATIENCE_S = 60.0
"""How long one change of a workspace waits for another, and how long scraps are swept up."""


class Ground:
    """Where everything is, and who may change a workspace now."""

    def __init__(self, root: Path) -> None:
        # The operator's own path may well pass a link; from here on, none of ours does.
        self.root = root.resolve()
        self.staging = self.root / ".staging"
        self.indexes = self.root / ".indexes"
        self.digests = Digests()
        self.ending = threading.Event()
        """Set when the server ends: every errand is called off."""
        self.trash = Trash(self.root / ".trash", self.ending)
        self._life = secrets.token_hex(8)
        self._count = itertools.count()
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._prepare()

    def unlock(self, sandbox_id: str) -> None:
        """Give the owner of a workspace every right on its folder: no cell could be made over it otherwise.

        One system call where nothing is to be done.
        """
        folder = self.folder(sandbox_id)
        with suppress(FileNotFoundError):
            mode = folder.stat().st_mode
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)

    def drop_empty(self, known: Collection[str]) -> None:
        """Remove the folders of callers' sandboxes that are not `known` and have nothing in them."""
        with os.scandir(self.root) as found:
            made = [each.name for each in found if _MADE_ID.fullmatch(each.name)]
        for name in set(made).difference(known):
            with suppress(OSError):
                self.folder(name).rmdir()

    def _prepare(self) -> None:
        made = not self.root.is_dir()
        if made:
            self.root.mkdir(parents=True)
            # Passed through by every cell on the way to its own folder, listed by none.
            self.root.chmod(0o711)
        for folder in (self.staging, self.indexes, self.root / ".trash"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)
        if made:
            with trusted(self.root) as root:
                syncfs(root)

    def folder(self, sandbox_id: str) -> Path:
        """Return the path of a sandbox's workspace, which need not exist."""
        return _folder(self.root, sandbox_id)

    def workspace(self, sandbox_id: str) -> Held:
        """Hold open a sandbox's workspace."""
        folder = self.folder(sandbox_id)
        with refusing(""):
            try:
                return Held(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            except FileNotFoundError:
                raise NotFound(f"sandbox {sandbox_id} has no workspace") from None

    @contextmanager
    def changing(self, sandbox_id: str) -> Iterator[None]:
        """Be the only request that changes this workspace. Its own code knows no such manners."""
        with self._guard:
            lock = self._locks.setdefault(sandbox_id, threading.Lock())
        if not lock.acquire(timeout=_PATIENCE_S):
            raise Busy(f"sandbox {sandbox_id} is being written to by another request; try again")
        try:
            yield
        finally:
            lock.release()

    def errand(self) -> Errand:
        """Return new work that ends with the server at the latest."""
        return Errand(self.ending)

    def new_stage(self) -> Path:
        """Make a staging folder of this life of the server."""
        stage = self.staging / f"{self._life}-{next(self._count)}"
        stage.mkdir(mode=0o700)
        return stage

    def throw_away(self, stage: Path) -> str:
        """Move a staging folder to the trash, with whatever is still in it; return its name there."""
        with trusted(self.staging) as staging:
            return self.trash.throw(staging, stage.name)

    def discard(self, stage: Path) -> None:
        """Make a staging folder vanish, with whatever is still in it."""
        self.trash.burn(self.throw_away(stage), patience_s=_PATIENCE_S)

    def old_stages(self) -> list[Path]:
        """Return the staging folders that an earlier life of the server left."""
        return [stage for stage in self.staging.iterdir() if not stage.name.startswith(self._life)]


@lru_cache(_IN_USE)
def _folder(root: Path, sandbox_id: str) -> Path:
    if not _SANDBOX_ID.fullmatch(sandbox_id):
        raise NotFound(f"there is no sandbox {quoted(sandbox_id)}")
    return root / sandbox_id
