"""The line to a server: HTTP as servers and proxies really speak it, and as they should not."""

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from petri.errors import Invalid, PetriError, Unavailable
from petri.sdk.config import address
from petri.sdk.folder.line import HELD_BYTES, Answer, Broken, Line

OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """Says what it is told to, to whoever connects; each connection gets the next script."""

    def __init__(
        self, *scripts: Callable[[socket.socket], None], context: ssl.SSLContext | None = None
    ) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._scripts = scripts
        self._context = context
        self.url = f"http{'s' if context else ''}://localhost:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for script in self._scripts:
            connection, _ = self._listening.accept()
            with connection:
                try:
                    if self._context is not None:
                        connection = self._context.wrap_socket(connection, server_side=True)
                    script(connection)
                    connection.close()
                except OSError:
                    pass  # the client hung up, as some tests want it to

    def close(self) -> None:
        self._thread.join(10)
        self._listening.close()
        assert not self._thread.is_alive()


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(*scripts: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Peer:
        made.append(Peer(*scripts, context=context))
        return made[-1]

    yield make
    for each in made:
        each.close()


def says(*answers: bytes) -> Callable[[socket.socket], None]:
    """Answer one request after the other."""

    def script(connection: socket.socket) -> None:
        for answer in answers:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (more := connection.recv(65536)):
                    return
                head += more
            connection.sendall(answer)

    return script


def ask(line: Line) -> Answer:
    return line.call("GET", "/x", {})


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"content-length:5\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2;ext=1\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"Connection: close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
    ],
)
def test_an_answer_is_read_however_it_is_framed(peer: Callable[..., Peer], answer: bytes) -> None:
    line = Line(peer(says(answer)).url, None, 5)

    assert ask(line).read_all() == b"hello"
    line.close()


def test_an_answer_is_read_piece_by_piece(peer: Callable[..., Peer]) -> None:
    body = os.urandom(300_000)
    line = Line(peer(says(OK + b"Content-Length: 300000\r\n\r\n" + body)).url, None, 5)
    answer = ask(line)

    pieces = []
    while piece := answer.read(1000):
        assert len(piece) <= 1000
        pieces.append(piece)

    assert b"".join(pieces) == body
    line.close()


def test_a_connection_is_used_again(peer: Callable[..., Peer]) -> None:
    short = OK + b"Content-Length: 1\r\n\r\nx"
    line = Line(peer(says(short, short, short)).url, None, 5)

    assert [ask(line).read_all() for _ in range(3)] == [b"x"] * 3
    line.close()


@pytest.mark.parametrize(
    "how", [b"Content-Length: 1\r\n\r\nx", b"Content-Length: 1\r\nConnection: close\r\n\r\nx"]
)
def test_a_connection_the_server_closed_is_made_anew(peer: Callable[..., Peer], how: bytes) -> None:
    line = Line(peer(says(OK + how), says(OK + how)).url, None, 5)
    ask(line).read_all()
    while not line.has_something() and line._socket is not None:
        pass  # until the end of the connection has come through

    assert ask(line).read_all() == b"x"
    line.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200",
        OK + b"Content-Length: 10\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"x" * 200_000,
    ],
)
def test_an_answer_that_is_cut_short_is_broken(peer: Callable[..., Peer], answer: bytes) -> None:
    line = Line(peer(says(answer)).url, None, 5)

    with pytest.raises(Broken, match="broke before"):
        ask(line).read_all()
    line.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 xyz OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        OK + b"Content-Length: many\r\n\r\n",
        OK + b"Content-Length: -5\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nhello\r\n",
    ],
)
def test_what_is_not_http_is_said_to_be_none(peer: Callable[..., Peer], answer: bytes) -> None:
    line = Line(peer(says(answer)).url, None, 5)

    with pytest.raises(PetriError, match="is PETRI_URL right"):
        ask(line).read_all()
    line.close()


def test_a_server_that_says_too_much_is_stopped(peer: Callable[..., Peer]) -> None:
    line = Line(peer(says(OK + b"Content-Length: 5000\r\n\r\n" + bytes(5000))).url, None, 5)

    with pytest.raises(PetriError, match="more than anybody asked for"):
        ask(line).read_all(1000)
    line.close()


