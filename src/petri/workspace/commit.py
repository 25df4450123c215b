"""Moving what is staged to its places: all of it or nothing, and never out of the workspace.

Every folder is opened beneath the workspace and then used by descriptor, so code that swaps folders
for links can make a commit fail but cannot lead it astray. What is in the way is found before anything
moves; what gets in the way later, or a disk that fills up half-way, is answered by moving back.
"""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from petri.errors import CallerError, Conflict
from petri.workspace import kernel
from petri.workspace.beneath import FOLDER, LOOK, beneath, open_beneath
from petri.workspace.journal import Journal, erase
from petri.workspace.paths import quoted, split
from petri.workspace.plan import Move, ancestors
from petri.workspace.refusals import refusing

FEW = 32
"""Up to here each file or folder is fsynced; beyond, one syncfs is quicker than thousands of those."""
_TRIES = 16
_NEW_FOLDER = "new-folder"
_CANNOT_UNDO = -1


@dataclass(frozen=True, slots=True)
class Site:
    """Where a commit happens: two folders, held open, and whose the files will be."""

    workspace: int
    staging: int
    owner: int | None


def hand_over(staging: int, staged: str, owner: int | None) -> None:
    """Make something staged belong to the sandbox's code."""
    if owner is not None:
        os.chown(staged, owner, owner, dir_fd=staging, follow_symlinks=False)


def harden(staging: int, moves: list[Move]) -> None:
    """Make the content of everything staged durable."""
    files = [move.staged for move in moves if move.kind == "file"]
    if len(files) > FEW:
        kernel.syncfs(staging)
        return
    for staged in files:
        with beneath(staging, staged, os.O_RDONLY) as fd:
            os.fsync(fd)


def carry_out(site: Site, sandbox_id: str, moves: list[Move]) -> None:
    """Make every move, durably; or raise, and everything is as it was."""
    missing = _survey(site, moves)
    with ExitStack() as undo:
        if len(moves) > 1:
            undo.callback(erase, site.staging)
            Journal(sandbox_id, site.owner, moves).write(site.staging)
        _place(site, moves, missing, undo)
        settle(site, _by_folder(moves, missing))
        undo.pop_all()


def roll_forward(site: Site, moves: list[Move]) -> None:
    """Make the moves that a crash prevented. What somebody has since put in the way stays."""
    for move in moves:
        with suppress(CallerError), refusing(move.path), ExitStack() as undo:
            if os.stat(move.staged, dir_fd=site.staging, follow_symlinks=False).st_ino == move.inode:
                _place(site, [move], _survey(site, [move]), undo)
            undo.pop_all()
    settle(site, _by_folder(moves))


def _survey(site: Site, moves: list[Move]) -> list[str]:
    """Return the folders to be made, parents first; refuse if anything is in the way. Changes nothing."""
    missing: dict[str, None] = {}
    for folder in sorted(ancestors(move.path for move in moves)):
        if split(folder)[0] in missing or not _has_folder(site, folder):
            missing[folder] = None
    for folder, inside in _by_folder(moves, missing).items():
        if folder not in missing:
            _require_room(site, folder, inside)
    return list(missing)


def _has_folder(site: Site, path: str) -> bool:
    with refusing(path):
        try:
            with beneath(site.workspace, path, LOOK | os.O_DIRECTORY):
                return True
        except NotADirectoryError:
            raise Conflict(f"{quoted(path)} is not a folder, and would have to be one") from None
        except FileNotFoundError:
            _refuse_dangling(site, path)
            return False


def _refuse_dangling(site: Site, path: str) -> None:
    with suppress(FileNotFoundError), beneath(site.workspace, path, LOOK | os.O_NOFOLLOW):
        raise Conflict(f"{quoted(path)} is a link to nothing, and would have to be a folder")


def _require_room(site: Site, folder: str, moves: list[Move]) -> None:
    with refusing(folder), beneath(site.workspace, folder, FOLDER) as fd:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        for move in moves:
            with suppress(FileNotFoundError):
                seen = os.stat(split(move.path)[1], dir_fd=fd, follow_symlinks=False)
                if move.kind == "folder":
                    _has_folder(site, move.path)
                elif stat.S_ISDIR(seen.st_mode):
                    raise Conflict(f"{quoted(move.path)} is a folder; delete it to put a {move.kind} there")


