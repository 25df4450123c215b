"""How long a client may take: to speak, to go on, to read what it asked for, to be there at all."""

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.calls import create, descriptors, eventually, files_url, put, run, scraps
from tests.conftest import Server
from tests.lines import HOST, Line, dial

pytestmark = pytest.mark.long

GET = b"GET /health HTTP/1.1\r\n" + HOST
MIB = 1 << 20
HASTY = {
    "PETRI_CLIENT_HEAD_S": "0.6",
    "PETRI_CLIENT_IDLE_S": "0.6",
    "PETRI_CLIENT_BODY_S": "0.6",
    "PETRI_CLIENT_TAKE_S": "0.6",
    "PETRI_MAX_CONNECTIONS": "40",
    "PETRI_PARKED_BYTES": "0",  # what stands ready has descriptors of its own
}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with little patience."""
    server = Server(tmp_path_factory.mktemp("hasty"), HASTY).start()
    yield server
    assert server.stop() == 0, server.log()
    assert "ERROR" not in server.log(), server.log()


@pytest.fixture
def http(hasty: Server) -> Iterator[httpx.Client]:
    with hasty.client() as client:
        yield client


@pytest.fixture
def nobody_left(hasty: Server) -> Iterator[None]:
    """Whatever happened, in the end nobody is connected and nothing is held open for them."""
    with hasty.client() as http:
        http.get("/v1/languages")
    eventually(lambda: connections(hasty) == 0)
    before = held_open(hasty)
    yield
    eventually(lambda: connections(hasty) == 0)
    eventually(lambda: held_open(hasty) <= before)
    eventually(lambda: scraps(hasty) == [])


def opened(server: Server) -> list[str]:
    """Return what the server's descriptors lead to."""
    assert server.process is not None
    found = []
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(str(link.readlink()))
    return found


def held_open(server: Server) -> int:
    """Return how many files the server holds open, but for its own.

    Each thread that reads has the ledger once, and what an upload left is put into the store soon after.
    """
    own = ("/ledger.db", "/petri/store/")
    return sum(not any(part in name for part in own) for name in opened(server))


def connections(server: Server) -> int:
    """Return how many TCP connections the server holds, half-closed ones too."""
    assert server.process is not None
    sockets = set(opened(server))
    lines = Path(f"/proc/{server.process.pid}/net/tcp").read_text().splitlines()[1:]
    listening = "0A"
    return sum(f"socket:[{line.split()[9]}]" in sockets and line.split()[3] != listening for line in lines)


def trickle(line: Line, piece: bytes, pause_s: float) -> None:
    """Send `piece` again and again, slowly, until there is an answer or the line is cut."""
    line.socket.settimeout(pause_s)
    try:
        while True:
            try:
                line.socket.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                line.socket.sendall(piece)
            else:
                break
    except (BrokenPipeError, ConnectionResetError):
        pass
    line.socket.settimeout(20)


# ---------------------------------------------------------------------------------------- to speak


def test_who_says_nothing_is_not_waited_for(hasty: Server, nobody_left: None) -> None:
    with dial(hasty) as line:
        assert line.is_over()


@pytest.mark.parametrize("said", [b"G", GET, GET + b"X-Long: ", b"POST /v1/sandboxes HTTP/1.1\r\n"], ids=repr)
def test_who_stops_in_the_middle_of_a_head_is_told(hasty: Server, said: bytes, nobody_left: None) -> None:
    with dial(hasty) as line:
        line.say(said).hear().problem(408, "request_timeout")
        assert line.is_over()


def test_a_head_that_comes_byte_by_byte_is_as_late_as_one_that_does_not(
    hasty: Server, nobody_left: None
) -> None:
    with dial(hasty) as line:
        trickle(line.say(GET), b"X: y\r\n", 0.1)
        line.hear().problem(408, "request_timeout")


def test_a_connection_is_kept_for_a_while_and_then_closed(hasty: Server, nobody_left: None) -> None:
    with dial(hasty) as line:
        for _ in range(3):
            assert line.say(GET + b"\r\n").hear().status == 200
            time.sleep(0.2)
        assert line.is_over(), "without a word: nothing was asked"


