"""Modules that show only at run time: told, or there for a second attempt, or as the run goes on."""

import re
from collections.abc import Iterator

import httpx
import pytest

from petri.operations.second_line import last_complaint
from tests.conftest import Server
from tests.package_index import PackageIndex, wheel
from tests.test_api_environments import put, run, served


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    """An index of our own, with packages whose modules are well known."""
    index = PackageIndex()
    index.add("humanize", "1.16.0")
    index.add("tabulate", "3.0")
    index.add("rich", "1.0", rich="try:\n    import tabulate\nexcept ImportError:\n    tabulate = None\n")
    storage = {"google/cloud/storage/__init__.py": "version = '2.0'\n"}
    index.put("google-cloud-storage", "2.0", wheel("google_cloud_storage", "2.0", files=storage))
    yield index
    index.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: PackageIndex) -> Iterator[Server]:
    """A server that asks that index."""
    yield from served(tmp_path_factory.mktemp("second"), index)


MADE_UP = "import importlib; print(importlib.import_module('human' + 'ize').version)"
COUNTS = f"open('count', 'a').write('+'); print('begun')\n{MADE_UP}\n"


def test_by_default_it_is_told_what_would_help(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py=COUNTS)

    answer = run(http, sandbox, filename="main.py")

    (missing,) = answer["not_installed"]
    assert (missing["name"], missing["suggestion"]) == ("humanize", "humanize")
    assert "`pip install humanize`" in missing["why"]
    assert (answer["exit_code"], answer["installed"], answer["repeated"]) == (1, [], False)
    assert http.get(f"/v1/runs/{answer['run_id']}").json()["not_installed"] == answer["not_installed"]


def test_repeated_it_begins_with_the_same_files(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py=COUNTS)

    answer = run(http, sandbox, filename="main.py", missing="repeat")
    record = http.get(f"/v1/runs/{answer['run_id']}").json()

    assert (answer["exit_code"], answer["stdout"]) == (0, "begun\nbegun\n1.16.0\n"), answer["stderr"]
    assert (
        "petri: `humanize` was missing. humanize==1.16.0 is installed, and the command is run once more."
        in answer["stderr"]
    )
    assert http.get(f"/v1/sandboxes/{sandbox}/files/count").text == "+"
    assert answer["changes"]["added"] == ["count"]
    assert answer["repeated"]
    assert record["repeated"]
    assert record["installed"] == answer["installed"] == ["humanize==1.16.0"]
    assert record["environment"] == answer["environment"]
    assert run(http, sandbox, filename="main.py")["stdout"] == "begun\n1.16.0\n"


def test_it_is_repeated_once(http: httpx.Client, sandbox: str) -> None:
    twice = f"{COUNTS}import importlib; importlib.import_module('tabu' + 'late')"
    put(http, sandbox, main__py=twice)

    answer = run(http, sandbox, filename="main.py", missing="repeat")

    assert answer["stdout"] == "begun\nbegun\n1.16.0\n"
    assert answer["exit_code"] == 1
    assert [each["suggestion"] for each in answer["not_installed"]] == ["tabulate"]


@pytest.mark.parametrize(("keep", "is_there"), [("on_success", 200), ("never", 404)])
def test_repeated_and_perhaps_thrown_away(http: httpx.Client, sandbox: str, keep: str, is_there: int) -> None:
    put(http, sandbox, main__py=COUNTS)

    answer = run(http, sandbox, filename="main.py", missing="repeat", keep=keep)

    assert answer["exit_code"] == 0
    assert http.get(f"/v1/sandboxes/{sandbox}/files/count").status_code == is_there
    later = run(http, sandbox, filename="main.py", keep="never")
    assert (later["exit_code"] == 0) == (is_there == 200)


def test_without_a_sandbox_only_what_changed_nothing_is_repeated(http: httpx.Client) -> None:
    calm = http.post("/v1/exec", json={"code": MADE_UP, "missing": "repeat"}).json()
    busy = http.post("/v1/exec", json={"code": COUNTS, "missing": "repeat"}).json()

    assert (calm["repeated"], calm["stdout"]) == (True, "1.16.0\n")
    assert (busy["repeated"], busy["stdout"]) == (False, "begun\n")
    assert busy["not_installed"][0]["suggestion"] == "humanize"


@pytest.mark.parametrize(
    "code", ["raise SystemExit(1)", "import nothing_of_the_kind", "import humanize; humanize.x"]
)
def test_what_another_package_would_not_mend_is_not_repeated(http: httpx.Client, code: str) -> None:
    answer = http.post("/v1/exec", json={"code": f"print('begun')\n{code}", "missing": "repeat"}).json()

    assert (answer["stdout"], answer["repeated"], answer["exit_code"]) == ("begun\n", False, 1)


