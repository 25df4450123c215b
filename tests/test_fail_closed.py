"""A wall that cannot be had: the server says which and how to have it, and runs nothing, ever, without it.

Each host here lacks one thing for real: a program, a switch of the kernel, a file system that can be written.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.calls import ask, create, refused
from tests.conftest import PETRI, Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="takes root to take something from a host"),
]

WITHOUT = {
    "bubblewrap": "mount --bind /dev/null $(command -v bwrap)",
    "a C compiler": (
        "for name in cc gcc clang tcc; do"
        " at=$(command -v $name) && mount --bind /dev/null $(readlink -f $at); done"
    ),
    "user namespaces": "echo 0 > /proc/sys/user/max_user_namespaces",
    "seccomp": (
        "for at in $(ldconfig -p | sed -n 's/.*libseccomp.so.* => //p'); do"
        " mount --bind /dev/null $(readlink -f $at); done"
    ),
    "cgroups": (
        "for at in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/self/mounts); do"
        " mount -o remount,ro,bind $at; done"
    ),
    "mounts": 'set -- setpriv --bounding-set=-sys_admin "$@"',  # as root has it in most containers
}
SAYS = {
    "bubblewrap": ("bubblewrap", "apt-get install bubblewrap"),
    "a C compiler": ("bubblewrap", "apt-get install tcc"),
    "user namespaces": ("namespaces", "sysctl -w user.max_user_namespaces"),
    "seccomp": ("seccomp", "apt-get install libseccomp2"),
    "cgroups": ("cgroups", "run the server as root"),
    "mounts": ("launcher", "run the server as an ordinary user"),
}


APART = """
import ctypes, os, sys
us, (reading, writing) = os.getpid(), os.pipe()
if os.fork() == 0:
    os.read(reading, 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{us}/{name}", "w") as map:
            map.write("0 0 4294967295")
    os._exit(0)
assert ctypes.CDLL(None).unshare(0x1002_0000) == 0
os.write(writing, b".")
os.wait()
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Starts a program in a user namespace of its own, with everybody in it: each has a switch of its own."""


def poor(lacking: str) -> list[str]:
    """Return what to start a program by so that it lacks something, and nobody else does."""
    apart = ["unshare", "--mount", "--propagation", "private"]
    if lacking == "user namespaces":
        apart = [sys.executable, "-c", APART]
    return [*apart, "sh", "-euc", f'{WITHOUT[lacking]}; exec "$@"', "sh"]


@pytest.fixture(params=WITHOUT)
def lacking(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def host(lacking: str, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, prefix=poor(lacking)).start()
    yield server
    server.stop()


def test_nothing_runs_and_the_refusal_says_what_would_help(host: Server, lacking: str) -> None:
    name, remedy = SAYS[lacking]
    with host.client() as http:
        sandbox = create(http)
        for body in ({"command": "touch ran"}, {"code": "open('ran', 'w')", "language": "python"}):
            problem = refused(ask(http, sandbox, **body), 503)
            assert name in problem["detail"], problem
        once = refused(http.post("/v1/exec", json={"command": "touch ran"}), 503)
        health = http.get("/health").json()

    assert remedy in problem["detail"]
    assert remedy in once["detail"]
    assert health["status"] == "refusing"
    layer = next(each for each in health["layers"] if each["name"] == name)
    assert (layer["on"], remedy in layer["remedy"]) == (False, True)
    assert list((host.home / "petri" / "workspaces").glob("sb-*/ran")) == [], "it ran bare"
    assert "Traceback" not in host.log()


def test_the_doctor_says_the_same(lacking: str, tmp_path: Path) -> None:
    name, remedy = SAYS[lacking]
    nobody = {"PETRI_URL": "http://127.0.0.1:1"}  # else it asks whoever answers, who may lack nothing
    env = {"PATH": os.environ["PATH"], "PETRI_HOME": str(tmp_path / "petri"), **nobody}
    argv = [*poor(lacking), str(PETRI), "doctor"]
    for_programs, for_people = (
        subprocess.run([*argv, *more], env=env, capture_output=True, text=True, timeout=60, check=False)
        for more in (["--json"], [])
    )

    layer = next(each for each in json.loads(for_programs.stdout)["layers"] if each["name"] == name)
    assert for_programs.returncode == for_people.returncode == 1
    assert (layer["on"], remedy in layer["remedy"]) == (False, True)
    off = f"  OFF  {name}: {layer['says']}\n       try: {layer['remedy']}\n"
    assert off in for_people.stdout, for_people.stdout
