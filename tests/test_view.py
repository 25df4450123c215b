"""What the launcher takes out of its own view of the host's mounts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TWICE = """
import ctypes, sys
from petri.launcher import view
from petri.launcher.libc import mount

libc, folder = ctypes.CDLL(None, use_errno=True), sys.argv[1]
assert libc.unshare(0x20000) == 0
mount(libc, "none", "/", None, 1 << 18 | 16384, None)
for _ in range(2):
    mount(libc, "petri", folder, "tmpfs", 0, "size=64k")
view._forget(libc, folder)
print(sum(line.split()[4] == folder for line in open("/proc/self/mountinfo")))
"""

_BELOW = """
import ctypes, os, sys
from petri.launcher import view
from petri.launcher.libc import mount

libc, top = ctypes.CDLL(None, use_errno=True), sys.argv[1]
view._PLACES = tuple(f"{top}/{name}" for name in ("mnt", "media", "srv"))
workspaces, shared = f"{top}/mnt/disk/workspaces", f"{top}/mnt/share"
for folder in (f"{top}/mnt/disk", shared, *view._PLACES[1:]):
    os.makedirs(folder)
assert libc.unshare(0x20000) == 0
for kind in (1 << 18, 1 << 20):  # private to begin with, then shared with whoever comes from here
    mount(libc, "none", "/", None, kind | 16384, None)
for folder in (f"{top}/mnt/disk", shared):
    mount(libc, "petri", folder, "tmpfs", 0, "size=64k")
os.mkdir(workspaces)
host = os.fork()
if host:
    os.waitpid(host, 0)
    print(os.path.ismount(shared), os.listdir(workspaces))
    sys.exit()
place = view.arrange({"workspaces": workspaces})
os.mkdir(f"{place}/workspaces/sandbox")
print(place.removeprefix(top), sorted(view._mounted() & {f"{top}/mnt/disk", shared}), flush=True)
"""


def _said(script: str, folder: Path) -> tuple[str, str]:
    """Return what a process says that has a view of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, check=False, text=True
    )
    return ran.stdout, ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a view of its own")
def test_a_view_hides_no_mount_that_every_cell_would_pay_for(tmp_path: Path) -> None:
    """Hidden, it could not be taken out. What cells see is still there, and to the host nothing happened."""
    assert _said(_BELOW, tmp_path) == ("/media []\nTrue ['sandbox']\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a view of its own")
def test_what_is_mounted_over_another_mount_is_let_go_with_it(tmp_path: Path) -> None:
    assert _said(_TWICE, tmp_path) == ("0\n", "")
