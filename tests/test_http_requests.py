"""Requests that two readers could take for two different things, and those that are none at all."""

import itertools
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petri.api.front.heads import Head
from petri.api.front.reading import Reader
from petri.api.front.refusals import Refused
from tests.calls import create
from tests.conftest import Server
from tests.lines import HOST, ask_raw, dial

pytestmark = pytest.mark.usefixtures("harmless")

PING = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.fixture(scope="module")
def victim(server: Server) -> Iterator[str]:
    """A sandbox that every hidden request here tries to delete."""
    with server.client() as http:
        yield create(http)


def post(headers: bytes, body: bytes = b"", first: bytes = b"POST /v1/sandboxes HTTP/1.1\r\n") -> bytes:
    return first + HOST + headers + b"\r\n" + body


# ------------------------------------------------------------------------------------ where a body ends


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n",
        b"Content-Length: 5\r\nContent-Length: %d\r\n",
        b"Content-Length: %d\r\nContent-Length: 5\r\n",
        b"Content-Length: 5, %d\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: -5\r\n",
        b"Content-Length: 5 \xa0\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length: 5.0\r\n",
        b"Content-Length:\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length : 5\r\n",
        b"Content-Length\t: 5\r\n",
        b"Content_Length: 5\r\nTransfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunkedx\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: chunked;q=1\r\n",
        b"Transfer-Encoding: \x0bchunked\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"X: y\r\n Transfer-Encoding: chunked\r\n",
        b"X: y\nTransfer-Encoding: chunked\r\n",
        b"X: y\rTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\n",
        b"X: \0\r\n",
        b"X\0: y\r\n",
        b": y\r\n",
        b"X\r\n",
        b" X: y\r\n",
        b"X y: z\r\n",
        b"X: \x7f\r\n",
        b"X: \x01\r\n",
    ],
    ids=repr,
)
def test_a_body_whose_end_is_in_doubt_is_refused_and_nothing_in_it_is_done(
    server: Server, http: httpx.Client, victim: str, headers: bytes
) -> None:
    hidden = f"DELETE /v1/sandboxes/{victim} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    body = b"0\r\n\r\n" + hidden
    before = http.get("/v1/metrics").json()["sandboxes"]

    heard = ask_raw(server, post(headers.replace(b"%d", b"%d" % len(body)), body))

    heard.problem(400, "invalid_request")
    assert http.get(f"/v1/sandboxes/{victim}").json()["state"] == "ready"
    assert http.get("/v1/metrics").json()["sandboxes"] == before, "what was refused was not done either"


@pytest.mark.parametrize(
    "body",
    [
        b"FFFFFFFFFFFFFFFFF\r\nx",
        b"-1\r\nx\r\n",
        b"+1\r\nx\r\n",
        b"0x1\r\nx\r\n",
        b"1_0\r\nx\r\n",
        b" 1\r\nx\r\n",
        b"1 \r\nx\r\n",
        b"g\r\n",
        b"\r\n",
        b"1\nx\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx0\r\n\r\n",
        b"1;a\nb\r\nx\r\n",
        b"1;\0\r\nx\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\nA: b\n\r\n",
    ],
    ids=repr,
)
def test_chunks_that_make_no_sense_are_refused(
    server: Server, http: httpx.Client, victim: str, body: bytes
) -> None:
    hidden = f"DELETE /v1/sandboxes/{victim} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    ask_raw(server, post(CHUNKED, body + hidden)).problem(400, "invalid_request")
    ask_raw(server, post(CHUNKED), body, hidden).problem(400, "invalid_request")

    assert http.get(f"/v1/sandboxes/{victim}").json()["state"] == "ready"


def test_a_chunked_body_is_one_body_however_it_is_cut(server: Server) -> None:
    whole = post(CHUNKED, b'1;a="b"\r\n{\r\n0A\r\n"name":nul\r\n2\r\nl}\r\n0\r\nX: y\r\n\r\n')
    with dial(server) as line:
        for size in (1, 2, 7, len(whole)):
            line.say(*(whole[start : start + size] for start in range(0, len(whole), size)))
            assert line.hear().status == 201


