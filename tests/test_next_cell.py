"""What a run leaves to the next one of its sandbox are files, and nothing of them runs in a cell that waits.

The next cell stands, with an interpreter started in it, over files that hostile code has just written, or is
writing. Code that ran there would run with no run on record, and outlive the one that planted it.
"""

import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.footprint import launcher_of, standing

from petri.operations.parking import CELL_BYTES
from tests.calls import create, eventually, put, run, workspaces
from tests.conftest import Server
from tests.ready import first_processes, have_one_stand, run_ready

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot look into cells that stand"),
]

PATIENCE_S = 60
"""For an interpreter to have started: whoever waits for a command comes last on a busy machine."""
PLANT = textwrap.dedent("""
    import os, sys
    MARK = "import os; open(f'/workspace/RAN-{os.getpid()}', 'w').close()\\n"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    at_home = f".local/lib/{version}/site-packages"
    modules = (
        *("sitecustomize.py", "usercustomize.py", "site.py", "os.py", "io.py", "abc.py", "codecs.py"),
        *("encodings/__init__.py", "encodings/utf_8.py", "collections/__init__.py", "petri/__init__.py"),
        *(f"{at_home}/usercustomize.py", f"{at_home}/sitecustomize.py", f"{at_home}/evil.pth", "evil.pth"),
        *("site-packages/evil.pth", f"lib/{version}/os.py", f"lib/{version}/site.py", ".pythonrc.py"),
    )
    settings = ("pyvenv.cfg", f"{version}._pth", "python3._pth")
    for name in (*modules, *settings, "python", "python3", "sh", "true", ".bashrc", ".profile"):
        if "/" in name:
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "w") as file:
            file.write("home = /workspace\\n" if name in settings else MARK)
        os.chmod(name, 0o755)
    print("planted", flush=True)
""")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("host"), {"PETRI_DEPENDENCIES": "off"}).start()
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that has no cell stand."""
    settings = {"PETRI_DEPENDENCIES": "off", "PETRI_PARKED_BYTES": "0"}
    server = Server(tmp_path_factory.mktemp("cold"), settings).start()
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture
def http(host: Server) -> Iterator[httpx.Client]:
    with host.client() as client:
        yield client


def marks(host: Server, sandbox: str) -> list[str]:
    return [entry.name for entry in (workspaces(host) / sandbox).glob("RAN-*")]


def by_a_file(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "plant.py", PLANT)
    assert run(http, sandbox, filename="plant.py")["stdout"] == "planted\n"


def by_code(http: httpx.Client, sandbox: str) -> None:
    assert run(http, sandbox, code=PLANT, language="python")["stdout"] == "planted\n"


def by_a_command(http: httpx.Client, sandbox: str) -> None:
    assert run(http, sandbox, command=["python3", "-c", PLANT])["stdout"] == "planted\n"


def by_an_upload(http: httpx.Client, sandbox: str) -> None:
    """By another sandbox's run, and by whoever has the API."""
    planted = create(http)
    by_code(http, planted)
    packed = http.get(f"/v1/sandboxes/{planted}/files/", params={"archive": "tar"})
    assert packed.status_code == 200, packed.text
    sent = http.post(
        f"/v1/sandboxes/{sandbox}/files?extract=true", files={"file": ("planted.tar", packed.content)}
    )
    assert sent.status_code == 201, sent.text
    http.delete(f"/v1/sandboxes/{planted}")


@pytest.mark.parametrize(
    "plant", [by_a_file, by_code, by_a_command, by_an_upload], ids=lambda plant: plant.__name__
)
def test_nothing_that_was_planted_runs_before_there_is_a_run(
    host: Server, http: httpx.Client, plant: Callable[[httpx.Client, str], None]
) -> None:
    sandbox = create(http)
    plant(http, sandbox)
    eventually(lambda: first_processes(host, sandbox) != [])
    time.sleep(0.5)  # for an interpreter to start, and to run what it should not

    assert first_processes(host, sandbox) != []
    assert marks(host, sandbox) == []


