"""Unpacking what came out of a sandbox. Every name in it was chosen by code that nobody trusts.

Only folders and regular files are made, by our own hands and below one folder. Links are left out: one that
points elsewhere would turn the next file's path, or the user's next command, into a write outside.
"""

import os
import secrets
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

from petri.errors import Invalid


def unpack(archive: Path, into: Path) -> list[str]:
    """Unpack a `.tar.zst` into the folder `into`, made if needed; return the names of what was left out."""
    import zstandard  # on use: no other command needs it

    left_out = []
    into.mkdir(parents=True, exist_ok=True)
    with zstandard.open(archive, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as members:
        for member in members:
            content = members.extractfile(member) if member.isreg() else None
            path = into.joinpath(*_parts(member.name))
            if content is not None:
                _write(content, path, executable=bool(member.mode & 0o100))
            elif member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                left_out.append(member.name)
    return left_out


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise Invalid(f"the archive names a file outside of itself: {name!r}")
    return path.parts


def _write(content: IO[bytes], path: Path, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}.petri-part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(temporary, flags, 0o777 if executable else 0o666), "wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
