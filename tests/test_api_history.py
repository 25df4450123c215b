"""What is on record: runs with who, what and when; a sandbox's events; counts."""

import re
from typing import Any

import httpx
import pytest

from tests.calls import ask, create, put, refused, run, sh
from tests.conftest import Server

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_a_run_on_record_says_who_what_and_when(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "main.py", "import sys; print('out'); print('error', file=sys.stderr); sys.exit(3)")
    told = run(
        http,
        sandbox,
        filename="main.py",
        args=["a b"],
        stdin="four",
        env={"SECRET": "hunter2", "OTHER": "x"},
        timeout_s=9,
        created_by="alice",
        agent="claude ü",
    )

    shown = http.get(f"/v1/runs/{told['run_id']}").json()

    assert (shown["form"], shown["said"], shown["language"]) == ("filename", "main.py", "python")
    assert shown["argv"][-2:] == ["main.py", "a b"]
    assert (shown["cwd"], shown["engine"], shown["timeout_s"]) == ("/workspace", "bubblewrap", 9)
    assert (shown["created_by"], shown["agent"], shown["key_name"]) == ("alice", "claude ü", None)
    assert (shown["env_names"], shown["stdin_bytes"]) == (["OTHER", "SECRET"], 4)
    assert (shown["state"], shown["exit_code"], shown["sandbox_id"]) == ("done", 3, sandbox)
    assert (shown["stdout"]["bytes"], shown["stdout"]["kept_bytes"]) == (4, 4)
    assert (shown["stderr"]["bytes"], len(shown["stderr"]["digest"])) == (6, 64)
    moments = [shown[name] for name in ("asked_at", "started_at", "ended_at")]
    assert moments == sorted(moments)
    assert all(_TIME.fullmatch(moment) for moment in moments)
    assert "hunter2" not in str(shown), "values of variables may be secrets, and the ledger is for ever"


def test_who_says_nothing_of_itself_asks_for_whom_the_sandbox_is(http: httpx.Client) -> None:
    sandbox = create(http, created_by="alice", agent="claude")

    def asker(**said: str) -> tuple[str, str]:
        shown = http.get(f"/v1/runs/{run(http, sandbox, command='true', **said)['run_id']}").json()
        return shown["created_by"], shown["agent"]

    assert asker() == ("alice", "claude")
    assert asker(created_by="bob") == ("bob", "claude")
    assert asker(created_by="bob", agent="x") == ("bob", "x")


@pytest.mark.long
def test_what_was_said_is_kept_as_it_was_said(http: httpx.Client, sandbox: str) -> None:
    code = "print('ü')  # \u2028 🦊"
    for body, form, said in (
        ({"code": code}, "code", code),
        ({"command": "echo  'a  b'"}, "command", "echo  'a  b'"),
        ({"command": ["echo", "a  b"]}, "command", "echo a  b"),
    ):
        shown = http.get(f"/v1/runs/{run(http, sandbox, **body)['run_id']}").json()
        assert (shown["form"], shown["said"]) == (form, said)


def test_runs_are_listed_newest_first_and_in_pages(http: httpx.Client, sandbox: str) -> None:
    made = [run(http, sandbox, command=f"exit {number}")["run_id"] for number in range(5)]

    seen: list[str] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = http.get(f"/v1/sandboxes/{sandbox}/runs", params=params).json()
        assert len(page["runs"]) <= 2
        seen += [each["run_id"] for each in page["runs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        sh(http, sandbox, "true")  # what comes meanwhile shifts nothing

    assert seen == made[::-1]


@pytest.mark.long
def test_a_page_of_runs_stays_short_however_long_their_arguments_are(
    http: httpx.Client, sandbox: str
) -> None:
    made = [run(http, sandbox, command=["true"], args=["x" * 100_000] * 14)["run_id"] for _ in range(8)]

    listed: list[str] = []
    wanted: dict[str, Any] = {"limit": 200}
    while True:
        answer = http.get(f"/v1/sandboxes/{sandbox}/runs", params=wanted)
        assert len(answer.content) < 6 * 2**20
        listed += [each["run_id"] for each in answer.json()["runs"]]
        wanted["cursor"] = answer.json()["next_cursor"]
        if wanted["cursor"] is None:
            break

    assert listed == made[::-1]


def test_the_history_of_a_sandbox_tells_its_whole_life(http: httpx.Client) -> None:
    sandbox = create(http)
    put(http, sandbox, "a.txt", "abc")
    sh(http, sandbox, "true")
    http.patch(f"/v1/sandboxes/{sandbox}", json={"idle_s": 60})
    http.delete(f"/v1/sandboxes/{sandbox}/files/a.txt")
    http.delete(f"/v1/sandboxes/{sandbox}")

    rows = http.get(f"/v1/sandboxes/{sandbox}/events").json()["events"]

    kinds = [row["kind"] for row in rows]
    assert kinds == [
        *("create", "created", "files.written", "run.queue", "run.start", "run.ended", "amend"),
        *("files.deleted", "delete", "removed"),
    ]
    written = rows[kinds.index("files.written")]["detail"]
    tree = written.pop("tree")
    assert written == {"count": 1, "bytes": 3, "paths": ["a.txt"]}
    deleted = rows[kinds.index("files.deleted")]["detail"]
    assert deleted.pop("tree") not in (None, tree)
    assert deleted == {"path": "a.txt"}
    assert rows[kinds.index("run.start")]["run_id"] == rows[kinds.index("run.ended")]["run_id"]
    assert all(_TIME.fullmatch(row["at"]) for row in rows)
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))


