"""Reading one file, whatever the sandbox's code puts in its place meanwhile."""

import os
import stat
from dataclasses import replace
from types import TracebackType
from typing import Self

from petri.errors import Conflict
from petri.workspace.beneath import FILE, LOOK, beneath, open_beneath
from petri.workspace.digests import AT_ONCE_BYTES, UNASKED_BYTES, Digests
from petri.workspace.errand import Errand
from petri.workspace.paths import clean, quoted
from petri.workspace.refusals import refusing
from petri.workspace.versions import Version, names_a_digest, version


class OpenFile:
    """A regular file, held open: replacing or deleting it does not change what is read here.

    Code that writes to it in place does; then fewer bytes than `size` may come.
    """

    def __init__(self, fd: int, digests: Digests) -> None:
        seen = os.fstat(fd)
        self._fd = fd
        self._digests = digests
        self.version: Version = version(seen, digests.known(seen))
        self.size = seen.st_size
        self.mode = stat.S_IMODE(seen.st_mode)
        self.modified_at = seen.st_mtime

    def wants_hashing(self, *conditions: str | None) -> bool:
        """Say whether to `hash` before the version is told or compared with what `conditions` name."""
        asked = self.size <= UNASKED_BYTES or names_a_digest(*conditions)
        return asked and self.version.digest is None

    def hash(self, errand: Errand) -> None:
        """Have the digest in `version`. Takes long for a large file."""
        with refusing(""):
            self.version = replace(self.version, digest=self._digests.of(self._fd, errand))

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on; none past the end. Keeps no position."""
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        """Let go of the file. Closing twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def open_file(workspace: int, path: str, digests: Digests, errand: Errand) -> OpenFile:
    """Open the regular file at `path`, a small one hashed. Never waits for a FIFO, socket or device."""
    path = clean(path, new=False)
    with refusing(path):
        fd = open_beneath(workspace, path, FILE)
        try:
            _require_regular(os.fstat(fd), path)
            file = OpenFile(fd, digests)
            if file.size <= AT_ONCE_BYTES:
                file.hash(errand)
        except BaseException:
            os.close(fd)
            raise
    return file


def resolve_file(workspace: int, path: str) -> str:
    """Return the plain form of `path` if a regular file is there, or a link to one inside."""
    path = clean(path, new=False)
    with refusing(path), beneath(workspace, path, LOOK) as fd:
        _require_regular(os.fstat(fd), path)
    return path


def resolve_folder(workspace: int, path: str) -> str:
    """Return the plain form of `path` if a folder is there, or a link to one inside."""
    path = clean(path, new=False, empty=True)
    with refusing(path), beneath(workspace, path, LOOK) as fd:
        require_folder(os.fstat(fd), path)
    return path


def require_folder(seen: os.stat_result, path: str) -> None:
    """Refuse what is not a folder."""
    if not stat.S_ISDIR(seen.st_mode):
        raise Conflict(f"{quoted(path)} is not a folder")


def _require_regular(seen: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(seen.st_mode):
        raise Conflict(f"{quoted(path)} is a folder; download it with ?archive=tar.zst or list it")
    if not stat.S_ISREG(seen.st_mode):
        raise Conflict(f"{quoted(path)} is a FIFO, socket or device, not a regular file")
