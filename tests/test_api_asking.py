"""Packages that a run asks for while it runs: the server installs them, under the same rules as ever."""

import subprocess
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.conftest import PETRI, Server
from tests.package_index import PackageIndex, wheel
from tests.test_api_environments import put, run, served

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    """An index of our own: `alpha` needs `beta` below 2; `gamma` needs 2."""
    index = PackageIndex()
    index.add("alpha", "1.0", "beta<2")
    index.add("beta", "1.0")
    index.add("beta", "2.0")
    index.add("gamma", "1.0", "beta>=2")
    index.put("epsilonic", "1.0", wheel("epsilonic", "1.0", ('beta>=1 ; extra == "more"',)))
    yield index
    index.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: PackageIndex) -> Iterator[Server]:
    """A server that asks that index."""
    yield from served(tmp_path_factory.mktemp("asking"), index)


SHOWS = "python3 -c 'import beta; print(beta.version)'"


@pytest.mark.parametrize(
    "installer",
    [
        "pip install beta==1.0",
        "pip3 install -q beta==1.0",
        "uv pip install beta==1.0",
        "python -m pip install beta==1.0",
        "python3 -m pip install --user beta==1.0",
    ],
)
def test_what_is_installed_is_there_for_the_next_command(
    http: httpx.Client, sandbox: str, installer: str
) -> None:
    answer = run(http, sandbox, command=f"{installer} && {SHOWS}")

    assert answer["exit_code"] == 0, answer["stderr"]
    assert answer["stdout"].splitlines()[-1] == "1.0"
    assert answer["installed"] == ["beta==1.0"]
    assert answer["not_installed"] == []  # its import alone would not have been enough


def test_the_list_form_of_a_command_is_heard_too(http: httpx.Client, sandbox: str) -> None:
    answer = run(http, sandbox, command=["pip", "install", "alpha"])

    assert answer["stdout"].splitlines()[-1] == "Successfully installed alpha-1.0 beta-1.0", answer


def test_a_program_installs_and_imports_in_one_breath(http: httpx.Client, sandbox: str) -> None:
    text = (
        "import importlib, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', 'beta'], check=True)\n"
        "print(importlib.import_module('beta').version)\n"
    )
    put(http, sandbox, main__py=text)

    assert run(http, sandbox, filename="main.py")["stdout"] == "2.0\n"


def test_later_runs_have_it_and_so_do_forks_and_snapshots(http: httpx.Client, sandbox: str) -> None:
    asked = run(http, sandbox, command="pip install alpha")

    later = run(http, sandbox, code="import alpha; print(alpha.version)")
    fork = http.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["sandboxes"][0]["id"]
    snapshot = http.post(f"/v1/sandboxes/{sandbox}/snapshots", json={}).json()["id"]
    copy = http.post("/v1/sandboxes", json={"from_snapshot": snapshot}).json()["id"]

    assert later["stdout"] == "1.0\n"
    assert later["environment"] == asked["environment"]
    for other in (fork, copy):
        assert run(http, other, code="import alpha; print(alpha.version)")["stdout"] == "1.0\n"
    stranger = http.post("/v1/sandboxes", json={}).json()["id"]
    assert "ModuleNotFoundError" in run(http, stranger, code="import alpha")["stderr"]


def test_who_asked_is_on_record(http: httpx.Client, sandbox: str) -> None:
    asked = run(http, sandbox, command="pip install alpha")

    shown = http.get(f"/v1/sandboxes/{sandbox}/environment").json()
    history = http.get(f"/v1/sandboxes/{sandbox}/events").json()["events"]
    record = http.get(f"/v1/runs/{asked['run_id']}").json()

    assert f"{asked['run_id']} pip install alpha" in shown["packages"][0]["needed_by"]
    assert shown["source"] == "added"
    assert record["installed"] == asked["installed"] == ["alpha==1.0", "beta==1.0"]
    assert record["environment"] == shown["environment"] == asked["environment"]
    (told,) = [each for each in history if each["kind"] == "packages.added"]
    assert told["run_id"] == asked["run_id"]
    assert told["detail"]["packages"] == ["alpha"]