def test_a_trailer_is_no_header_of_this_request_or_the_next(server: Server) -> None:
    lone = post(CHUNKED, b"0\r\nOrigin: http://evil.example\r\nHost: evil.example\r\n\r\n")
    with dial(server) as line:
        line.say(lone + PING)

        assert [line.hear().status, line.hear().status] == [201, 200]


# ----------------------------------------------------------------------------------- the request line


@pytest.mark.parametrize(
    "head",
    [
        b"FOO / HTTP/1.1\r\n",
        b"get / HTTP/1.1\r\n",
        b"GET\0 / HTTP/1.1\r\n",
        b"GET / HTTP/1.2\r\n",
        b"GET / HTTP/2.0\r\n",
        b"GET / HTTP/0.9\r\n",
        b"GET / HTTP/1.1 x\r\n",
        b"GET / http/1.1\r\n",
        b"GET / ICY/1.1\r\n",
        b"GET /\r\n\r\n",
        b"GET  HTTP/1.1\r\n",
        b"GET / x HTTP/1.1\r\n",
        b"GET /\xff HTTP/1.1\r\n",
        b"GET /\0 HTTP/1.1\r\n",
        b"GET /\x7f HTTP/1.1\r\n",
        b"GET / HTTP/1.1\n",
        b"GET health HTTP/1.1\r\n",
        b"GET ftp://localhost/health HTTP/1.1\r\n",
        b"GET http://evil.example/health HTTP/1.1\r\n",
        b"GET http://localhost@evil.example/health HTTP/1.1\r\n",
        b"GET http://evil.example@localhost/health HTTP/1.1\r\n",
        b"GET http:///health HTTP/1.1\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n",
        b"CONNECT /health HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 64,
        b"SSH-2.0-OpenSSH_9\r\n",
        b"* OK IMAP\r\n",
    ],
    ids=lambda head: repr(head)[:40],
)
def test_what_is_no_request_is_refused(server: Server, head: bytes) -> None:
    ask_raw(server, head + HOST + b"\r\n").problem(400, "invalid_request")


@pytest.mark.parametrize(
    "hosts", [b"", HOST + HOST, HOST + b"Host: evil.example\r\n", b"Host: evil.example\r\n" + HOST], ids=repr
)
def test_a_request_names_one_host(server: Server, hosts: bytes) -> None:
    ask_raw(server, b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n").problem(400, "invalid_request")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/health", 200),
        (b"HTTP://LOCALHOST/health?x", 200),
        (b"http://localhost", 404),
        (b"http://localhost?x", 404),
        (b"/health#fragment", 200),
        (b"//localhost/health", 404),
        (b"/health?http://evil.example/", 200),
        (b"/%68ealth", 200),
        (b"/health%00", 404),
        (b"/%ff", 404),
        (b"*", 404),
    ],
    ids=repr,
)
def test_an_address_is_what_follows_the_server(server: Server, target: bytes, status: int) -> None:
    with dial(server) as line:
        assert line.say(b"GET %s HTTP/1.1\r\n" % target + HOST + b"\r\n").hear().status == status


# ---------------------------------------------------------------------------- other ways of speaking


def test_http_1_0_is_answered_and_then_closed(server: Server) -> None:
    with dial(server) as line:
        line.say(b"GET /openapi.json HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n" + PING)
        (heard,) = line.rest()

    assert heard.status == 200
    assert heard.headers["connection"] == "close"


def test_a_stream_to_http_1_0_is_not_chunked(server: Server, http: httpx.Client, victim: str) -> None:
    told = http.post(f"/v1/sandboxes/{victim}/exec", json={"command": "echo hello"}).json()
    path = f"/v1/runs/{told['run_id']}/events".encode()

    heard = ask_raw(server, b"GET %s HTTP/1.0\r\n" % path + HOST + b"\r\n")

    assert "transfer-encoding" not in heard.headers
    assert heard.body.startswith(b"id: 0\nevent: started\n")
    assert b"hello" in heard.body


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.0", b"x"])
def test_a_wish_for_another_protocol_is_not_heard(server: Server, protocol: bytes) -> None:
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABk\r\n" % protocol
    body = b'{"name": null}'
    with dial(server) as line:
        line.say(b"GET /health HTTP/1.1\r\n" + HOST + wish + b"\r\n")
        assert line.hear().status == 200
        line.say(post(wish + b"Content-Length: %d\r\n" % len(body), body) * 2 + PING)
        assert [line.hear().status for _ in range(3)] == [201, 201, 200], "and its body is its body"


