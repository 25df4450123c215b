"""Project quotas: the kernel itself counts a workspace and says no, on ext4 and XFS that were told to.

A project is a number on every inode. A workspace's folder has the sandbox's own number and hands it down to
all that is made in it; the file system holds the sum to a limit, and the program reads ENOSPC or EDQUOT from
the very write that would have been too much. Nothing of it needs to be running, mounted or cleaned up.

Only root may set quotas. Inside a cell nobody can change a project: the kernel allows it in the first user
namespace alone.
"""

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from petri.workspace.weight import Weight

_GET_XATTR, _SET_XATTR = 0x801C_581F, 0x401C_5820
_FSXATTR = struct.Struct("=IIIII8x")
"""Flags, extent size, extents, project, extent size of copies on write."""
_INHERIT = 0x200
_PROJECTS = 2
_GET_QUOTA, _SET_QUOTA, _GET_STATE = 0x80_0007, 0x80_0008, 0x5808
_DQBLK = struct.Struct("=8QI4x")
"""Limits and use of blocks (KiB; bytes), then of inodes, two times, and which of these are meant."""
_LIMITS_ARE_MEANT = 0b101
_STATE_BYTES, _STATE_VERSION = 160, 1
_ENFORCED = 0x20
_SYS_QUOTACTL_FD = 443
_KIB = 1024


class Quota:
    """The project quotas of one file system."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def is_enforced(self) -> bool:
        """Say whether this file system holds projects to their limits, and we may set them."""
        state = bytearray(_STATE_BYTES)
        state[0] = _STATE_VERSION
        try:
            self._ask(_GET_STATE, 0, state)
        except OSError:
            return False
        (flags,) = struct.unpack_from("=H", state, 2)
        return bool(flags & _ENFORCED) and os.geteuid() == 0

    def limit(self, project: int, share: Weight) -> None:
        """Hold a project to `share` from now on; a weight of nothing is no limit."""
        blocks = -(-share.disk_bytes // _KIB)
        wanted = _DQBLK.pack(blocks, blocks, 0, share.inodes, share.inodes, 0, 0, 0, _LIMITS_ARE_MEANT)
        self._ask(_SET_QUOTA, project, bytearray(wanted))

    def used(self, project: int) -> Weight:
        """Return what a project takes now."""
        answer = bytearray(_DQBLK.size)
        try:
            self._ask(_GET_QUOTA, project, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # XFS: nothing belongs to it yet
                raise
        _, _, disk_bytes, _, _, inodes, *_ = _DQBLK.unpack(answer)
        return Weight(disk_bytes, inodes)

    def _ask(self, command: int, project: int, about: bytearray) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        buffer = (ctypes.c_char * len(about)).from_buffer(about)
        with _opened(self._root) as root:
            failed = libc.syscall(
                ctypes.c_long(_SYS_QUOTACTL_FD),
                ctypes.c_uint(root),
                ctypes.c_uint(command << 8 | _PROJECTS),
                ctypes.c_uint(project),
                buffer,
            )
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def project_of(folder: Path) -> int:
    """Return the project of a folder; 0 is none."""
    with _opened(folder) as descriptor:
        return int(_FSXATTR.unpack(fcntl.ioctl(descriptor, _GET_XATTR, bytes(_FSXATTR.size)))[3])


def give(folder: Path, project: int) -> None:
    """Have a folder of ours, and all that will be made in it, belong to `project`."""
    with _opened(folder) as descriptor:
        _give(descriptor, project, _INHERIT)


def give_all(folder: Path, project: int) -> None:
    """Have everything in a folder belong to `project`, what is there already too; nobody may work in it."""
    give(folder, project)
    for _, folders, files, inside in os.fwalk(folder):
        for name in folders + files:
            with suppress(OSError), _inside(inside, name) as descriptor:  # FIFOs and links hold no blocks
                _give(descriptor, project, _INHERIT if name in folders else 0)


def _give(descriptor: int, project: int, flags: int) -> None:
    now = _FSXATTR.unpack(fcntl.ioctl(descriptor, _GET_XATTR, bytes(_FSXATTR.size)))
    fcntl.ioctl(descriptor, _SET_XATTR, _FSXATTR.pack(now[0] | flags, *now[1:3], project, now[4]))


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _inside(folder: int, name: str) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
