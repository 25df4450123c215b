"""Runs that have a cell which stood ready for them: asked for, and seen to have had one."""

import re
from pathlib import Path
from typing import Any

import httpx

from tests.calls import eventually, run, workspaces
from tests.conftest import Server

_TRIES = 20
"""For a cell to stand in time: it takes some 30 ms, and the machine may be busy."""


def parked_cells_used(http: httpx.Client) -> int:
    """Return how many runs had a cell that stood ready."""
    found = re.search(r"^petri_parked_cells_used_total (\d+)", http.get("/metrics").text, re.M)
    assert found is not None
    return int(found[1])


def run_ready(http: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    """Run something until it was in a cell that stood ready; nobody else may use the server meanwhile."""
    for _ in range(_TRIES):
        used = parked_cells_used(http)
        told = run(http, sandbox, **body)
        if parked_cells_used(http) == used + 1:
            return told
    raise AssertionError(f"no cell that stood ready served it in {_TRIES} tries")


def have_one_stand(server: Server, http: httpx.Client, sandbox: str, **body: Any) -> None:
    """Run something in a sandbox that is idle; returns when a cell stands ready for another run like it."""
    run(http, sandbox, **body)
    eventually(lambda: first_processes(server, sandbox) != [])


def first_processes(server: Server, sandbox: str) -> list[int]:
    """Return the first process of every cell in a sandbox, as root sees them on the host."""
    ours = (workspaces(server) / sandbox).stat()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            theirs = (place / "root/workspace").stat()
            is_there = (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
            if is_there and (place / "comm").read_text() == "init\n":
                found.append(int(place.name))
        except OSError:
            continue  # it ended while we looked, or has no workspace
    return found
