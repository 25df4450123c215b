"""The door at which a run asks for packages: nonsense, crowds, and what is left when a run is gone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.conftest import Server
from tests.package_index import PackageIndex, wheel
from tests.test_api_asking import SHOWS, index, server
from tests.test_api_environments import put, run

__all__ = ["index", "server"]


pytestmark = pytest.mark.long


KNOCKS = """
import json, os, socket
# pip
def ask(line):
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(20)
        door.connect('/environment/door')
        try:
            door.sendall(line)
            return door.makefile().read()
        except OSError as error:
            return type(error).__name__
"""
ASK = '{"ask": "install", "language": "python", "want": ["beta"]}\n'


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"[]\n",
        b"not json\n",
        b"[" * 60_000 + b"\n",
        b'{"ask": "install"}\n',
        b'{"ask": "install", "language": "cobol", "want": ["x"]}\n',
        b'{"ask": "install", "language": "python", "want": []}\n',
        b'{"ask": "install", "language": "python", "want": ["' + b"x" * 2_000 + b'"]}\n',
        b'{"ask": "install", "language": "python", "want": ["--index-url=http://127.0.0.1"]}\n',
        b'{"ask": "install", "language": "python", "want": ["-r /etc/passwd"]}\n',
        b'{"ask": "install", "language": "python", "want": ["../../etc"]}\n',
        b'{"ask": "install", "language": "javascript", "want": ["x@file:/etc"]}\n',
        b'{"ask": "module", "language": "python", "want": ["os.path"]}\n',
        b"\xff\xfe\n",
        b"x" * 200_000,
    ],
    ids=lambda line: line[:60].decode(errors="replace"),
)
def test_nonsense_at_the_door_is_turned_away(http: httpx.Client, sandbox: str, line: bytes) -> None:
    knocks = f"print(ask(sys.stdin.buffer.read())); print(ask({ASK!r}.encode()).strip()[-80:])"
    text = f"{KNOCKS}\nimport sys\n{knocks}"
    put(http, sandbox, main__py=text, line=line.decode("latin-1"))
    http.put(f"/v1/sandboxes/{sandbox}/files/line", content=line)

    answer = run(http, sandbox, command="python3 main.py < line")

    refused, heard = answer["stdout"].splitlines()[0], answer["stdout"].splitlines()[-1]
    assert '"done": true' not in refused
    assert '"new": ["beta==2.0"]' in heard, answer["stderr"]
    assert answer["installed"] == ["beta==2.0"]


def test_a_run_may_ask_so_many_times(http: httpx.Client, sandbox: str) -> None:
    text = f"{KNOCKS}\nprint(sum('done' in ask(b'x\\n') for _ in range(64)))\n" + (
        "door = socket.socket(socket.AF_UNIX)\n"
        "try: door.connect('/environment/door'); print(door.recv(1))\n"
        "except OSError: print('closed', flush=True)\n"
        "os.system('pip install beta')"
    )
    put(http, sandbox, main__py=text)

    answer = run(http, sandbox, filename="main.py", timeout_s=20)

    assert (answer["stdout"], answer["timed_out"]) == ("64\nclosed\n", False)
    assert "the server does not answer" in answer["stderr"]


def test_one_who_says_nothing_holds_up_nobody_for_long(http: httpx.Client, sandbox: str) -> None:
    text = f"{KNOCKS}\nsilent = socket.socket(socket.AF_UNIX); silent.connect('/environment/door')\n"
    put(http, sandbox, main__py=f"{text}print(ask({ASK!r}.encode()).strip()[-80:])")

    assert '"new": ["beta==2.0"]' in run(http, sandbox, filename="main.py")["stdout"]


def test_nothing_of_other_runs_can_be_seen_or_changed(http: httpx.Client, sandbox: str) -> None:
    text = """
import os # pip
shelf = '/run/petri/environments'
for do in (lambda: os.listdir(shelf + '/.windows'), lambda: os.chmod(shelf + '/.windows', 0o777),
           lambda: os.mkdir(shelf + '/x'), lambda: os.unlink('/environment/door'),
           lambda: os.unlink('/environment/python'), lambda: open('/environment/bin/pip', 'w'),
           lambda: os.symlink('/workspace', '/environment/x'), lambda: os.unlink('/environment')):
    try: do(); print('done')
    except OSError as error: print(error.errno)
