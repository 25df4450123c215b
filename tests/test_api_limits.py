"""Limits over HTTP: the host's are the ceiling, a sandbox's are a run's ceiling, and all are on record."""

import json
import os
import sqlite3
import textwrap
from contextlib import closing
from typing import Any

import httpx
import pytest

from petri.wire import LimitsRequest
from tests.calls import create, refused, run
from tests.conftest import Server

TOO_MUCH: dict[str, float] = {
    "cpus": 1000,
    "memory_bytes": 1 << 49,
    "processes": 900_000,
    "timeout_s": 10_000_000,
    "open_files": 1 << 29,
    "disk_bytes": 1 << 59,
    "inodes": 1 << 59,
    "tmp_bytes": 1 << 49,
    "output_bytes": 1 << 49,
}
needs_cgroups = pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")


def ask(http: httpx.Client, sandbox: str, **body: Any) -> httpx.Response:
    return http.post(f"/v1/sandboxes/{sandbox}/exec", json=body)


def test_every_limit_has_a_ceiling_in_this_test() -> None:
    assert set(TOO_MUCH) == set(LimitsRequest.model_fields)


@pytest.mark.parametrize("name", TOO_MUCH)
def test_nobody_may_ask_for_more_than_the_host_has(http: httpx.Client, sandbox: str, name: str) -> None:
    body = {"limits": {name: TOO_MUCH[name]}}

    for problem in (
        refused(http.post("/v1/sandboxes", json=body), 422),
        refused(http.patch(f"/v1/sandboxes/{sandbox}", json=body), 422),
        refused(http.post("/v1/exec", json={"command": "true", **body}), 422),
    ):
        assert problem["field"] == f"limits.{name}"
        assert "at most here (" in problem["detail"]


def test_the_ceilings_are_the_host_s(http: httpx.Client, sandbox: str) -> None:
    cpus = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 4 // 5

    for limits in ({"cpus": cpus}, {"memory_bytes": memory_bytes}, {"tmp_bytes": memory_bytes}):
        changed = http.patch(f"/v1/sandboxes/{sandbox}", json={"limits": limits})
        assert changed.status_code == 200, changed.text
        (name, value), *_ = limits.items()
        more = {"limits": {name: value + 1}}
        assert str(value) in refused(http.patch(f"/v1/sandboxes/{sandbox}", json=more), 422)["detail"]


def test_a_run_has_its_sandbox_s_limits_unless_it_names_tighter_ones(http: httpx.Client) -> None:
    limits = {"memory_bytes": 1 << 28, "processes": 40, "open_files": 100, "timeout_s": 50.0}
    sandbox = create(http, limits=limits)

    plain = run(http, sandbox, command="ulimit -n")
    tight = run(http, sandbox, command="ulimit -n", limits={"open_files": 64}, timeout_s=7)

    assert (plain["stdout"], tight["stdout"]) == ("100\n", "64\n")
    own = http.get(f"/v1/sandboxes/{sandbox}").json()["limits"]
    assert http.get(f"/v1/runs/{plain['run_id']}").json()["limits"] == own
    tighter = {**own, "open_files": 64, "timeout_s": 7}
    assert http.get(f"/v1/runs/{tight['run_id']}").json()["limits"] == tighter


@pytest.mark.parametrize("name", [name for name in TOO_MUCH if name != "timeout_s"])
def test_a_run_may_not_have_more_than_its_sandbox(http: httpx.Client, sandbox: str, name: str) -> None:
    own = http.get(f"/v1/sandboxes/{sandbox}").json()["limits"][name]

    problem = refused(ask(http, sandbox, command="true", limits={name: own + 1}), 422)

    assert problem["field"] == f"limits.{name}"
    assert "PATCH" in problem["detail"]
    assert ask(http, sandbox, command="true", limits={name: own}).status_code == 200


