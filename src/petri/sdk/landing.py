"""Files on their way from a sandbox: a temporary file beside the target, renamed when it is whole."""

import os
import secrets
from pathlib import Path

from petri.errors import Invalid
from petri.sdk.bodies import Progress


class Landing:
    """One file that is arriving. `keep` or `discard` ends it; discarding what was kept does nothing."""

    def __init__(self, to: Path, name: str) -> None:
        self._target = to / plain_name(name) if to.is_dir() else to
        self._temporary = self._target.with_name(f".{secrets.token_hex(8)}.petri-part")
        self._file = os.fdopen(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")
        self._done = 0
        self._total: int | None = None
        self._progress: Progress | None = None

    def expects(self, length: str | None, progress: Progress | None) -> None:
        """Take note of the announced length, for whoever watches."""
        self._total = int(length) if length is not None and length.isdecimal() else None
        self._progress = progress

    def add(self, chunk: bytes) -> None:
        """Append to what has arrived."""
        self._file.write(chunk)
        self._done += len(chunk)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def keep(self) -> Path:
        """Make it appear under its name, in place of what was there."""
        self._file.close()
        self._temporary.replace(self._target)
        return self._target

    def discard(self) -> None:
        """Remove what has arrived, unless it was kept."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def plain_name(name: str) -> str:
    """Return `name` if it is one: a file from a sandbox must not choose the folder it lands in."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Invalid(f"{name!r} is not the name of a file; say where to put it")
    return name