def test_the_next_head_has_its_time_from_its_first_byte_on(hasty: Server, nobody_left: None) -> None:
    with dial(hasty) as line:
        assert line.say(GET + b"\r\n").hear().status == 200
        trickle(line.say(GET), b"X: y\r\n", 0.1)
        line.hear().problem(408, "request_timeout")


# ---------------------------------------------------------------------------------------- to go on


@pytest.mark.parametrize("framing", [b"Content-Length: 100000\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/sandboxes/{id}/files/x", "/v1/sandboxes/{id}/exec"])
def test_a_body_that_does_not_come_is_not_waited_for(
    hasty: Server, http: httpx.Client, path: str, framing: bytes, nobody_left: None
) -> None:
    method = "PUT" if path.endswith("x") else "POST"
    head = f"{method} {path.format(id=create(http))} HTTP/1.1\r\n".encode()
    http.close()
    with dial(hasty) as line:
        line.say(head + HOST + framing + b"\r\n").hear().problem(408, "request_timeout")
        assert line.is_over()


def test_a_body_that_trickles_is_not_waited_for(hasty: Server, http: httpx.Client, nobody_left: None) -> None:
    sandbox = create(http)
    http.close()
    head = f"PUT /v1/sandboxes/{sandbox}/files/x HTTP/1.1\r\n".encode() + HOST
    with dial(hasty) as line:
        trickle(line.say(head + b"Content-Length: 1000000\r\n\r\n"), b"x", 0.1)
        line.hear().problem(408, "request_timeout")
    with dial(hasty) as line:  # and neither is a whole lot of nothing
        trickle(
            line.say(head + b"Transfer-Encoding: chunked\r\n\r\n"), b"1;" + b"a" * 4000 + b"\r\nx\r\n", 0.1
        )
        line.hear().problem(408, "request_timeout")


def test_a_slow_body_that_moves_on_is_waited_for(hasty: Server, http: httpx.Client) -> None:
    def slowly() -> Iterator[bytes]:
        for _ in range(20):
            yield (
                b"x" * 1000
            )  # ten times as fast as it must be, and three times as long as it may stand still
            time.sleep(0.1)

    done = http.put(files_url(create(http), "x"), content=slowly())

    assert done.status_code == 201, done.text
    assert done.json()["size"] == 20_000


def test_the_rest_of_a_small_body_nobody_wanted_is_not_waited_for(hasty: Server, nobody_left: None) -> None:
    with dial(hasty) as line:
        line.say(b"POST /no/such HTTP/1.1\r\n" + HOST + b"Content-Length: 20000\r\n\r\n")
        assert line.hear().status == 404
        trickle(line, b"x", 0.1)
        assert line.is_over()


# ---------------------------------------------------------------------------------- to take an answer


@pytest.fixture(scope="module")
def large(hasty: Server) -> str:
    """The address of a file larger than any buffer."""
    with hasty.client() as http:
        sandbox = create(http)
        put(http, sandbox, "large", b"x" * (64 * MIB))
    return files_url(sandbox, "large")


