"""Tenants over HTTP: nobody learns of anybody else's, each key does what its scope says, quotas hold.

The addresses come from the server's own description, so a new one cannot be forgotten here.
"""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from petri.syncing import NOTHING, Base, End
from petri.trees import EMPTY
from tests.calls import client_of, create, eventually, make_key, put, refused, replay, run
from tests.conftest import Server
from tests.streams import stream

OPERATOR = "the-operator-s-own-key-0123"
NO_SANDBOX, NO_RUN, NO_SNAPSHOT = "sb-" + "a" * 20, "run-" + "a" * 20, "snap-" + "a" * 20

NEEDED = {
    ("GET", "/health"): None,
    ("GET", "/metrics"): "read",
    ("GET", "/v1/languages"): "read",
    ("GET", "/v1/metrics"): "read",
    ("GET", "/v1/sandboxes"): "read",
    ("POST", "/v1/sandboxes"): "run",
    ("GET", "/v1/sandboxes/{sandbox_id}"): "read",
    ("PATCH", "/v1/sandboxes/{sandbox_id}"): "run",
    ("DELETE", "/v1/sandboxes/{sandbox_id}"): "run",
    ("GET", "/v1/sandboxes/{sandbox_id}/runs"): "read",
    ("GET", "/v1/sandboxes/{sandbox_id}/events"): "read",
    ("GET", "/v1/sandboxes/{sandbox_id}/environment"): "read",
    ("POST", "/v1/sandboxes/{sandbox_id}/exec"): "run",
    ("POST", "/v1/exec"): "run",
    ("POST", "/v1/sandboxes/{sandbox_id}/files"): "run",
    ("GET", "/v1/sandboxes/{sandbox_id}/files"): "read",
    ("GET", "/v1/sandboxes/{sandbox_id}/files/{path}"): "read",
    ("HEAD", "/v1/sandboxes/{sandbox_id}/files/{path}"): "read",
    ("PUT", "/v1/sandboxes/{sandbox_id}/files/{path}"): "run",
    ("DELETE", "/v1/sandboxes/{sandbox_id}/files/{path}"): "run",
    ("GET", "/v1/sandboxes/{sandbox_id}/diff"): "read",
    ("GET", "/v1/sandboxes/{sandbox_id}/blame"): "read",
    ("POST", "/v1/sandboxes/{sandbox_id}/merge"): "run",
    ("POST", "/v1/sandboxes/{sandbox_id}/sync"): "run",
    ("POST", "/v1/sandboxes/{sandbox_id}/sync/have"): "run",
    ("GET", "/v1/runs/{run_id}"): "read",
    ("GET", "/v1/runs/{run_id}/events"): "read",
    ("GET", "/v1/runs/{run_id}/stdout"): "read",
    ("GET", "/v1/runs/{run_id}/stderr"): "read",
    ("POST", "/v1/runs/{run_id}/cancel"): "run",
    ("POST", "/v1/sandboxes/{sandbox_id}/snapshots"): "run",
    ("GET", "/v1/sandboxes/{sandbox_id}/snapshots"): "read",
    ("POST", "/v1/sandboxes/{sandbox_id}/restore"): "run",
    ("POST", "/v1/sandboxes/{sandbox_id}/undo"): "run",
    ("POST", "/v1/sandboxes/{sandbox_id}/fork"): "run",
    ("GET", "/v1/snapshots"): "read",
    ("GET", "/v1/snapshots/{snapshot}"): "read",
    ("DELETE", "/v1/snapshots/{snapshot}"): "run",
    ("GET", "/v1/keys"): "admin",
    ("POST", "/v1/keys"): "admin",
    ("DELETE", "/v1/keys/{key_id}"): "admin",
    ("GET", "/v1/tenants"): "admin",
    ("GET", "/v1/tenants/{tenant}"): "admin",
    ("PATCH", "/v1/tenants/{tenant}"): "admin",
    ("GET", "/v1/tenants/{tenant}/events"): "admin",
}
"""Every call and the scope it takes; a route that is not in here fails the first test below."""

BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/sandboxes/{sandbox_id}/exec"): {"json": {"command": "echo secret"}},
    ("POST", "/v1/exec"): {"json": {"command": "true"}},
    ("POST", "/v1/sandboxes/{sandbox_id}/files"): {"files": {"file": ("new.txt", b"new")}},
    ("PUT", "/v1/sandboxes/{sandbox_id}/files/{path}"): {"content": b"new"},
    ("PATCH", "/v1/sandboxes/{sandbox_id}"): {"json": {"idle_s": 600}},
    ("POST", "/v1/sandboxes/{sandbox_id}/restore"): {"json": {"run": "{run_id}"}},
    ("GET", "/v1/sandboxes/{sandbox_id}/blame"): {"params": {"path": "a.txt"}},
    ("POST", "/v1/sandboxes/{sandbox_id}/merge"): {"json": {"from": "somewhere"}},
    ("POST", "/v1/sandboxes/{sandbox_id}/sync"): {
        "params": {"mode": "pull"},
        "content": stream(Base(NOTHING), End(EMPTY)),
    },
    ("POST", "/v1/sandboxes/{sandbox_id}/sync/have"): {"content": bytes(32)},
    ("POST", "/v1/keys"): {"json": {"name": "made-by-the-scopes-test"}},
}
"""What a call needs to get as far as the thing it is about."""
SCOPES = ("read", "run", "admin")


@dataclass
class Team:
    """A server with two tenants."""

    server: Server
    keys: dict[str, str]

    def client(self, name: str) -> httpx.Client:
        return client_of(self.server, self.keys[name])


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    server = Server(tmp_path_factory.mktemp("team"), {"PETRI_API_KEY": OPERATOR}).start()
    with client_of(server, OPERATOR) as admin:
        made = {
            f"{tenant}-{scope}": make_key(admin, scope, tenant=tenant, scope=scope)["key"]
            for tenant in ("alice", "bob")
            for scope in SCOPES
        }
    yield Team(server, {**made, "operator": OPERATOR})
    server.stop(signal.SIGKILL)


@pytest.fixture
def alice(team: Team) -> Iterator[httpx.Client]:
    with team.client("alice-run") as found:
        yield found


@pytest.fixture
def bob(team: Team) -> Iterator[httpx.Client]:
    with team.client("bob-run") as found:
        yield found


@pytest.fixture
def operator(team: Team) -> Iterator[httpx.Client]:
    with team.client("operator") as found:
        yield found