# ------------------------------------------------------------------------------------------- what is typed


@pytest.mark.parametrize(
    ("typed", "installed"),
    [
        (
            "pip install nowhere-at-all 2>/dev/null; pip install epsilonic beta",
            ["beta==2.0", "epsilonic==1.0"],
        ),
        ("pip install 'beta<2'", ["beta==1.0"]),
        ("pip install 'epsilonic[more]'", ["beta==2.0", "epsilonic==1.0"]),
        ("pip install --index-url http://elsewhere.invalid/simple beta", ["beta==2.0"]),
        ("pip install -r needs.txt", ["alpha==1.0", "beta==1.0", "epsilonic==1.0"]),
        ("pip install -rneeds.txt --no-cache-dir", ["alpha==1.0", "beta==1.0", "epsilonic==1.0"]),
        ("uv pip install --requirement=needs.txt", ["alpha==1.0", "beta==1.0", "epsilonic==1.0"]),
        ("pip install beta==1.0 && pip install beta==2.0", ["beta==2.0"]),
        ("python -m pip install --upgrade pip && python -m pip install -U 'pip>=20' uv beta", ["beta==2.0"]),
    ],
)
def test_it_is_typed_as_ever(http: httpx.Client, sandbox: str, typed: str, installed: list[str]) -> None:
    put(
        http,
        sandbox,
        needs__txt="# ours\nalpha ; python_version > '3' # why\n-r more.in\n",
        more__in="epsilonic\n",
    )

    answer = run(http, sandbox, command=typed)

    assert answer["exit_code"] == 0, answer["stderr"]
    assert answer["installed"] == installed


IN_A_VENV = {
    "its own pip": "python3 -m venv .venv && .venv/bin/pip install alpha",
    "its own pip, as a module": "python3 -m venv .venv && .venv/bin/python -m pip -q install alpha",
    "activated": "python3 -m venv .venv && . .venv/bin/activate && pip install -r needs.txt",
    "without a pip": "python3 -m venv --without-pip .venv; . .venv/bin/activate; pip install -q alpha",
    "uv's": "uv venv && uv pip install alpha",
    "uv's, activated": "uv venv .venv && . .venv/bin/activate && uv pip install alpha",
}


@pytest.mark.parametrize("typed", IN_A_VENV.values(), ids=IN_A_VENV)
def test_a_virtual_environment_of_ones_own_has_what_is_installed_in_it(
    http: httpx.Client, sandbox: str, typed: str
) -> None:
    put(http, sandbox, needs__txt="alpha\n", main__py="import alpha, sys; print(alpha.version, sys.prefix)")

    asked = run(http, sandbox, command=f"{typed} && .venv/bin/python main.py")
    later = run(http, sandbox, command=".venv/bin/python main.py")

    assert asked["exit_code"] == 0, asked["stderr"]
    assert asked["stdout"].splitlines()[-1] == later["stdout"].strip() == "1.0 /workspace/.venv"
    assert asked["installed"] == later["installed"] == ["alpha==1.0", "beta==1.0"]


def test_what_needs_no_index_is_left_to_its_own_pip(http: httpx.Client, sandbox: str) -> None:
    uploaded = {"file": ("epsilonic-1.0-py3-none-any.whl", wheel("epsilonic", "1.0"))}
    http.post(f"/v1/sandboxes/{sandbox}/files", files=uploaded)

    answer = run(
        http,
        sandbox,
        command="python3 -m venv .venv && .venv/bin/pip install ./epsilonic-1.0-py3-none-any.whl && "
        ".venv/bin/pip list && .venv/bin/pip uninstall -y epsilonic",
    )

    assert answer["exit_code"] == 0, answer["stderr"]
    assert "Successfully uninstalled epsilonic-1.0" in answer["stdout"]
    assert answer["installed"] == []


