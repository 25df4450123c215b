"""`petri keys` and `petri tenants` as an operator uses them: real processes, with a server and without."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from petri.cli import main
from tests.calls import client_of, create, eventually, refused
from tests.conftest import PETRI, Server

pytestmark = pytest.mark.long

Result = subprocess.CompletedProcess[str]
KEY = re.compile(r"petri_[a-z2-7]{8}_[a-z2-7]{32}")


def petri(*arguments: str, **env: str) -> Result:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PETRI_")}
    return subprocess.run(
        [PETRI, *arguments], env={**others, **env}, capture_output=True, text=True, check=False, timeout=60
    )


def petri_here(*arguments: str, **env: str) -> Result:
    """Do the same without a process, which takes a second of its own."""
    done = CliRunner().invoke(main, arguments, env=env)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def ok(result: Result) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def failed(result: Result) -> str:
    assert result.returncode == 125, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def nobody() -> str:
    """The address of a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def status(server: Server, key: str | None) -> int:
    with client_of(server, key) as http:
        return http.get("/v1/sandboxes").status_code


# ------------------------------------------------------------------------------------- without a server


@pytest.mark.slow
def test_a_fresh_machine_gets_its_first_key_and_only_then_lets_others_in(tmp_path: Path, nobody: str) -> None:
    home = tmp_path / "petri"
    made = petri("keys", "create", "ops", "--scope", "admin", PETRI_HOME=str(home), PETRI_URL=nobody)
    key = ok(made)
    assert KEY.fullmatch(key), "on standard output there is the key alone, ready for $(…)"
    assert str(home) in made.stderr
    assert f"key {key[6:14]} of tenant default, scope admin" in made.stderr
    assert key not in made.stderr
    assert home.stat().st_mode & 0o077 == 0

    server = Server(tmp_path, {"PETRI_HOST": "0.0.0.0"}).start()

    try:
        server.url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert [status(server, shown) for shown in (None, key)] == [401, 200]
        listed = ok(petri("keys", "ls", "--json", PETRI_URL=server.url, PETRI_API_KEY=key))
        rows = [(row["name"], row["scope"], row["state"]) for row in json.loads(listed)]
        assert rows == [("ops", "admin", "live")]
    finally:
        server.stop(signal.SIGKILL)


def test_without_a_server_keys_and_tenants_can_be_minded(tmp_path: Path, nobody: str) -> None:
    env = {"PETRI_HOME": str(tmp_path / "home"), "PETRI_URL": nobody}

    made = json.loads(
        ok(petri_here("keys", "create", "ci", "--tenant", "acme", "--expires", "30d", "--json", **env))
    )
    assert KEY.fullmatch(made["key"])
    assert (made["tenant"], made["scope"], made["state"]) == ("acme", "run", "live")
    assert "acme" in ok(petri_here("keys", "ls", **env))
    assert made["key"] not in ok(petri_here("keys", "ls", "--json", **env))
    assert "named ci" in failed(petri_here("keys", "create", "ci", "--tenant", "acme", **env))
    assert json.loads(ok(petri_here("keys", "ls", "--tenant", "nobody", "--json", **env))) == []

    ok(petri_here("keys", "revoke", made["id"], **env))
    ok(petri_here("keys", "revoke", made["id"], **env))
    assert json.loads(ok(petri_here("keys", "ls", "--json", **env))) == []
    for line in (("keys", "ls", "--all", "--json"), ("keys", "--json", "ls", "--all")):
        assert json.loads(ok(petri_here(*line, **env)))[0]["state"] == "revoked"
    assert "there is no key aaaaaaaa" in failed(petri_here("keys", "revoke", "aaaaaaaa", **env))

    set_ = ("tenants", "set", "acme", "--sandboxes", "5", "--disk", "1g", "--json")
    assert json.loads(ok(petri_here(*set_, **env)))["quotas"] == {
        "sandboxes": 5,
        "runs": 0,
        "disk_bytes": 2**30,
    }
    cleared = json.loads(ok(petri_here("tenants", "set", "acme", "--disk", "default", "--json", **env)))
    assert cleared["own_quotas"] == ["sandboxes"]
    assert "0 of 5" in ok(petri_here("tenants", "ls", **env))
    names = [row["name"] for row in json.loads(ok(petri_here("tenants", "ls", "--json", **env)))]
    assert names == ["default", "acme"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("keys", "create", "a b"), "name"),
        (("keys", "create", "environment"), "environment"),
        (("keys", "create", "x", "--tenant", "Acme"), "tenant"),
        (("tenants", "set", "Acme"), "tenant"),
    ],
)
def test_without_a_server_the_same_is_refused_as_with_one(
    tmp_path: Path, nobody: str, arguments: tuple[str, ...], says: str
) -> None:
    env = {"PETRI_HOME": str(tmp_path / "home"), "PETRI_URL": nobody}

    assert says in failed(petri_here(*arguments, **env))

    assert json.loads(ok(petri_here("keys", "ls", "--json", **env))) == []


def test_a_server_somewhere_else_that_does_not_answer_is_not_this_machine(tmp_path: Path) -> None:
    env = {"PETRI_HOME": str(tmp_path / "home"), "PETRI_URL": "http://petri.invalid"}

    assert "no Petri server answers" in failed(petri("keys", "create", "x", **env))

    assert not (tmp_path / "home").exists()