def calls(http: httpx.Client) -> set[tuple[str, str]]:
    """Return every call the server describes, and the one it serves to Prometheus alone."""
    paths = http.get("/openapi.json").json()["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    return {*described, ("GET", "/metrics")}


def send(
    http: httpx.Client,
    call: tuple[str, str],
    sandbox: str = NO_SANDBOX,
    run_id: str = NO_RUN,
    snapshot: str = NO_SNAPSHOT,
) -> httpx.Response:
    """Make a call that is whole, about that sandbox, that run or that snapshot."""
    method, path = call
    body = json.dumps(BODIES.get(call, {}).get("json"))
    for name, value in (
        *(("{sandbox_id}", sandbox), ("{run_id}", run_id), ("{path}", "a.txt"), ("{snapshot}", snapshot)),
        *(("{key_id}", "aaaaaaaa"), ("{tenant}", "alice")),
    ):
        path, body = path.replace(name, value), body.replace(name, value)
    assert "{" not in path, f"this test does not know what to put into {path}"
    rest = {name: value for name, value in BODIES.get(call, {}).items() if name != "json"}
    return http.request(method, path, **rest, **({} if body == "null" else {"json": json.loads(body)}))


def comparable(answer: httpx.Response, *ids: str) -> tuple[Any, ...]:
    """Return all that an answer tells, but for the id that was asked for."""
    text, headers = answer.text, {**answer.headers}
    headers.pop("date", None)
    headers.pop("content-length", None)  # the same for the same text
    for each in ids:
        text = text.replace(each, "ID")
    return answer.status_code, text, headers


# --------------------------------------------------------------------------------------------- scopes


def test_every_call_is_in_the_table(http: httpx.Client) -> None:
    assert calls(http) == set(NEEDED)


@pytest.mark.parametrize("call", NEEDED, ids=" ".join)
def test_a_call_takes_the_scope_it_says_and_no_less(team: Team, call: tuple[str, str]) -> None:
    needed = NEEDED[call]
    for scope in SCOPES:
        with team.client(f"alice-{scope}") as http:
            answer = send(http, call)
            if needed is None or SCOPES.index(scope) >= SCOPES.index(needed):
                assert answer.status_code not in (401, 403), answer.text
            elif call[0] == "HEAD":
                assert answer.status_code == 403
            else:
                assert f"scope `{needed}`" in refused(answer, 403)["detail"]
    with team.server.client() as nobody:
        assert (send(nobody, call).status_code == 401) is (needed is not None)


def test_the_description_names_the_scope_of_each_call(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]

    named = {
        (method.upper(), path): described.get("x-petri-scope")
        for path, methods in paths.items()
        for method, described in methods.items()
    }

    assert named == {call: scope for call, scope in NEEDED.items() if call != ("GET", "/metrics")}


@pytest.mark.parametrize(
    "path", ["/v1/keys/", "/v1/keys/x/y", "/v1/tenants/", "/v1/keysx", "/v1//keys", "/v1/KEYS"]
)
def test_there_is_no_way_around_to_the_keys(team: Team, path: str) -> None:
    with team.client("alice-run") as http:
        for method in ("GET", "POST", "DELETE", "PATCH", "PUT", "OPTIONS"):
            assert http.request(method, path).status_code in (403, 404, 405)


def test_whoever_may_only_look_changes_nothing(team: Team, alice: httpx.Client) -> None:
    sandbox = create(alice)
    put(alice, sandbox, "a.txt", "kept")
    before = alice.get(f"/v1/sandboxes/{sandbox}").json()
    with team.client("alice-read") as reader:
        for call in NEEDED:
            if call[0] not in ("GET", "HEAD"):
                assert send(reader, call, sandbox).status_code == 403
        assert reader.get(f"/v1/sandboxes/{sandbox}/files/a.txt").text == "kept"

    after = alice.get(f"/v1/sandboxes/{sandbox}").json()
    assert after["limits"] == before["limits"]
    assert after["state"] == "ready"
    assert alice.get(f"/v1/sandboxes/{sandbox}/files").json()["entries"][0]["path"] == "a.txt"


# ------------------------------------------------------------------------------------- what is not yours


ABOUT_SOMETHING = [
    call for call in NEEDED if any(name in call[1] for name in ("{sandbox_id}", "{run_id}", "{snapshot}"))
]


@pytest.mark.parametrize("call", ABOUT_SOMETHING, ids=" ".join)
def test_what_is_somebody_else_s_is_answered_like_what_never_was(
    team: Team, alice: httpx.Client, call: tuple[str, str]
) -> None:
    sandbox = create(alice, name=f"private-{abs(hash(call))}")
    put(alice, sandbox, "a.txt", "secret")
    run_id = run(alice, sandbox, command="echo secret")["run_id"]
    snapshot = alice.post(f"/v1/sandboxes/{sandbox}/snapshots").json()["id"]

    for name in ("bob-run", "bob-admin", "operator"):
        with team.client(name) as stranger:
            foreign, unknown = send(stranger, call, sandbox, run_id, snapshot), send(stranger, call)
        assert foreign.status_code == 404, foreign.text
        asked = comparable(foreign, sandbox, run_id, snapshot)
        assert asked == comparable(unknown, NO_SANDBOX, NO_RUN, NO_SNAPSHOT)

    assert alice.get(f"/v1/sandboxes/{sandbox}").json()["state"] == "ready"
    assert alice.get(f"/v1/sandboxes/{sandbox}/files/a.txt").text == "secret"
    assert len(alice.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]) == 1
    assert send(alice, call, sandbox, run_id, snapshot).status_code != 404, (
        "the call is whole: its owner is let in"
    )


def test_a_run_that_goes_on_is_hidden_too(alice: httpx.Client, bob: httpx.Client) -> None:
    sandbox = create(alice)
    with ThreadPoolExecutor() as pool:
        going = pool.submit(run, alice, sandbox, command="while [ ! -e go ]; do sleep 0.02; done; echo done")
        eventually(lambda: bool(alice.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]))
        run_id = alice.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"][0]["run_id"]
        for call in ABOUT_SOMETHING:
            answers = send(bob, call, sandbox, run_id), send(bob, call)
            assert comparable(answers[0], sandbox, run_id) == comparable(answers[1], NO_SANDBOX, NO_RUN)
        put(alice, sandbox, "go", "")

        assert going.result()["stdout"] == "done\n"
    assert replay(alice, run_id)[-1].kind == "done"