@pytest.mark.parametrize("mode", ["000", "400", "200", "100"])
@pytest.mark.parametrize("which", ["host", "cold"])
def test_a_run_cannot_shut_its_successors_out(request: pytest.FixtureRequest, which: str, mode: str) -> None:
    server: Server = request.getfixturevalue(which)
    with server.client() as http:
        sandbox = create(http)
        put(http, sandbox, "main.py", "print('as ever')")
        shut = run(http, sandbox, command=f"chmod {mode} /workspace; exit 7")
        time.sleep(0.1)  # the next cell comes to stand, or does not

        told = run(http, sandbox, filename="main.py")

    assert (shut["exit_code"], told["exit_code"], told["stdout"]) == (7, 0, "as ever\n")
    assert shut["changes"] == {"added": [], "modified": [], "deleted": [], "left_out": 0}


def test_a_cell_with_the_former_limits_does_not_stand_once_there_are_others(
    host: Server, http: httpx.Client
) -> None:
    sandbox = create(http)
    have_one_stand(host, http, sandbox, code="pass", language="python")

    changed = http.patch(f"/v1/sandboxes/{sandbox}", json={"limits": {"memory_bytes": 64 << 20}})

    assert changed.status_code == 200, changed.text
    assert first_processes(host, sandbox) == []
    told = run_ready(http, sandbox, code="bytearray(128 << 20)", language="python")
    assert told["oom_killed"]


KINDS: dict[str, dict[str, Any]] = {
    "file": {"filename": "main.py"},
    "code": {"code": "pass", "language": "python"},
    "nobody ahead": {"command": "true"},
}


def those_at_rest(host: Server) -> set[int]:
    """Wait until nobody in any cell that stands takes any more of a processor, and return them."""
    assert host.process is not None
    launcher = launcher_of(host.process.pid)
    seen: list[dict[int, str]] = [{}]

    def nobody_was_awake() -> bool:
        seen.append({pid: Path(f"/proc/{pid}/schedstat").read_text() for pid in standing(launcher)})
        time.sleep(0.3)
        return seen[-1] != {} and seen[-1] == seen[-2]

    eventually(nobody_was_awake, PATIENCE_S)
    return set(seen[-1])


@pytest.mark.parametrize("body", KINDS.values(), ids=KINDS)
def test_a_cell_that_stands_takes_no_processor_and_is_nobody_s_run(
    host: Server, http: httpx.Client, body: dict[str, Any]
) -> None:
    sandbox = create(http)
    put(http, sandbox, "main.py", "pass")
    have_one_stand(host, http, sandbox, **body)

    at_rest = those_at_rest(host)

    assert set(first_processes(host, sandbox)) <= at_rest
    assert len(http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]) == 1
    assert http.get("/v1/metrics").json()["running"] == 0


@pytest.mark.parametrize("body", KINDS.values(), ids=KINDS)
def test_a_cell_that_stands_takes_no_more_memory_than_it_is_counted_for(
    host: Server, http: httpx.Client, body: dict[str, Any]
) -> None:
    sandbox = create(http)
    put(http, sandbox, "main.py", "pass")
    have_one_stand(host, http, sandbox, **body)
    those_at_rest(host)

    taken = [_memory_of(pid) for pid in first_processes(host, sandbox)]

    assert taken != []
    assert 0 < max(taken) <= CELL_BYTES


def _memory_of(pid: int) -> int:
    """Return what the kernel has the whole cell of a process pay for."""
    groups = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, controllers, path in groups:
        for mounted in _mounts_of(controllers):
            for name in ("memory.usage_in_bytes", "memory.current"):
                if (file := Path(f"{mounted}{path}/{name}")).exists():
                    return int(file.read_text())
    raise AssertionError(f"{groups} count no memory")


def _mounts_of(controllers: str) -> list[str]:
    mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    kind = "cgroup" if controllers else "cgroup2"
    wanted = set(filter(None, controllers.split(",")))
    found = [(before.split()[4], behind.split()) for before, behind in mounts]
    return [at for at, (type_, _, options) in found if type_ == kind and wanted <= set(options.split(","))]