"""
    put(http, sandbox, main__py=text)

    assert set(run(http, sandbox, filename="main.py")["stdout"].split()) <= {"13", "30", "1"}


def listed(windows: Path) -> list[Path]:
    """Return what is in a folder that is made not to be listed, not even by us."""
    mode = windows.stat().st_mode
    windows.chmod(0o711)
    try:
        return list(windows.iterdir())
    finally:
        windows.chmod(mode)


def test_when_a_run_ends_nothing_of_its_window_is_left(
    http: httpx.Client, server: Server, sandbox: str
) -> None:
    windows = server.home / "petri/environments/shelf/.windows"

    run(http, sandbox, command="pip install -q beta; kill -9 $$")
    run(http, sandbox, command="sleep 30 # pip", timeout_s=0.3)
    run(http, sandbox, command="pip list")

    assert listed(windows) == []


def test_a_run_that_ends_while_it_asks_takes_the_question_along(
    http: httpx.Client, server: Server, sandbox: str, index: PackageIndex
) -> None:
    index.add("held", "1.0")
    index.holds.clear()
    try:
        answer = run(http, sandbox, command="pip install held", timeout_s=2)
        assert answer["timed_out"], answer["stderr"]
        assert list((server.home / "petri/environments/staging").iterdir()) == []
    finally:
        index.holds.set()
    assert run(http, sandbox, command="pip install -q held")["installed"] == ["held==1.0"]


def test_a_run_that_names_no_installer_has_no_window(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, main__py="import os; print(os.path.lexists('/environment'))  # a pipe, a pipeline")

    assert run(http, sandbox, filename="main.py")["stdout"] == "False\n"
    assert run(http, sandbox, command="ls -d /environment")["exit_code"] != 0


def test_killed_and_started_anew_it_is_still_there_and_no_window_is(
    new_server: Callable[..., Server], index: PackageIndex
) -> None:
    server = new_server(PETRI_INDEX_URL=index.url)
    windows = server.home / "petri/environments/shelf/.windows"
    with server.client() as http:
        sandbox = http.post("/v1/sandboxes", json={}).json()["id"]
        url, ask = f"/v1/sandboxes/{sandbox}/exec", {"command": "pip install beta; sleep 60"}
        with http.stream("POST", url, json=ask, headers={"Accept": "text/event-stream"}) as stream:
            next(line for line in stream.iter_lines() if "Successfully installed" in line)
            server.stop(9)

    server.start()
    assert listed(windows) == []
    with server.client() as http:
        assert run(http, sandbox, command=SHOWS)["stdout"] == "2.0\n"


def test_one_run_cannot_have_the_disk_filled_with_packages(
    new_server: Callable[..., Server], index: PackageIndex
) -> None:
    for name in ("huge", "large"):
        index.put(name, "1.0", wheel(name, "1.0", files={f"{name}.py": "#" * 400_000}))
    server = new_server(PETRI_INDEX_URL=index.url, PETRI_ENVIRONMENTS_BYTES=str(1 << 20))
    with server.client() as http:
        answer = http.post("/v1/exec", json={"command": "pip install huge; pip install large"}).json()

    assert answer["installed"] == ["huge==1.0"]
    assert "ask for them in a run of their own" in answer["stderr"]


def test_who_waited_in_line_has_it_too(http: httpx.Client, server: Server, sandbox: str) -> None:
    with ThreadPoolExecutor(1) as pool, server.client() as other:
        url, ask = f"/v1/sandboxes/{sandbox}/exec", {"command": "echo; sleep 1; pip install -q beta"}
        with other.stream("POST", url, json=ask, headers={"Accept": "text/event-stream"}) as stream:
            lines = stream.iter_lines()
            next(line for line in lines if line == "event: stdout")
            later = pool.submit(run, http, sandbox, command=SHOWS)
            for _ in lines:
                pass
        assert later.result()["stdout"] == "2.0\n", later.result()["stderr"]
