"""Terminals for cells, when the launcher is root: a devpts for one cell at a time, in mounts of its own.

bubblewrap's own devpts knows no limit, and all of them draw on one purse (`kernel.pty.max`): one cell could
leave none to the others. This one has a limit. It lies where cells have their `/dev/pts`, but in a copy of
the launcher's mounts: among those, it would be listed and copied for every other cell as well.

The end of a cell would wait until the kernel has taken the two apart, so they are lent with its network: see
`networks.py`.
"""

import ctypes
import os
from dataclasses import dataclass

from petri.launcher.descriptors import all_or_none
from petri.launcher.libc import mount
from petri.launcher.namespaces import Home

_MS_NOSUID, _MS_NOEXEC = 2, 8
_OPTIONS = "newinstance,ptmxmode=0666,mode=620,max=64"

_Seen = tuple[tuple[str, ...], tuple[int, ...]]
"""What is in the folder, and the times of the two that are always there."""


@dataclass(frozen=True, slots=True, eq=False)
class Devpts:
    """One devpts and the mounts it lies in, held open by us."""

    namespace: int
    folder: int
    as_made: _Seen

    def is_untouched(self) -> bool:
        """Say whether there is no terminal, and no time tells that anybody looked for one."""
        return _seen(self.folder) == self.as_made

    def close(self) -> None:
        """Let go of it: the kernel takes it apart once nobody is in those mounts."""
        os.close(self.namespace)
        os.close(self.folder)


class Terminals:
    """Makes them, where the launcher has a view of its own: from there no mount spreads to anywhere else.

    Raises `OSError` where mounts can be left and not come back to.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._home = Home("mnt")

    def make(self) -> Devpts:
        """Make one, from within mounts that are made for it."""
        with self._home.elsewhere(), all_or_none() as had:
            mount(self._libc, "devpts", self._folder, "devpts", _MS_NOSUID | _MS_NOEXEC, _OPTIONS)
            had.append(os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
            # Without a time of access: a cell is not to see that we looked, and we see whether it did.
            had.append(os.open(self._folder, os.O_DIRECTORY | os.O_NOATIME | os.O_CLOEXEC))
            namespace, folder = had
            return Devpts(namespace, folder, _seen(folder))


def _seen(folder: int) -> _Seen:
    times: list[int] = []
    for told in (os.stat(folder), os.stat("ptmx", dir_fd=folder)):
        times += told.st_atime_ns, told.st_mtime_ns, told.st_ctime_ns
    return tuple(os.listdir(folder)), tuple(times)
