"""Tenants and their quotas, through HTTP: set, shown, held, and nobody else's."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.calls import client_of, create, eventually, make_key, put, refused, run, sh
from tests.conftest import Server
from tests.test_api_tenants import OPERATOR, Team, alice, operator, team

__all__ = ["alice", "operator", "team"]


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
            late = [pool.submit(run, greedy, box, command="true") for box in boxes[2:]]
            eventually(lambda: greedy.get("/v1/metrics").json()["waiting"] == 2)

            assert sh(modest, create(modest), "echo mine") == "mine\n"
            assert not any(each.done() for each in late)

            for box in boxes[:2]:
                put(greedy, box, "go", "")
            assert [each.result()["exit_code"] for each in (*going, *late)] == [0] * 4


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