def test_what_is_there_can_be_listed(http: httpx.Client, sandbox: str) -> None:
    typed = "pip install -q alpha && pip list && pip freeze && pip show alpha && pip list --format=json"

    answer = run(http, sandbox, command=typed)

    assert answer["stdout"].startswith(
        "Package Version\n------- -------\nalpha   1.0\nbeta    1.0\nalpha==1.0\n"
    )
    assert "\nName: alpha\nVersion: 1.0\n" in answer["stdout"]
    assert "\nRequires: beta\n" in answer["stdout"]
    assert answer["stdout"].endswith(
        '[{"name": "alpha", "version": "1.0"}, {"name": "beta", "version": "1.0"}]\n'
    )
    assert run(http, sandbox, command="pip show nothing")["exit_code"] == 1


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("pip install requsts", "`requsts` looks like a misspelling of `requests`"),
        ("pip install sklearn", "the package is called `scikit-learn`"),
        ("pip install beta nowhere-to-be-found", "nowhere-to-be-found"),
        ("pip install git+https://example.invalid/x.git", "only packages from there are installed"),
        ("pip install beta==9", "beta==9"),
        ("pip install 'alpha' 'beta==2.0'", "alpha depend on beta<2"),
        ("pip install -e .", "a project's own folder is not installed"),
        ("pip install -r nothing.txt", "Could not open requirements file"),
        ("pip install", "at least one requirement"),
        ("pip uninstall -y beta", "only ever added"),
        ("npm install lodahs", "`lodahs` looks like a misspelling of `lodash`"),
    ],
)
def test_what_is_refused_says_why_and_fails(http: httpx.Client, sandbox: str, typed: str, why: str) -> None:
    answer = run(http, sandbox, command=f"{typed} || exit 3")

    assert answer["exit_code"] == 3
    assert why in answer["stderr"], answer["stderr"]
    assert answer["installed"] == []
    assert run(http, sandbox, command="pip freeze")["stdout"] == ""


def test_what_a_program_has_keeps_its_version_when_more_is_asked_for(
    http: httpx.Client, sandbox: str
) -> None:
    put(http, sandbox, requirements__txt="beta<2\n", main__py="import beta; print(beta.version)")

    answer = run(http, sandbox, command="pip install -q epsilonic[more] && python main.py")

    assert answer["stdout"] == "1.0\n", answer["stderr"]


def test_what_cannot_be_had_with_those_versions_is_had_with_others(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, requirements__txt="beta\n", main__py="import beta; print(beta.version)")

    answer = run(http, sandbox, command="python main.py; pip install -q alpha; python main.py")
    later = run(http, sandbox, filename="main.py")

    assert answer["stdout"] == "2.0\n1.0\n", answer["stderr"]
    assert later["stdout"] == "1.0\n"
    assert later["environment"] == answer["environment"]


# -------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    ("keep", "ends", "later"), [("never", 0, 1), ("on_success", 1, 1), ("on_success", 0, 0)]
)
def test_of_a_run_that_is_thrown_away_so_is_what_it_asked_for(
    http: httpx.Client, sandbox: str, keep: str, ends: int, later: int
) -> None:
    asked = run(http, sandbox, command=f"pip install -q beta && {SHOWS} && exit {ends}", keep=keep)

    assert asked["stdout"] == "2.0\n"
    assert run(http, sandbox, command=f"{SHOWS} # pip")["exit_code"] == later


def has(http: httpx.Client, sandbox: str) -> list[str]:
    """Return what a run has now that wants nothing itself."""
    installed: list[str] = run(http, sandbox, command="python3 -c 'print()'")["installed"]
    return installed


