"""Packages through HTTP: they appear by themselves, are shared, and never keep a run from starting."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import PETRI, Server
from tests.package_index import PackageIndex, wheel

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    """An index of our own: `alpha` needs `beta` below 2, `tool` is a program."""
    index = PackageIndex()
    index.add("alpha", "1.0", "beta<2")
    index.add("beta", "1.0")
    index.add("beta", "2.0")
    entry = {"tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main\n"}
    index.put(
        "tool", "1.0", wheel("tool", "1.0", files={"tool.py": "def main(): print('tooled')\n", **entry})
    )
    yield index
    index.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: PackageIndex) -> Iterator[Server]:
    """A server that asks that index."""
    yield from served(tmp_path_factory.mktemp("environments"), index)


def served(home: Path, index: PackageIndex) -> Iterator[Server]:
    """Have a server that asks `index`, to the end."""
    server = Server(home, {"PETRI_INDEX_URL": index.url, "UV_HTTP_RETRIES": "0"}).start()
    yield server
    assert server.stop() == 0, server.log()


def script(*requirements: str, body: str = "") -> str:
    """Return a program that says what it needs."""
    return f"# /// script\n# dependencies = {json.dumps(requirements)}\n# ///\n{body}\n"


def put(http: httpx.Client, sandbox: str, **files: str) -> None:
    for name, text in files.items():
        path = name.replace("__", ".")
        assert http.put(f"/v1/sandboxes/{sandbox}/files/{path}", content=text).status_code in (200, 201)


def run(http: httpx.Client, sandbox: str, **ask: Any) -> dict[str, Any]:
    answer = http.post(f"/v1/sandboxes/{sandbox}/exec", json=ask)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


SEES = script("alpha", body="import alpha, beta; print(alpha.version, beta.version, alpha.__file__)")


def test_what_a_file_needs_is_there_when_it_runs(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py=SEES)

    answer = run(http, sandbox, filename="main.py")

    assert answer["stdout"] == "1.0 1.0 /environment/python/lib/python3.11/site-packages/alpha.py\n"
    assert answer["installed"] == ["alpha==1.0", "beta==1.0"]
    assert answer["not_installed"] == []
    assert re.fullmatch("[0-9a-f]{64}", answer["environment"])
    assert http.get(f"/v1/runs/{answer['run_id']}").json()["environment"] == answer["environment"]
    assert http.get(f"/v1/sandboxes/{sandbox}").json()["environment"] == answer["environment"]


@pytest.mark.parametrize(
    "ask",
    [
        {"command": "python3 main.py"},
        {"command": "python main.py"},
        {"command": ["python3", "-m", "main"]},
        {"command": "env python3 main.py"},
        {"code": SEES},
        {"filename": "main.py", "cwd": "inner"},
        {"filename": "main.py", "env": {"A": "b"}},
    ],
    ids=str,
)
def test_every_way_of_running_it_sees_them(http: httpx.Client, sandbox: str, ask: dict[str, Any]) -> None:
    put(http, sandbox, main__py=SEES, requirements__txt="alpha\n")
    http.put(f"/v1/sandboxes/{sandbox}/files/inner/x", content="")

    answer = run(http, sandbox, **ask)

    assert answer["stdout"].startswith("1.0 1.0 /environment/"), answer


def test_programs_of_packages_can_be_typed(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, requirements__txt="tool\n", main__py="import tool\n")

    answer = run(http, sandbox, command="python3 main.py && tool")

    assert answer["stdout"] == "tooled\n", answer


def test_a_child_process_sees_them_too(http: httpx.Client, sandbox: str) -> None:
    body = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import alpha; print(alpha.version)'])"
    )
    put(http, sandbox, main__py=script("alpha", body=body))

    assert run(http, sandbox, filename="main.py")["stdout"] == "1.0\n"


def test_nobody_inside_can_change_them(http: httpx.Client, sandbox: str) -> None:
    body = (
        "import alpha, os\n"
        "for do in (lambda: open(alpha.__file__, 'w'), lambda: os.chmod(alpha.__file__, 0o777),\n"
        "           lambda: os.unlink(alpha.__file__), lambda: open('/environment/python/x', 'w')):\n"
        "    try: do(); print('done')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    put(http, sandbox, main__py=script("alpha", body=body))

    assert set(run(http, sandbox, filename="main.py")["stdout"].split()) <= {"13", "30", "1"}


@pytest.mark.parametrize("more", [{}, {"missing": "continue"}], ids=["mounted", "in a window"])
def test_they_are_mounted_to_be_read_whoever_owns_them(
    http: httpx.Client, sandbox: str, more: dict[str, str]
) -> None:
    looks = "import alpha, os; print(bool(os.statvfs(alpha.__file__).f_flag & os.ST_RDONLY))"

    assert run(http, sandbox, code=script("alpha", body=looks), **more)["stdout"] == "True\n"


def test_what_the_host_has_is_there_beside_them(http: httpx.Client, sandbox: str) -> None:
    looks = "import sys; print([each for each in sys.path if 'dist-packages' in each])"
    put(http, sandbox, plain__py=looks, main__py=script("alpha", body=looks))

    plain, equipped = (run(http, sandbox, filename=name) for name in ("plain.py", "main.py"))

    assert equipped["installed"]
    assert equipped["stdout"] == plain["stdout"]


def test_a_program_without_packages_sees_nothing_of_this(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py="import os, sys; print(os.path.exists('/environment'), sys.prefix)")

    answer = run(http, sandbox, filename="main.py")

    assert answer["stdout"] == "False /usr\n"
    assert (answer["environment"], answer["installed"], answer["not_installed"]) == (None, [], [])


def test_a_second_sandbox_has_them_without_asking_the_index(
    http: httpx.Client, sandbox: str, index: PackageIndex
) -> None:
    put(http, sandbox, main__py=SEES)
    first = run(http, sandbox, filename="main.py")
    index.fetched.clear()

    other = http.post("/v1/sandboxes", json={}).json()["id"]
    put(http, other, main__py=SEES)
    second = run(http, other, filename="main.py")

    assert second["environment"] == first["environment"]
    assert index.fetched == []


def test_once_is_enough_for_an_exec_without_a_sandbox(http: httpx.Client) -> None:
    answer = http.post("/v1/exec", json={"files": {"main.py": SEES}, "filename": "main.py"}).json()

    assert answer["installed"] == ["alpha==1.0", "beta==1.0"]
    assert answer["exit_code"] == 0


def test_many_at_once_build_once(http: httpx.Client, server: Server, index: PackageIndex) -> None:
    index.add("wanted", "1.0")
    index.fetched.clear()
    text = script("wanted", body="import wanted; print(wanted.version)")

    def once(_: int) -> str:
        with server.client() as client:
            return str(client.post("/v1/exec", json={"code": text}).json()["stdout"])

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(once, range(16)))

    assert said == ["1.0\n"] * 16
    assert len([path for path in index.fetched if path.endswith(".whl")]) == 1


# -------------------------------------------------------------------------------------- what cannot be had


def test_a_conflict_is_in_the_answer_and_the_run_starts(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py=script("alpha", "beta==2.0", body="print('started')"))

    answer = run(http, sandbox, filename="main.py")

    assert answer["stdout"] == "started\n"
    assert answer["environment"] is None
    why = answer["not_installed"][0]["why"]
    assert "alpha depend on beta<2" in why
    assert "beta==2.0" in why
    assert http.get(f"/v1/runs/{answer['run_id']}").json()["not_installed"] == answer["not_installed"]


def test_the_network_it_took_is_not_the_runs(http: httpx.Client, sandbox: str, index: PackageIndex) -> None:
    port = int(index.url.split(":")[2].split("/")[0])
    reach = f"import alpha, socket; socket.create_connection(('127.0.0.1', {port}), 2)"
    answer = run(http, sandbox, code=script("alpha", body=reach))

    assert answer["installed"] == ["alpha==1.0", "beta==1.0"]
    assert "ConnectionRefusedError" in answer["stderr"]


def test_a_misspelt_import_is_not_installed_and_says_what_was_meant(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py="import sklern\n")

    answer = run(http, sandbox, filename="main.py")

    (refused,) = answer["not_installed"]
    assert refused["name"] == "sklern"
    assert refused["suggestion"] == "sklearn"
    assert "ModuleNotFoundError: No module named 'sklern'" in answer["stderr"]


def test_a_syntax_error_is_pythons_own(http: httpx.Client, sandbox: str) -> None:
    text = script("alpha", body="import alpha\ndef broken(:\n    pass\n")
    put(http, sandbox, main__py=text)

    equipped, bare = (run(http, sandbox, filename="main.py", dependencies=mode) for mode in ("auto", "off"))

    assert (equipped["installed"], bare["installed"]) == (["alpha==1.0", "beta==1.0"], [])
    assert (equipped["exit_code"], equipped["stdout"], equipped["not_installed"]) == (1, "", [])
    assert re.fullmatch(
        r'  File "\S*main.py", line \d+\n    def broken\(:\n +\^\nSyntaxError: invalid syntax\n',
        equipped["stderr"],
    )
    assert equipped["stderr"] == bare["stderr"]


def test_an_index_that_is_down_is_stated_and_the_run_goes_on(
    new_server: Callable[..., Server], index: PackageIndex
) -> None:
    server = new_server(PETRI_INDEX_URL="http://127.0.0.1:9/simple", UV_HTTP_RETRIES="0")
    with server.client() as http:
        text = script("alpha", body="print('started')")
        answer = http.post("/v1/exec", json={"code": text}).json()

    assert answer["stdout"] == "started\n"
    assert "the package index is out of reach" in answer["not_installed"][0]["why"]
    assert "127.0.0.1" not in answer["not_installed"][0]["why"]


@pytest.mark.parametrize("mode", ["off", "manifest-only"])
def test_a_run_may_ask_for_less(http: httpx.Client, mode: str) -> None:
    ask = {"code": "import requests", "dependencies": mode}

    answer = http.post("/v1/exec", json=ask).json()

    assert answer["installed"] == []
    assert "ModuleNotFoundError" in answer["stderr"]


def test_a_run_may_not_ask_for_more_than_the_server_does(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_DEPENDENCIES="off")
    with server.client() as http:
        answer = http.post("/v1/exec", json={"code": SEES, "dependencies": "auto"}).json()

    assert answer["installed"] == []
    assert "ModuleNotFoundError" in answer["stderr"]


@pytest.mark.parametrize("value", ["always", 1, True, []])
def test_dependencies_that_make_no_sense_are_refused(http: httpx.Client, value: object) -> None:
    answer = http.post("/v1/exec", json={"code": "1", "dependencies": value})

    assert answer.status_code == 422
    assert "dependencies" in answer.text


# ------------------------------------------------------------------------------------------------ watching


def events(answer: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    found = re.findall(r"event: (\w+)\ndata: (.*)\n", answer.text)
    return [(kind, json.loads(data)) for kind, data in found]


def test_a_stream_tells_what_is_being_installed(
    http: httpx.Client, sandbox: str, index: PackageIndex
) -> None:
    index.put("streamed", "1.0", wheel("streamed", "1.0", files={"streamed.py": "#" * 5000}))
    put(http, sandbox, main__py=script("streamed", body="print('ran')"))

    answer = http.post(
        f"/v1/sandboxes/{sandbox}/exec", json={"filename": "main.py"}, headers={"Accept": "text/event-stream"}
    )

    told = events(answer)
    assert told[0][0] == "started"
    steps = [data for kind, data in told if kind == "installing"]
    assert [step["phase"] for step in steps if "load" not in step["phase"]] == [
        "resolving",
        "installing",
        "installed",
    ]
    assert steps[0]["packages"] == ["streamed"]
    assert steps[-1]["bytes"] > 5000
    kinds = [kind for kind, _ in told]
    assert kinds.index("stdout") > max(n for n, kind in enumerate(kinds) if kind == "installing")
    assert told[-1][1]["installed"] == ["streamed==1.0"]


def test_cancelled_while_it_installs_it_never_ran(
    http: httpx.Client, server: Server, sandbox: str, index: PackageIndex
) -> None:
    index.add("slow", "1.0")
    put(http, sandbox, main__py=script("slow", body="open('ran', 'w')"))
    index.holds.clear()
    try:
        with (
            server.client() as streaming,
            streaming.stream(
                "POST",
                f"/v1/sandboxes/{sandbox}/exec",
                json={"filename": "main.py"},
                headers={"Accept": "text/event-stream"},
            ) as stream,
        ):
            lines = stream.iter_lines()
            run_id = json.loads(next(line for line in lines if line.startswith("data: "))[6:])["run_id"]
            next(line for line in lines if line == "event: installing")
            cancelled = http.post(f"/v1/runs/{run_id}/cancel").json()
            rest = "\n".join(lines)
    finally:
        index.holds.set()

    assert cancelled["state"] == "cancelled"
    assert "event: done" in rest
    assert http.get(f"/v1/sandboxes/{sandbox}/files/ran").status_code == 404
    staging = server.home / "petri/environments/staging"
    assert list(staging.iterdir()) == []
    assert run(http, sandbox, filename="main.py")["installed"] == ["slow==1.0"]


def test_the_server_stops_while_it_installs(new_server: Callable[..., Server], index: PackageIndex) -> None:
    server = new_server(PETRI_INDEX_URL=index.url, PETRI_DRAIN_S="0")
    index.add("never", "1.0")
    told: list[str] = []
    index.holds.clear()
    try:
        with server.client() as http:

            def ask() -> None:
                told.append(http.post("/v1/exec", json={"code": script("never")}).json()["state"])

            asking = threading.Thread(target=ask)
            asking.start()
            deadline = time.monotonic() + 20
            while not any("never" in path and path.endswith(".whl") for path in index.fetched):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            begun = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - begun < 15
            asking.join()
    finally:
        index.holds.set()
    assert told == ["interrupted"]


# ------------------------------------------------------------------------------------------------ looking


def test_the_environment_tells_versions_reasons_and_a_lock(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py=SEES)
    answer = run(http, sandbox, filename="main.py")

    shown = http.get(f"/v1/sandboxes/{sandbox}/environment").json()

    assert shown["environment"] == answer["environment"]
    assert shown["run_id"] == answer["run_id"]
    assert [(each["name"], each["version"]) for each in shown["packages"]] == [
        ("alpha", "1.0"),
        ("beta", "1.0"),
    ]
    assert any(line.startswith("main.py:") for line in shown["packages"][0]["needed_by"])
    assert shown["packages"][1]["needed_by"] == ["alpha"]
    assert shown["source"] == "pep723"
    assert "main.py" in shown["why"]
    assert shown["size_bytes"] > 0
    assert 0 <= shown["age_s"] < 600
    assert re.fullmatch(r"(\w+==1.0( \\\n    --hash=sha256:[0-9a-f]{64})+\n){2}", shown["lock"])


def test_a_sandbox_that_never_wanted_packages_has_no_environment(http: httpx.Client, sandbox: str) -> None:
    shown = http.get(f"/v1/sandboxes/{sandbox}/environment").json()

    assert (shown["environment"], shown["run_id"], shown["packages"]) == (None, None, [])
    assert (shown["lock"], shown["size_bytes"], shown["age_s"]) == ("", 0, None)


def test_an_earlier_run_has_its_own(http: httpx.Client, sandbox: str) -> None:
    first = run(http, sandbox, code=script("beta==1.0"))
    run(http, sandbox, code=script("beta==2.0"))

    now = http.get(f"/v1/sandboxes/{sandbox}/environment").json()
    then = http.get(f"/v1/sandboxes/{sandbox}/environment", params={"run": first["run_id"]}).json()

    assert now["packages"][0]["version"] == "2.0"
    assert then["packages"][0]["version"] == "1.0"


def test_a_run_of_another_sandbox_is_not_here(http: httpx.Client, sandbox: str) -> None:
    other = http.post("/v1/sandboxes", json={}).json()["id"]
    elsewhere = run(http, other, code=script("beta"))

    answer = http.get(f"/v1/sandboxes/{sandbox}/environment", params={"run": elsewhere["run_id"]})

    assert answer.status_code == 404


@pytest.mark.parametrize(
    "installer",
    [(str(Path(sys.executable).parent / "uv"), "pip"), (sys.executable, "-m", "pip", "--isolated")],
    ids=["uv", "pip"],
)
def test_what_is_exported_rebuilds_it_elsewhere(
    server: Server,
    http: httpx.Client,
    sandbox: str,
    index: PackageIndex,
    tmp_path: Path,
    installer: tuple[str, ...],
) -> None:
    run(http, sandbox, code=SEES)
    export = [str(PETRI), "env", "export", sandbox, "--to", str(tmp_path)]
    subprocess.run(export, env={**os.environ, "PETRI_URL": server.url}, check=True, capture_output=True)

    words = [*installer, "install", "--require-hashes", "-r", str(tmp_path / "requirements.txt")]
    there = ["--target", str(tmp_path / "there"), "--index-url", index.url, "--no-cache-dir"]
    subprocess.run([*words, *there], check=True, capture_output=True)

    assert (tmp_path / "there" / "alpha.py").exists()
    assert (tmp_path / "there" / "beta.py").exists()


def test_the_command_line_shows_compares_and_exports(http: httpx.Client, server: Server) -> None:
    one, two = (
        http.post("/v1/sandboxes", json={"name": name}).json()["id"] for name in ("env-one", "env-two")
    )
    run(http, one, code=script("beta==1.0"))
    run(http, two, code=script("beta==2.0", "tool"))

    def petri(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PETRI_URL": server.url}
        return subprocess.run([str(PETRI), *words], env=env, capture_output=True, text=True, check=False)

    assert "beta" in petri("env", "show", "env-one").stdout
    assert json.loads(petri("env", "show", "env-one", "--json").stdout)["packages"][0]["version"] == "1.0"
    different = petri("env", "diff", "env-one", "env-two")
    assert different.returncode == 1
    assert re.search(r"beta +1.0 +2.0", different.stdout)
    assert re.search(r"tool +- +1.0", different.stdout)
    assert json.loads(petri("env", "diff", "env-one", "env-two", "--json").stdout) == {
        "beta": {"one": "1.0", "other": "2.0"},
        "tool": {"one": None, "other": "1.0"},
    }
    assert petri("env", "diff", "env-one", "env-one").returncode == 0
    assert petri("env", "export", "env-two").stdout.startswith("beta==2.0 \\\n    --hash=sha256:")
    refused = petri("exec", "env-one", "--code", "import sklern")
    assert "petri: not installed: sklern: " in refused.stderr


def test_cli_says_a_reason_once_and_that_a_lock_is_empty(http: httpx.Client, server: Server) -> None:
    env = {**os.environ, "PETRI_URL": server.url}

    def petri(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(PETRI), *words], env=env, capture_output=True, text=True, check=False)

    petri("create", "--name", "torn")
    sandbox = json.loads(petri("show", "torn", "--json").stdout)["id"]
    http.put(f"/v1/sandboxes/{sandbox}/files/requirements.txt", content="beta==1.0\nbeta==2.0\nalpha==7\n")

    ran = petri("exec", "torn", "--code", "print('ran')")
    shown, lock = petri("env", "show", "torn"), petri("env", "export", "torn")

    assert (ran.stdout, ran.stderr.count("not installed: ")) == ("ran\n", 1)
    assert "none: what is wanted could not be had" in shown.stdout
    assert (lock.stdout, lock.stderr) == ("", "petri: torn has no packages, and so the lock is empty\n")


# ------------------------------------------------------------------------------------------------ lasting


def test_compiled_modules_are_there_a_little_later(http: httpx.Client, sandbox: str, server: Server) -> None:
    address = run(http, sandbox, code=SEES)["environment"]
    folder = server.home / "petri/environments/shelf" / address
    deadline = time.monotonic() + 30
    while not (folder / "whole").exists():
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.05)

    answer = run(http, sandbox, code=script("alpha", body="import alpha; print(alpha.__cached__)"))

    cached = answer["stdout"].strip()
    assert cached.startswith("/environment/python/")
    compiled = folder / "prefix" / Path(cached).relative_to("/environment/python")
    assert compiled.stat().st_uid == os.geteuid()
    verbose = run(http, sandbox, command=["python3", "-v", "-c", SEES])
    assert f"matches {cached.replace('__pycache__/', '').split('.')[0]}" in verbose["stderr"] or (
        f"code object from '{cached}'" in verbose["stderr"]
    )


@pytest.mark.slow
def test_killed_while_it_installs_the_next_life_starts_clean(
    new_server: Callable[..., Server], index: PackageIndex
) -> None:
    server = new_server(PETRI_INDEX_URL=index.url)
    index.add("torn", "1.0")
    index.holds.clear()
    try:
        with server.client() as http:

            def ask() -> None:
                with pytest.raises(httpx.HTTPError):
                    http.post("/v1/exec", json={"code": script("torn")})

            asking = threading.Thread(target=ask)
            asking.start()
            while not any("torn" in path and path.endswith(".whl") for path in index.fetched):
                time.sleep(0.02)
            server.stop(9)
            asking.join()
    finally:
        index.holds.set()

    server.start()
    assert list((server.home / "petri/environments/staging").iterdir()) == []
    with server.client() as http:
        answer = http.post("/v1/exec", json={"code": script("torn", body="import torn; print(torn.version)")})
    assert answer.json()["stdout"] == "1.0\n"


def test_the_index_this_host_is_set_up_for(new_server: Callable[..., Server]) -> None:
    """Fails within a minute, and says so, where no index can be reached."""
    server = new_server()
    with server.client() as http:
        answer = http.post(
            "/v1/exec", json={"code": "import attr, idna; print(attr.__name__, idna.__name__)"}
        ).json()

    assert answer["not_installed"] == [], "the package index of this host is out of reach"
    assert answer["stdout"] == "attr idna\n"
    assert {each.split("==")[0] for each in answer["installed"]} == {"attrs", "idna"}


def heavy(index: PackageIndex, name: str) -> None:
    """Have a package that is large enough for its download to be told of."""
    text = "".join(f"{number:x}" for number in random.Random(1).sample(range(1 << 40), 250_000))
    index.put(name, "1.0", wheel(name, "1.0", files={f"{name}.py": f"#{text}"}))


def test_a_stream_tells_what_is_downloaded_and_how_much(http: httpx.Client, index: PackageIndex) -> None:
    heavy(index, "heavy")

    answer = http.post("/v1/exec", json={"code": script("heavy")}, headers={"Accept": "text/event-stream"})

    steps = [data for kind, data in events(answer) if kind == "installing"]
    (begun,) = [step for step in steps if step["phase"] == "downloading"]
    (ended,) = [step for step in steps if step["phase"] == "downloaded"]
    assert begun["packages"] == ended["packages"] == ["heavy"]
    assert begun["bytes"] > 2**20


def test_on_a_terminal_packages_come_along_a_bar(server: Server, sandbox: str, index: PackageIndex) -> None:
    heavy(index, "burden")
    ours, theirs = os.openpty()
    env = {**os.environ, "PETRI_URL": server.url, "TERM": "xterm"}
    words = [str(PETRI), "exec", sandbox, "--code", script("burden", body="print('ran')")]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=theirs) as petri:
        os.close(theirs)
        assert petri.stdout is not None
        said = petri.stdout.read()
    shown = b""
    with contextlib.suppress(OSError):  # a terminal whose other end is closed ends so
        while chunk := os.read(ours, 65_536):
            shown += chunk
    os.close(ours)

    assert said == b"ran\n", shown
    assert re.search(rb"\[-{20}\] 0/\d+ MiB  downloading burden", shown)
    assert re.search(rb"\[#{20}\] (\d+)/\1 MiB  downloaded burden", shown)
    assert shown.endswith(b"\r\x1b[K")
