"""However much a client sends: little of it is read, less is kept, and the next client is answered."""

import re
import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from petri.api.front.patience import IGNORED_BYTES
from tests.calls import create, eventually, scraps
from tests.conftest import Server
from tests.lines import HOST, Line, ask_raw, dial

pytestmark = pytest.mark.usefixtures("harmless")

MIB = 1 << 20
GET = b"GET /health HTTP/1.1\r\n" + HOST


def resident_bytes(server: Server) -> int:
    """Return how much memory the server holds now."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def pour(line: Line, piece: bytes, most_bytes: int) -> int:
    """Send `piece` again and again until there is an answer; return how much the server took."""
    sent = 0
    while sent < most_bytes:
        readable, writable, _ = select.select([line.socket], [line.socket], [], 10)
        if readable or not writable:
            break
        sent += line.socket.send(piece)
    return sent


# ------------------------------------------------------------------------------------------ the head


@pytest.mark.parametrize(
    "flood",
    [
        b"X-%d: y\r\n",
        b"a" * 65_536,
        b"X: " + b"y" * 65_000 + b"\r\n",
        b"Cookie: a=b\r\n" * 1000,
    ],
    ids=["many", "a name", "large", "the same"],
)
def test_endless_headers_are_cut_off_soon(server: Server, flood: bytes) -> None:
    before = resident_bytes(server)
    with dial(server, timeout_s=5) as line:
        line.say(GET)
        taken = pour(line, flood, 520 * MIB)
        assert taken < 40 * MIB, "most of it stays in the kernels' buffers"
        line.hear().problem(431, "headers_too_large")

    assert resident_bytes(server) - before < 16 * MIB


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"X: y\r\n" * 99, 200),
        (b"X: y\r\n" * 100, 431),
        (b"X: " + b"y" * 65_000 + b"\r\n", 200),
        (b"X: " + b"y" * 65_536 + b"\r\n", 431),
        (b"X: " + b"y" * 30_000 + b"\r\nY: " + b"y" * 30_000 + b"\r\n", 200),
        (b"X: " + b"y" * 30_000 + b"\r\nY: " + b"y" * 40_000 + b"\r\n", 431),
        (b"X" * 65_536 + b": y\r\n", 431),
    ],
    ids=lambda each: f"{len(each)} bytes" if isinstance(each, bytes) else each,
)
def test_a_head_may_be_so_large_and_no_larger(server: Server, headers: bytes, status: int) -> None:
    for size in (len(headers), 1000):  # at once, or as it comes
        with dial(server) as line:
            pieces = [headers[start : start + size] for start in range(0, len(headers), size)]
            heard = line.say(GET, *pieces, b"\r\n").hear()
            assert heard.status == status
            if status == 431:
                heard.problem(431, "headers_too_large")
                assert line.is_over()


@pytest.mark.parametrize(("size", "status"), [(16_000, 404), (16_384, 404), (16_385, 414), (60_000, 414)])
def test_an_address_may_be_so_long_and_no_longer(server: Server, size: int, status: int) -> None:
    for path in (b"/".ljust(size, b"a"), b"/?".ljust(size, b"a")):
        with dial(server) as line:
            heard = line.say(b"GET %s HTTP/1.1\r\n" % path + HOST + b"\r\n").hear()
            assert heard.status == status
            if status == 414:
                heard.problem(414, "uri_too_long")
                assert line.is_over()


def test_an_endless_address_is_cut_off_soon(server: Server) -> None:
    with dial(server, timeout_s=5) as line:
        assert pour(line.say(b"GET /"), b"a" * 65_536, 520 * MIB) < 40 * MIB
        line.hear().problem(414, "uri_too_long")


# ---------------------------------------------------------------------------------------- the framing


@pytest.mark.parametrize(
    "flood",
    [b"1;" + b"a" * 200_000, b"0\r\n" + b"X: y\r\n" * 50_000, b"0\r\nX: " + b"y" * 200_000],
    ids=["extension", "trailers", "a trailer"],
)
def test_framing_without_content_is_cut_off(server: Server, flood: bytes) -> None:
    head = b"POST /v1/sandboxes HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n"

    ask_raw(server, head, flood).problem(431, "headers_too_large")


def test_more_requests_at_once_than_anybody_needs_are_answered_in_part(server: Server) -> None:
    ping = GET + b"\r\n"
    before = resident_bytes(server)
    with dial(server) as line:
        answers = line.say(ping * 20_000).rest()

    assert [each.status for each in answers] == [200] * len(answers)
    assert 1 <= len(answers) <= 8
    assert [each.headers.get("connection") for each in answers] == [None] * (len(answers) - 1) + ["close"]
    assert resident_bytes(server) - before < 16 * MIB


# -------------------------------------------------------------------------- bodies nobody asked for


UNWANTED = [
    ("POST", "/no/such", 404),
    ("PUT", "/health", 405),
    ("GET", "/health", 200),
    ("POST", "/v1/sandboxes/{id}", 405),
    ("DELETE", "/v1/sandboxes/sb-none", 404),
    ("POST", "/v1/runs/run-none/cancel", 404),
    ("POST", "/v1/sandboxes/sb-none/files", 404),
    ("PUT", "/v1/sandboxes/sb-none/files/x", 404),
    ("GET", "/v1/sandboxes/{id}/files", 200),
    ("GET", "/docs", 200),
]


@pytest.mark.parametrize(("method", "path", "status"), UNWANTED)
@pytest.mark.parametrize("framing", [b"Content-Length: 10737418240\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_nobody_wants_is_not_read_to_its_end(
    server: Server, http: httpx.Client, method: str, path: str, status: int, framing: bytes
) -> None:
    path = path.format(id=create(http))
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n" if b"chunked" in framing else b"x" * 65_536
    before = resident_bytes(server)
    with dial(server, timeout_s=5) as line:
        line.say(f"{method} {path} HTTP/1.1\r\n".encode() + HOST + framing + b"\r\n")
        assert pour(line, chunk, 10 << 30) < 40 * MIB
        heard = line.hear()

    assert heard.status == status
    assert heard.headers["connection"] == "close"
    assert resident_bytes(server) - before < 16 * MIB


@pytest.mark.long
def test_who_goes_on_sending_after_the_answer_is_cut_off(server: Server) -> None:
    before = resident_bytes(server)
    sent = 0
    with dial(server) as line:
        line.say(b"POST /no/such HTTP/1.1\r\n" + HOST + b"Content-Length: 10737418240\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while sent < 10 << 30:
                sent += line.socket.send(b"x" * 65_536)

    assert sent < IGNORED_BYTES + 40 * MIB
    assert resident_bytes(server) - before < 16 * MIB


@pytest.mark.long
@pytest.mark.parametrize("framing", [b"Content-Length: 10737418240\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_json_body_is_read_up_to_its_bound(server: Server, sandbox: str, framing: bytes) -> None:
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n" if b"chunked" in framing else b" " * 65_536
    for path in ("/v1/sandboxes", f"/v1/sandboxes/{sandbox}/exec", "/v1/exec"):
        with dial(server, timeout_s=10) as line:
            line.say(f"POST {path} HTTP/1.1\r\n".encode() + HOST + framing + b"\r\n")
            assert pour(line, chunk, 10 << 30) < 80 * MIB
            line.hear().problem(413, "too_large")


@pytest.mark.long
def test_who_says_all_before_listening_hears_that_it_was_too_much(server: Server) -> None:
    spoken = HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    with closing(spoken):
        spoken.request("POST", "/v1/sandboxes", b'{"name": "' + b"x" * (48 * MIB) + b'"}')

        assert spoken.getresponse().status == 413


def test_without_a_key_no_body_is_read(new_server: Callable[..., Server]) -> None:
    locked = new_server(PETRI_API_KEY="a-key-nobody-guesses-0123")
    for path in ("/v1/sandboxes", "/v1/exec", "/v1/sandboxes/sb-x/files", "/no/such"):
        with dial(locked, timeout_s=5) as line:
            line.say(f"POST {path} HTTP/1.1\r\n".encode() + HOST + b"Content-Length: 10737418240\r\n\r\n")
            assert pour(line, b"x" * 65_536, 10 << 30) < 40 * MIB
            line.hear().problem(401, "unauthorized")


def test_a_small_body_nobody_wants_costs_nobody_the_connection(server: Server) -> None:
    head = b"POST /no/such HTTP/1.1\r\n" + HOST + b"Content-Length: 20000\r\n\r\n"
    with dial(server) as line:
        line.say(head)
        assert line.hear().status == 404
        line.say(b"x" * 20_000 + GET + b"\r\n")
        assert line.hear().status == 200


def test_what_comes_after_a_form_is_not_read_for_ever(server: Server, sandbox: str) -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nx\r\n--b--\r\n'
    head = f"POST /v1/sandboxes/{sandbox}/files HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    with dial(server, timeout_s=10) as line:
        line.say(head.encode() + HOST + b"Content-Length: 10737418240\r\n\r\n" + form)
        assert pour(line, b"x" * 65_536, 10 << 30) < 80 * MIB
        line.hear().problem(400, "invalid_request")
    eventually(lambda: scraps(server) == [])


# --------------------------------------------------------------------------------- many, all at once


@pytest.fixture
def crowd(server: Server) -> Iterator[list[Line]]:
    """A hundred clients that have said half a word."""
    with ExitStack() as stack:
        yield [stack.enter_context(dial(server)).say(GET[:-3]) for _ in range(100)]


def test_half_a_word_costs_little_and_holds_up_nobody(server: Server, crowd: list[Line]) -> None:
    with dial(server, timeout_s=5) as line:
        assert line.say(GET + b"\r\n").hear().status == 200

    assert all(line.say(GET[-3:] + b"\r\n").hear().status == 200 for line in crowd)


@pytest.mark.long
def test_large_bodies_together_take_so_much_and_small_ones_are_still_taken(tmp_path: Path) -> None:
    server = Server(tmp_path, {"PETRI_MAX_BODY_BYTES": str(MIB)}).start()
    body = b'{"command": "true", "stdin": "' + b"x" * (MIB - 64)
    head = b"POST /v1/exec HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % MIB
    try:
        with server.client() as http, ExitStack() as held:
            lines = [held.enter_context(dial(server)).say(head, body) for _ in range(20)]
            answered, _, _ = select.select([line.socket for line in lines], [], [], 20)

            refused = next(line for line in lines if line.socket in answered).hear()
            assert "16777216 bytes" in refused.problem(429, "busy")["detail"]
            assert http.post("/v1/sandboxes", json={}).status_code == 201
            held.close()
            eventually(lambda: http.post("/v1/exec", content=body + b'"}').status_code == 200)
    finally:
        assert server.stop() == 0, server.log()
