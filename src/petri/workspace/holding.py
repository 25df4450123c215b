"""Who holds a workspace to its share of the disk: the kernel by quota, or Petri by watching; and why."""

import gzip
import os
import re
from dataclasses import dataclass
from pathlib import Path

from petri.workspace.quota import Quota

_NEEDS = {"ext4": "CONFIG_QFMT_V2", "xfs": "CONFIG_XFS_QUOTA"}
"""The option of the kernel without which a file system has no project quotas."""


@dataclass(frozen=True, slots=True)
class Holding:
    """How the limits on disk space and files are held."""

    quota: Quota | None
    """None: by watching."""
    says: str
    remedy: str | None = None
    """What would have the kernel do it."""


@dataclass(frozen=True, slots=True)
class _Mount:
    point: str
    kind: str
    device: str


def find_holding(root: Path) -> Holding:
    """Return how workspaces under `root`, a folder that exists, are held to their limits."""
    quota = Quota(root)
    if quota.is_enforced():
        return Holding(quota, "the file system holds each workspace to its size and number of files")
    why, remedy = _why_not(_mount_of(root))
    says = f"runs are watched, and ended soon after their workspace holds more than it may; no quota: {why}"
    return Holding(None, says, remedy)


def _why_not(mount: _Mount) -> tuple[str, str | None]:
    if mount.kind not in _NEEDS:
        remedy = "set PETRI_WORKSPACE_ROOT to a folder on ext4 or XFS, mounted with prjquota"
        return f"{mount.kind} has no project quotas", remedy
    if _kernel_has(_NEEDS[mount.kind]) is False:
        return f"this kernel was built without {_NEEDS[mount.kind]}", "boot a kernel that has it"
    if os.geteuid() != 0:
        return "only root may set them", "run the server as root"
    return f"{mount.point} is mounted without prjquota", _command(mount)


def _command(mount: _Mount) -> str:
    tune = f"tune2fs -O project,quota -Q prjquota {mount.device}" if mount.kind == "ext4" else ""
    if mount.point == "/":
        boot = "boot with rootflags=prjquota"
        return f"{tune} (unmounted: from a rescue system), then {boot}" if tune else boot
    steps = [f"umount {mount.point}", tune, f"mount -o prjquota {mount.device} {mount.point}"]
    return " && ".join(step for step in steps if step)


def _mount_of(folder: Path) -> _Mount:
    """Return the mount that `folder` lies on: of those above it, the deepest, and of these the last."""
    above = {str(each) for each in (folder, *folder.parents)}
    found = _Mount("/", "unknown", "none")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, behind = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        if point in above and len(point) >= len(found.point):
            kind, device, _ = behind.split(" ", 2)
            found = _Mount(point, kind, device)
    return found


def _kernel_has(option: str) -> bool | None:
    """Say whether the running kernel was built with `option`; None where it does not tell."""
    try:
        config = gzip.decompress(Path("/proc/config.gz").read_bytes()).decode()
    except OSError:
        try:
            config = Path(f"/boot/config-{os.uname().release}").read_text()
        except OSError:
            return None
    return re.search(rf"^{option}=[ym]$", config, re.MULTILINE) is not None
