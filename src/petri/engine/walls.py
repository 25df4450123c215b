"""What `petri doctor` and `/health` say of each layer: what it keeps out, why it is off, what mends it."""

import os
import re
from pathlib import Path

from petri.engine import Layer
from petri.engine.process import Hello
from petri.errors import PetriError

_TRIAL_UID = 65534
_COUNTS_BY_NAMESPACE = (5, 14)
_FOLDERS = re.compile(r"/(?:[^\s:'\"/]+/)+")
"""What bwrap says of a path on this host; `/health` answers anybody, and the last part will do."""
_SYSCTLS = (
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "this kernel allows no user namespaces",
        "sysctl -w user.max_user_namespaces=10000",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "this kernel keeps user namespaces for root",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor keeps user namespaces from unconfined programs",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


def refusal(layer: Layer) -> str:
    """Return the sentence for a caller whose command cannot be run because `layer` is off."""
    remedy = f" To mend it: {layer.remedy}" if layer.remedy else ""
    return f"code cannot be run safely on this host: {layer.name} is off ({layer.says}).{remedy}"


def trial_uid() -> int | None:
    """Return the uid of the trial cell: nobody's as root, our own otherwise."""
    return _TRIAL_UID if os.geteuid() == 0 else None


def bubblewrap(path: str) -> Layer:
    """Bubblewrap is there."""
    return Layer("bubblewrap", True, f"cells are made by {path}")


def no_bubblewrap() -> Layer:
    """Bubblewrap is missing."""
    return Layer("bubblewrap", False, "bwrap is not installed", remedy="apt-get install bubblewrap")


def no_root(error: PetriError) -> Layer:
    """A cell's root could not be built."""
    return Layer("bubblewrap", False, error.message, remedy="apt-get install tcc")


def launcher() -> Layer:
    """The launcher runs."""
    return Layer("launcher", True, "one small process owns every cell and ends them all if the server dies")


def nothing_to_launch() -> Layer:
    """The launcher was not started, since a cell's root is missing."""
    return Layer("launcher", False, "a cell's root could not be built")


def no_launcher(why: str) -> Layer:
    """The launcher could not be started; a root that may not mount is what most containers have."""
    remedy = (
        "let root mount here (in a container: docker run --privileged), or run the server as an ordinary user"
    )
    return Layer("launcher", False, why, remedy=remedy if os.geteuid() == 0 else None)


def namespaces() -> Layer:
    """A trial cell was made."""
    return Layer("namespaces", True, "own files, processes, users, IPC, host name and no network")


def not_tried() -> Layer:
    """No trial cell was made, since something else is missing."""
    return Layer("namespaces", False, "not tried, because another layer is off")


def no_namespaces(complaint: str) -> Layer:
    """A trial cell could not be made; say which switch of the kernel is to blame, if one is."""
    said = _FOLDERS.sub("…/", complaint.strip())[:200]
    return forbidden_namespaces() or Layer("namespaces", False, f"a trial cell could not be made: {said}")


def forbidden_namespaces() -> Layer | None:
    """Say which switch of the kernel forbids namespaces, if one does."""
    for path, bad, says, remedy in _SYSCTLS:
        if _reads(path) == bad:
            return Layer("namespaces", False, says, remedy=remedy)
    return None


def seccomp() -> Layer:
    """The system-call filter was built."""
    return Layer("seccomp", True, "system calls that only an attacker needs are refused")


def no_seccomp(error: PetriError) -> Layer:
    """The system-call filter could not be built."""
    return Layer("seccomp", False, error.message, remedy="apt-get install libseccomp2")


def cgroups(hello: Hello, *, required: bool) -> Layer:
    """Say whether processor, memory and processes can be limited."""
    if hello.cgroups is not None:
        return Layer(
            "cgroups", True, f"processor, memory and processes are limited by cgroup v{hello.cgroups}"
        )
    remedy = "run the server as root, or: systemd-run --user --scope -p Delegate=yes make serve"
    if required:
        remedy += "; to do without these limits: PETRI_CGROUPS=optional"
    bounded = "the processes of each cell are bounded all the same, " if counts_in_cells() else ""
    says = f"{hello.missing or 'none'}; {bounded}memory and processors are not"
    return Layer("cgroups", False, says, required=required, remedy=remedy)


def counts_in_cells() -> bool:
    """Say whether this kernel counts the processes of a user by user namespace, as Linux does from 5.14 on.

    Before, a bound on them would count all that a user has: those of every other cell, and of their desktop.
    """
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return release is not None and (int(release[1]), int(release[2])) >= _COUNTS_BY_NAMESPACE


def own_uid() -> Layer:
    """Say whether each sandbox has a host uid of its own."""
    if os.geteuid() == 0:
        return Layer("own uid", True, "each sandbox runs under a host uid of its own", required=False)
    says = "the server is not root: all sandboxes share its uid, and only namespaces keep them apart"
    return Layer("own uid", False, says, required=False, remedy="run the server as root")


def _reads(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
