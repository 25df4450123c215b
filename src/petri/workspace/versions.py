"""Which content a file has, as callers name it: `ETag`, `If-Match`, `If-None-Match`, `If-Range`.

A file's name among versions is the BLAKE3 of its content. Large files are the exception: hashing one takes
seconds, and a sparse file of terabytes costs whoever plants it nothing. Such a file goes by its stamp,
made of what the kernel says of it. `st_ctime` cannot be set back by any program, so a stamp changes with
the content, unless that changed twice within one tick of the clock: a stamp taken so soon after a change is
marked weak, and RFC 9110 lets nobody write or resume by a weak name. Whoever names a large file by its
digest all the same, say the one an upload answered with, has it hashed.
"""

import hashlib
import os
import re
import time
from dataclasses import dataclass

RACY_NS = 50_000_000
"""A file changed so recently could change again within the clock's tick and keep its times; git calls
such an entry racily clean. Half a dozen ticks of the slowest kernel clock (100 Hz) are enough."""
_SECOND_NS = 1_000_000_000
_COARSE_NS = 2 * _SECOND_NS + RACY_NS
"""The same where the file system tells whole seconds: ext4 with small inodes, ext3, NFS on these."""
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

Key = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Version:
    """One state of one file."""

    digest: str | None
    """None when it is not known and nobody needed it."""
    stamp: str
    is_weak: bool
    """Whether the stamp could be that of another content, too."""

    @property
    def etag(self) -> str:
        """The name callers are told, as the header has it."""
        if self.digest is not None:
            return f'"{self.digest}"'
        return f'W/"{self.stamp}"' if self.is_weak else f'"{self.stamp}"'

    def is_named(self, condition: str, *, surely: bool) -> bool:
        """Say whether a header names this version, or `*`. `surely`: a weak stamp is no name."""
        return any(self._is(tag.strip(), surely=surely) for tag in condition.split(","))

    def _is(self, tag: str, *, surely: bool) -> bool:
        bare = tag.removeprefix("W/").strip('"')
        if bare == self.stamp:
            return not (surely and (self.is_weak or tag.startswith("W/")))
        return tag == "*" or bare == self.digest


def names_a_digest(*conditions: str | None) -> bool:
    """Say whether some condition can only be judged by hashing."""
    return any(_DIGEST.search(condition) for condition in conditions if condition)


def version(seen: os.stat_result, digest: str | None) -> Version:
    """Return the version of a file that looks like `seen`."""
    stamp = hashlib.blake2s(repr(key(seen)).encode(), digest_size=12).hexdigest()
    return Version(digest, stamp, is_racy(seen))


def key(seen: os.stat_result) -> Key:
    """Return what changes whenever the file does."""
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def is_racy(seen: os.stat_result) -> bool:
    """Say whether the file changed so recently that it could change again and look the same."""
    # Not by `st_mtime`: a program may set that to any year, and its file would be racy for ever.
    return is_young(seen.st_ctime_ns, time.time_ns())


def is_young(changed_ns: int, now_ns: int) -> bool:
    """Say whether what changed then, or is to change later, could change again and show the same time."""
    return now_ns - changed_ns <= (RACY_NS if changed_ns % _SECOND_NS else _COARSE_NS)
