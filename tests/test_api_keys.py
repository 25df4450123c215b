"""Keys over HTTP: made, shown once, revoked at once, on record, and never found in what the server keeps."""

import hashlib
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.calls import client_of, create, eventually, make_key, refused, run
from tests.conftest import Server

OPERATOR = "the-operator-s-own-key-0123"
LOCKED = {"PETRI_API_KEY": OPERATOR}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("locked"), dict(LOCKED)).start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def admin(locked: Server) -> Iterator[httpx.Client]:
    with client_of(locked, OPERATOR) as found:
        yield found


def listed(admin: httpx.Client, **query: Any) -> dict[str, dict[str, Any]]:
    answer = admin.get("/v1/keys", params=query)
    assert answer.status_code == 200, answer.text
    return {key["id"]: key for key in answer.json()["keys"]}


def status(server: Server, key: str) -> int:
    with client_of(server, key) as http:
        return http.get("/v1/sandboxes").status_code


# ----------------------------------------------------------------------------------------------- making


def test_a_key_is_shown_once_and_opens(locked: Server, admin: httpx.Client) -> None:
    made = make_key(admin, "first", tenant="acme", scope="run", expires_in_s=3600)

    assert made["key"].startswith(f"petri_{made['id']}_")
    assert (made["name"], made["tenant"], made["scope"], made["state"]) == ("first", "acme", "run", "live")
    shown = listed(admin)[made["id"]]
    assert "key" not in shown
    assert shown == {name: value for name, value in made.items() if name != "key"}
    assert status(locked, made["key"]) == 200


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("name", {}),
        ("name", {"name": ""}),
        ("name", {"name": "a b"}),
        ("name", {"name": "x" * 64}),
        ("name", {"name": "environment"}),
        ("name", {"name": "local", "scope": "admin"}),
        ("tenant", {"name": "x", "tenant": "Acme"}),
        ("tenant", {"name": "x", "tenant": ""}),
        ("tenant", {"name": "x", "tenant": "../etc"}),
        ("scope", {"name": "x", "scope": "root"}),
        ("scope", {"name": "x", "scope": ["read"]}),
        ("expires_in_s", {"name": "x", "expires_in_s": 0}),
        ("expires_in_s", {"name": "x", "expires_in_s": "30d"}),
        ("key", {"name": "x", "key": "petri_aaaaaaaa_" + "a" * 32}),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_field(
    admin: httpx.Client, field: str, body: dict[str, Any]
) -> None:
    before = listed(admin)

    assert refused(admin.post("/v1/keys", json=body), 422)["field"] == field

    assert listed(admin) == before


def test_a_name_is_taken_until_its_key_is_revoked(admin: httpx.Client) -> None:
    made = make_key(admin, "taken")

    assert "taken" in refused(admin.post("/v1/keys", json={"name": "taken"}), 409)["detail"]
    assert admin.delete(f"/v1/keys/{made['id']}").status_code == 204
    assert make_key(admin, "taken")["id"] != made["id"]


def test_of_many_who_want_one_name_one_gets_it(locked: Server, admin: httpx.Client) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: admin.post("/v1/keys", json={"name": "race"}), range(12)))

    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 11]


def test_an_expired_key_opens_nothing(locked: Server, admin: httpx.Client) -> None:
    made = make_key(admin, "short", expires_in_s=0.5)

    eventually(lambda: status(locked, made["key"]) == 401)

    assert listed(admin)[made["id"]]["state"] == "expired"


# -------------------------------------------------------------------------------------------- revoking


