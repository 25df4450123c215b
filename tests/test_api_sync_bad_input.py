"""A sync that makes no sense, through HTTP: streams, paths, sizes and claims that cannot be."""

import os
from collections.abc import Callable

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
from tests.calls import create, eventually, put, refused, sh
from tests.conftest import Server
from tests.streams import Along, Sent, ask_sync, first_push, stream, told, tree_of, whole
from tests.test_api_sync import cut_off, files_of

pytestmark = pytest.mark.long

NOBODYS = bytes(range(32))


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
