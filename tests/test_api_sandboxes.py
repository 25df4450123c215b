"""Sandboxes over HTTP: the three curl calls, then create, list, change, delete, and what ends by itself."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.calls import ask, create, eventually, put, refused, run, sh, workspaces
from tests.conftest import Server


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as found:
        yield found


def show(http: httpx.Client, sandbox: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/v1/sandboxes/{sandbox}").json()
    return found


def ended(http: httpx.Client, sandbox: str) -> bool:
    return bool(show(http, sandbox)["state"] == "deleted")


# ---------------------------------------------------------------------------------------- exactly as typed


def curl(*words: str, cwd: Path) -> dict[str, Any]:
    done = subprocess.run(["curl", "-sS", *words], capture_output=True, cwd=cwd, timeout=30, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this host")
def test_the_three_calls_work_exactly_as_typed(server: Server, tmp_path: Path) -> None:
    where = server.url.removeprefix("http://")  # as typed: without a scheme
    (tmp_path / "main.py").write_text("print('hello from petri')")

    made = curl("-X", "POST", f"{where}/v1/sandboxes", "-d", '{"language": "python"}', cwd=tmp_path)
    sandbox = made["id"]
    sent = curl("-X", "POST", f"{where}/v1/sandboxes/{sandbox}/files", "-F", "file=@main.py", cwd=tmp_path)
    told = curl(
        "-X", "POST", f"{where}/v1/sandboxes/{sandbox}/exec", "-d", '{"filename": "main.py"}', cwd=tmp_path
    )

    assert (made["language"], made["state"]) == ("python", "ready")
    assert sent["filename"] == "main.py"
    assert (told["stdout"], told["exit_code"]) == ("hello from petri\n", 0)


# -------------------------------------------------------------------------------------------- creating


def test_everything_about_a_new_sandbox_is_told(http: httpx.Client) -> None:
    body = {
        "language": "bash",
        "name": "told",
        "ttl_s": 3600,
        "limits": {
            **{"cpus": 0.5, "memory_bytes": 2**28, "processes": 50, "timeout_s": 30, "open_files": 64},
            **{"disk_bytes": 2**24, "inodes": 1000, "tmp_bytes": 2**20, "output_bytes": 2**16},
        },
        "env": {"A": "b"},
        "metadata": {"team": "ü"},
        "created_by": "alice",
        "agent": "claude",
        "network": {"mode": "none"},
    }
    answer = http.post("/v1/sandboxes", json=body)

    made = answer.json()
    assert answer.status_code == 201
    told = {name: value for name, value in body.items() if name not in ("network", "env")}
    assert {name: made[name] for name in told} == told
    assert made["env_names"] == ["A"]
    assert '"b"' not in answer.text, "the value of a variable may be a secret"
    assert (made["state"], made["engine"], made["lifetime"]) == ("ready", "bubblewrap", "persistent")
    assert (made["expires_because"], made["idle_s"], made["network"]["mode"]) == ("ttl", None, "none")
    assert (made["image"], made["tree"], made["environment"], made["ended_at"]) == (None, None, None, None)
    assert made["created_at"] == made["last_active_at"] < made["expires_at"]
    assert show(http, made["id"]) | {"usage": made["usage"]} == made
    http.delete(f"/v1/sandboxes/{made['id']}")


def test_no_body_at_all_makes_a_python_sandbox_that_stays(http: httpx.Client) -> None:
    made = http.post("/v1/sandboxes").json()

    assert (made["language"], made["lifetime"], made["expires_at"]) == ("python", "persistent", None)


def test_ids_are_host_names_nobody_can_guess(http: httpx.Client) -> None:
    made = {create(http) for _ in range(20)}

    assert len(made) == 20
    assert all(len(each) == 23 and each.startswith("sb-") and each.isascii() for each in made)


def test_a_name_in_use_gives_back_the_sandbox_that_has_it(http: httpx.Client) -> None:
    first = create(http, name="in-use")
    again = http.post("/v1/sandboxes", json={"name": "in-use", "language": "bash"})

    assert (again.status_code, again.json()["id"], again.json()["language"]) == (200, first, "python")
    http.delete(f"/v1/sandboxes/{first}")
    second = create(http, name="in-use")
    assert second != first, "the name of an ended sandbox is free"
    assert show(http, first)["name"] == "in-use"
    http.delete(f"/v1/sandboxes/{second}")


@pytest.mark.long
def test_many_who_ask_for_one_name_at_once_get_one_ready_sandbox(
    http: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    for attempt in range(5):
        name = f"at-once-{attempt}"
        answers = list(pool.map(lambda each: http.post("/v1/sandboxes", json={"name": each}), [name] * 12))

        assert len({answer.json()["id"] for answer in answers}) == 1
        assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
        assert {answer.json()["state"] for answer in answers} == {"ready"}, "it can be used at once"
        http.delete(f"/v1/sandboxes/{answers[0].json()['id']}")


@pytest.mark.slow
def test_a_sandbox_that_could_not_be_made_holds_no_name(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with server.client() as http:
        http.get("/v1/languages")
        workspaces(server).rename(server.home / "away")
        assert http.post("/v1/sandboxes", json={"name": "unlucky"}).status_code >= 400
        (server.home / "away").rename(workspaces(server))

        made = create(http, name="unlucky")
    server.stop()
    server.start()
    with server.client() as http:
        # One that was refused never was: it is in no list, whatever state is asked for.
        (known,) = http.get("/v1/sandboxes").json()["sandboxes"]
        assert (known["id"], known["state"], known["name"]) == (made, "ready", "unlucky")
        assert http.get("/v1/sandboxes", params={"state": "deleted"}).json()["sandboxes"] == []
        assert [each.name for each in workspaces(server).glob("sb-*")] == [made]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("image", {"image": "debian:12"}),
        ("network.mode", {"network": {"mode": "allow", "allow": ["pypi.org"]}}),
        ("network.mode", {"network": {"mode": "open"}}),
    ],
)
def test_what_is_not_built_yet_is_refused_by_name_and_never_ignored(
    http: httpx.Client, field: str, body: dict[str, Any]
) -> None:
    problem = refused(http.post("/v1/sandboxes", json=body), 422)

    assert problem["field"] == field
    assert "not built yet" in problem["detail"]


@pytest.mark.parametrize(
    ("field", "body"),
    [("detach", {"detach": True}), ("network.mode", {"network": {"mode": "open"}})],
)
def test_what_an_exec_cannot_do_yet_is_refused_by_name(
    http: httpx.Client, sandbox: str, field: str, body: dict[str, Any]
) -> None:
    problem = refused(ask(http, sandbox, command="true", **body), 422)

    assert problem["field"] == field
    assert "not built yet" in problem["detail"]


# -------------------------------------------------------------------------------------------- listing


def pages(http: httpx.Client, **params: Any) -> list[list[str]]:
    found = []
    while True:
        answer = http.get("/v1/sandboxes", params=params)
        assert answer.status_code == 200, answer.text
        found.append([each["id"] for each in answer.json()["sandboxes"]])
        if answer.json()["next_cursor"] is None:
            return found
        params = {**params, "cursor": answer.json()["next_cursor"]}


def test_lists_come_newest_first_in_pages_and_filtered(http: httpx.Client) -> None:
    made = [create(http, metadata={"list": "a&b=ü", "odd": str(number % 2)}) for number in range(7)]
    create(http, metadata={"list": "other"})
    http.delete(f"/v1/sandboxes/{made[0]}")

    everything = {"state": "all", "metadata.list": "a&b=ü"}
    assert pages(http, limit=3, **everything) == [made[:3:-1], made[3:0:-1], [made[0]]]
    assert pages(http, limit=3, **{"metadata.list": "a&b=ü"}) == [made[:3:-1], made[3:0:-1]], (
        "those that live"
    )
    assert pages(http, **{"metadata.list": "a&b=ü", "metadata.odd": "1"}) == [[made[5], made[3], made[1]]]
    assert pages(http, state="deleted", **{"metadata.list": "a&b=ü"}) == [[made[0]]]
    assert all(made[0] not in page for page in pages(http, state="ready", limit=200))
    assert pages(http, **{"metadata.no-such": "x"}) == [[]]


# -------------------------------------------------------------------------------------------- changing


def test_a_change_changes_what_it_names_and_null_clears(http: httpx.Client) -> None:
    sandbox = create(http, ttl_s=600, metadata={"a": "1"}, limits={"processes": 50})

    def change(**body: Any) -> dict[str, Any]:
        answer = http.patch(f"/v1/sandboxes/{sandbox}", json=body)
        assert answer.status_code == 200, answer.text
        changed: dict[str, Any] = answer.json()
        return changed

    assert change(idle_s=5)["expires_because"] == "idle"
    assert change(ttl_s=None, idle_s=None)["expires_at"] is None
    changed = change(name="changed", limits={"timeout_s": 7}, network={"mode": "none"})
    assert (changed["name"], changed["limits"]["timeout_s"], changed["limits"]["processes"]) == (
        "changed",
        7,
        50,
    )
    assert changed["metadata"] == {"a": "1"}
    assert change(metadata={"b": "2"})["metadata"] == {"b": "2"}
    assert change(metadata=None)["metadata"] == {}
    assert change(name=None)["name"] is None
    unchanged = change()
    assert show(http, sandbox) | {"usage": unchanged["usage"]} == unchanged
    http.delete(f"/v1/sandboxes/{sandbox}")
    refused(http.patch(f"/v1/sandboxes/{sandbox}", json={"idle_s": 5}), 409)


@pytest.mark.long
def test_two_who_change_different_limits_at_once_both_get_their_way(
    http: httpx.Client, sandbox: str, pool: ThreadPoolExecutor
) -> None:
    def change(limit: str, value: int) -> int:
        return http.patch(f"/v1/sandboxes/{sandbox}", json={"limits": {limit: value}}).status_code

    for value in range(20, 30):
        wanted = {"processes": value, "timeout_s": value, "memory_bytes": value << 20}
        assert set(pool.map(change, wanted, wanted.values())) == {200}

        assert show(http, sandbox)["limits"].items() >= wanted.items()


def test_a_new_limit_counts_from_the_next_run_on(http: httpx.Client, sandbox: str) -> None:
    http.patch(f"/v1/sandboxes/{sandbox}", json={"limits": {"timeout_s": 0.3}})

    assert run(http, sandbox, command="sleep 20")["timed_out"]


def test_a_name_somebody_has_cannot_be_taken(http: httpx.Client, sandbox: str) -> None:
    other = create(http, name="taken")

    refused(http.patch(f"/v1/sandboxes/{sandbox}", json={"name": "taken"}), 409)
    http.delete(f"/v1/sandboxes/{other}")


def test_a_limit_above_the_operator_s_is_refused(http: httpx.Client, sandbox: str) -> None:
    for body in ({"limits": {"memory_bytes": 2**40}}, {"limits": {"timeout_s": 90_000}}):
        assert "at most" in refused(http.patch(f"/v1/sandboxes/{sandbox}", json=body), 422)["detail"]
        refused(http.post("/v1/sandboxes", json=body), 422)


# -------------------------------------------------------------------------------------------- the end


def test_deleting_removes_the_files_keeps_the_history_and_can_be_repeated(
    server: Server, http: httpx.Client
) -> None:
    sandbox = create(http)
    sh(http, sandbox, "mkdir -p a/b; touch a/b/c; chmod 000 a/b a")

    for _ in range(3):
        assert http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204

    shown = show(http, sandbox)
    assert (shown["state"], shown["ended_because"], shown["expires_at"]) == ("deleted", "deleted", None)
    assert shown["ended_at"] >= shown["created_at"]
    assert not (workspaces(server) / sandbox).exists()
    assert len(http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]) == 1


def test_many_who_delete_at_once_all_succeed(http: httpx.Client, pool: ThreadPoolExecutor) -> None:
    sandbox = create(http)

    answers = pool.map(lambda _: http.delete(f"/v1/sandboxes/{sandbox}").status_code, range(10))

    assert set(answers) == {204}
    kinds = [row["kind"] for row in http.get(f"/v1/sandboxes/{sandbox}/events").json()["events"]]
    assert kinds == ["create", "created", "delete", "removed"]


@pytest.mark.long
def test_a_ttl_ends_a_sandbox_even_in_use(http: httpx.Client) -> None:
    sandbox = create(http, ttl_s=0.5)
    assert show(http, sandbox)["expires_because"] == "ttl"

    told = run(http, sandbox, command="sleep 30")

    assert told["cancelled"]
    eventually(lambda: ended(http, sandbox))
    assert show(http, sandbox)["ended_because"] == "ttl"
    assert len(http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]) == 1, "the history stays"
    refused(ask(http, sandbox, command="true"), 409)


@pytest.mark.slow
def test_an_idle_sandbox_ends_and_every_use_puts_it_off(http: httpx.Client, pool: ThreadPoolExecutor) -> None:
    idle_s = 1.2
    boxes = {
        use: create(http, idle_s=idle_s) for use in ("none", "read", "list", "write", "exec", "long exec")
    }
    assert show(http, boxes["none"])["expires_because"] == "idle"
    for use in ("read", "list"):
        put(http, boxes[use], "a", "1")
    long = pool.submit(run, http, boxes["long exec"], command="sleep 4")

    deadline = time.monotonic() + 3.5
    while time.monotonic() < deadline:
        assert http.get(f"/v1/sandboxes/{boxes['read']}/files/a").status_code == 200
        assert http.get(f"/v1/sandboxes/{boxes['list']}/files").status_code == 200
        put(http, boxes["write"], "a", "1")
        sh(http, boxes["exec"], "true")
        time.sleep(0.3)

    assert ended(http, boxes["none"])
    assert show(http, boxes["none"])["ended_because"] == "idle"
    for use in ("read", "list", "write", "exec", "long exec"):
        assert not ended(http, boxes[use]), use
    assert long.result()["exit_code"] == 0
    eventually(lambda: all(ended(http, box) for box in boxes.values()))


@pytest.mark.slow
def test_an_upload_that_takes_longer_than_the_idle_time_is_use(http: httpx.Client) -> None:
    sandbox = create(http, idle_s=1)

    def slowly() -> Iterator[bytes]:
        for _ in range(12):
            yield b"x" * 1000
            time.sleep(0.25)

    assert http.put(f"/v1/sandboxes/{sandbox}/files/a", content=slowly()).status_code == 201
    assert len(http.get(f"/v1/sandboxes/{sandbox}/files/a").content) == 12_000