def test_a_revoked_key_opens_nothing_from_the_answer_on(locked: Server, admin: httpx.Client) -> None:
    made = make_key(admin, "gone")
    with client_of(locked, made["key"]) as http:
        assert http.get("/v1/sandboxes").status_code == 200

        assert admin.delete(f"/v1/keys/{made['id']}").status_code == 204

        answer = http.get("/v1/sandboxes")  # on the connection that was let in a moment ago
        refused(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert made["id"] not in listed(admin)
    assert listed(admin, revoked=True)[made["id"]]["state"] == "revoked"
    assert admin.delete(f"/v1/keys/{made['id']}").status_code == 204, "twice is fine"


def test_a_request_that_a_key_let_in_may_finish_after_it_is_revoked(
    locked: Server, admin: httpx.Client
) -> None:
    made = make_key(admin, "leaving")
    with client_of(locked, made["key"]) as http, ThreadPoolExecutor() as pool:
        sandbox = create(http)
        running = pool.submit(
            http.post,
            f"/v1/sandboxes/{sandbox}/exec",
            json={"command": "while [ ! -e go ]; do sleep 0.02; done"},
        )
        eventually(lambda: bool(admin.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]))
        admin.delete(f"/v1/keys/{made['id']}")
        refused(http.get("/v1/sandboxes"), 401)
        admin.put(f"/v1/sandboxes/{sandbox}/files/go", content=b"")

        assert running.result().json()["exit_code"] == 0


def test_a_key_nobody_made_is_not_found(admin: httpx.Client) -> None:
    for key_id in ("aaaaaaaa", "%00", "x" * 300, "environment"):
        refused(admin.delete(f"/v1/keys/{key_id}"), 404)