def test_what_a_run_that_is_undone_asked_for_is_gone_and_can_be_had_again(
    http: httpx.Client, sandbox: str
) -> None:
    run(http, sandbox, command="pip install beta==1.0")
    second = run(http, sandbox, command="pip install beta==2.0 epsilonic && echo > file")
    assert has(http, sandbox) == ["beta==2.0", "epsilonic==1.0"]

    undone = http.post(f"/v1/sandboxes/{sandbox}/undo").json()
    assert undone["run_id"] == second["run_id"]
    assert undone["packages_gone"] == ["beta==2.0", "epsilonic"]
    assert undone["packages_back"] == ["beta==1.0"]
    assert has(http, sandbox) == ["beta==1.0"]

    back = {"run": second["run_id"], "side": "after"}
    again = http.post(f"/v1/sandboxes/{sandbox}/restore", json=back).json()
    assert again["packages_back"] == ["beta==2.0", "epsilonic"]
    assert has(http, sandbox) == ["beta==2.0", "epsilonic==1.0"]


def test_a_run_that_only_asked_for_packages_can_be_undone(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, file__txt="ours")
    asked = run(http, sandbox, command="pip install beta")

    undone = http.post(f"/v1/sandboxes/{sandbox}/undo").json()

    assert undone["run_id"] == asked["run_id"]
    assert undone["packages_gone"] == ["beta"]
    assert has(http, sandbox) == []
    assert http.get(f"/v1/sandboxes/{sandbox}/files/file.txt").text == "ours"
    assert http.post(f"/v1/sandboxes/{sandbox}/undo").status_code == 409


def test_a_snapshot_that_is_restored_brings_the_packages_it_had(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="pip install epsilonic")
    snapshot = http.post(f"/v1/sandboxes/{sandbox}/snapshots", json={}).json()["id"]
    run(http, sandbox, command="pip install beta")

    restored = http.post(f"/v1/sandboxes/{sandbox}/restore", json={"snapshot": snapshot}).json()

    assert restored["packages_gone"] == ["beta"]
    assert has(http, sandbox) == ["epsilonic==1.0"]


def test_a_fork_keeps_what_its_parent_undoes(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="pip install beta")
    fork = http.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["sandboxes"][0]["id"]
    run(http, fork, command="echo > file")

    http.post(f"/v1/sandboxes/{sandbox}/undo")
    http.post(f"/v1/sandboxes/{fork}/undo")

    assert has(http, sandbox) == []
    assert has(http, fork) == ["beta==2.0"]


def test_the_command_line_says_which_packages_went(http: httpx.Client, server: Server, sandbox: str) -> None:
    asked = run(http, sandbox, command="pip install beta")

    env = {"PETRI_URL": server.url}
    done = subprocess.run([str(PETRI), "undo", sandbox], env=env, capture_output=True, text=True, check=True)

    back = f"petri restore {sandbox} {asked['run_id']} --after"
    assert f"no longer installed: beta; to have it again: {back}\n" in done.stdout


def test_without_a_sandbox_it_is_there_for_that_run(http: httpx.Client) -> None:
    answer = http.post("/v1/exec", json={"command": f"pip install -q beta && {SHOWS}"}).json()

    assert answer["stdout"] == "2.0\n"


@pytest.mark.parametrize(("mode", "why"), [("manifest-only", "only what a manifest declares"), ("off", None)])
def test_a_run_that_may_not_have_packages_may_not_ask_either(
    http: httpx.Client, sandbox: str, mode: str, why: str | None
) -> None:
    answer = run(http, sandbox, command="pip install beta", dependencies=mode)

    assert answer["exit_code"] != 0
    assert answer["installed"] == []
    assert why is None or why in answer["stderr"]


def test_what_the_manifest_declares_may_be_typed(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, requirements__txt="beta\n", main__py="")

    typed = "python main.py && pip install -r requirements.txt"
    answer = run(http, sandbox, command=typed, dependencies="manifest-only")

    assert answer["exit_code"] == 0, answer["stderr"]
    assert "already satisfied" in answer["stdout"]


def test_an_index_that_is_down_is_told(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_INDEX_URL="http://127.0.0.1:9/simple", UV_HTTP_RETRIES="0")
    with server.client() as http:
        answer = http.post("/v1/exec", json={"command": "pip install beta; echo on"}).json()

    assert answer["stdout"].endswith("on\n")
    assert "the package index is out of reach" in answer["stderr"]
    assert "127.0.0.1" not in answer["stderr"]
