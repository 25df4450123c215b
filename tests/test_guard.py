"""Who may knock: keys where there are any, only this machine's own programs where there are none."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.calls import create, refused, say, sh
from tests.conftest import PETRI, Server

KEY = "a-key-nobody-guesses-0123"


# --------------------------------------------------------------------------------------------- open mode


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Host": "localhost.evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Host": "["},
        {"Host": "localhost#x"},
        {"Host": "localhost/x"},
        {"Host": "localhost?x"},
        {"Host": "evil.example@localhost"},
        {"Host": "localhost@evil.example"},
        {"Host": "localhost:80:evil"},
        {"Host": "localhost:"},
        {"Host": "localhost:8o"},
        {"Host": "localhost evil.example"},
        {"Host": "localhost,evil.example"},
        {"Host": "localhost\\evil.example"},
        {"Host": "[::1"},
        {"Host": "[::1]evil.example"},
        {"Host": "[::ffff:10.0.0.1]"},
        {"Host": "[fe80::1%lo]"},
        {"Host": "127.1"},
        {"Host": "0x7f000001"},
        {"Host": "2130706433"},
        {"Host": "0.0.0.0"},
        {"Host": "10.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "x"},
    ],
    ids=str,
)
def test_a_web_page_cannot_use_a_server_without_a_key(
    server: Server, http: httpx.Client, headers: dict[str, str]
) -> None:
    before = http.get("/v1/metrics").json()["sandboxes"]

    for method, path in (("POST", "/v1/sandboxes"), ("GET", "/v1/sandboxes"), ("GET", "/health")):
        if headers.get("Host") != "":
            refused(http.request(method, path, headers=headers), 403)
    refused(http.post("/v1/sandboxes", content="{}", headers={"Content-Type": "text/plain", **headers}), 403)

    assert http.get("/v1/metrics").json()["sandboxes"] == before, "nothing was made"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Origin", "http://localhost", "http://evil.example"),
        ("Sec-Fetch-Site", "same-origin", "cross-site"),
    ],
)
def test_a_good_word_does_not_hide_a_bad_one_in_the_same_request(
    http: httpx.Client, name: str, good: str, bad: str
) -> None:
    for first, second in ((good, bad), (bad, good)):
        headers = [("Host", "localhost"), (name, first), (name, second)]
        refused(http.get("/v1/sandboxes", headers=headers), 403)
    twice = [("Host", "localhost"), (name, good), (name, good)]
    assert http.get("/v1/sandboxes", headers=twice).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost"},
        {"Host": "LOCALHOST:1234"},
        {"Host": "127.0.0.1"},
        {"Host": "127.8.8.8:80"},
        {"Host": "[::1]:8000"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Host": "localhost:9", "Origin": "http://localhost:9", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=str,
)
def test_this_machine_s_own_programs_and_pages_may(http: httpx.Client, headers: dict[str, str]) -> None:
    assert http.get("/v1/sandboxes", headers=headers).status_code == 200


def test_no_answer_invites_other_pages(http: httpx.Client) -> None:
    for path in ("/health", "/v1/sandboxes", "/openapi.json", "/no/such"):
        headers = http.get(path).headers
        assert "access-control-allow-origin" not in headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_a_request_without_a_host_is_refused(server: Server) -> None:
    assert say(server, "GET /v1/sandboxes HTTP/1.1\n").split()[1] in (b"400", b"403")


def test_a_request_hidden_behind_another_is_not_carried_out(server: Server, http: httpx.Client) -> None:
    victim = create(http)
    hidden = f"DELETE /v1/sandboxes/{victim} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    head = f"POST /v1/sandboxes HTTP/1.1\nHost: localhost\nContent-Length: {5 + len(hidden)}\n"

    heard = say(server, head + "Transfer-Encoding: chunked\n", b"0\r\n\r\n" + hidden)

    assert heard.split()[1] == b"400"
    assert http.get(f"/v1/sandboxes/{victim}").json()["state"] == "ready"


# ---------------------------------------------------------------------------------------------- key mode


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("locked"), {"PETRI_API_KEY": KEY}).start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": KEY},
        {"X-API-Key": ""},
        {"X-API-Key": KEY.upper()},
        {"X-API-Key": "\xff\xfe"},
        {"Cookie": f"key={KEY}"},
    ],
    ids=str,
)
def test_without_the_right_key_nothing_is_told(locked: Server, headers: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    with locked.client() as http:
        for method, path in (
            ("GET", "/v1/sandboxes"),
            ("POST", "/v1/exec"),
            ("GET", "/metrics"),
            ("GET", "/no"),
        ):
            answer = http.request(method, path, headers=raw)
            assert "PETRI_API_KEY" in refused(answer, 401)["detail"]
            assert answer.headers["www-authenticate"] == "Bearer"
        refused(http.get(f"/v1/sandboxes?key={KEY}", headers=raw), 401)


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": f"Bearer {KEY}"}, {"authorization": f"bearer  {KEY}"}, {"X-API-Key": KEY}],
    ids=str,
)
def test_the_right_key_opens_from_anywhere(locked: Server, headers: dict[str, str]) -> None:
    with locked.client() as http:
        http.headers.update(headers)
        for more in ({}, {"Host": "petri.example"}, {"Origin": "https://app.example"}):
            assert http.get("/v1/sandboxes", headers=more).status_code == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this host")
@pytest.mark.parametrize("env", [{}, {"PETRI_API_KEY": KEY}], ids=["open", "with a key"])
def test_what_the_server_says_to_try_works_as_it_stands(
    new_server: Callable[..., Server], env: dict[str, str], tmp_path: Path
) -> None:
    process = new_server(**env).process
    assert process is not None and process.stdout is not None
    assert process.stdout.readline() == b"\n"
    lines = [process.stdout.readline().decode() for _ in range(3)]
    (tmp_path / "main.py").write_text("print('tried')")

    def type_in(line: str, **more: str) -> Any:
        words = ["sh", "-c", line.replace("curl", "curl -sS", 1)]
        shell = {"PATH": os.environ["PATH"], **env, **more}
        done = subprocess.run(words, capture_output=True, env=shell, cwd=tmp_path, timeout=60, check=True)
        return json.loads(done.stdout)

    sandbox = type_in(lines[0])["id"]
    assert type_in(lines[1], ID=sandbox)["filename"] == "main.py"
    assert type_in(lines[2], ID=sandbox)["stdout"] == "tried\n"


def test_health_and_the_description_need_no_key(locked: Server) -> None:
    with locked.client() as http:
        for path in ("/health", "/docs", "/openapi.json"):
            assert http.get(path).status_code == 200


@pytest.mark.long
def test_a_run_on_record_names_the_key_and_nothing_ever_shows_it(locked: Server) -> None:
    with locked.client() as http:
        http.headers["Authorization"] = f"Bearer {KEY}"
        sandbox = create(http)
        assert (
            sh(http, sandbox, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null || true").count(KEY) == 0
        )
        shown = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"][0]
        assert shown["key_name"] == "environment"
    kept = [path for path in (locked.home / "petri").rglob("*") if path.is_file()]
    assert all(KEY.encode() not in path.read_bytes() for path in [*kept, locked.home / "server.log"])


# -------------------------------------------------------------------------------------------- starting


def started(home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Start a server that must refuse to start, and return what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PETRI_")}
    env = {**kept, "PETRI_HOME": str(home), "PETRI_PORT": "0", **env}
    return subprocess.run([PETRI, "serve"], env=env, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines_are_not_let_in_without_a_key(tmp_path: Path, host: str) -> None:
    done = started(tmp_path, PETRI_HOST=host)

    assert done.returncode == 125
    assert "PETRI_API_KEY" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PETRI_PROT", "1", "PETRI_PORT"),
        ("PETRI_APIKEY", "x", "PETRI_API_KEY"),
        ("PETRI_PORT", "http", "PETRI_PORT"),
        ("PETRI_PORT", "70000", "PETRI_PORT"),
        ("PETRI_API_KEY", "short", "PETRI_API_KEY"),
        ("PETRI_TIMEOUT_S", "-1", "PETRI_TIMEOUT_S"),
        ("PETRI_HOST", "no-such-host.invalid", "PETRI_"),
    ],
)
def test_a_setting_that_cannot_be_stops_the_server_and_is_named(
    tmp_path: Path, name: str, value: str, says: str
) -> None:
    done = started(tmp_path, **{name: value})

    assert done.returncode == 125
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "short" not in done.stderr.replace("shorter", ""), "a key is not repeated"


@pytest.mark.slow
def test_a_second_server_on_the_same_home_is_refused(new_server: Callable[..., Server]) -> None:
    server = new_server()

    done = started(server.home / "petri")

    assert done.returncode == 125
    assert "another Petri server" in done.stderr
    with server.client() as http:
        assert http.get("/health").status_code == 200, "the first goes on"


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["PETRI_HOME", "PETRI_WORKSPACE_ROOT"])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_home_that_others_may_write_is_refused(tmp_path: Path, variable: str, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    env = {"PATH": os.environ["PATH"], "PETRI_HOME": str(tmp_path / "petri"), variable: str(folder)}

    done = subprocess.run([PETRI, "serve"], env=env, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode != 0
    assert f"{variable}={folder} may be written by others" in done.stderr
    assert "chmod go-w" in done.stderr
    assert list(folder.iterdir()) == [], "nothing was put there"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_home_of_somebody_else_s_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    env = {"PATH": os.environ["PATH"], "PETRI_HOME": str(folder)}

    done = subprocess.run([PETRI, "serve"], env=env, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode != 0
    assert "belongs to uid 12345" in done.stderr


@pytest.mark.long
def test_a_port_in_use_is_said_plainly(server: Server, tmp_path: Path) -> None:
    done = started(tmp_path, PETRI_PORT=server.url.rpartition(":")[2])

    assert done.returncode == 125
    assert "PETRI_PORT" in done.stderr
    assert "Traceback" not in done.stderr
