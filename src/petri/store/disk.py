"""The few things done to the disk, and what the kernel says about them as Petri says it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from petri.errors import StorageFull, Unavailable


@contextmanager
def on_disk() -> Iterator[None]:
    """Turn what the kernel says in here into what the caller is told."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull("no space is left where the store is; delete what is not needed") from error
        raise Unavailable(
            "the disk that holds the store could not be used; the server's log says why",
            detail=f"{errno.errorcode.get(error.errno or 0)}: {error.strerror}: {error.filename or ''}",
        ) from error


def make_folder(folder: Path) -> None:
    """Have `folder`, durably, and whatever is above it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Have `content` at `path`, durably; a crash leaves what was there before, or this."""
    new = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_at(descriptor, content, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.rename(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    sync_folder(path.parent)


def write_at(descriptor: int, content: bytes, offset: int) -> None:
    """Write all of `content` at `offset`, or raise."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest = rest[written:]
        offset += written


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Return `length` bytes from `offset` on, fewer only where the file ends."""
    first = os.pread(descriptor, length, offset)
    if len(first) == length or not first:
        return first
    parts = [first]
    while (left := length - sum(map(len, parts))) and (
        part := os.pread(descriptor, left, offset + length - left)
    ):
        parts.append(part)
    return b"".join(parts)