def test_a_body_behind_such_a_wish_is_not_taken_for_a_request(
    server: Server, http: httpx.Client, victim: str
) -> None:
    hidden = f"DELETE /v1/sandboxes/{victim} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    wish = b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n" % len(hidden)
    with dial(server) as line:
        line.say(post(wish, first=b"GET /health HTTP/1.1\r\n"))
        assert line.hear().status == 200
        line.say(hidden + PING)
        assert line.hear().status == 200

    assert http.get(f"/v1/sandboxes/{victim}").json()["state"] == "ready"


def test_pipelined_requests_are_answered_in_order(server: Server, victim: str) -> None:
    slow = b'{"command": "sleep 0.3; echo slow"}'
    head = f"POST /v1/sandboxes/{victim}/exec HTTP/1.1\r\nContent-Length: {len(slow)}\r\n".encode()
    with dial(server) as line:
        line.say(head + HOST + b"\r\n" + slow + PING + b"GET /no HTTP/1.1\r\n" + HOST + b"\r\n" + PING)

        assert b"slow" in line.hear().body
        assert [line.hear().status for _ in range(3)] == [200, 404, 200]


def test_nonsense_behind_a_request_waits_for_its_answer(server: Server, victim: str) -> None:
    slow = b'{"command": "sleep 0.3; echo slow"}'
    head = f"POST /v1/sandboxes/{victim}/exec HTTP/1.1\r\nContent-Length: {len(slow)}\r\n".encode()
    with dial(server) as line:
        first, second = line.say(head + HOST + b"\r\n" + slow + b"nonsense\r\n\r\n").rest()

    assert b"slow" in first.body
    second.problem(400, "invalid_request")


def test_a_client_that_waits_for_our_word_gets_it_or_an_answer(server: Server, http: httpx.Client) -> None:
    expecting = b"Expect: 100-continue\r\nContent-Length: 2\r\n"
    with dial(server) as line:
        assert line.say(post(expecting)).hear().status == 100
        assert line.say(b"{}").hear().status == 201
        line.say(post(expecting, first=b"POST /no/such HTTP/1.1\r\n"))
        refused = line.hear()
        assert refused.status == 404
        assert refused.headers["connection"] == "close", "nobody can tell whether the body still comes"
        assert line.say(PING).is_over()


# ---------------------------------------------------------------------- however the bytes are cut up


class Notes:
    """Writes down what a reader says."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def on_request(self, head: Head, *, may_be_followed: bool) -> None:
        self.said.append((head.scope(), may_be_followed))

    def on_piece(self, piece: bytes) -> None:
        if self.said and isinstance(self.said[-1], bytes):
            self.said[-1] += piece
        else:
            self.said.append(piece)

    def on_end(self) -> None:
        self.said.append("end")


def noted(pieces: list[bytes]) -> list[object]:
    notes = Notes()
    reader = Reader(notes)
    try:
        for piece in pieces:
            reader.feed(piece)
    except Refused as refused:
        notes.said.append((refused.status, refused.code))
    return notes.said


WORDS = st.sampled_from(
    [
        *(b"GET ", b"POST ", b"/", b"/a?b", b"*", b"http://x/y", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"\r\n"),
        *(b"Host: x\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\n", b" ", b"\0"),
        *(b"Connection: upgrade\r\n", b"Upgrade: h2c\r\n", b"Connection: close\r\n", b"X: y\r\n", b"abc"),
        *(b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff", b": "),
    ]
)


@given(st.lists(WORDS, max_size=24).map(b"".join), st.lists(st.integers(0, 400), max_size=6))
def test_how_bytes_arrive_does_not_change_what_they_mean(sent: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(sent)), len(sent)]
    pieces = [sent[start:end] for start, end in itertools.pairwise(places)]

    assert noted(pieces) == noted([sent]) == noted([bytes([byte]) for byte in sent])
