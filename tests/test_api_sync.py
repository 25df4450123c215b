"""Syncs over HTTP: whatever is sent, the sandbox is as it was or as it should be."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import zstandard

from petri.syncing import (
    Agreed,
    Base,
    ChangedFile,
    Clash,
    Delete,
    End,
    KnownFile,
    MakeFolder,
    MakeLink,
    Move,
    Said,
    WholeFile,
    decode_held,
)
from petri.syncing.records import NOTHING, encode, varint
from petri.trees import EMPTY, address
from tests.calls import ask, client_of, create, eventually, line, make_key, put, refused, sh, workspaces
from tests.conftest import Server
from tests.streams import MEDIA, Along, Sent, ask_sync, conflicts, first_push, stream, told, tree_of, whole

pytestmark = pytest.mark.long

NOBODYS = bytes(range(32))


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


# ---------------------------------------------------------------------------------------------- bad input


def bare(*raw: bytes) -> bytes:
    """Return bytes as a stream, whatever they are."""
    return zstandard.ZstdCompressor().compress(b"".join(raw))


def wrong(record: WholeFile, content: bytes) -> bytes:
    return stream(Base(NOTHING), Along(record, content), End(tree_of([record])))


BAD: dict[str, bytes] = {
    "nothing": b"",
    "no compression": b"{}",
    "cut": first_push(whole(b"f", b"content"))[:-9],
    "no end": bare(encode(Base(NOTHING))),
    "no base": stream(MakeFolder(b"x"), End(tree_of([MakeFolder(b"x")]))),
    "another tree": stream(Base(NOTHING), End(NOBODYS)),
    "an answer": stream(Base(NOTHING), Said(b"{}"), End(EMPTY)),
    "a clash": stream(Base(NOTHING), Clash(b"f", b"why"), End(EMPTY)),
    "a wrong digest": wrong(WholeFile(b"f", 6, 7, NOBODYS, 0), b"content"),
    "an unknown record": bare(encode(Base(NOTHING)), b"?" + varint(0)),
    "a path out": bare(encode(Base(NOTHING)), b"D" + varint(4) + varint(3) + b"../"),
    "an absolute path": bare(encode(Base(NOTHING)), b"D" + varint(5) + varint(4) + b"/etc"),
    "a path with NUL": bare(encode(Base(NOTHING)), b"D" + varint(4) + varint(3) + b"a\0b"),
    "more behind the end": stream(Base(NOTHING), End(EMPTY)) + bare(b"more"),
    "three beginnings": bare(*3 * [encode(Base(NOTHING))], encode(End(EMPTY))),
    "two agreements": bare(encode(Base(NOTHING)), *2 * [encode(Agreed(EMPTY))], encode(End(EMPTY))),
    "what is not there deleted": bare(encode(Base(NOTHING)), encode(Delete(b"gone")), encode(End(EMPTY))),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("harmless")
def test_a_malformed_stream_is_refused_with_a_sentence(
    server: Server, http: httpx.Client, sandbox: str, name: str
) -> None:
    put(http, sandbox, "kept", b"kept")

    refused(ask_sync(http, sandbox, BAD[name]), 400)

    assert files_of(server, sandbox) == {"kept": b"kept"}


def resumed(server: Server, http: httpx.Client, box: str, content: bytes) -> Along:
    """Return the second half of a file whose first half came before, as far as the digest says."""
    body = first_push(whole(b"f", content))
    cut_off(server, box, body[: len(body) // 2])
    question = f"/v1/sandboxes/{box}/sync/have", address(content)

    def begun() -> dict[int, int]:
        return decode_held(http.post(question[0], content=question[1]).content, 1)[1]

    eventually(lambda: 0 in begun())
    offset = begun()[0]
    return Along(WholeFile(b"f", 6, len(content), address(content), offset), b"?" * (len(content) - offset))


@pytest.mark.parametrize("way", ["small", "large", "resumed", "changed", "large and changed"])
@pytest.mark.usefixtures("harmless")
def test_whatever_way_a_content_comes_its_digest_is_checked(
    server: Server, http: httpx.Client, sandbox: str, way: str
) -> None:
    size = 3 << 20 if way in ("large", "resumed", "large and changed") else 30_000
    old, new = os.urandom(size), os.urandom(size)
    first, objects = [whole(b"f", old), whole(b"kept", b"kept")], dict[bytes, bytes]()
    told(ask_sync(http, sandbox, first_push(*first)))
    base = tree_of(first, kept=objects)
    if way == "resumed":
        sent = resumed(server, http, sandbox, new)
    elif "changed" in way:
        lie = varint(size << 1 | 1) + bytes(size)
        sent = Along(ChangedFile(b"f", 6, size, address(new), address(old), len(lie)), lie)
    else:
        sent = Along(WholeFile(b"f", 6, size, address(new), 0), bytes(size))

    then = [sent, whole(b"more", b"more")]
    body = stream(Base(base), *then, End(tree_of(then, base, objects)))

    problem = refused(ask_sync(http, sandbox, body), 400)

    assert "its digest is wrong" in problem["detail"] or "as was said" in problem["detail"]
    assert files_of(server, sandbox) == {"f": old, "kept": b"kept"}
    held = http.post(f"/v1/sandboxes/{sandbox}/sync/have", content=address(new)).content
    assert decode_held(held, 1)[0] == [False]


@pytest.mark.parametrize(
    "query",
    [{}, {"mode": "shove"}, {"mode": "push", "prefer": "mine"}, {"mode": "push", "dry_run": "perhaps"}],
)
def test_a_wrong_query_is_refused_by_its_name(
    http: httpx.Client, sandbox: str, query: dict[str, str]
) -> None:
    body = stream(Base(NOTHING), End(EMPTY))
    answer = http.post(f"/v1/sandboxes/{sandbox}/sync", params=query, content=body)

    assert refused(answer, 422)["field"] in ("mode", "prefer", "dry_run")


A_LOT = [whole(b"f%d" % number, b"x") for number in range(70)]
DEEP = b"/".join([b"d" * 200] * 15)


@pytest.mark.parametrize(
    "said",
    [
        [*A_LOT, whole(DEEP + b"/x", b"x"), MakeFolder(DEEP.upper()), Move(b"d" * 200, DEEP.upper() + b"/z")],
        [*A_LOT, MakeFolder(b"/".join([b"d" * 199] * 20) + b"/" + b"x" * 95)],
    ],
)
def test_paths_that_no_workspace_can_have_are_refused_and_the_sandbox_is_of_use(
    http: httpx.Client, sandbox: str, said: list[Sent]
) -> None:
    answer = ask_sync(http, sandbox, first_push(*said))

    assert "4094 is the most" in refused(answer, 400)["detail"]
    assert sh(http, sandbox, "ls | wc -l") == "0\n"


def test_a_folder_does_not_move_where_its_files_have_no_path(http: httpx.Client, sandbox: str) -> None:
    said: list[Sent] = [whole(DEEP + b"/x", b"x"), MakeFolder(DEEP.upper())]
    told(ask_sync(http, sandbox, first_push(*said)))
    moved: list[Sent] = [*said, Move(b"d" * 200, DEEP.upper() + b"/z")]

    answer = ask_sync(http, sandbox, stream(Base(tree_of(said)), moved[-1], End(tree_of(moved))))

    assert "4094 is the most" in refused(answer, 400)["detail"]
    assert sh(http, sandbox, "ls | cut -c1-3") == "DDD\nddd\n"


@pytest.mark.usefixtures("harmless")
def test_what_is_not_known_here_is_said_to_be_so(http: httpx.Client, sandbox: str) -> None:
    unknown = KnownFile(b"f", 6, 3, NOBODYS)
    for body in (
        stream(Base(NOBODYS), End(NOBODYS)),
        first_push(unknown),
        stream(Base(NOTHING), Along(WholeFile(b"f", 6, 9, address(b"beginning"), 4), b"nning"), End(NOBODYS)),
    ):
        assert refused(ask_sync(http, sandbox, body), 412)["code"] == "base_unknown"


def test_a_content_is_as_long_as_it_is_whatever_is_said(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    ask_sync(http, sandbox, first_push(whole(b"f", b"content")))
    other = create(http)

    problem = refused(ask_sync(http, other, first_push(KnownFile(b"f", 6, 99, address(b"content")))), 400)

    assert "has 7 bytes, not 99" in problem["detail"]
    assert files_of(server, other) == {}


def test_of_one_content_no_second_size_passes_behind_the_first(http: httpx.Client, sandbox: str) -> None:
    said: list[Sent] = [*A_LOT, KnownFile(b"a", 6, 99, address(b"x")), KnownFile(b"z", 6, 1, address(b"x"))]

    problem = refused(ask_sync(http, sandbox, first_push(*said)), 400)

    assert "bytes" in problem["detail"]
    assert sh(http, sandbox, "ls | wc -l") == "0\n"


@pytest.mark.long
@pytest.mark.usefixtures("harmless")
def test_a_stream_that_inflates_too_much_is_refused(server: Server, http: httpx.Client, sandbox: str) -> None:
    size = 10**9
    head = encode(Base(NOTHING)) + encode(WholeFile(b"zeros", 6, size, NOBODYS, 0))
    bomb = zstandard.ZstdCompressor().compress(head + bytes(size))
    assert len(bomb) < 200_000

    refused(ask_sync(http, sandbox, bomb), 400, 413)

    assert files_of(server, sandbox) == {}


def test_records_take_no_more_memory_than_bodies_may(new_server: Callable[..., Server]) -> None:
    server = new_server(PETRI_MAX_BODY_BYTES="65536")
    said = [MakeLink(b"%d" % number, b"t" * 4000) for number in range(1000)]

    with server.client() as http:
        box = create(http)
        refused(ask_sync(http, box, first_push(*said)), 413)
        told(ask_sync(http, box, first_push(*said[:100])))


@pytest.mark.usefixtures("harmless")
def test_more_than_a_sandbox_may_hold_is_refused_by_its_limit(server: Server, http: httpx.Client) -> None:
    small = create(http, limits={"disk_bytes": 2**20, "inodes": 50})
    large = [whole(b"large", os.urandom(2**20 + 1))]
    many = [whole(b"f%d" % number, b"") for number in range(60)]
    deep = [MakeFolder(b"/".join([b"d%d" % number] + [b"x"] * 1000)) for number in range(5)]

    assert refused(ask_sync(http, small, first_push(*large)), 507)["field"] == "limits.disk_bytes"
    assert refused(ask_sync(http, small, first_push(*many)), 507)["field"] == "limits.inodes"
    refused(ask_sync(http, small, first_push(*deep)), 413)
    records: list[Sent] = [MakeFolder(b"x"), Delete(b"x")] * 700
    refused(ask_sync(http, small, stream(Base(NOTHING), *records, End(EMPTY))), 413)

    assert files_of(server, small) == {}
    told(ask_sync(http, small, first_push(whole(b"fits", b"f"))))


def test_a_sync_that_makes_a_full_workspace_smaller_is_welcome(http: httpx.Client) -> None:
    small = create(http, limits={"disk_bytes": 2**20, "inodes": 50})
    first = [whole(b"a", os.urandom(500_000)), whole(b"b", os.urandom(400_000))]
    told(ask_sync(http, small, first_push(*first)))
    kept: dict[bytes, bytes] = {}
    base = tree_of(first, kept=kept)
    then: list[Sent] = [Delete(b"a"), whole(b"c", os.urandom(450_000))]

    told(ask_sync(http, small, stream(Base(base), *then, End(tree_of(then, base, kept)))))

    assert sh(http, small, "ls") == "b\nc\n"


def test_a_sandbox_that_is_gone_has_no_files_to_sync(http: httpx.Client) -> None:
    gone = create(http)
    http.delete(f"/v1/sandboxes/{gone}")
    body = stream(Base(NOTHING), End(EMPTY))

    refused(ask_sync(http, gone, body), 409)
    refused(ask_sync(http, "sb-" + "a" * 20, body), 404)
    refused(http.post(f"/v1/sandboxes/{gone}/sync/have", content=NOBODYS), 409)


def test_questions_about_contents_are_bounded(http: httpx.Client, sandbox: str) -> None:
    where = f"/v1/sandboxes/{sandbox}/sync/have"

    refused(http.post(where, content=b"x"), 400)
    problem = refused(http.post(where, content=bytes(32 * 100_001)), 413)
    assert problem["detail"] == "one question may hold 100000 digests at most; ask for the others in another"
    assert http.post(where, content=b"").content == b""


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