def test_a_server_that_falls_silent_is_said_to(peer: Callable[..., Peer]) -> None:
    waiting = threading.Event()
    line = Line(peer(lambda _: waiting.wait(10) and None).url, None, 0.2)

    with pytest.raises(Unavailable, match="fell silent"):
        ask(line)
    waiting.set()
    line.close()


def _body_of(connection: socket.socket, seen: list[bytes]) -> None:
    data = b""
    while not data.endswith((b"0\r\n\r\n", b"END")):
        data += connection.recv(65536)
    seen.append(data)
    connection.sendall(OK + b"Content-Length: 0\r\n\r\n")


def test_a_short_request_has_a_length_and_a_long_one_comes_in_chunks(peer: Callable[..., Peer]) -> None:
    seen: list[bytes] = []

    def listen(connection: socket.socket) -> None:
        _body_of(connection, seen)
        _body_of(connection, seen)

    line = Line(peer(listen).url, "secret", 5)

    line.call("POST", "/a", {"X-Y": "z"}, b"shortEND")
    line.call("POST", "/b", {}, bytes(HELD_BYTES) + b"long")

    host = line.url.removeprefix("http://")
    assert seen[0].startswith(f"POST /a HTTP/1.1\r\nHost: {host}\r\n".encode())
    assert b"\r\nAuthorization: Bearer secret\r\nX-Y: z\r\nContent-Length: 8\r\n\r\nshortEND" in seen[0]
    assert b"\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (HELD_BYTES + 4) in seen[1]
    assert line.bytes_sent == len(seen[0]) + len(seen[1])
    line.close()


@pytest.mark.parametrize("manners", ["rude", "polite"])
def test_a_refusal_that_comes_early_is_heard(peer: Callable[..., Peer], manners: str) -> None:
    answered = threading.Event()

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        answered.set()
        if manners == "polite":
            while connection.recv(65536):
                pass  # it reads on, though it has answered

    line = Line(peer(refuse).url, None, 5)
    sending = line.begin("POST", "/x", {})
    sending.write(bytes(HELD_BYTES + 1))
    assert answered.wait(5)
    for _ in range(200):
        sending.write(bytes(100_000))
    sending.end()
    try:
        answer = Answer(line)
    except Broken:
        assert manners == "rude", "a server that hangs up with our bytes unread takes its answer with it"
    else:
        assert (answer.status, answer.reason, answer.read_all()) == (413, "Too Large", b"no")
    assert line.bytes_sent < 20_000_000
    line.close()


def test_a_request_that_is_given_up_never_ends(peer: Callable[..., Peer]) -> None:
    seen = bytearray()

    def listen(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            seen.extend(data)

    server = peer(listen)
    line = Line(server.url, None, 5)
    sending = line.begin("POST", "/x", {})
    sending.write(bytes(HELD_BYTES + 1))
    sending.give_up()
    server.close()

    assert not seen.endswith(b"0\r\n\r\n")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    words += " -addext subjectAltName=DNS:localhost"
    try:
        subprocess.run(
            [*words.split(), "-keyout", "key", "-out", "cert"], cwd=folder, check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    return folder


@pytest.mark.long
def test_https_is_spoken_and_certificates_are_checked(
    peer: Callable[..., Peer], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    short = says(OK + b"Content-Length: 5\r\n\r\nhello")
    server = peer(short, short, context=context)

    with pytest.raises(Unavailable, match="no Petri server answers"):
        ask(Line(server.url, None, 5))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert"))
    line = Line(server.url, None, 5)
    assert ask(line).read_all() == b"hello"
    line.close()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://localhost", (False, "localhost", 80, "")),
        ("https://petri.example", (True, "petri.example", 443, "")),
        ("HTTP://Host:9/api", (False, "host", 9, "/api")),
        ("http://[::1]:8000", (False, "::1", 8000, "")),
    ],
)
def test_an_address_has_parts(url: str, parts: tuple[object, ...]) -> None:
    assert address(url) == parts


@pytest.mark.parametrize(
    "url", ["", "localhost", "ftp://x", "http://", "http://x:99999", "http://x y", "http://x?y", "http://a@b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="not the address of a server"):
        address(url)
