"""What a tree holds, made in a stage: files with their contents, links, whole folders.

Nobody else reaches a stage, so what is planted there is what was asked for when it moves to its place.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from petri.errors import Conflict, Unavailable
from petri.trees import EMPTY, Entry, File, Folder, Link
from petri.workspace.beneath import FOLDER, beneath
from petri.workspace.looking import Seen, Sight, join

_LONG_BYTES = 1 << 15
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Likeness(Protocol):
    """Another workspace that may well hold the same files."""

    def copy(self, file: File, descriptor: int) -> bool:
        """Write a file's content to an open, empty file if it is at hand; say whether it was.

        If not, the open file may hold anything.
        """
        ...


class Source(Protocol):
    """Gives back what was kept."""

    def folder(self, address: bytes) -> Mapping[bytes, Entry]:
        """Return a folder object, verified; `NotFound` if it was not kept."""
        ...

    def content(self, digest: bytes) -> Iterator[bytes]:
        """Yield a content; raises if it was not kept, or in place of its end if it is not what it was."""
        ...

    def changed(self, old: bytes, new: bytes) -> Iterator[tuple[int, int, int | bytes]]:
        """Yield what makes the content `new` of `old`: where, how long, and where from, or the bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Planter:
    """Makes entries of a tree, each belonging to `owner`."""

    source: Source
    owner: int | None
    allow: Callable[[], None]
    """Called again and again; raises when there is no more room, or nobody waits any more."""
    likeness: Likeness | None = None

    def plant(self, folder: int, name: bytes, entry: Entry) -> None:
        """Make `entry`, whole, as `name` in a folder that is open; there is nothing of that name."""
        self._make(folder, name, entry)
        if isinstance(entry, Folder):
            with beneath(folder, os.fsdecode(name), FOLDER, follow=False) as top:
                self.fill(top, entry.address)

    def plant_changed(
        self, folder: int, name: bytes, new: File, there: int, pieces: Iterable[tuple[int, int, int | bytes]]
    ) -> None:
        """Make a large file of one that is open as `there`; most of it is only copied.

        `pieces` say where each goes, how long it is, and where it is from, or the bytes.
        """
        fd = os.open(name, _FLAGS, 0o600, dir_fd=folder)
        try:
            for offset, length, found in pieces:
                self.allow()
                if isinstance(found, bytes):
                    os.lseek(fd, offset, os.SEEK_SET)
                    self._write(fd, found)
                else:
                    _copy(there, fd, found, offset, length)
            _check_size(os.fstat(fd).st_size, new)
            self._finish(fd, new)
        finally:
            os.close(fd)

    def fill(self, top: int, address: bytes) -> dict[bytes, Seen]:
        """Make all that is in a folder object in the empty folder open as `top`.

        Returns what a look would find there.
        """
        made, waiting = {}, [(b"", address)]
        while waiting:
            path, address = waiting.pop()
            seen = made[path] = Seen()
            if address == EMPTY:
                continue
            with beneath(top, os.fsdecode(path), FOLDER, follow=False) as fd:
                for name, entry in self.source.folder(address).items():
                    self._make(fd, name, entry)
                    if isinstance(entry, Folder):
                        seen.folders.add(name)
                        waiting.append((join(path, name), entry.address))
                    else:
                        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        seen.files[name] = Sight.of(status, entry, steady=False)
        return made

    def _make(self, folder: int, name: bytes, entry: Entry) -> None:
        self.allow()
        if isinstance(entry, File):
            self._file(folder, name, entry)
            return
        if isinstance(entry, Link):
            os.symlink(entry.target, name, dir_fd=folder)
        else:
            os.mkdir(name, dir_fd=folder)
            os.chmod(name, 0o755, dir_fd=folder)
        if self.owner is not None:
            os.chown(name, self.owner, self.owner, dir_fd=folder, follow_symlinks=False)

    def _file(self, folder: int, name: bytes, file: File) -> None:
        fd = os.open(name, _FLAGS, 0o600, dir_fd=folder)
        try:
            if self.likeness is None or not self.likeness.copy(file, fd):
                self._write_kept(fd, file)
            self._finish(fd, file)
        finally:
            os.close(fd)

    def _write_kept(self, fd: int, file: File) -> None:
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        _check_size(sum(self._write(fd, part) for part in self.source.content(file.digest)), file)

    def _finish(self, fd: int, file: File) -> None:
        if self.owner is not None:
            os.fchown(fd, self.owner, self.owner)
        os.fchmod(fd, permissions(file.mode))

    def _write(self, fd: int, part: bytes) -> int:
        if len(part) >= _LONG_BYTES:
            self.allow()
        left = memoryview(part)
        while left:
            left = left[os.write(fd, left) :]
        return len(part)


def _check_size(size: int, file: File) -> None:
    if size != file.size:
        raise Unavailable(f"a kept file has {size} bytes, and its folder says {file.size}")


def _copy(source: int, target: int, begin: int, offset: int, length: int) -> None:
    """Copy bytes from one file to another, by the kernel where it can: some file systems only share them."""
    while length:
        try:
            done = os.copy_file_range(source, target, length, begin, offset)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            done = os.pwrite(target, os.pread(source, min(length, 1 << 20), begin), offset)
        if not done:
            raise Conflict("a file became shorter while it was copied")
        begin, offset, length = begin + done, offset + done, length - done


def permissions(mode: int) -> int:
    """Return all bits for a file of which the tree has the owner's `rwx`: others may read what he may."""
    return mode << 6 | (mode & 5) << 3 | mode & 5
