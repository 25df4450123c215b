"""Bringing a workspace from one tree to another: takings away and puttings in place, all or nothing.

An upload only puts things in place (`commit`). A push, a restore or a merge also deletes, moves and replaces.
Everything is three kinds of step: *take* moves something out of the workspace into the stage, *put* moves
something staged to its path, *swap* exchanges the two, so that whoever reads meanwhile finds one or the
other. A rename is a take and a put of the same thing, however large the folder is.

Each step names what it expects to find. Code that runs meanwhile may have changed it: then every step so far
is undone, and what that code wrote is where it was. The journal is durable before the first step, so after a
crash the rest is done (`roll_forward`): every step can be told to be done already by the inode it moves.
"""

import errno
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from petri.errors import Conflict
from petri.workspace import kernel
from petri.workspace.beneath import FOLDER, beneath
from petri.workspace.commit import Site, settle
from petri.workspace.journal import keep, recall
from petri.workspace.paths import quoted, split
from petri.workspace.refusals import refusing

_NAME = "rework"
_ANY = -1


@dataclass(frozen=True, slots=True)
class Step:
    """Something moves out of the workspace, into it, or both."""

    kind: Literal["take", "put", "swap"]
    path: str
    staged: str
    """Its name in the stage."""
    inode: int
    """Of what moves (of a swap: in). After a crash it tells where that is."""
    old_inode: int = _ANY
    """Of what a swap moves out."""
    size: int = _ANY
    mtime_ns: int = _ANY
    """What a file that moves out is expected to be; any, where nothing is lost."""


@dataclass(frozen=True, slots=True)
class Rework:
    """All steps, in order."""

    sandbox_id: str
    owner: int | None
    steps: Sequence[Step]

    def carry_out(self, site: Site) -> None:
        """Make every step, durably; or raise, and everything is as it was."""
        with ExitStack() as undo:
            undo.callback(_erase, site.staging)
            self._write(site.staging)
            for step in self.steps:
                with refusing(step.path):
                    _make(site, step)
                undo.callback(_unmake, site, step)
            with refusing(""):
                os.fsync(site.staging)  # what was taken is out of the workspace by a name in here
            settle(site, {split(step.path)[0] for step in self.steps})
            undo.pop_all()

    def roll_forward(self, site: Site) -> None:
        """Make the steps that a crash prevented. What somebody has since put in the way stays."""
        for step in self.steps:
            with suppress(OSError, Conflict):
                _make(site, step)
        kernel.syncfs(site.staging)

    def _write(self, staging: int) -> None:
        rows = [list(asdict(step).values()) for step in self.steps]
        keep(staging, _NAME, json.dumps([self.sandbox_id, self.owner, rows]))

    @classmethod
    def read(cls, stage: Path) -> Self | None:
        """Return the rework whose journal is in `stage`, if there is one."""
        kept = recall(stage, _NAME)
        if kept is None:
            return None
        sandbox_id, owner, rows = kept
        return cls(sandbox_id, owner, [Step(*row) for row in rows])


def _erase(staging: int) -> None:
    with suppress(OSError):
        os.unlink(_NAME, dir_fd=staging)
        os.fsync(staging)


def _make(site: Site, step: Step) -> None:
    folder, name = split(step.path)
    with beneath(site.workspace, folder, FOLDER, follow=False) as fd:
        if step.kind == "take":
            _require_old(fd, name, step, step.inode)
            _rename(fd, name, site.staging, step.staged)
            _look_again(site, step, fd, name)
            return
        if os.stat(step.staged, dir_fd=site.staging, follow_symlinks=False).st_ino != step.inode:
            raise _changed(step.path)
        if step.kind == "put":
            _rename(site.staging, step.staged, fd, name)
        else:
            _require_old(fd, name, step, step.old_inode)
            exchange(site.staging, step.staged, fd, name)
            _look_again(site, step, fd, name)


def _require_old(folder: int, name: str, step: Step, inode: int) -> None:
    """Refuse unless what is to move out is what was expected there."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if found.st_ino != inode:
        raise _changed(step.path)
    if step.size != _ANY and (found.st_size, found.st_mtime_ns) != (step.size, step.mtime_ns):
        raise _changed(step.path)


def _look_again(site: Site, step: Step, folder: int, name: str) -> None:
    """Refuse, and move back, what changed between being looked at and being moved out."""
    try:
        _require_old(site.staging, step.staged, step, step.inode if step.kind == "take" else step.old_inode)
    except Conflict:
        (_rename if step.kind == "take" else exchange)(site.staging, step.staged, folder, name)
        raise


def _unmake(site: Site, step: Step) -> None:
    folder, name = split(step.path)
    with suppress(OSError), beneath(site.workspace, folder, FOLDER, follow=False) as fd:
        if step.kind == "take":
            _rename(site.staging, step.staged, fd, name)
        elif step.kind == "swap":
            exchange(site.staging, step.staged, fd, name)
        elif os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino == step.inode:
            _rename(fd, name, site.staging, step.staged)


def _rename(source: int, name: str, destination: int, new_name: str) -> None:
    """Rename onto nothing: whatever has got in the way stays."""
    try:
        kernel.rename(source, name, destination, new_name, kernel.RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # NFS and old ZFS know no renames with flags.
        if _exists(destination, new_name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=destination)


def exchange(staging: int, staged: str, folder: int, name: str) -> None:
    """Have what is staged at its place, and what was there in the stage."""
    try:
        kernel.rename(staging, staged, folder, name, kernel.RENAME_EXCHANGE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        os.rename(name, f"{staged}.old", src_dir_fd=folder, dst_dir_fd=staging)
        os.rename(staged, name, src_dir_fd=staging, dst_dir_fd=folder)
        os.rename(f"{staged}.old", staged, src_dir_fd=staging, dst_dir_fd=staging)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _changed(path: str) -> Conflict:
    return Conflict(f"{quoted(path)} changed while the workspace was being updated; nothing was done")