@pytest.mark.parametrize("query", ["", "?archive=tar", "?archive=zip"])
def test_a_download_that_nobody_takes_is_cut_off(
    hasty: Server, large: str, query: str, nobody_left: None
) -> None:
    path = large if not query else large.removesuffix("large") + query
    with dial(hasty, buffer_bytes=4096) as line:
        line.say(f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n")
        eventually(lambda: connections(hasty) == 0)


def test_an_answer_that_fits_into_a_buffer_and_is_not_taken_is_given_up(
    hasty: Server, large: str, nobody_left: None
) -> None:
    ranged = f"GET {large} HTTP/1.1\r\nRange: bytes=0-900000\r\nConnection: close\r\n".encode()
    with ExitStack() as stack:
        for head in (ranged, ranged.replace(b"Connection: close\r\n", b"")):
            stack.enter_context(dial(hasty, buffer_bytes=4096)).say(head + HOST + b"\r\n")
        eventually(lambda: connections(hasty) == 0)


def test_requests_whose_answers_are_not_taken_are_cut_off(hasty: Server, nobody_left: None) -> None:
    ask = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    with dial(hasty, buffer_bytes=4096) as line:
        line.socket.setblocking(False)
        sent = 0

        def is_cut_off() -> bool:
            nonlocal sent
            try:
                sent += line.socket.send(ask)
            except BlockingIOError:
                pass
            except OSError:
                return True
            return connections(hasty) == 0

        eventually(is_cut_off)
    assert sent < 16 * MIB


def test_a_watcher_who_does_not_read_is_cut_off_and_its_run_goes_on(
    hasty: Server, http: httpx.Client, nobody_left: None
) -> None:
    sandbox = create(http)
    body = b'{"command": "head -c 8000000 /dev/zero; sleep 3; echo end > end.txt"}'
    head = f"POST /v1/sandboxes/{sandbox}/exec HTTP/1.1\r\nAccept: text/event-stream\r\n".encode()
    with dial(hasty, buffer_bytes=4096) as line:
        line.say(head + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        eventually(lambda: http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"] != [])
        http.close()
        eventually(lambda: connections(hasty) == 0)
    with hasty.client() as again:
        state = again.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"][0]["state"]
        assert state == "running", "it was cut off long before the run ended"
        eventually(lambda: again.get(files_url(sandbox, "end.txt")).status_code == 200)


def test_a_slow_reader_that_moves_on_gets_everything(hasty: Server, large: str) -> None:
    with dial(hasty, buffer_bytes=65_536) as line:
        line.say(f"GET {large} HTTP/1.1\r\n".encode() + HOST + b"Connection: close\r\n\r\n")
        heard = 0
        for _ in range(20):
            heard += len(line.socket.recv(65_536))
            time.sleep(0.1)  # two seconds in all, more than three times what it may stand still
        while piece := line.socket.recv(1 << 20):
            heard += len(piece)

    assert heard > 64 * MIB


# ------------------------------------------------------------------------------------- to be there


def test_one_connection_too_many_is_turned_away_and_told_when_to_come_back(
    hasty: Server, nobody_left: None
) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(dial(hasty)) for _ in range(40)]
        eventually(lambda: connections(hasty) == 40)
        for head in (b"", GET + b"\r\n", b"nonsense"):
            with dial(hasty) as line:
                heard = line.say(head).hear()
                heard.problem(503, "unavailable")
                assert heard.headers["retry-after"] == "1"
                assert line.is_over()
        crowd[0].close()
        eventually(lambda: connections(hasty) == 39)
        with dial(hasty) as line:
            assert line.say(GET + b"\r\n").hear().status == 200
    assert hasty.log().count("others are turned away") == 1, "once a minute, not once for each"


def test_without_descriptors_the_log_says_so_and_the_server_lives_on(
    new_server: Callable[..., Server],
) -> None:
    # A cell that is being made holds some for a moment; those it gives back would be left.
    server = new_server(PETRI_PARKED_BYTES="0")
    assert server.process is not None
    pid = server.process.pid
    with server.client() as http, ExitStack() as stack:
        sandbox = create(http)
        run(http, sandbox, command="true")
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(server) + 8, hard))

        def knocked_in_vain() -> bool:
            # Again and again: when somebody has been turned away, one may be left until the next comes.
            stack.enter_context(dial(server))
            return "no file descriptor is left" in server.log()

        eventually(knocked_in_vain)
        before = cpu_s(pid)
        time.sleep(2)
        assert cpu_s(pid) - before < 1, "it does not go round in circles"
        assert server.log().count("no file descriptor is left") == 1, "once a minute"
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert run(http, sandbox, command="echo works")["stdout"] == "works\n"


def cpu_s(pid: int) -> float:
    """Return how long a process has kept a processor busy."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_more_connections_than_descriptors_are_refused_at_start(new_server: Callable[..., Server]) -> None:
    with pytest.raises(AssertionError, match="PETRI_MAX_CONNECTIONS=2000000000 leaves fewer than 128"):
        new_server(PETRI_MAX_CONNECTIONS="2000000000")
