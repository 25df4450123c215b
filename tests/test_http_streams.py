"""Answers that are made while they are sent: what becomes of them when something gives way."""

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from petri.api.downloads import bytes_response
from petri.errors import NotFound
from tests.calls import eventually, files_url, put, run
from tests.conftest import Server
from tests.lines import HOST, dial
from tests.test_http_front import HEAD, heard, serving

MIB = 1 << 20
NASTY = "%1b[31m%0a2026-11-16 ERROR petri: fake%0d%00%c2%9b%e2%80%a8%e2%80%ae%e2%81%a6%ef%bb%bf%ff"
"""Colours, a line's end, NUL, a C1 control, a line separator, text turned around, no UTF-8."""


class Pieces:
    """Pieces that give out after some, and know whether they were let go of."""

    def __init__(self, count: int, error: Exception) -> None:
        self.count = count
        self.error = error
        self.closed = False

    def __call__(self) -> Iterator[bytes]:
        try:
            for _ in range(self.count):
                yield b"x" * 1000
            raise self.error
        finally:
            self.closed = True


async def test_what_fails_before_the_first_byte_is_a_problem_and_no_broken_answer() -> None:
    pieces = Pieces(0, NotFound("the folder was renamed"))

    with pytest.raises(NotFound):
        await bytes_response(pieces(), "x.tar", "application/x-tar")

    assert pieces.closed


@pytest.mark.parametrize(
    "error", [NotFound("renamed\n\x1b[31m"), OSError(5, "EIO"), StopAsyncIteration()], ids=repr
)
async def test_what_fails_later_breaks_the_answer_off_with_one_line_in_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    pieces = Pieces(3, error)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await bytes_response(pieces(), "x.tar", "application/x-tar")
        await response(scope, receive, send)

    async with serving(app) as port:
        with pytest.raises(ConnectionResetError):
            await heard(port, b"GET" + HEAD + b"\r\n")

    assert pieces.closed
    if isinstance(error, NotFound | OSError):
        (said,) = (each for each in caplog.records if each.name.startswith("petri"))
        assert "broke off" in said.getMessage()
        assert said.exc_info is None


@pytest.mark.long
def test_a_folder_renamed_under_its_download_leaves_no_traceback(
    server: Server, http: httpx.Client, sandbox: str, harmless: None
) -> None:
    put(http, sandbox, "a/b/c.txt", "x" * 1000)
    swap = (
        "import os, time\nend = time.time() + 1.5\n"
        "while time.time() < end:\n os.rename('a', 'z'); os.rename('z', 'a')\n"
    )
    before = len(server.log())
    swapping = threading.Thread(target=lambda: run(http, sandbox, code=swap), daemon=True)
    swapping.start()
    seen: set[int] = set()
    while swapping.is_alive():
        for kind in ("tar", "zip"):
            try:
                seen.add(http.get(files_url(sandbox, "a/b"), params={"archive": kind}).status_code)
            except httpx.RemoteProtocolError:
                seen.add(0)  # it broke off: cut, and not made to look whole
    swapping.join()

    assert 200 in seen
    assert seen <= {0, 200, 404, 409}, seen
    assert "Traceback" not in server.log()[before:]


@pytest.mark.long
def test_watchers_who_do_not_read_cost_little(server: Server, http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command="head -c 20000000 /dev/zero")  # as JSON, six times as much
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status")

    def resident_bytes() -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) * 1024

    before = resident_bytes()
    lines = [dial(server, buffer_bytes=4096) for _ in range(20)]
    for each in lines:
        line = each.__enter__()
        line.say(f"GET /v1/runs/{told['run_id']}/events HTTP/1.1\r\n".encode() + HOST + b"\r\n")
        line.socket.recv(1)
    http.get("/health")
    grown = resident_bytes() - before
    for each in lines:
        each.__exit__(None, None, None)

    assert grown < 20 * 3 * MIB


# --------------------------------------------------------------------------------------------- the log


def test_what_a_caller_says_is_harmless_in_the_log(server: Server) -> None:
    before = len(server.log())
    target = f"/v1/sandboxes/{NASTY}/exec?{NASTY}".replace(" ", "%20").encode()
    with dial(server) as line:
        line.say(
            b"POST %s HTTP/1.1\r\n" % target + HOST + b"Content-Length: 100\r\nX: \xff\xe2\x80\xae\r\n\r\n"
        )
        line.say(b"half of it").socket.shutdown(socket.SHUT_WR)
        assert line.is_over()

    eventually(lambda: "did not come whole" in server.log()[before:])
    (said,) = server.log()[before:].rstrip("\n").split("\n")
    assert said.isprintable(), ascii(said)
    assert "fake" in said, "what they say is told, in one line of ours"
