"""kill -9 in the middle of snapshots, restores, forks and sweeps: old or new, whole, never a mixture."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from petri.store import Store
from tests.calls import create, eventually, run, scraps, workspaces
from tests.conftest import Server

pytestmark = pytest.mark.slow

ROUNDS = 5
VERSIONS = 5
MAKE = """
import os, shutil, sys
v = int(sys.argv[1])
for name in os.listdir("."):
    shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)
for i in range(60):
    if (i + v) % 3:
        folder = f"d{(i + v) % 5}/e{i % 3}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/f{i}", "w") as file:
            file.write(f"{v} {i} " * ((i * 37 + v * 101) % 3000))
        os.chmod(f"{folder}/f{i}", 0o755 if (i + v) % 2 else 0o644)
os.makedirs(f"empty{v}")
os.symlink(f"to-{v}", "link")
open("version", "w").write(str(v))
"""


def picture(top: Path) -> frozenset[tuple[str, str]]:
    """Return everything there is to see of the files below `top`, short enough to be compared."""
    found = set()
    for path in top.rglob("*"):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found.add((name, f"link {path.readlink()}"))
        elif path.is_dir():
            found.add((name, "folder"))
        else:
            found.add((name, f"{path.stat().st_mode & 0o700:o} {hash(path.read_bytes())}"))
    return frozenset(found)


@dataclass
class Told:
    """What the server acknowledged, and what was on its way when it died."""

    pictures: dict[int, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """What each version looks like."""
    snapshots: dict[str, int] = field(default_factory=dict)
    possible: dict[str, set[int]] = field(default_factory=dict)
    """The versions that each sandbox's files may be."""
    forks: dict[str, int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    """How often each thing was done before the server died."""


def settled(http: httpx.Client, server: Server, sandbox: str) -> frozenset[tuple[str, str]]:
    """Return what the files of a sandbox are, for whoever uses them."""
    answer = http.get(f"/v1/sandboxes/{sandbox}/files")
    assert answer.status_code == 200, answer.text
    return picture(workspaces(server) / sandbox)


def listed(http: httpx.Client) -> list[dict[str, str]]:
    """Return every snapshot on record."""
    found: list[dict[str, str]] = http.get("/v1/snapshots", params={"limit": 100}).json()["snapshots"]
    return found


def restore_for_ever(http: httpx.Client, told: Told, sandbox: str, stop: threading.Event) -> None:
    while not stop.is_set():
        snapshot, version = random.choice(list(told.snapshots.items()))
        before = told.possible[sandbox]
        told.possible[sandbox] = {*before, version}
        answer = http.post(f"/v1/sandboxes/{sandbox}/restore", json={"snapshot": snapshot})
        if answer.status_code == 200:
            told.possible[sandbox] = {version}
            told.done["restore"] += 1


def fork_for_ever(http: httpx.Client, told: Told, sandbox: str, stop: threading.Event) -> None:
    [version] = told.possible[sandbox]
    while not stop.is_set():
        answer = http.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 3})
        if answer.status_code == 201:
            first, *children = [each["id"] for each in answer.json()["sandboxes"]]
            told.forks.update(dict.fromkeys(children, version))
            told.done["fork"] += 1
            delete(http, told, first)
        for child in list(told.forks)[:-4]:  # few are enough, and deleting while they fill is of interest
            del told.forks[child]
            delete(http, told, child)


def delete(http: httpx.Client, told: Told, sandbox: str) -> None:
    if http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204:
        told.deleted.add(sandbox)


def snapshot_for_ever(http: httpx.Client, told: Told, sandbox: str, stop: threading.Event) -> None:
    while not stop.is_set():
        version = random.randrange(VERSIONS)
        told.possible[sandbox] = set(range(VERSIONS)) | {-1}  # while it runs, anything
        run(http, sandbox, code=MAKE, args=[str(version)])
        told.possible[sandbox] = {version}
        answer = http.post(f"/v1/sandboxes/{sandbox}/snapshots")
        if answer.status_code == 201:
            told.snapshots[answer.json()["id"]] = version
            told.done["snapshot"] += 1
        if len(told.snapshots) > VERSIONS + 2:
            gone = list(told.snapshots)[VERSIONS]
            del told.snapshots[gone]
            http.delete(f"/v1/snapshots/{gone}")


def until_it_dies(work: Callable[..., None], *args: object) -> None:
    try:
        work(*args)
    except (httpx.TransportError, AssertionError):
        return


def live_through(server: Server, told: Told, sandboxes: list[str], seconds: float) -> None:
    assert server.process is not None
    stop = threading.Event()
    with server.client() as http, ThreadPoolExecutor(8) as pool:
        for sandbox in sandboxes[:2]:
            pool.submit(until_it_dies, restore_for_ever, http, told, sandbox, stop)
        pool.submit(until_it_dies, fork_for_ever, http, told, sandboxes[2], stop)
        pool.submit(until_it_dies, snapshot_for_ever, http, told, sandboxes[3], stop)
        time.sleep(seconds)
        server.process.send_signal(signal.SIGKILL)
        stop.set()
    server.wait()


def check(server: Server, told: Told) -> None:
    with server.client() as http:
        for sandbox, possible in told.possible.items():
            found = settled(http, server, sandbox)
            if -1 not in possible:
                assert found in {told.pictures[each] for each in possible}, f"{sandbox} is a mixture"
                told.possible[sandbox] = {each for each in possible if told.pictures[each] == found}
        for child, version in told.forks.items():
            assert settled(http, server, child) == told.pictures[version]
        for snapshot, version in told.snapshots.items():
            made = create(http, from_snapshot=snapshot)
            assert settled(http, server, made) == told.pictures[version], f"{snapshot} is not {version}"
            http.delete(f"/v1/sandboxes/{made}")
        for unsaid in {each["id"] for each in listed(http)} - told.snapshots.keys():
            made = create(http, from_snapshot=unsaid)  # on record, though nobody was told before the end
            assert settled(http, server, made) in told.pictures.values(), f"{unsaid} is a mixture"
            http.delete(f"/v1/sandboxes/{made}")
        for gone in told.deleted:
            eventually(lambda gone=gone: not (workspaces(server) / gone).exists())  # type: ignore[misc]
        eventually(lambda: scraps(server) == [], 30)


def test_killed_at_any_moment_files_are_old_or_new(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_GC_S="0.05", PETRI_GC_GRACE_S="1", PETRI_UNDO_RUNS="2")
    told = Told()
    with server.client() as http:
        sandboxes = [create(http) for _ in range(4)]
        for version in range(VERSIONS):
            run(http, sandboxes[0], code=MAKE, args=[str(version)])
            told.pictures[version] = picture(workspaces(server) / sandboxes[0])
            taken = http.post(f"/v1/sandboxes/{sandboxes[0]}/snapshots").json()
            told.snapshots[taken["id"]] = version
        for sandbox in sandboxes:
            http.post(f"/v1/sandboxes/{sandbox}/restore", json={"snapshot": next(iter(told.snapshots))})
            told.possible[sandbox] = {0}
    for _ in range(ROUNDS):
        live_through(server, told, sandboxes, random.uniform(0.3, 3))
        server.start()
        check(server, told)
    assert min(told.done[each] for each in ("restore", "fork", "snapshot")) >= ROUNDS, told.done
    assert "Traceback" not in server.log()
    server.stop()

    store = Store(server.home / "petri" / "store")
    assert store.fsck("default", deep=True) == []
    store.close()
