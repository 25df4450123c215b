"""Large files that a push changes: made ahead of time, and never anything but whole, checked and wanted."""

import random
import threading
import time

import httpx
import pytest

from petri.syncing import Base, ChangedFile, End, compare, sign
from petri.trees import address
from tests.calls import ask, eventually, line, refused, sh, workspaces
from tests.conftest import Server
from tests.streams import MEDIA, Along, ask_sync, first_push, stream, told, tree_of, whole

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("harmless")]

SIZE = 20 << 20
OLD = random.Random(1).randbytes(SIZE)


def changed(old: bytes, new: bytes, digest: bytes | None = None) -> Along:
    """Return a file as what makes it of `old`; `digest` if it is said to be another than it is."""
    delta = compare(sign(lambda at, n: old[at : at + n], len(old)), lambda at, n: new[at : at + n], len(new))
    payload = b"".join(delta.payload(lambda at, n: new[at : at + n]))
    record = ChangedFile(b"large", 6, len(new), digest or address(new), address(old), len(payload))
    return Along(record, payload)


def push(http: httpx.Client, box: str, old: bytes, sent: Along) -> httpx.Response:
    kept: dict[bytes, bytes] = {}
    base = tree_of([whole(b"large", old)], kept=kept)
    return ask_sync(http, box, stream(Base(base), sent, End(tree_of([sent], base, kept))))


@pytest.fixture
def box(http: httpx.Client, sandbox: str) -> str:
    """A sandbox that has long held a large file."""
    told(ask_sync(http, sandbox, first_push(whole(b"large", OLD))))
    time.sleep(0.3)  # what was written this moment is read again, and no draft is made of it
    return sandbox


def content(server: Server, box: str) -> bytes:
    return (workspaces(server) / box / "large").read_bytes()


def test_change_after_change_arrives(server: Server, http: httpx.Client, box: str) -> None:
    old = OLD
    for number in range(4):
        at = random.Random(number).randrange(SIZE)
        new = old[:at] + b"inserted %d" % number + old[at + 3 * number :]
        told(push(http, box, old, changed(old, new)))

        assert content(server, box) == new
        assert int(sh(http, box, "stat -c %u large")) == int(sh(http, box, "id -u"))
        old = new


def test_what_is_not_what_it_says_leaves_the_old_one(server: Server, http: httpx.Client, box: str) -> None:
    lie = changed(OLD, OLD[:-5] + b"other", digest=address(b"a lie"))

    problem = refused(push(http, box, OLD, lie), 400)

    assert "digest is wrong" in problem["detail"] or "as was said" in problem["detail"]
    assert content(server, box) == OLD


def test_a_request_that_breaks_off_leaves_the_old_one(server: Server, http: httpx.Client, box: str) -> None:
    kept: dict[bytes, bytes] = {}
    base = tree_of([whole(b"large", OLD)], kept=kept)
    sent = changed(OLD, OLD[:-5] + b"other")
    body = stream(Base(base), sent, whole(b"more", random.Random(2).randbytes(1 << 20)), End(base))
    with line(server) as connection:
        head = f"POST /v1/sandboxes/{box}/sync?mode=push HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: {MEDIA}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[: len(body) // 2])
        staging = workspaces(server) / ".staging"
        eventually(lambda: any(staging.iterdir()))

    eventually(lambda: not any(staging.iterdir()))
    assert content(server, box) == OLD


def test_a_run_that_rewrites_it_meanwhile_loses_nothing(server: Server, http: httpx.Client, box: str) -> None:
    new = b"pushed" + OLD
    with server.client() as other:
        script = "while [ ! -e stop ]; do echo ran >> large; sleep 0.01; done"
        running = threading.Thread(target=ask, args=(other, box), kwargs={"command": script})
        running.start()
        eventually(lambda: (workspaces(server) / box / "large").stat().st_size > SIZE)
        answer = push(http, box, OLD, changed(OLD, new))
        (workspaces(server) / box / "stop").touch()
        running.join()

    assert answer.status_code == 409
    found = content(server, box)
    assert found.startswith(OLD)
    assert set(found[SIZE:].split()) == {b"ran"}
