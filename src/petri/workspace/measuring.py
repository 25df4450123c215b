"""How much of the disk a workspace takes."""

from petri.workspace.walk import walk

_BLOCK_BYTES = 512
"""What `st_blocks` counts in, whatever the file system's own blocks are."""


def disk_bytes(top: int) -> int:
    """Return what everything below the folder open as `top` takes on disk.

    Blocks, not lengths: a hole costs nothing. A file of several names is shared out between them, so
    that it counts once without our remembering every inode.
    """
    return sum(
        found.stat.st_blocks * _BLOCK_BYTES // (1 if found.is_folder else found.stat.st_nlink)
        for found in walk(top, recursive=True)
    )
