"""Files copied from another workspace that holds the same: by the kernel, and where it can by sharing blocks.

That is trusted as far as an index is: a file that is what it was when it was looked at, before and after it
was copied, held then what it held at the look. Anything else comes from the store.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from petri.trees import File
from petri.workspace.beneath import beneath
from petri.workspace.looking import Sight

_WORTH_BYTES = 4096
"""What is shorter comes as quickly from the store."""


@dataclass(frozen=True, slots=True)
class Twin:
    """An open workspace, and where in it which content was at the last look."""

    workspace: int
    files: Mapping[bytes, tuple[bytes, Sight]]

    def copy(self, file: File, descriptor: int) -> bool:
        """Write a file's content to an open, empty file, if it is certainly at hand; say whether it was."""
        if file.size < _WORTH_BYTES or file.digest not in self.files:
            return False
        path, sight = self.files[file.digest]
        with suppress(OSError), beneath(self.workspace, os.fsdecode(path), os.O_RDONLY, follow=False) as fd:
            return (
                sight.is_still(os.fstat(fd))
                and _copied(fd, descriptor, file.size)
                and (
                    # Who changed it meanwhile could not help but leave a trace of that.
                    sight.is_still(os.fstat(fd))
                )
            )
        return False


def _copied(source: int, destination: int, size: int) -> bool:
    left = size
    while left and (moved := os.copy_file_range(source, destination, left)):
        left -= moved
    return not left
