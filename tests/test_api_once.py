"""`POST /v1/exec`: files and command in, outcome out, nothing left."""

import base64
from typing import Any

import httpx
import pytest

from tests.calls import events, refused, scraps, text, workspaces
from tests.conftest import Server


def once(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/v1/exec", json=body)


def folders(server: Server) -> set[str]:
    """Return the sandboxes there are on disk; the server itself looks for languages in another folder."""
    return {entry.name for entry in workspaces(server).glob("sb-*")}


def test_files_and_command_in_outcome_out_nothing_left(server: Server, http: httpx.Client) -> None:
    before = folders(server)
    raw = bytes(range(256))
    files = {
        "main.py": "from pkg.mod import f; print(f()); open('out', 'w').write('x')",
        "pkg/mod.py": "def f(): return len(open('data.bin', 'rb').read())",
        "data.bin": {"base64": base64.b64encode(raw).decode()},
        "ünï.txt": "",
    }

    answer = once(http, filename="main.py", files=files, created_by="me", limits={"memory_bytes": 2**28})

    told = answer.json()
    assert (answer.status_code, told["stdout"], told["exit_code"]) == (200, "256\n", 0), told
    assert folders(server) == before
    assert scraps(server) == []
    gone = http.get(f"/v1/sandboxes/{told['sandbox_id']}").json()
    assert (gone["state"], gone["ended_because"], gone["created_by"]) == ("deleted", "ephemeral", "me")
    assert gone["limits"]["memory_bytes"] == 2**28
    assert http.get(f"/v1/runs/{told['run_id']}").json()["exit_code"] == 0, "the history stays"


@pytest.mark.parametrize(
    ("body", "stdout"),
    [
        ({"code": "print(1)"}, "1\n"),
        ({"code": "echo $0 $1", "language": "bash", "args": ["x"]}, "bash x\n"),
        ({"command": "cat", "stdin": "said"}, "said"),
        ({"command": ["pwd"], "cwd": "a", "files": {"a/b": ""}}, "/workspace/a\n"),
        ({"filename": "run", "files": {"run": "print(2)"}}, "2\n"),
        ({"command": "echo $A", "env": {"A": "b"}}, "b\n"),
    ],
    ids=str,
)
def test_every_way_of_running_works_once(http: httpx.Client, body: dict[str, Any], stdout: str) -> None:
    assert once(http, **body).json()["stdout"] == stdout


def test_a_failing_command_leaves_nothing_either(server: Server, http: httpx.Client) -> None:
    before = folders(server)

    assert once(http, command="echo x > file; exit 9").json()["exit_code"] == 9
    assert once(http, command="sleep 60", timeout_s=0.2).json()["timed_out"]

    assert folders(server) == before


def test_one_call_can_be_watched(server: Server, http: httpx.Client) -> None:
    before = folders(server)
    body = {"command": "echo one; echo two"}

    with http.stream("POST", "/v1/exec", json=body, headers={"Accept": "text/event-stream"}) as response:
        said = list(events(response))

    assert (text(said), said[-1].kind) == ("one\ntwo\n", "done")
    assert folders(server) == before


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"filename": "missing.py"}, 422, "filename"),
        ({"filename": "a", "files": {"a": {"base64": "not base64!"}}}, 422, "files.a"),
        ({"filename": "a", "files": {"a": {"base64": "abc"}}}, 422, "files.a"),
        ({"filename": "a", "files": {"a": {"base64": "ü"}}}, 422, "files.a"),
        ({"command": "true", "files": {"a": {"base64": 1}}}, 422, None),
        ({"command": "true", "files": {"a": 1}}, 422, None),
        ({"command": "true", "files": {"a": None}}, 422, None),
        ({"command": "true", "files": ["a"]}, 422, "files"),
        ({"command": "true", "files": {"../a": ""}}, 400, None),
        ({"command": "true", "files": {"/a": ""}}, 400, None),
        ({"command": "true", "files": {"": ""}}, 400, None),
        ({"command": "true", "files": {"a\0": ""}}, 400, None),
        ({"command": "true", "files": {"a\n": ""}}, 400, None),
        ({"command": "true", "files": {"a": "", "a/b": ""}}, 400, None),
        ({"command": "true", "files": {"a" * 256: ""}}, 400, None),
        ({"command": "true", "files": {"a" * 100_000: 1}}, 422, None),
        ({"command": "true", "cwd": "no"}, 422, "cwd"),
        ({"command": "true", "ttl_s": 5}, 422, "ttl_s"),
        ({"command": "true", "limits": {"memory_bytes": 1}}, 422, "limits.memory_bytes"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    server: Server, http: httpx.Client, body: dict[str, Any], status: int, field: str | None
) -> None:
    before = folders(server)

    problem = refused(once(http, **body), status)

    if field is not None:
        assert problem["field"] == field
    assert folders(server) == before
    assert scraps(server) == []


def test_ten_thousand_and_one_files_are_too_many(http: httpx.Client) -> None:
    refused(once(http, command="true", files={str(number): "" for number in range(10_001)}), 422)