def test_what_others_have_is_no_peer_no_moment_and_no_side_of_a_merge(
    alice: httpx.Client, bob: httpx.Client
) -> None:
    theirs = create(alice)
    put(alice, theirs, "a.txt", "secret")
    ended = run(alice, theirs, command="echo more >> a.txt")
    snapshot = alice.post(f"/v1/sandboxes/{theirs}/snapshots", json={}).json()["id"]
    mine = create(bob)
    put(bob, mine, "a.txt", "mine")
    unknown = {
        theirs: NO_SANDBOX,
        ended["run_id"]: NO_RUN,
        snapshot: "snap-aaaaaaaaaaaaaaaaaaaa",
        ended["tree_after"]: "00" * 32,
    }

    for foreign, nobody in unknown.items():
        asked = [
            [bob.get(f"/v1/sandboxes/{mine}/diff", params={"to": said}) for said in (foreign, nobody)],
            [bob.get(f"/v1/sandboxes/{mine}/diff", params={"from": said}) for said in (foreign, nobody)],
            [
                bob.post(f"/v1/sandboxes/{mine}/merge", json={"from": said, "base": "now"})
                for said in (foreign, nobody)
            ],
        ]
        for answers in asked:
            assert answers[0].status_code == 404, answers[0].text
            assert comparable(answers[0], foreign) == comparable(answers[1], nobody)
    for name, foreign in (("sandbox", theirs), ("tree", ended["tree_after"]), ("snapshot", snapshot)):
        bodies = [
            {"peers": [{"sandbox": mine, "at": "/peers/x", name: said}]}
            for said in (foreign, unknown[foreign])
        ]
        made = [bob.post("/v1/sandboxes", json=body) for body in bodies]
        assert refused(made[0], 422)["field"] == f"peers.0.{name}"
        assert comparable(made[0], foreign) == comparable(made[1], unknown[foreign])
        changed = [bob.patch(f"/v1/sandboxes/{mine}", json=body) for body in bodies]
        assert comparable(changed[0], foreign) == comparable(changed[1], unknown[foreign])
    assert bob.get(f"/v1/sandboxes/{mine}").json()["peers"] == []


def test_lists_names_and_cursors_stay_within_a_tenant(alice: httpx.Client, bob: httpx.Client) -> None:
    mine = [create(alice, name=f"list-{number}", metadata={"list": "1"}) for number in range(3)]

    theirs = create(bob, name="list-0", metadata={"list": "1"})
    assert theirs not in mine, "a name is a tenant's own"
    assert bob.post("/v1/sandboxes", json={"name": "list-0"}).json()["id"] == theirs
    for query in ({"metadata.list": "1"}, {"name": "list-0"}):
        assert [each["id"] for each in bob.get("/v1/sandboxes", params=query).json()["sandboxes"]] == [theirs]
    everything = {each["id"] for each in bob.get("/v1/sandboxes?limit=200").json()["sandboxes"]}
    assert not everything & set(mine)
    cursor = alice.get("/v1/sandboxes", params={"limit": 1, "metadata.list": "1"}).json()["next_cursor"]
    assert alice.get("/v1/sandboxes", params={"cursor": cursor}).status_code == 200
    refused(bob.get("/v1/sandboxes", params={"cursor": cursor}), 422)
    assert alice.patch(f"/v1/sandboxes/{mine[1]}", json={"name": "taken"}).status_code == 200
    assert bob.patch(f"/v1/sandboxes/{theirs}", json={"name": "taken"}).status_code == 200


def test_counts_are_a_tenant_s_own_and_everybody_s_for_an_administrator(
    team: Team, alice: httpx.Client, bob: httpx.Client
) -> None:
    def ready(http: httpx.Client) -> int:
        found: int = http.get("/v1/metrics").json()["sandboxes"]["ready"]
        return found

    def gauge(http: httpx.Client) -> int:
        lines = http.get("/metrics").text.splitlines()
        return round(
            float(next(line for line in lines if 'petri_sandboxes{state="ready"}' in line).split()[1])
        )

    with team.client("bob-admin") as admin:
        before = ready(bob), ready(alice), ready(admin)
        create(alice)
        assert (ready(bob), ready(alice), ready(admin)) == (before[0], before[1] + 1, before[2] + 1)
        assert (gauge(bob), gauge(alice), gauge(admin)) == (before[0], before[1] + 1, before[2] + 1)
        sandbox = create(alice)
        with ThreadPoolExecutor() as pool:
            going = pool.submit(run, alice, sandbox, command="while [ ! -e go ]; do sleep 0.02; done")
            eventually(lambda: alice.get("/v1/metrics").json()["running"] == 1)
            assert bob.get("/v1/metrics").json()["running"] == 0
            assert admin.get("/v1/metrics").json()["running"] == 1
            put(alice, sandbox, "go", "")
            going.result()
    assert bob.get("/v1/metrics").json()["runs"]["done"] == 0
    with team.server.client() as nobody:
        refused(nobody.get("/metrics"), 401)
