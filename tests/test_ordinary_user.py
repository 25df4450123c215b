"""An ordinary user's server, with no cgroups to use: what holds there all the same, in both kinds of cell."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.calls import create, run
from tests.conftest import PETRI, Server
from tests.ready import run_ready

UID = 0x6000_0000 + os.getpid()
"""Nobody's: no other test process looks for it."""
AS_USER = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"]
FEW, MANY = 24, 40
"""What a cell may have of processes, and what its user has besides."""
FORK_BOMB = """
import os, time
made = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
    except OSError:
        break
    made += 1
print(made, flush=True)
time.sleep(1)
"""


OPEN = """
for folder in "$@"; do
    shift
    [ "$folder" = -- ] && break
    case $folder in /root/*) mkdir -p "$HELD$folder" && mount --bind "$folder" "$HELD$folder" ;; esac
done
if [ -d "$HELD/root" ]; then mount --rbind "$HELD/root" /root && chmod 755 "$HELD/root"; fi
exec "$@"
"""
"""Has `/root`, where we may lie, hold nothing else and let everybody pass; for the server alone."""


def _can_be_an_ordinary_user() -> bool:
    return os.geteuid() == 0 and None not in (shutil.which("setpriv"), shutil.which("unshare"))


def as_user(held: Path) -> list[str]:
    """Return what to start a program by so that an ordinary user runs it, even if it lies under `/root`."""
    ours = (sys.base_prefix, str(PETRI.parents[2]))
    apart = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "env",
        f"HELD={held}",
        "sh",
        "-euc",
        OPEN,
        "sh",
    ]
    return [*apart, *ours, "--", *AS_USER]


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _can_be_an_ordinary_user(), reason="only root can become another user"),
]


@pytest.fixture(scope="module")
def crowd() -> Iterator[None]:
    """More processes of that user's than any of its cells may have."""
    others = [subprocess.Popen([*AS_USER, "sleep", "600"]) for _ in range(MANY)]
    yield
    for other in others:
        other.kill()
        other.wait()


WAYS: dict[str, tuple[dict[str, str], Callable[..., dict[str, Any]]]] = {
    "a cell made for it": ({"PETRI_PARKED_BYTES": "0"}, run),
    "a cell that stood ready": ({}, run_ready),
}


@pytest.fixture(scope="module", params=WAYS)
def way(
    request: pytest.FixtureRequest, crowd: None
) -> Iterator[tuple[Server, Callable[..., dict[str, Any]]]]:
    settings, way = WAYS[request.param]
    home = Path(tempfile.mkdtemp(prefix="petri-ordinary-"))  # pytest's own lie where only root may look
    os.chown(home, UID, UID)
    env = {"PETRI_CGROUPS": "optional", "HOME": str(home), **settings}
    server = Server(home, env, prefix=as_user(home / "held")).start()
    yield server, way
    assert server.stop() == 0, server.log()
    shutil.rmtree(home)  # what was mounted in there was so for the server alone


@pytest.fixture
def http(way: tuple[Server, Callable[..., dict[str, Any]]]) -> Iterator[httpx.Client]:
    with way[0].client() as client:
        yield client


def test_a_fork_bomb_is_bounded_whatever_else_its_user_runs(
    way: tuple[Server, Callable[..., dict[str, Any]]], http: httpx.Client
) -> None:
    sandbox = create(http, limits={"processes": FEW})

    told = way[1](http, sandbox, code=FORK_BOMB, language="python")

    # Our own first process and the command itself count as well.
    assert (told["exit_code"], told["stdout"]) == (0, f"{FEW - 2}\n"), told


def test_one_cell_s_bomb_takes_nothing_of_another_s_bound(
    way: tuple[Server, Callable[..., dict[str, Any]]], http: httpx.Client
) -> None:
    sandboxes = [create(http, limits={"processes": FEW}) for _ in range(3)]
    with ThreadPoolExecutor(len(sandboxes)) as pool:
        told = list(pool.map(lambda each: run(http, each, code=FORK_BOMB, language="python"), sandboxes))

    assert [each["stdout"] for each in told] == [f"{FEW - 2}\n"] * len(sandboxes)


def test_a_run_cannot_shut_out_its_successors_or_the_server(
    way: tuple[Server, Callable[..., dict[str, Any]]], http: httpx.Client
) -> None:
    sandbox = create(http)
    run(http, sandbox, command="echo kept > a.txt; chmod 000 /workspace")

    assert http.get(f"/v1/sandboxes/{sandbox}/files/a.txt").text == "kept\n"
    assert run(http, sandbox, command="cat a.txt")["stdout"] == "kept\n"


def test_it_is_said_what_is_bounded_and_what_is_not(
    way: tuple[Server, Callable[..., dict[str, Any]]], http: httpx.Client
) -> None:
    layers = {layer["name"]: layer for layer in http.get("/health").json()["layers"]}

    assert not layers["cgroups"]["on"]
    assert "processes of each cell are bounded" in layers["cgroups"]["says"]
    assert "memory and processors are not" in layers["cgroups"]["says"]
    assert not layers["own uid"]["on"]
