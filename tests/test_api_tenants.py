"""Tenants over HTTP: nobody learns of anybody else's, each key does what its scope says, quotas hold.

The addresses come from the server's own description, so a new one cannot be forgotten here.
"""

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from petri.syncing import NOTHING, Base, End
from petri.trees import EMPTY
from tests.calls import client_of, create, eventually, make_key, put, refused, replay, run, sh
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


# --------------------------------------------------------------------------------- tenants and their quotas


def fresh(team: Team, operator: httpx.Client, name: str, **quotas: Any) -> httpx.Client:
    """Return a client of a new tenant with these quotas."""
    assert operator.patch(f"/v1/tenants/{name}", json=quotas).status_code == 200
    return client_of(team.server, make_key(operator, "only", tenant=name)["key"])


def test_quotas_are_set_one_by_one_shown_and_cleared(operator: httpx.Client) -> None:
    def change(**quotas: Any) -> dict[str, Any]:
        answer = operator.patch("/v1/tenants/shown", json=quotas)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    made = change()
    assert (made["own_quotas"], set(made["quotas"].values())) == ([], {0})
    change(sandboxes=3, disk_bytes=2**20)
    changed = change(runs=2, sandboxes=None)

    assert changed["quotas"] == {"sandboxes": 0, "runs": 2, "disk_bytes": 2**20}
    assert changed["own_quotas"] == ["disk_bytes", "runs"]
    assert changed["usage"] == {"sandboxes": 0, "runs": 0, "disk_bytes": 0, "store_bytes": 0}
    assert operator.get("/v1/tenants/shown").json() == changed
    assert changed in operator.get("/v1/tenants?limit=200").json()["tenants"]
    rows = operator.get("/v1/tenants/shown/events").json()["events"]
    assert [row["kind"] for row in rows] == ["tenant.create", "tenant.amend", "tenant.amend"]
    assert rows[-1]["detail"]["quotas"] == {"disk_bytes": 2**20, "runs": 2}
    assert rows[-1]["detail"]["by"]["key_name"] == "environment"


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("shown", {"sandboxes": -1}, 422, "sandboxes"),
        ("shown", {"sandboxes": "3"}, 422, "sandboxes"),
        ("shown", {"runs": 1.5}, 422, "runs"),
        ("shown", {"disk": 3}, 422, "disk"),
        ("Shown", {}, 422, "tenant"),
        ("x" * 64, {}, 422, "tenant"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(
    operator: httpx.Client, path: str, body: dict[str, Any], status: int, field: str
) -> None:
    assert refused(operator.patch(f"/v1/tenants/{path}", json=body), status)["field"] == field


def test_a_tenant_nobody_made_is_not_found(operator: httpx.Client) -> None:
    for path in ("nobody", "nobody/events"):
        assert "nobody" in refused(operator.get(f"/v1/tenants/{path}"), 404)["detail"]


def test_of_many_creates_at_the_quota_exactly_so_many_succeed(team: Team, operator: httpx.Client) -> None:
    with fresh(team, operator, "few", sandboxes=3) as http, ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: http.post("/v1/sandboxes", json={}), range(12)))

        assert sorted(answer.status_code for answer in answers) == [*[201] * 3, *[403] * 9]
        told = refused(next(answer for answer in answers if answer.status_code == 403), 403)
        assert told["code"] == "over_quota"
        assert "quota `sandboxes` is 3" in told["detail"]
        assert "has 3" in told["detail"]
        assert "retry-after" not in answers[-1].headers
        assert operator.get("/v1/tenants/few").json()["usage"]["sandboxes"] == 3
        refused(http.post("/v1/exec", json={"command": "true"}), 403)
        made = next(answer.json()["id"] for answer in answers if answer.status_code == 201)
        http.delete(f"/v1/sandboxes/{made}")
        named = create(http, name="mine")
        assert http.post("/v1/sandboxes", json={"name": "mine"}).json()["id"] == named, "that makes none"
        operator.patch("/v1/tenants/few", json={"sandboxes": 4})
        create(http)


def test_runs_beyond_the_quota_are_told_to_come_back(team: Team, operator: httpx.Client) -> None:
    wait = "while [ ! -e go ]; do sleep 0.02; done"
    with fresh(team, operator, "patient", runs=2) as http, ThreadPoolExecutor(4) as pool:
        first, second = create(http), create(http)
        going = [pool.submit(run, http, first, command=wait) for _ in range(2)]
        eventually(lambda: operator.get("/v1/tenants/patient").json()["usage"]["runs"] == 2)

        for sandbox in (first, second):
            answer = http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "true"})
            told = refused(answer, 429)
            assert (told["code"], answer.headers["retry-after"]) == ("busy", "1")
            assert "quota `runs` is 2" in told["detail"]
            assert "has 2" in told["detail"]
        put(http, first, "go", "")

        assert [each.result()["exit_code"] for each in going] == [0, 0]
        assert sh(http, second, "echo now") == "now\n"
        assert operator.get("/v1/tenants/patient").json()["usage"]["runs"] == 0


