"""A cell that stood ready is walled as any other: what code can tell of its walls is the same in both.

Nothing is named here that a cell must have; other tests do that. This one finds what only one of the two has.
"""

import json
import textwrap
from typing import Any

import pytest

from petri.engine import Ahead, Leash, Parks
from petri.model import Command
from tests.benches import ENV, PYTHON, Bench, bench

__all__ = ["bench"]

pytestmark = [pytest.mark.long, pytest.mark.parametrize("bench", ["bubblewrap"], indirect=True)]

POSTURE = textwrap.dedent("""
    import json, os, re, resource, socket

    def lines(path):
        with open(path) as file:
            return file.read().splitlines()

    def tried(what, *words):
        try:
            return what(*words)
        except OSError as error:
            return error.strerror

    def mode(path):
        return oct(os.stat(path).st_mode)

    def shown(name, without):
        return [re.sub(without, "", line) for line in lines(name)]

    counted = "Pid|Tgid|NSpid|NStgid|NSpgid|Vm|Rss|Hugetlb|voluntary|nonvol|Threads"
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    folders = ("/", "/dev", "/etc", "/tmp", "/run", "/workspace", "/proc/1/fd")
    files = [f"/proc/{name}" for name in os.listdir("/proc") if not name.isdecimal()]
    files += [f"/proc/1/{name}" for name in ("environ", "maps", "mem", "fd/3", "oom_score_adj", "uid_map")]
    mask = os.umask(0)
    os.umask(mask)
    print(json.dumps({
        "status": [line for line in lines("/proc/self/status") if not re.match(counted, line)],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "open": {n: tried(os.readlink, f"/proc/self/fd/{n}").partition(":")[0] for n in range(256)},
        "mounts": shown("/proc/self/mountinfo", r"^[0-9]+ [0-9]+ [0-9]+:[0-9]+ | (master|shared):[0-9]+"),
        "folders": {folder: sorted(tried(os.listdir, folder)) for folder in folders},
        "files": {file: (tried(os.access, file, os.R_OK), tried(mode, file)) for file in files},
        "self": [lines(f"/proc/self/{n}") for n in ("cgroup", "oom_score_adj", "uid_map", "gid_map")],
        "ids": (os.getresuid(), os.getresgid(), os.getgroups(), os.getpgrp(), os.getsid(0), mask, os.nice(0)),
        "host": (os.uname(), os.getcwd(), socket.if_nameindex(), sorted(os.sched_getaffinity(0))),
        "variables": dict(os.environ),
    }))
""")


async def posture(bench: Bench, ahead: Ahead | None, *, parked: bool) -> dict[str, Any]:
    """Return what code in a cell can tell of its walls."""
    command = Command((PYTHON, "-c", POSTURE), "/workspace", 20, ENV)
    bench.screen = {"stdout": bytearray(), "stderr": bytearray()}
    assert isinstance(bench.engine, Parks)
    if parked:
        cell = await bench.engine.park(bench.place, ahead)
        outcome = await cell.exec(command, bench.take, Leash.loose())
    else:
        outcome = await bench.engine.exec(bench.place, command, bench.take, Leash.loose())
    assert outcome.exit_code == 0, bench.screen["stderr"]
    found: dict[str, Any] = json.loads(bench.screen["stdout"])
    return found


@pytest.mark.parametrize(
    "ahead",
    [Ahead(PYTHON, "code"), Ahead(PYTHON, "file"), None],
    ids=["a Python that goes on", "a Python that makes way", "nobody ahead"],
)
async def test_code_finds_the_same_walls_in_a_cell_that_stood_ready(
    bench: Bench, ahead: Ahead | None
) -> None:
    made_for_it = await posture(bench, None, parked=False)
    stood_ready = await posture(bench, ahead, parked=True)

    assert stood_ready == made_for_it


@pytest.mark.parametrize(
    "ahead", [Ahead(PYTHON, "file"), None], ids=["a Python that makes way", "nobody ahead"]
)
async def test_another_program_there_is_held_to_the_same_signals_and_has_the_same_open(
    bench: Bench, ahead: Ahead | None
) -> None:
    """Python ignores some signals of its own accord, and exec keeps that: `yes | head` would never end."""
    script = "grep -E 'Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd; yes | head -n 1"
    command = Command(("/bin/sh", "-c", script), "/workspace", 20, ENV)
    assert isinstance(bench.engine, Parks)
    await bench.engine.exec(bench.place, command, bench.take, Leash.loose())
    made_for_it, bench.screen["stdout"] = bytes(bench.screen["stdout"]), bytearray()

    cell = await bench.engine.park(bench.place, ahead)
    outcome = await cell.exec(command, bench.take, Leash.loose())

    assert outcome.exit_code == 0
    assert bench.screen == {"stdout": made_for_it, "stderr": b""}