def test_a_run_s_time_is_named_beside_its_limits(http: httpx.Client, sandbox: str) -> None:
    problem = refused(ask(http, sandbox, command="true", limits={"timeout_s": 5}), 422)

    assert problem["field"] == "limits.timeout_s"


def test_a_time_just_beyond_the_most_is_told_as_it_was_asked_for(http: httpx.Client, sandbox: str) -> None:
    problem = refused(ask(http, sandbox, command="true", timeout_s=86_400.0001), 422)

    assert "86400 s at most" in problem["detail"] and problem["detail"].endswith("not 86400.0001")


@pytest.mark.long
@needs_cgroups
def test_a_run_s_own_memory_and_processes_are_held(http: httpx.Client, sandbox: str) -> None:
    little = {"memory_bytes": 64 << 20}
    hungry = run(http, sandbox, code="bytearray(200 << 20)", language="python", limits=little)
    forks = textwrap.dedent("""
        import os, time
        made = 0
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(60)
                made += 1
        except OSError:
            print(made)
    """)
    bomb = run(http, sandbox, code=forks, language="python", limits={"processes": 10})

    assert (hungry["signal"], hungry["oom_killed"]) == (9, True)
    assert int(bomb["stdout"]) < 10


@pytest.mark.long
@needs_cgroups
def test_a_run_has_so_much_of_the_processors_however_many_it_starts(http: httpx.Client) -> None:
    sandbox = create(http, limits={"cpus": 0.2})
    burns = textwrap.dedent("""
        import os, time
        for _ in range(3):
            os.fork()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            pass
    """)
    told = run(http, sandbox, code=burns, language="python")

    assert told["usage"]["cpu_ms"] < 0.3 * told["duration_ms"] + 100, told


def test_of_each_stream_so_much_is_kept(http: httpx.Client, sandbox: str) -> None:
    script = "head -c 5000 /dev/zero; head -c 100 /dev/zero >&2"
    told = run(http, sandbox, command=script, limits={"output_bytes": 1024})

    assert (told["stdout_bytes"], told["stdout_truncated"]) == (5000, True)
    assert (told["stderr_bytes"], told["stderr_truncated"]) == (100, False)
    assert len(http.get(f"/v1/runs/{told['run_id']}/stdout").content) == 1024


def test_a_default_larger_than_the_host_is_the_host(new_server: Any) -> None:
    large = {"PETRI_CPUS": "1000", "PETRI_DISK_BYTES": str(1 << 60), "PETRI_TMP_BYTES": str(1 << 50)}
    server: Server = new_server(**large)
    with server.client() as http:
        limits = http.get(f"/v1/sandboxes/{create(http)}").json()["limits"]

    assert limits["cpus"] == len(os.sched_getaffinity(0))
    assert limits["disk_bytes"] < 1 << 55
    assert limits["tmp_bytes"] < 1 << 45


def test_health_names_who_holds_the_disk(http: httpx.Client) -> None:
    layers = {layer["name"]: layer for layer in http.get("/health").json()["layers"]}

    assert layers["disk"]["on"]
    assert layers["disk"]["says"]
    assert ("watched" in layers["disk"]["says"]) == (layers["disk"]["remedy"] is not None)


def test_limits_from_before_a_limit_was_known_are_the_defaults(http: httpx.Client, server: Server) -> None:
    """An old ledger has rows without the younger limits."""
    sandbox = create(http)
    old = {"cpus": 1.0, "memory_bytes": 1 << 28, "processes": 64, "timeout_s": 60.0}
    with closing(sqlite3.connect(server.home / "petri" / "ledger.db", timeout=10)) as ledger, ledger:
        ledger.execute("UPDATE sandboxes SET limits = ? WHERE id = ?", (json.dumps(old), sandbox))

    limits = http.get(f"/v1/sandboxes/{sandbox}").json()["limits"]

    assert (limits["memory_bytes"], limits["disk_bytes"], limits["inodes"]) == (1 << 28, 4 << 30, 200_000)
    assert run(http, sandbox, command="echo fine")["stdout"] == "fine\n"
