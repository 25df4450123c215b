"""Syncs over HTTP: whatever is sent, the sandbox is as it was or as it should be."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from petri.syncing import (
    Base,
    Delete,
    End,
    KnownFile,
    MakeFolder,
    MakeLink,
    Move,
    WholeFile,
    decode_held,
)
from petri.syncing.records import NOTHING
from petri.trees import EMPTY, address
from tests.calls import ask, client_of, create, eventually, line, make_key, put, refused, sh, workspaces
from tests.conftest import Server
from tests.streams import MEDIA, Along, Sent, ask_sync, conflicts, first_push, stream, told, tree_of, whole

pytestmark = pytest.mark.long


def files_of(server: Server, box: str) -> dict[str, bytes]:
    top = workspaces(server) / box
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in top.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


# ------------------------------------------------------------------------------------------- what arrives


def test_everything_arrives_as_it_was_said(server: Server, http: httpx.Client, sandbox: str) -> None:
    said: list[Sent] = [
        whole(b"pkg/run.sh", b"#!/bin/sh\necho ran\n", 7),
        MakeLink(b"to", b"pkg/run.sh"),
        MakeLink(b"out", b"/etc/passwd"),
        MakeFolder(b"empty"),
        whole(b"\xff\n", b"odd"),
    ]

    told_first = told(ask_sync(http, sandbox, first_push(*said)))[0]

    assert told_first["sandbox_tree"] == tree_of(said).hex()
    assert sh(http, sandbox, "./pkg/run.sh; stat -c %a pkg/run.sh; readlink to out; ls empty | wc -l") == (
        "ran\n755\npkg/run.sh\n/etc/passwd\n0\n"
    )
    assert (
        sh(http, sandbox, "id -u; stat -c %u pkg pkg/run.sh empty").split()
        == [sh(http, sandbox, "id -u").strip()] * 4
    )
    assert os.fsdecode(b"\xff\n") in [path.name for path in (workspaces(server) / sandbox).iterdir()]
    shown = http.get(f"/v1/sandboxes/{sandbox}").json()
    assert shown["tree"] == tree_of(said).hex()
    events = http.get(f"/v1/sandboxes/{sandbox}/events").json()["events"]
    (synced,) = [each for each in events if each["kind"] == "files.synced"]
    assert synced["detail"]["mode"] == "push"
    assert synced["detail"]["tree"] == tree_of(said).hex()
    assert "pkg/run.sh" in synced["detail"]["paths"]


def test_a_sync_moves_renames_and_deletes(http: httpx.Client, sandbox: str) -> None:
    kept: dict[bytes, bytes] = {}
    first = [whole(b"a/1", b"one"), whole(b"a/2", b"two"), whole(b"gone", b"x")]
    ask_sync(http, sandbox, first_push(*first))
    base = tree_of(first, kept=kept)
    then: list[Sent] = [Move(b"a", b"b"), Delete(b"gone"), whole(b"b/2", b"TWO")]

    ask_sync(http, sandbox, stream(Base(base), *then, End(tree_of(then, base, kept))))

    assert sh(http, sandbox, "find . -type f | sort; cat b/1 b/2") == "./b/1\n./b/2\noneTWO"


def test_a_pull_brings_what_a_run_wrote_and_nothing_else(http: httpx.Client, sandbox: str) -> None:
    first = [whole(b"main.py", b"print(1)\n")]
    ask_sync(http, sandbox, first_push(*first))
    sh(http, sandbox, "echo result > out.txt; mkdir -p __pycache__; touch __pycache__/x.pyc")

    said, _, contents = told(
        ask_sync(http, sandbox, stream(Base(tree_of(first)), End(tree_of(first))), "pull")
    )

    assert contents == {b"out.txt": b"result\n"}
    assert said["sandbox_tree"] == http.get(f"/v1/sandboxes/{sandbox}").json()["tree"]


def test_many_files_into_an_empty_sandbox_are_there_for_whoever_looks(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    said = [whole(b"d%d/f%d" % (number % 9, number), b"%d" % number) for number in range(300)]

    told(ask_sync(http, sandbox, first_push(*said)))

    assert sh(http, sandbox, "find . -type f | wc -l") == "300\n"
    shown = http.get(f"/v1/sandboxes/{sandbox}").json()
    assert shown["tree"] == tree_of(said).hex()
    again = told(ask_sync(http, sandbox, stream(Base(tree_of(said)), End(tree_of(said)))))
    assert again[0]["sandbox_tree"] == tree_of(said).hex()


def test_a_dry_run_changes_nothing(server: Server, http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "there", b"there")
    said = [KnownFile(b"here", 6, 4, address(b"here"))]

    records = told(ask_sync(http, sandbox, first_push(*said), "sync", dry_run=True))[1]

    assert any(isinstance(each, KnownFile) and each.path == b"there" for each in records)
    assert files_of(server, sandbox) == {"there": b"there"}


# ---------------------------------------------------------------------------------------------- conflicts


def test_a_push_with_conflicts_names_them_and_does_nothing(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    put(http, sandbox, "f", b"theirs")
    sh(http, sandbox, "printf x > \"$(printf '\\377')\"")
    said = [whole(b"f", b"ours"), whole(b"\xff", b"y"), whole(b"new", b"n")]

    problem = refused(ask_sync(http, sandbox, first_push(*said)), 409)

    assert problem["code"] == "paths_conflict"
    assert [each["path"] for each in problem["conflicts"]] == ["f", "\N{REPLACEMENT CHARACTER}"]
    assert [each.get("path_base64") for each in problem["conflicts"]] == [None, "/w=="]
    assert files_of(server, sandbox)["f"] == b"theirs"
    assert "new" not in files_of(server, sandbox)


def test_a_sync_tells_conflicts_and_does_the_rest(server: Server, http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "f", b"theirs")
    said = [whole(b"f", b"ours"), whole(b"new", b"n")]

    records = told(ask_sync(http, sandbox, first_push(*said), "sync"))[1]

    assert conflicts(records) == [b"f"]
    assert files_of(server, sandbox) == {"f": b"theirs", "new": b"n"}


@pytest.mark.parametrize(("prefer", "kept"), [("local", b"ours"), ("sandbox", b"theirs")])
def test_with_a_preference_both_versions_stay(
    server: Server, http: httpx.Client, sandbox: str, prefer: str, kept: bytes
) -> None:
    put(http, sandbox, "f", b"theirs")

    told(ask_sync(http, sandbox, first_push(whole(b"f", b"ours")), "sync", prefer=prefer))

    found = files_of(server, sandbox)
    assert found.pop("f") == kept
    ((name, other),) = found.items()
    assert name.startswith("f.petri-conflict-")
    assert {kept, other} == {b"ours", b"theirs"}


# ------------------------------------------------------------------------------------------------ tenants


def test_a_digest_is_no_way_to_a_stranger_s_file(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_API_KEY="operator-operator-operator")
    with client_of(server, "operator-operator-operator") as admin:
        keys = [make_key(admin, name, tenant=name, scope="run")["key"] for name in ("alice", "bob")]
    secret = whole(b"secret", b"the secret")
    with client_of(server, keys[0]) as alice, client_of(server, keys[1]) as bob:
        hers, his = create(alice), create(bob)
        told(ask_sync(alice, hers, first_push(secret)))
        digest = address(b"the secret")

        held = bob.post(f"/v1/sandboxes/{his}/sync/have", content=digest).content
        assert decode_held(held, 1) == ([False], {})
        known = KnownFile(b"secret", 6, 10, digest)
        refused(ask_sync(bob, his, first_push(known)), 412)
        tree = tree_of([secret])
        refused(ask_sync(bob, his, stream(Base(tree), End(tree))), 412)
        refused(ask_sync(bob, hers, stream(Base(NOTHING), End(EMPTY)), "pull"), 404)
        assert decode_held(alice.post(f"/v1/sandboxes/{hers}/sync/have", content=digest).content, 1)[0] == [
            True
        ]


def test_a_tenant_that_has_as_much_as_it_may_pushes_no_more(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_TENANT_DISK_BYTES="1000000")
    with server.client() as http:
        box = create(http)
        problem = refused(ask_sync(http, box, first_push(whole(b"f", os.urandom(1_100_000)))), 403)

        assert problem["code"] == "over_quota"
        assert files_of(server, box) == {}


# ---------------------------------------------------------------------------------------- broken requests


def cut_off(server: Server, box: str, body: bytes) -> None:
    """Send the beginning of a sync, and hang up."""
    with line(server) as connection:
        head = (
            f"POST /v1/sandboxes/{box}/sync?mode=push HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: {MEDIA}\r\nContent-Length: {len(body) + 10_000}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        time.sleep(0.3)  # let it be read: what never arrived could not be kept


def test_a_request_that_breaks_off_changes_nothing_and_what_came_is_kept(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    small, large = os.urandom(100_000), os.urandom(8 * 2**20)
    body = first_push(whole(b"small", small), whole(b"large", large))

    cut_off(server, sandbox, body[: len(body) // 2])

    digests = address(small) + address(large)

    def has_come() -> bool:
        held = decode_held(http.post(f"/v1/sandboxes/{sandbox}/sync/have", content=digests).content, 2)
        return held[0] == [True, False] and held[1].get(1, 0) > 3 * 2**20

    eventually(has_come)
    assert files_of(server, sandbox) == {}
    answer = http.post(f"/v1/sandboxes/{sandbox}/sync/have", content=digests).content
    offset = decode_held(answer, 2)[1][1]
    rest: list[Sent] = [
        KnownFile(b"small", 6, len(small), address(small)),
        Along(WholeFile(b"large", 6, len(large), address(large), offset), large[offset:]),
    ]
    told(ask_sync(http, sandbox, first_push(*rest)))
    assert files_of(server, sandbox) == {"small": small, "large": large}
    assert decode_held(http.post(f"/v1/sandboxes/{sandbox}/sync/have", content=digests).content, 2) == (
        [True, True],
        {},
    )


# ---------------------------------------------------------------------------------------- at the same time


def test_two_clients_at_once_both_get_their_way_or_are_told(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    def push(number: int) -> int:
        own = [whole(b"%d/f%d" % (number, each), b"%d" % each) for each in range(20)]
        with server.client() as client:
            return ask_sync(client, sandbox, first_push(*own, whole(b"same", b"same"))).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(push, range(6)))

    assert statuses == [200] * 6
    assert len(files_of(server, sandbox)) == 6 * 20 + 1


def test_two_clients_that_disagree_are_told_and_one_wins(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    def push(number: int) -> int:
        with server.client() as client:
            body = first_push(whole(b"f", b"%d" % number), whole(b"g", b"%d" % number))
            return ask_sync(client, sandbox, body).status_code

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(push, range(4)))

    assert sorted(statuses) == [200, 409, 409, 409]
    found = files_of(server, sandbox)
    assert found["f"] == found["g"] == b"%d" % statuses.index(200)


@pytest.fixture
def rewriting(server: Server, http: httpx.Client, sandbox: str) -> Iterator[str]:
    """A sandbox in which a run rewrites `log` as fast as it can."""
    script = "while [ ! -e stop ]; do date +%N > log; done"
    with ThreadPoolExecutor(1) as pool, server.client() as other:
        running = pool.submit(ask, other, sandbox, command=script)
        eventually(lambda: "log" in files_of(server, sandbox))
        yield sandbox
        (workspaces(server) / sandbox / "stop").touch()
        assert running.result().status_code == 200


def test_a_push_beside_a_run_that_writes_elsewhere_arrives(
    server: Server, http: httpx.Client, rewriting: str
) -> None:
    told(ask_sync(http, rewriting, first_push(whole(b"new/code.py", b"print(2)"))))

    assert files_of(server, rewriting)["new/code.py"] == b"print(2)"
    assert sorted(files_of(server, rewriting)) == ["log", "new/code.py"]


def test_a_push_onto_what_a_run_is_writing_is_a_conflict(
    server: Server, http: httpx.Client, rewriting: str
) -> None:
    problem = refused(ask_sync(http, rewriting, first_push(whole(b"log", b"ours"), whole(b"new", b"n"))), 409)

    assert problem["code"] in ("paths_conflict", "conflict")
    assert sorted(files_of(server, rewriting)) == ["log"]
    assert files_of(server, rewriting)["log"] != b"ours"
