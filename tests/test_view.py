"""What the launcher takes out of its own view of the host's mounts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TWICE = """
import ctypes, sys
from petri.launcher import view

libc, folder = ctypes.CDLL(None, use_errno=True), sys.argv[1]
assert libc.unshare(0x20000) == 0
view._mount(libc, "none", "/", None, 1 << 18 | 16384, None)
for _ in range(2):
    view._mount(libc, "petri", folder, "tmpfs", 0, "size=64k")
view._forget(libc, folder)
print(sum(line.split()[4] == folder for line in open("/proc/self/mountinfo")))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a view of its own")
def test_what_is_mounted_over_another_mount_is_let_go_with_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _TWICE, str(tmp_path)], capture_output=True, check=False)

    assert (done.stdout, done.stderr) == (b"0\n", b"")
