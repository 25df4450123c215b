"""What a former life left of its cgroups, and the end of that.

A base is the folder of one server's in one hierarchy. The groups of its cells lie in there, or beside it with
names that begin with its own; see `cgroups.V1`.
"""

import os
import time

from petri.launcher.groups import pids, rmdir
from petri.launcher.processes import sigkill

_PATIENCE_S = 5
_LOOK_AGAIN_S = 0.002


def sweep(base: str) -> None:
    """Kill and remove every group a former life left in `base` or beside it, then `base` itself."""
    above, own_name = os.path.split(base)
    groups = [f"{base}/{name}" for name in _folders_in(base)]
    groups += [f"{above}/{name}" for name in _folders_in(above) if name.startswith(f"{own_name}-cell-")]
    for group in groups:
        _clear(group)
    rmdir(base)


def _folders_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _clear(group: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        inside = pids(group)
        if not inside and rmdir(group):
            return
        for pid in inside:
            sigkill(pid)
        time.sleep(_LOOK_AGAIN_S)