def test_files_beyond_the_quota_are_refused_whole(team: Team, operator: httpx.Client) -> None:
    with fresh(team, operator, "narrow", disk_bytes=2**20) as http:
        sandbox = create(http)
        put(http, sandbox, "half", b"x" * 2**19)

        told = refused(http.put(f"/v1/sandboxes/{sandbox}/files/more", content=b"x" * 2**20), 403)
        assert told["code"] == "over_quota"
        assert f"quota `disk_bytes` is {2**20}" in told["detail"]
        refused(http.get(f"/v1/sandboxes/{sandbox}/files/more"), 404)
        used = operator.get("/v1/tenants/narrow").json()["usage"]["disk_bytes"]
        assert 2**19 <= used < 2**20
        assert f"uses {used} bytes" in told["detail"]


@pytest.mark.long
def test_whoever_filled_the_disk_from_inside_goes_on_once_it_is_tidied(
    team: Team, operator: httpx.Client
) -> None:
    with fresh(team, operator, "greedy", disk_bytes=2**20) as http:
        sandbox = create(http)
        sh(http, sandbox, "head -c 3000000 /dev/zero | tr '\\0' x > big")

        def is_refused() -> bool:
            return http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "true"}).status_code == 403

        eventually(is_refused)
        for answer in (
            http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "true"}),
            http.put(f"/v1/sandboxes/{sandbox}/files/a", content=b"x"),
            http.post("/v1/sandboxes", json={}),
            http.post(f"/v1/sandboxes/{sandbox}/files", content=b"no form: refused before it is looked at"),
        ):
            assert "quota `disk_bytes`" in refused(answer, 403)["detail"]
        assert http.get(f"/v1/sandboxes/{sandbox}/files/big").status_code == 200, "looking is free"
        assert http.delete(f"/v1/sandboxes/{sandbox}/files/big").status_code == 204

        assert sh(http, sandbox, "echo again") == "again\n"


def test_one_tenant_s_quota_is_not_another_s(team: Team, operator: httpx.Client, alice: httpx.Client) -> None:
    with fresh(team, operator, "full", sandboxes=1) as http:
        create(http)
        refused(http.post("/v1/sandboxes", json={}), 403)

    create(alice)


@pytest.mark.slow
def test_one_tenant_cannot_take_every_place(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_API_KEY=OPERATOR, PETRI_MAX_RUNS="4")
    wait = "while [ ! -e go ]; do sleep 0.02; done"
    with client_of(server, OPERATOR) as operator, ThreadPoolExecutor(8) as pool:
        keys = {name: make_key(operator, name, tenant=name)["key"] for name in ("greedy", "modest")}
        with client_of(server, keys["greedy"]) as greedy, client_of(server, keys["modest"]) as modest:
            boxes = [create(greedy) for _ in range(4)]
            going = [pool.submit(run, greedy, box, command=wait) for box in boxes[:2]]
            eventually(lambda: greedy.get("/v1/metrics").json()["running"] == 2)
            for box in boxes[2:]:
                answer = greedy.post(f"/v1/sandboxes/{box}/exec", json={"command": "true"})
                assert "kept for others" in refused(answer, 429)["detail"]

            assert sh(modest, create(modest), "echo mine") == "mine\n"

            for box in boxes[:2]:
                put(greedy, box, "go", "")
            assert [each.result()["exit_code"] for each in going] == [0, 0]


@pytest.mark.slow
def test_quotas_and_tenants_survive_a_restart(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_API_KEY=OPERATOR, PETRI_TENANT_SANDBOXES="2", PETRI_TENANT_RUNS="7")
    with client_of(server, OPERATOR) as operator:
        key = make_key(operator, "k", tenant="acme")["key"]
        operator.patch("/v1/tenants/acme", json={"sandboxes": 1})
        with client_of(server, key) as http:
            create(http)
    server.stop(signal.SIGKILL)
    server.env["PETRI_TENANT_RUNS"] = "9"

    server.start()

    with client_of(server, OPERATOR) as operator, client_of(server, key) as http:
        shown = operator.get("/v1/tenants/acme").json()
        assert shown["quotas"] == {"sandboxes": 1, "runs": 9, "disk_bytes": 0}
        assert (shown["own_quotas"], shown["usage"]["sandboxes"]) == (["sandboxes"], 1)
        refused(http.post("/v1/sandboxes", json={}), 403)
        create(operator)
        create(operator)
        refused(operator.post("/v1/sandboxes", json={}), 403)