def test_odd_names_can_stand_in_the_history(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "touch \"$(printf 'b\\377\\nc')\"")

    assert http.delete(f"/v1/sandboxes/{sandbox}/files/b%FF%0Ac").status_code == 204

    row = http.get(f"/v1/sandboxes/{sandbox}/events").json()["events"][-1]
    assert row["kind"] == "files.deleted"
    assert row["detail"]["path"].startswith("b")


def test_history_survives_deletion(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command="echo kept")
    http.delete(f"/v1/sandboxes/{sandbox}")

    assert http.get(f"/v1/runs/{told['run_id']}").json()["exit_code"] == 0
    assert http.get(f"/v1/runs/{told['run_id']}/stdout").content == b"kept\n"
    assert len(http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]) == 1
    assert http.get(f"/v1/sandboxes/{sandbox}").json()["state"] == "deleted"


def test_metrics_count_what_happened(http: httpx.Client, sandbox: str) -> None:
    before = http.get("/v1/metrics").json()
    run(http, sandbox, command="exit 3")

    after = http.get("/v1/metrics").json()

    assert after["runs"]["done"] == before["runs"]["done"] + 1
    assert after["sandboxes"]["ready"] >= 1
    assert (after["running"], after["waiting"]) == (0, 0)
    assert after["uptime_s"] > before["uptime_s"]


def test_prometheus_reads_the_same_counts(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="true")
    counts = http.get("/v1/metrics").json()

    answer = http.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    found = dict(re.findall(r"^(petri_\S+) (\S+)$", answer.text, re.M))
    assert float(found['petri_runs{state="done"}']) == counts["runs"]["done"]
    assert float(found['petri_sandboxes{state="ready"}']) == counts["sandboxes"]["ready"]
    assert float(found["petri_running"]) == 0


def test_languages_say_their_version_or_what_they_need(http: httpx.Client) -> None:
    languages = {each["name"]: each for each in http.get("/v1/languages").json()["languages"]}

    assert set(languages) == {"python", "javascript", "typescript", "bash"}
    assert languages["python"]["version"].startswith("Python 3")
    assert languages["python"]["endings"] == [".py"]
    for each in languages.values():
        assert each["available"] == (each["needs"] is None) == (each["version"] is not None)


def test_health_has_one_line_for_each_layer(server: Server, http: httpx.Client) -> None:
    found = http.get("/health").json()

    assert found["status"] == "ok"
    assert {"bubblewrap", "seccomp"} <= {layer["name"] for layer in found["layers"]}
    assert all(layer["says"] for layer in found["layers"])


def test_a_run_nobody_asked_for_is_not_found(http: httpx.Client, sandbox: str) -> None:
    for path in ("", "/events", "/stdout", "/stderr"):
        refused(http.get(f"/v1/runs/run-aaaaaaaaaaaaaaaaaaaa{path}"), 404)
    refused(http.post("/v1/runs/run-aaaaaaaaaaaaaaaaaaaa/cancel"), 404)
    refused(ask(http, "sb-aaaaaaaaaaaaaaaaaaaa", command="true"), 404)
