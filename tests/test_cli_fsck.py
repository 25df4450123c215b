"""`petri fsck`: what was kept is there, and what is wrong with it is said in words."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable

import httpx
import pytest

from tests.calls import create, put, run
from tests.conftest import PETRI, Server


def fsck(server: Server, *options: str) -> "subprocess.CompletedProcess[str]":
    others = {name: value for name, value in os.environ.items() if not name.startswith("PETRI_")}
    env = {**others, "PETRI_HOME": str(server.home / "petri")}
    return subprocess.run(
        [str(PETRI), "fsck", *options], env=env, capture_output=True, text=True, check=False, timeout=60
    )


def filled(server: Server) -> dict[str, str]:
    with server.client() as http:
        sandbox = create(http)
        put(http, sandbox, "a", os.urandom(100_000))
        ran = run(http, sandbox, command="echo b > b")
        taken: dict[str, str] = http.post(f"/v1/sandboxes/{sandbox}/snapshots").json()
    assert ran["exit_code"] == 0
    return taken


@pytest.mark.slow
def test_a_store_is_well_and_then_damaged(new_server: Callable[..., Server]) -> None:
    server = new_server()
    taken = filled(server)
    busy = fsck(server)
    assert (busy.returncode, "stop it first" in busy.stderr) == (125, True)
    server.stop()

    for options in ((), ("--deep",)):
        assert (fsck(server, *options).stdout, fsck(server, *options).returncode) == ("all is well\n", 0)
    told = json.loads(fsck(server, "--json").stdout)
    assert told == {"deep": False, "tenants": 1, "findings": {}}

    [pack] = (server.home / "petri" / "store").glob("*/*.pack")
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.write_bytes(content)
    damaged = fsck(server, "--deep")
    assert damaged.returncode == 1
    assert (
        f"snapshot {taken['id']} of sandbox {taken['sandbox_id']}, cannot be had again: a." in damaged.stdout
    )
    assert f"sandbox {taken['sandbox_id']}, as its files are now, cannot be had again: a." in damaged.stdout
    assert re.search(r"run run-\w+, before it, cannot be had again: a\. An undo", damaged.stdout)
    assert "default: " in damaged.stdout
    assert "damaged" in damaged.stdout


@pytest.mark.long
def test_files_that_nobody_had_a_reason_to_keep_yet_are_not_lost(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with server.client() as http:
        sandbox = create(http)
        run(http, sandbox, command="echo a > a")
        events = {"Accept": "text/event-stream"}
        ask = {"command": "echo b > b; echo begun; sleep 60"}
        with http.stream("POST", f"/v1/sandboxes/{sandbox}/exec", json=ask, headers=events) as answer:
            assert any("begun" in said for said in answer.iter_lines())
            put(http, sandbox, "c", os.urandom(1000))
            server.stop(signal.SIGKILL)

    told = fsck(server)

    assert (told.stdout, told.returncode) == ("all is well\n", 0)


@pytest.mark.slow
def test_what_a_snapshot_needs_and_is_not_there_is_named(new_server: Callable[..., Server]) -> None:
    server = new_server()
    taken = filled(server)
    server.stop()
    for path in (server.home / "petri" / "store").glob("*/*"):
        path.unlink()

    told = fsck(server)

    assert told.returncode == 1
    assert f"object {taken['tree']} is not there" in told.stdout
    assert f"snapshot {taken['id']} of sandbox {taken['sandbox_id']}, cannot be had again: /." in told.stdout
    assert "Delete it, and take another" in told.stdout


def test_the_metrics_say_what_the_store_takes(http: httpx.Client, sandbox: str) -> None:
    before = http.get("/v1/metrics").json()["store_bytes"]
    put(http, sandbox, "a", os.urandom(100_000))
    http.post(f"/v1/sandboxes/{sandbox}/snapshots")

    assert http.get("/v1/metrics").json()["store_bytes"] >= before + 100_000
    assert "petri_store_bytes" in http.get("/metrics").text