def test_keys_are_listed_in_pages(admin: httpx.Client) -> None:
    made = [make_key(admin, f"page-{number}", tenant="pages")["id"] for number in range(5)]

    seen: list[str] = []
    query: dict[str, Any] = {"tenant": "pages", "limit": 2}
    while True:
        page = admin.get("/v1/keys", params=query).json()
        seen += [key["id"] for key in page["keys"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]

    assert seen == made[::-1]
    assert listed(admin, tenant="nobody") == {}
    refused(admin.get("/v1/keys", params={"cursor": "x"}), 422)


# ------------------------------------------------------------------------------------------- the record


def test_who_made_and_revoked_a_key_is_on_record(admin: httpx.Client, locked: Server) -> None:
    chief = make_key(admin, "chief", scope="admin")
    with client_of(locked, chief["key"]) as http:
        made = make_key(http, "recorded", tenant="recorded", scope="read")
    admin.delete(f"/v1/keys/{made['id']}")

    rows = admin.get("/v1/tenants/recorded/events").json()["events"]

    assert [(row["kind"], row["detail"]["by"]["key_name"]) for row in rows] == [
        ("tenant.create", "chief"),
        ("key.create", "chief"),
        ("key.revoke", "environment"),
    ]
    assert rows[1]["detail"] == {
        "key_id": made["id"],
        "name": "recorded",
        "scope": "read",
        "expires_at": None,
        "by": {"key_id": chief["id"], "key_name": "chief", "tenant": "default"},
    }


def test_runs_and_sandboxes_say_which_key_asked(locked: Server, admin: httpx.Client) -> None:
    made = make_key(admin, "asker")
    with client_of(locked, made["key"]) as http:
        sandbox = create(http, created_by="ann")
        told = run(http, sandbox, command="true")

        assert http.get(f"/v1/sandboxes/{sandbox}").json()["key_name"] == "asker"
        shown = http.get(f"/v1/runs/{told['run_id']}").json()
    assert (shown["key_name"], shown["created_by"]) == ("asker", "ann")


def test_using_a_key_is_noted(locked: Server, admin: httpx.Client) -> None:
    made = make_key(admin, "noted")
    assert listed(admin)[made["id"]]["last_used_at"] is None

    assert status(locked, made["key"]) == 200

    assert listed(admin)[made["id"]]["last_used_at"] is not None


def test_no_key_and_no_hash_is_in_anything_the_server_keeps_or_says(
    locked: Server, admin: httpx.Client
) -> None:
    made = make_key(admin, "secret", scope="admin")
    with client_of(locked, made["key"]) as http:
        sandbox = create(http)
        run(http, sandbox, command="env")
        said = [
            http.get(path).text
            for path in ("/v1/keys", "/v1/tenants", "/v1/tenants/default/events", "/v1/metrics", "/metrics")
        ]
        said.append(http.get(f"/v1/sandboxes/{sandbox}/events").text)
    wrong = f"petri_{made['id']}_{'a' * 32}"
    with client_of(locked, wrong) as http:
        said.append(refused(http.get("/v1/sandboxes"), 401)["detail"])
    digest = hashlib.sha256(made["key"].encode())
    secret = made["key"].rpartition("_")[2]

    kept = [path for path in (locked.home / "petri").rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in [*kept, locked.home / "server.log"]]
    assert all(secret.encode() not in content and wrong.encode() not in content for content in contents)
    assert all(digest.hexdigest().encode() not in content for content in contents)
    assert sum(digest.digest() in content for content in contents) >= 1, "the hash is what is kept"
    assert all(secret not in text and digest.hexdigest() not in text for text in said)


# ------------------------------------------------------------------------------- from open to locked, and on


@pytest.mark.slow
def test_the_first_key_closes_an_open_server_at_once(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with server.client() as anybody:
        sandbox = create(anybody)
        told = refused(anybody.post("/v1/keys", json={"name": "me"}), 422)
        assert (told["field"], "admin" in told["detail"]) == ("scope", True)
        assert anybody.get("/v1/sandboxes").status_code == 200, "nothing was made"

        made = make_key(anybody, "me", scope="admin")

        refused(anybody.get("/v1/sandboxes"), 401)
        refused(anybody.post("/v1/keys", json={"name": "you", "scope": "admin"}), 401)
        assert anybody.get("/health").status_code == 200
    with client_of(server, made["key"]) as http:
        assert http.get(f"/v1/sandboxes/{sandbox}").status_code == 200, (
            "what was there is the default tenant's"
        )
        assert http.get("/v1/sandboxes", headers={"Host": "petri.example"}).status_code == 200
        rows = http.get("/v1/tenants/default/events").json()["events"]
    assert rows[-1]["detail"]["by"] == {"key_id": None, "key_name": None, "tenant": "default"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_keys_survive_a_restart_and_so_does_revocation(
    new_server: Callable[..., Server], number: signal.Signals
) -> None:
    server = new_server(**LOCKED)
    with client_of(server, OPERATOR) as admin:
        kept, gone = make_key(admin, "kept", scope="admin"), make_key(admin, "gone")
        admin.delete(f"/v1/keys/{gone['id']}")
        assert status(server, kept["key"]) == 200
    server.stop(number)
    del server.env["PETRI_API_KEY"]

    server.start()

    assert [status(server, key) for key in (kept["key"], gone["key"], OPERATOR)] == [200, 401, 401]
    with client_of(server, kept["key"]) as admin:
        admin.delete(f"/v1/keys/{kept['id']}")
    assert status(server, kept["key"]) == 401
    with server.client() as anybody:
        refused(anybody.get("/v1/sandboxes"), 401)
    server.stop()
    server.start()
    with server.client() as anybody:
        refused(anybody.get("/v1/sandboxes"), 401)  # the last key is gone, and the server stays shut


@pytest.mark.slow
def test_the_last_use_of_a_key_outlives_the_server(new_server: Callable[..., Server]) -> None:
    server = new_server(**LOCKED)
    with client_of(server, OPERATOR) as admin:
        made = make_key(admin, "used")
        assert status(server, made["key"]) == 200
        noted = listed(admin)[made["id"]]["last_used_at"]
    server.stop()

    server.start()

    with client_of(server, OPERATOR) as admin:
        assert listed(admin)[made["id"]]["last_used_at"] == noted


def test_the_ledger_s_file_is_nobody_else_s_to_read(locked: Server) -> None:
    home: Path = locked.home / "petri"

    assert (home / "ledger.db").stat().st_mode & 0o077 == 0