def _place(site: Site, moves: list[Move], missing: list[str], undo: ExitStack) -> None:
    for folder in missing:
        _make_folder(site, folder)
        undo.callback(_unmake_folder, site, folder)
    for folder, inside in _by_folder(moves).items():
        with refusing(folder), beneath(site.workspace, folder, FOLDER) as fd:
            for move in inside:
                with refusing(move.path):
                    # One file needs no way back: it is the last to move.
                    how = _put(site, move, fd) if len(moves) == 1 else _put_undoably(site, move, fd)
                undo.callback(_swap_out, site, move, how)


def _make_folder(site: Site, path: str) -> None:
    # Made where the code cannot reach it, so that nothing can be swapped in before it changes hands.
    with refusing(path), suppress(FileExistsError):
        os.mkdir(_NEW_FOLDER, dir_fd=site.staging)
    with refusing(path):
        os.chmod(_NEW_FOLDER, 0o755, dir_fd=site.staging)
        hand_over(site.staging, _NEW_FOLDER, site.owner)
        folder, name = split(path)
        with beneath(site.workspace, folder, FOLDER) as fd:
            os.rename(_NEW_FOLDER, name, src_dir_fd=site.staging, dst_dir_fd=fd)


def _unmake_folder(site: Site, path: str) -> None:
    folder, name = split(path)
    with suppress(OSError), beneath(site.workspace, folder, FOLDER) as fd:
        os.rmdir(name, dir_fd=fd)


def _put(site: Site, move: Move, folder: int) -> int:
    name = split(move.path)[1]
    if move.kind != "folder" or not _has_folder(site, move.path):
        os.rename(move.staged, name, src_dir_fd=site.staging, dst_dir_fd=folder)
    return _CANNOT_UNDO


def _put_undoably(site: Site, move: Move, folder: int) -> int:
    """Put `move` in place, what it replaces into the staging folder; return what would undo that."""
    try:
        return _swap_in(site, move, folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
    # NFS and old ZFS know no renames with flags. The journal still holds; only the way back is lost.
    return _put(site, move, folder)


def _swap_in(site: Site, move: Move, folder: int) -> int:
    name = split(move.path)[1]
    for _ in range(_TRIES):
        with suppress(FileExistsError):
            kernel.rename(site.staging, move.staged, folder, name, kernel.RENAME_NOREPLACE)
            return kernel.RENAME_NOREPLACE
        if move.kind == "folder":
            return _CANNOT_UNDO  # there is one already, and it stays
        with suppress(FileNotFoundError):
            _exchange(site, move, folder, name)
            return kernel.RENAME_EXCHANGE
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _exchange(site: Site, move: Move, folder: int, name: str) -> None:
    kernel.rename(site.staging, move.staged, folder, name, kernel.RENAME_EXCHANGE)
    # Since the survey the code may have made a folder here, and with flags the kernel replaces those too.
    if stat.S_ISDIR(os.stat(move.staged, dir_fd=site.staging, follow_symlinks=False).st_mode):
        kernel.rename(site.staging, move.staged, folder, name, kernel.RENAME_EXCHANGE)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _swap_out(site: Site, move: Move, how: int) -> None:
    if how == _CANNOT_UNDO:
        return
    folder, name = split(move.path)
    with suppress(OSError), beneath(site.workspace, folder, FOLDER) as fd:
        if os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino == move.inode:
            kernel.rename(fd, name, site.staging, move.staged, how)


def settle(site: Site, folders: Iterable[str]) -> None:
    """Make the entries of `folders` durable."""
    folders = list(folders)
    with refusing(""):
        if len(folders) <= FEW and all(_synced(site, folder) for folder in folders):
            return
        kernel.syncfs(site.staging)


def _synced(site: Site, folder: str) -> bool:
    try:
        fd = open_beneath(site.workspace, folder, FOLDER)
    except OSError:
        return False  # the code has moved, swapped or closed it since: only syncfs still reaches it
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def _by_folder(moves: Iterable[Move], folders: Iterable[str] = ()) -> dict[str, list[Move]]:
    """Return every folder that changes, with the moves into it."""
    inside: dict[str, list[Move]] = {split(path)[0]: [] for path in folders}
    for move in moves:
        inside.setdefault(split(move.path)[0], []).append(move)
    return inside
