"""Snapshots, restore, undo and fork over HTTP: files go back, and come back, byte for byte."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.calls import client_of, create, eventually, files_url, make_key, put, refused, run, sh, workspaces
from tests.conftest import Server
from tests.test_workspace_becoming import picture

KEY = "whoever-owns-this-server-01"


def post(http: httpx.Client, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = http.post(path, json=body)
    assert answer.status_code == status, answer.text
    told: dict[str, Any] = answer.json()
    return told


def snapshot(http: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    return post(http, f"/v1/sandboxes/{sandbox}/snapshots", 201, **body)


def restore(http: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    return post(http, f"/v1/sandboxes/{sandbox}/restore", **body)


def undo(http: httpx.Client, sandbox: str) -> dict[str, Any]:
    return post(http, f"/v1/sandboxes/{sandbox}/undo")


def fork(http: httpx.Client, sandbox: str, **body: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = post(http, f"/v1/sandboxes/{sandbox}/fork", 201, **body)["sandboxes"]
    return made


def read(http: httpx.Client, sandbox: str, path: str) -> str:
    return http.get(files_url(sandbox, path)).text


def tree(http: httpx.Client, sandbox: str) -> str | None:
    found: str | None = http.get(f"/v1/sandboxes/{sandbox}").json()["tree"]
    return found


MANY = """
mkdir -p pkg/deep empty; echo main > main.py; chmod 755 main.py; echo m > pkg/m.py
ln -s pkg/m.py link; ln -s /nowhere dangling; printf odd > "$(printf 'odd \\377 name')"
head -c 3000000 /dev/urandom > pkg/deep/large; mkfifo fifo
"""
MESS = "rm -r pkg link; mkdir link; echo x > link/x; echo other > main.py; chmod 644 main.py; rmdir empty"

# --------------------------------------------------------------------------------------------- snapshots


def test_a_snapshot_names_the_files_as_they_are(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "a", "one")

    taken = snapshot(http, sandbox, name="first", created_by="ann")

    assert taken["id"].startswith("snap-")
    assert taken["tree"] == tree(http, sandbox)
    assert (taken["name"], taken["sandbox_id"], taken["created_by"]) == ("first", sandbox, "ann")
    assert http.get(f"/v1/snapshots/{taken['id']}").json() == taken
    assert http.get("/v1/snapshots/first").json() == taken
    kinds = [row["kind"] for row in http.get(f"/v1/sandboxes/{sandbox}/events").json()["events"]]
    assert "snapshot.create" in kinds


def test_snapshots_are_listed_newest_first_and_by_sandbox(http: httpx.Client, sandbox: str) -> None:
    other = create(http)
    ids = [snapshot(http, each)["id"] for each in (sandbox, other, sandbox)]

    everybody = http.get("/v1/snapshots", params={"limit": 2}).json()
    assert [each["id"] for each in everybody["snapshots"]] == [ids[2], ids[1]]
    rest = http.get("/v1/snapshots", params={"cursor": everybody["next_cursor"], "limit": 1}).json()
    assert [each["id"] for each in rest["snapshots"]] == [ids[0]]
    here = http.get(f"/v1/sandboxes/{sandbox}/snapshots").json()
    assert [each["id"] for each in here["snapshots"]] == [ids[2], ids[0]]
    assert here["next_cursor"] is None


def test_a_name_is_one_snapshot_s_until_that_is_deleted(http: httpx.Client, sandbox: str) -> None:
    first = snapshot(http, sandbox, name="taken-name")
    refused(http.post(f"/v1/sandboxes/{sandbox}/snapshots", json={"name": "taken-name"}), 409)

    assert http.delete(f"/v1/snapshots/{first['id']}").status_code == 204

    refused(http.get(f"/v1/snapshots/{first['id']}"), 404)
    refused(http.delete(f"/v1/snapshots/{first['id']}"), 404)
    assert snapshot(http, sandbox, name="taken-name")["id"] != first["id"]
    kinds = [row["kind"] for row in http.get(f"/v1/sandboxes/{sandbox}/events").json()["events"]]
    assert kinds.count("snapshot.delete") == 1


def test_a_snapshot_outlives_its_sandbox(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "a", "kept")
    taken = snapshot(http, sandbox)
    http.delete(f"/v1/sandboxes/{sandbox}")

    child = create(http, from_snapshot=taken["id"])

    assert read(http, child, "a") == "kept"
    shown = http.get(f"/v1/sandboxes/{child}").json()
    assert (shown["from_snapshot"], shown["first_tree"], shown["tree"]) == (
        *(taken["id"], taken["tree"]),
        taken["tree"],
    )
    refused(http.post(f"/v1/sandboxes/{sandbox}/snapshots"), 409)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("snapshots", {"name": "no/slash"}, "name"),
        ("snapshots", {"nmae": "x"}, "nmae"),
        ("restore", {}, None),
        ("restore", {"snapshot": "a", "run": "b"}, None),
        ("restore", {"snapshot": "a", "side": "after"}, None),
        ("restore", {"run": "a", "side": "between"}, "side"),
        ("restore", {"tree": "ABC"}, "tree"),
        ("restore", {"tree": 5}, "tree"),
        ("fork", {"n": 0}, "n"),
        ("fork", {"n": 17}, "n"),
        ("fork", {"n": "2"}, "n"),
        ("fork", {"name": "x" * 61}, "name"),
        ("fork", {"name": "sb-" + "a" * 20}, "spelt like an id"),
        ("snapshots", {"name": "run-" + "a" * 20}, "spelt like an id"),
        ("fork", {"metadata": {"": "x"}}, None),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    http: httpx.Client, sandbox: str, path: str, body: dict[str, Any], field: str | None
) -> None:
    found = refused(http.post(f"/v1/sandboxes/{sandbox}/{path}", json=body), 422)

    if field is not None:
        assert field in found["detail"]


def test_what_is_not_there_cannot_be_gone_back_to(http: httpx.Client, sandbox: str) -> None:
    other = create(http)
    foreign = run(http, other, command="echo x > x")

    for body in ({"snapshot": "snap-none"}, {"run": "run-none"}, {"tree": "0" * 64}):
        found = refused(http.post(f"/v1/sandboxes/{sandbox}/restore", json=body), 422)
        assert found["field"] in body
    found = refused(http.post(f"/v1/sandboxes/{sandbox}/restore", json={"run": foreign["run_id"]}), 422)
    assert other in found["detail"]
    refused(http.post(f"/v1/sandboxes/{sandbox}/restore", json={"tree": foreign["tree_after"]}), 422)
    found = refused(http.post("/v1/sandboxes", json={"from_snapshot": "snap-none"}), 422)
    assert "from_snapshot" in found["field"]
    refused(http.post(f"/v1/sandboxes/{sandbox}/undo"), 409)


# ----------------------------------------------------------------------------------------------- restore


def test_restore_gives_back_every_byte_bit_and_name(http: httpx.Client, sandbox: str, server: Server) -> None:
    sh(http, sandbox, MANY)
    top = workspaces(server) / sandbox
    before = picture(top)
    taken = snapshot(http, sandbox)
    sh(http, sandbox, MESS)
    messed = picture(top)

    told = restore(http, sandbox, snapshot=taken["id"])

    assert picture(top) == before
    assert (told["tree"], told["snapshot_id"]) == (taken["tree"], taken["id"])
    assert tree(http, sandbox) == taken["tree"]
    restore(http, sandbox, tree=told["was"])
    assert picture(top) == messed
    if os.geteuid() == 0:
        assert {path.lstat().st_uid for path in top.rglob("*")} == {top.stat().st_uid}
    sh(http, sandbox, "echo more >> link/x; echo fine > pkg-new")  # the code may still write its files


@pytest.mark.long
def test_restore_to_before_and_after_a_run(http: httpx.Client, sandbox: str) -> None:
    first = run(http, sandbox, command="echo 1 > n")
    second = run(http, sandbox, command="echo 2 > n")
    run(http, sandbox, command="echo 3 > n")

    restore(http, sandbox, run=second["run_id"])
    assert read(http, sandbox, "n") == "1\n"
    restore(http, sandbox, run=second["run_id"], side="after")
    assert read(http, sandbox, "n") == "2\n"
    restore(http, sandbox, run=first["run_id"])
    assert http.get(files_url(sandbox, "n")).status_code == 404


@pytest.mark.long
def test_nothing_is_restored_forked_or_taken_while_something_runs(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "a", "a")
    taken = snapshot(http, sandbox)
    with ThreadPoolExecutor() as pool:
        command = "echo b > a; touch begun; while [ ! -e go ]; do sleep 0.02; done"
        going = pool.submit(run, http, sandbox, command=command)
        # Not by reading `a`: who reads what is being written anew may have the answer broken off.
        eventually(lambda: http.head(files_url(sandbox, "begun")).status_code == 200)

        for path, body in (
            ("restore", {"snapshot": taken["id"]}),
            ("undo", {}),
            ("snapshots", {}),
            ("fork", {}),
        ):
            found = refused(http.post(f"/v1/sandboxes/{sandbox}/{path}", json=body), 409)
            assert "runs" in found["detail"]
        put(http, sandbox, "go", "")
        assert going.result()["exit_code"] == 0
    restore(http, sandbox, snapshot=taken["id"])
    assert read(http, sandbox, "a") == "a"


# -------------------------------------------------------------------------------------------------- undo


def test_undo_goes_back_run_by_run_and_says_which(http: httpx.Client, sandbox: str) -> None:
    first = run(http, sandbox, command="echo 1 > n")
    second = run(http, sandbox, command="echo 2 > n")
    run(http, sandbox, command="cat n")  # changes nothing, so there is nothing of it to undo

    told = undo(http, sandbox)
    assert (told["run_id"], read(http, sandbox, "n")) == (second["run_id"], "1\n")
    assert told["was"] == second["tree_after"]
    assert http.get(f"/v1/runs/{second['run_id']}").json()["undone_at"] is not None
    assert http.get(f"/v1/runs/{first['run_id']}").json()["undone_at"] is None
    assert undo(http, sandbox)["run_id"] == first["run_id"]
    assert http.get(files_url(sandbox, "n")).status_code == 404
    refused(http.post(f"/v1/sandboxes/{sandbox}/undo"), 409)


@pytest.mark.long
def test_an_undo_can_be_undone_and_then_done_again(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="echo 1 > n")
    second = run(http, sandbox, command="echo 2 > n")
    undo(http, sandbox)

    restore(http, sandbox, run=second["run_id"], side="after")

    assert read(http, sandbox, "n") == "2\n"
    assert http.get(f"/v1/runs/{second['run_id']}").json()["undone_at"] is None
    assert undo(http, sandbox)["run_id"] == second["run_id"]


def test_what_was_uploaded_before_the_undo_can_be_had_again(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="echo 1 > n")
    put(http, sandbox, "precious", "uploaded after the run")

    told = undo(http, sandbox)
    assert http.get(files_url(sandbox, "precious")).status_code == 404
    restore(http, sandbox, tree=told["was"])

    assert read(http, sandbox, "precious") == "uploaded after the run"


# -------------------------------------------------------------------------------------------------- fork


def test_forks_have_the_files_and_the_ways_of_their_parent(http: httpx.Client, server: Server) -> None:
    parent = create(http, limits={"processes": 33}, env={"TOKEN": "s3cret"}, metadata={"team": "a"})
    sh(http, parent, MANY.replace("mkfifo fifo", ""))
    before = picture(workspaces(server) / parent)

    children = fork(http, parent, n=3, name="child")

    assert [child["name"] for child in children] == ["child-1", "child-2", "child-3"]
    for child in children:
        assert child["forked_from"] == parent
        assert child["tree"] == child["first_tree"] == tree(http, parent)
        assert child["limits"]["processes"] == 33
        assert child["metadata"] == {"team": "a"}
        assert sh(http, child["id"], "echo $TOKEN; cat pkg/m.py") == "s3cret\nm\n"
        assert picture(workspaces(server) / child["id"]) == before
    rows = [
        row for row in http.get(f"/v1/sandboxes/{parent}/events").json()["events"] if row["kind"] == "fork"
    ]
    assert {row["detail"]["sandbox"] for row in rows} == {child["id"] for child in children}


@pytest.mark.long
def test_what_one_writes_no_other_sees(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "a", "parent's")
    [child] = fork(http, sandbox)

    sh(http, child["id"], "echo -n child > a")
    sh(http, sandbox, "echo -n parent > a")

    assert (read(http, child["id"], "a"), read(http, sandbox, "a")) == ("child", "parent")


@pytest.mark.long
def test_the_first_look_at_a_fork_finds_every_file(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "for i in $(seq 800); do echo $i > f$i; done")

    [child] = fork(http, sandbox)
    listing = http.get(f"/v1/sandboxes/{child['id']}/files").json()

    assert len(listing["entries"]) == 800


def test_a_name_in_use_makes_no_fork_at_all(http: httpx.Client, sandbox: str) -> None:
    create(http, name="busy-2")
    before = len(http.get("/v1/sandboxes", params={"state": "ready", "limit": 200}).json()["sandboxes"])

    refused(http.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 3, "name": "busy"}), 409)

    after = http.get("/v1/sandboxes", params={"state": "ready", "limit": 200}).json()["sandboxes"]
    assert len(after) == before


# ------------------------------------------------------------------------------------------------ tenants


@pytest.fixture
def owner(new_server: Callable[..., Server]) -> Iterator[tuple[Server, httpx.Client]]:
    server = new_server(PETRI_API_KEY=KEY)
    with client_of(server, KEY) as http:
        yield server, http


def test_the_same_content_of_two_tenants_is_stored_twice_and_nobody_can_tell(
    owner: tuple[Server, httpx.Client],
) -> None:
    server, admin = owner
    content = os.urandom(100_000)
    folders: list[Path] = []
    for tenant in ("alice", "bob"):
        with client_of(server, make_key(admin, "k", tenant=tenant)["key"]) as http:
            sandbox = create(http)
            put(http, sandbox, "same", content)
            taken = snapshot(http, sandbox, name="same")
            stores = {path for path in (server.home / "petri" / "store").iterdir() if path.is_dir()}
            [new] = stores - set(folders)
            folders.append(new)
            assert sum(path.stat().st_size for path in new.glob("*.pack")) > 100_000
            if tenant == "bob":  # alice's tree has bob's address, and is not a way to it
                assert http.get("/v1/snapshots").json()["snapshots"] == [taken]


def test_a_tenant_s_quota_of_sandboxes_counts_for_forks(owner: tuple[Server, httpx.Client]) -> None:
    server, admin = owner
    admin.patch("/v1/tenants/small", json={"sandboxes": 3})
    with client_of(server, make_key(admin, "k", tenant="small")["key"]) as http:
        parent = create(http)

        refused(http.post(f"/v1/sandboxes/{parent}/fork", json={"n": 3}), 403)
        assert len(http.get("/v1/sandboxes", params={"state": "ready"}).json()["sandboxes"]) == 1
        assert len(fork(http, parent, n=2)) == 2


def test_a_tenant_s_quota_on_disk_counts_for_forks_and_snapshots(owner: tuple[Server, httpx.Client]) -> None:
    server, admin = owner
    admin.patch("/v1/tenants/tight", json={"disk_bytes": 4 << 20})
    with client_of(server, make_key(admin, "k", tenant="tight")["key"]) as http:
        parent = create(http)
        put(http, parent, "big", os.urandom(1_500_000))
        snapshot(http, parent)

        refused(http.post(f"/v1/sandboxes/{parent}/fork", json={"n": 2}), 403)
        put(http, parent, "big", os.urandom(1_500_000))
        eventually(lambda: http.post(f"/v1/sandboxes/{parent}/snapshots").status_code == 403)


def test_a_snapshot_that_does_not_fit_is_refused_at_once(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "big", bytes(3 << 20))
    taken = snapshot(http, sandbox)

    body = {"from_snapshot": taken["id"], "limits": {"disk_bytes": 2 << 20}}
    found = refused(http.post("/v1/sandboxes", json=body), 422)

    assert "disk_bytes" in found["detail"]


@pytest.mark.long
def test_a_fork_that_could_not_hold_its_files_is_not_made(http: httpx.Client) -> None:
    """Ten names of one file take the disk once; in a fork they would take it ten times."""
    sandbox = create(http, limits={"disk_bytes": 8 << 20})
    assert sh(http, sandbox, "truncate -s 1M file; for i in $(seq 9); do ln file name-$i; done") == ""
    before = len(http.get("/v1/sandboxes").json()["sandboxes"])

    problem = refused(http.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 2}), 507)

    assert (problem["field"], "10485760 bytes" in problem["detail"]) == ("limits.disk_bytes", True)
    assert len(http.get("/v1/sandboxes").json()["sandboxes"]) == before
    assert sh(http, sandbox, "rm name-1 name-2") == ""
    assert http.post(f"/v1/sandboxes/{sandbox}/fork", json={}).status_code == 201
