"""What a program did, as far as it can be told from outside."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tests.exactly.programs import Program

_COMPILED_HEAD = 16
"""Of a compiled file: its format, and when its source was written."""


@dataclass(frozen=True)
class Seen:
    """How a program ended, all it said, and every file there is after it."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    files: dict[str, tuple[str, bytes]]

    def blurred(self, program: Program) -> "Seen":
        """Return the same without what differs by nature."""
        stdout, stderr = program.blurred(self.stdout), program.blurred(self.stderr)
        return Seen(self.exit_code, self.signal, stdout, stderr, self.files)


def files_in(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Return kind, permissions and content of everything below `folder`."""
    return {os.fsdecode(path.relative_to(folder)): _entry(path) for path in sorted(folder.rglob("*"))}


def _entry(path: Path) -> tuple[str, bytes]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "link", os.fsencode(path.readlink())
    if not stat.S_ISREG(mode) or not os.access(path, os.R_OK):  # root may read whatever a program closed
        return stat.filemode(mode), b""
    content = path.read_bytes()
    return stat.filemode(mode), content[_COMPILED_HEAD:] if path.suffix == ".pyc" else content
