"""Large files that are to replace others, made ahead of time: while their content is still being checked.

A draft is made in a stage of its own, out of everybody's reach, of what is in the workspace and of what is
new. Whoever replaces the file takes it only if the file it was made of is still there, as it was.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from petri.trees import File
from petri.workspace.beneath import trusted
from petri.workspace.ground import Ground
from petri.workspace.looking import Sight

NAME = b"draft"


class Wanted(NamedTuple):
    """A file that will be wanted, if all goes well."""

    path: bytes
    old: bytes
    """The digest of what is there."""
    new: File
    made_of: Iterable[bytes | tuple[int, int]]
    """What is new, and from where to where what is there is copied."""

    def pieces(self) -> Iterator[tuple[int, int, int | bytes]]:
        """Yield where each part goes, how long it is, and where it is from, or the bytes."""
        at = 0
        for part in self.made_of:
            length = len(part) if isinstance(part, bytes) else part[1] - part[0]
            yield at, length, part if isinstance(part, bytes) else part[0]
            at += length


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that was made ahead of time."""

    path: bytes
    file: File
    sight: Sight
    """What it was made of."""
    ground: Ground
    stage: Path

    def is_of(self, path: bytes, file: File, sight: Sight) -> bool:
        """Say whether it is what `file` has to be, at `path`, where `sight` was."""
        return (self.path, self.file, self.sight) == (path, file, sight)

    def was_moved(self, folder: int, name: bytes) -> bool:
        """Have it as `name` in an open folder, where nothing is; say whether it was still to be had."""
        with suppress(FileNotFoundError), trusted(self.stage) as stage:
            os.rename(NAME, name, src_dir_fd=stage, dst_dir_fd=folder)
            return True
        return False

    def discard(self) -> None:
        """Have no stage any more, nor the draft, if nobody took it."""
        with suppress(OSError):  # `tidy` sees scraps too
            self.ground.discard(self.stage)