def test_a_home_in_use_is_left_to_its_server(server: Server, nobody: str) -> None:
    env = {"PETRI_HOME": str(server.home / "petri"), "PETRI_URL": nobody}

    said = failed(petri("keys", "create", "x", "--scope", "admin", **env))

    assert "another Petri server is using" in said
    assert "PETRI_URL" in said
    assert status(server, None) == 200, "the server still has no key"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a home that is somebody else's")
def test_a_home_of_another_user_is_not_written_to(tmp_path: Path, nobody: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 12345, 12345)

    said = failed(petri("keys", "create", "x", PETRI_HOME=str(home), PETRI_URL=nobody))

    assert "belongs to uid 12345" in said
    assert list(home.iterdir()) == []


# ------------------------------------------------------------------------------------------ with a server


@pytest.mark.slow
def test_an_open_server_gives_its_first_key_to_an_administrator_on_its_machine(
    new_server: Callable[..., Server],
) -> None:
    server = new_server()
    here = {"PETRI_URL": server.url}

    assert "`admin`" in failed(petri("keys", "create", "me", **here))
    key = ok(petri("keys", "create", "me", "--scope", "admin", **here))

    assert "wants a key" in failed(petri("keys", "ls", **here))
    assert "me" in ok(petri("keys", "ls", PETRI_API_KEY=key, **here))


@pytest.mark.slow
def test_a_key_made_and_revoked_over_http_counts_at_once(new_server: Callable[..., Server]) -> None:
    operator = "the-operator-s-own-key-0123"
    server = new_server(PETRI_API_KEY=operator)
    env = {"PETRI_URL": server.url, "PETRI_API_KEY": operator}

    made = json.loads(ok(petri("keys", "create", "ci", "--tenant", "acme", "--json", **env)))
    with client_of(server, made["key"]) as http:
        sandbox = create(http)
    assert "scope `admin`" in failed(petri("keys", "ls", PETRI_URL=server.url, PETRI_API_KEY=made["key"]))
    shown = ok(petri("show", sandbox, PETRI_URL=server.url, PETRI_API_KEY=made["key"]))
    assert re.search(r"^key +ci$", shown, re.MULTILINE)
    ok(petri("exec", sandbox, "--", "true", PETRI_URL=server.url, PETRI_API_KEY=made["key"]))
    listed = ok(petri("runs", sandbox, PETRI_URL=server.url, PETRI_API_KEY=made["key"])).splitlines()
    assert ("KEY" in listed[0], " ci " in listed[1]) == (True, True)

    table: Any = json.loads(ok(petri("tenants", "set", "acme", "--sandboxes", "1", "--json", **env)))
    assert (table["quotas"]["sandboxes"], table["usage"]["sandboxes"]) == (1, 1)
    assert "quota `sandboxes` is 1" in failed(
        petri("create", PETRI_URL=server.url, PETRI_API_KEY=made["key"])
    )
    assert "1 of 1" in ok(petri("tenants", "ls", **env))

    ok(petri("keys", "revoke", made["id"], **env))
    assert status(server, made["key"]) == 401


@pytest.mark.slow
def test_whoever_lost_every_key_makes_one_while_the_server_is_stopped(
    new_server: Callable[..., Server], nobody: str
) -> None:
    server = new_server(PETRI_API_KEY="lost-when-the-operator-left")
    del server.env["PETRI_API_KEY"]
    with client_of(server, "lost-when-the-operator-left") as http:
        first = http.post("/v1/keys", json={"name": "lost", "scope": "admin"}).json()
    server.stop(signal.SIGTERM)
    env = {"PETRI_HOME": str(server.home / "petri"), "PETRI_URL": nobody}
    ok(petri("keys", "revoke", first["id"], **env))

    key = ok(petri("keys", "create", "found", "--scope", "admin", **env))
    server.start()

    assert [status(server, shown) for shown in (None, first["key"], key)] == [401, 401, 200]
    with client_of(server, key) as http:
        rows = http.get("/v1/tenants/default/events").json()["events"]
    assert [row["detail"]["by"]["key_name"] for row in rows] == ["environment", "local", "local"]


@pytest.mark.slow
def test_a_server_whose_keys_are_all_revoked_or_expired_does_not_listen_to_others(
    tmp_path: Path, nobody: str
) -> None:
    env = {"PETRI_HOME": str(tmp_path / "home"), "PETRI_URL": nobody}
    made = json.loads(ok(petri("keys", "create", "gone", "--json", **env)))
    ok(petri("keys", "create", "late", "--expires", "0.001", **env))
    ok(petri("keys", "revoke", made["id"], **env))
    eventually(lambda: "expired" in ok(petri("keys", "ls", **env)))

    said = failed(petri("serve", PETRI_HOME=env["PETRI_HOME"], PETRI_HOST="0.0.0.0", PETRI_PORT="0"))

    assert "without a key" in said
    assert "petri keys create" in said


@pytest.mark.slow
def test_a_refusal_names_nothing_secret(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_API_KEY="the-operator-s-own-key-0123")
    wrong = "petri_aaaaaaaa_" + "b" * 32

    said = failed(petri("ls", PETRI_URL=server.url, PETRI_API_KEY=wrong))

    assert wrong not in said
    assert wrong not in server.log()
    with client_of(server, wrong) as http:
        assert wrong not in refused(http.get("/v1/sandboxes"), 401)["detail"]