@pytest.mark.parametrize("mode", ["manifest-only", "off"])
@pytest.mark.parametrize("missing", ["repeat", "continue"])
def test_it_is_not_had_where_packages_must_be_declared(http: httpx.Client, mode: str, missing: str) -> None:
    ask = {"code": MADE_UP, "missing": missing, "dependencies": mode}

    answer = http.post("/v1/exec", json=ask).json()

    assert (answer["installed"], answer["exit_code"]) == ([], 1)


def test_it_goes_on_in_the_same_process(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py=COUNTS)

    answer = run(http, sandbox, filename="main.py", missing="continue")

    assert (answer["stdout"], answer["stderr"], answer["repeated"]) == ("begun\n1.16.0\n", "", False)
    assert answer["installed"] == ["humanize==1.16.0"]
    shown = http.get(f"/v1/sandboxes/{sandbox}/environment").json()
    assert shown["packages"][0]["needed_by"] == [f"{answer['run_id']} import humanize"]


def test_the_whole_name_decides_which_package_it_is(http: httpx.Client) -> None:
    code = "import importlib; print(importlib.import_module('google.cloud.' + 'storage').version)"

    answer = http.post("/v1/exec", json={"code": code, "missing": "continue"}).json()

    assert answer["stdout"] == "2.0\n", answer["stderr"]


def test_a_child_goes_on_too_and_what_nobody_has_fails_as_ever(http: httpx.Client, sandbox: str) -> None:
    code = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {MADE_UP!r}])\n"
        "__import__('nothing_' + 'of_the_kind')\n"
    )

    answer = run(http, sandbox, code=code, missing="continue")

    assert answer["stdout"] == "1.16.0\n"
    assert answer["stderr"].endswith("ModuleNotFoundError: No module named 'nothing_of_the_kind'\n")


def test_what_a_package_tries_to_import_is_left_alone(http: httpx.Client) -> None:
    code = "import rich; print(rich.tabulate)"

    answer = http.post("/v1/exec", json={"code": code, "missing": "continue"}).json()

    assert (answer["stdout"], answer["installed"]) == ("None\n", ["rich==1.0"]), answer["stderr"]


def test_a_module_that_nobody_has_is_asked_for_once_however_often_it_is_tried(http: httpx.Client) -> None:
    tries = (
        "for _ in range(200):\n"
        "    try: __import__('nothing_' + 'of_the_kind')\n"
        "    except ImportError: pass\n"
    )

    answer = http.post("/v1/exec", json={"code": f"{tries}{MADE_UP}", "missing": "continue"}).json()

    assert answer["stdout"] == "1.16.0\n", answer["stderr"]


SEES = "import os, sys; print(sys.path, sys.meta_path, sorted(os.environ), sorted(sys.modules), sys.flags)"


def test_a_run_that_does_not_say_so_is_python_and_nothing_else(http: httpx.Client) -> None:
    def seen(**ask: str) -> str:
        said = http.post("/v1/exec", json={"code": SEES, **ask}).json()["stdout"]
        return re.sub("0x[0-9a-f]+", "", said)

    assert seen() == seen(missing="repeat") == seen(dependencies="off")
    assert seen() != seen(missing="continue")


def test_nobody_writes_to_files_that_may_go_back(http: httpx.Client, server: Server, sandbox: str) -> None:
    url = f"/v1/sandboxes/{sandbox}/exec"
    ask = {"code": "import time; print(1); time.sleep(30)", "missing": "repeat"}
    with server.client() as other, other.stream("POST", url, json=ask, headers=STREAM) as stream:
        next(line for line in stream.iter_lines() if line == "event: stdout")
        refused = http.put(f"/v1/sandboxes/{sandbox}/files/x", content="x")
        run_id = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"][0]["run_id"]
        http.post(f"/v1/runs/{run_id}/cancel")

    assert refused.status_code == 409


STREAM = {"Accept": "text/event-stream"}


def test_what_node_misses_is_told_too(http: httpx.Client) -> None:
    for code in ("require('lod' + 'ash')", "import('lod' + 'ash')"):
        answer = http.post("/v1/exec", json={"code": code, "language": "javascript"}).json()

        assert [each["suggestion"] for each in answer["not_installed"]] == ["lodash"], answer["stderr"]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("ModuleNotFoundError: No module named 'a.b'", ("python", "a.b")),
        ("builtins.ModuleNotFoundError: No module named 'a'; 'a' is not a package", ("python", "a")),
        ("ImportError: Missing optional dependency 'openpyxl'.  Use pip", ("python", "openpyxl")),
        (
            "ModuleNotFoundError: No module named 'a'\nModuleNotFoundError: No module named 'b'",
            ("python", "b"),
        ),
        ("Error: Cannot find module '@scope/x'\nRequire stack:", ("javascript", "@scope/x")),
        ("he said ModuleNotFoundError: No module named 'a'", None),
        ("ModuleNotFoundError: No module named '$(reboot)'", None),
        ("ModuleNotFoundError: No module named '" + "a" * 300 + "'", None),
        ("", None),
    ],
)
def test_complaints_are_read_as_what_they_are(said: str, found: tuple[str, str] | None) -> None:
    assert last_complaint(said) == found
