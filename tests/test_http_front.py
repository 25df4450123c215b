"""What the front makes of an application that does not do as it should, and of one that takes its time."""

import asyncio
import gc
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from petri.api.front import Connection, Patience
from petri.api.front.patience import Pace
from petri.api.front.refusals import head_of

HEAD = b" / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
LONG_S = 1000.0


@asynccontextmanager
async def serving(app: ASGIApp, *, head_s: float = LONG_S, body_s: float = LONG_S) -> AsyncIterator[int]:
    """Serve one application by the front, and yield the port."""
    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None)
    config.load()
    patience = Patience(100, head_s=head_s, idle_s=LONG_S, body_s=body_s, take_s=LONG_S)
    state = ServerState()

    def connect() -> Connection:
        return Connection(patience, config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=10)


async def heard(port: int, *pieces: bytes) -> bytes:
    """Send some bytes and return everything that comes back; raises if the line is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def status_and_body(answer: bytes) -> tuple[int, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, object]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(content: bytes, *, more: bool = False) -> dict[str, object]:
    return {"type": "http.response.body", "body": content, "more_body": more}


# --------------------------------------------------------------------------- before an answer has begun


async def raising(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("/root/secret")


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    pass


async def injecting(scope: Scope, receive: Receive, send: Send) -> None:
    await send(start((b"x", b"a\r\nSet-Cookie: b")))


async def out_of_order(scope: Scope, receive: Receive, send: Send) -> None:
    await send(body(b"first the body"))


@pytest.mark.parametrize("app", [raising, silent, injecting, out_of_order])
async def test_an_application_that_does_not_answer_is_answered_for(app: ASGIApp) -> None:
    async with serving(app) as port:
        status, told = status_and_body(await heard(port, b"GET" + HEAD + b"\r\n"))

    assert status == 500
    assert json.loads(told)["code"] == "bug"
    assert b"secret" not in told
    assert b"Set-Cookie" not in told


@pytest.mark.parametrize("odd", [b"a\r\nb", b"a\nb", b"a\rb", b"a\0b"])
def test_no_header_holds_a_line_s_end(odd: bytes) -> None:
    for header in ((b"x", odd), (odd, b"x")):
        with pytest.raises(ValueError, match="cannot be a header"):
            head_of(200, [header])


# ------------------------------------------------------------------------------ after it has begun


async def breaking_off(scope: Scope, receive: Receive, send: Send) -> None:
    await send(start())
    await send(body(b"some of it", more=True))
    raise ValueError("too late to say")


async def leaving_off(scope: Scope, receive: Receive, send: Send) -> None:
    await send(start())
    await send(body(b"some of it", more=True))


async def falling_short(scope: Scope, receive: Receive, send: Send) -> None:
    await send(start((b"content-length", b"100")))
    await send(body(b"some of it"))


async def overflowing(scope: Scope, receive: Receive, send: Send) -> None:
    await send(start((b"content-length", b"5")))
    await send(body(b"more than five"))


@pytest.mark.parametrize("app", [breaking_off, leaving_off, falling_short, overflowing])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_an_answer_that_is_not_whole_cannot_be_taken_for_one(
    app: ASGIApp, version: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(app) as port:
        with pytest.raises(ConnectionResetError):
            await heard(port, b"GET" + HEAD.replace(b"1.1", version) + b"\r\n")

    assert [each for each in caplog.records if each.exc_info] == [], "a line in the log, no traceback"


async def test_an_answer_to_head_is_over_with_its_head() -> None:
    ended = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(start())
        await send(body(b"x" * 1000, more=True))
        while (await receive())["type"] != "http.disconnect":
            await send(body(b"x" * 1000, more=True))
        ended.set()

    async with serving(endless) as port:
        status, told = status_and_body(await heard(port, b"HEAD" + HEAD + b"\r\n"))

    assert (status, told) == (200, b"")
    assert ended.is_set()


# ------------------------------------------------------------------------------------- taking time


@pytest.mark.long
async def test_a_body_nobody_asked_for_yet_is_not_late() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        size = 0
        more = True
        while more:
            await asyncio.sleep(0.3)  # three times as long as a body may stand still
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        await send(start())
        await send(body(b"%d" % size))

    content = b"x" * 1_000_000
    async with serving(slow, body_s=0.1) as port:
        head = b"POST" + HEAD + b"Content-Length: %d\r\n\r\n" % len(content)
        status, told = status_and_body(await heard(port, head, content))

    assert (status, b"1000000" in told) == (200, True)


@pytest.mark.long
def test_a_client_is_not_late_when_it_is_we_who_were_held_up() -> None:
    held_up, sent = threading.Event(), threading.Event()

    async def hello(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"hello"))

    def talk(port: int, hold_up: socket.socket) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 10) as line:
            time.sleep(0.1)
            hold_up.send(b"x")
            held_up.wait(10)
            line.sendall(b"GET" + HEAD + b"\r\n")  # in time, but nobody looks until it is not any more
            sent.set()
            return line.recv(1000)

    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()

        def be_held_up() -> None:
            loop.remove_reader(ours)
            held_up.set()
            sent.wait(10)
            time.sleep(0.6)

        with ours, theirs:
            loop.add_reader(ours, be_held_up)
            async with serving(hello, head_s=0.5) as port:
                return await asyncio.to_thread(talk, port, theirs)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # its timers come before what was sent
        assert runner.run(main()).startswith(b"HTTP/1.1 200")


@pytest.mark.long
async def test_reading_goes_no_further_than_the_application(caplog: pytest.LogCaptureFixture) -> None:
    go_on = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        while (await receive()).get("more_body"):
            pass
        await send(start(status=204))
        await send(body(b""))

    content = b"x" * 50_000_000
    async with serving(waiting) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST" + HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        left = -1
        while (now := writer.transport.get_write_buffer_size()) != left:
            left = now
            await asyncio.sleep(0.1)
        assert left > 30_000_000, "what the application has not asked for stays with the client"
        go_on.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 204")
        writer.close()


async def test_a_body_that_was_held_and_never_asked_for_does_not_stop_the_next_request() -> None:
    go_on = asyncio.Event()
    paths: list[str] = []

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await go_on.wait()
        await send(start((b"content-length", b"0"), status=404))
        await send(body(b""))

    held, rest = b"x" * 100_000, b"x" * 60_000
    async with serving(refusing) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 160000\r\n\r\n" + held)
        await writer.drain()
        await asyncio.sleep(0.2)  # until all of it is with the server, which does not ask for it
        go_on.set()
        first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert b"connection: close" not in first
        writer.write(rest + b"POST /second" + HEAD[2:] + b"Content-Length: 0\r\n\r\n")
        second = await asyncio.wait_for(reader.read(), 10)
        writer.close()

    assert second.startswith(b"HTTP/1.1 404")
    assert paths == ["/first", "/second"]


async def test_whoever_answers_learns_that_the_client_is_gone_even_with_more_requests_behind() -> None:
    told = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"hello", more=True))
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with serving(waiting) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await asyncio.wait_for(told.wait(), 10)


async def test_a_server_that_ends_cuts_what_it_cannot_finish() -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"hello", more=True))
        await asyncio.sleep(LONG_S)

    async with serving(endless) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET" + HEAD + b"\r\n")
        await reader.readuntil(b"hello")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as uvicorn does when its patience ends
            task.cancel()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


# ------------------------------------------------------------------------------- nothing is left


@pytest.mark.long
@pytest.mark.parametrize("said", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n"])
async def test_of_a_connection_that_ended_nothing_is_kept(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def hello(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"hello"))

    caplog.set_level(logging.CRITICAL)
    async with serving(hello) as port:
        for _ in range(10):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            await asyncio.sleep(0.01)
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.05)
        gc.collect()
        # Each had a deadline a quarter of an hour away; one that was not cleared would still hold it.
        assert [each for each in gc.get_objects() if isinstance(each, Connection)] == []


# ------------------------------------------------------------------------------------------- the pace


def test_a_pace_is_judged_by_what_came_while_it_was_waited_for() -> None:
    pace = Pace(window_s=10)
    for second in range(0, 100, 10):  # it is asked for only half of the time
        pace.begin_waiting(second)
        pace.move(5000)
        pace.stop_waiting(second + 4)
    assert pace.left_s == 0
    assert not pace.is_too_slow()
    assert pace.left_s == 10, "and then anew"

    pace.begin_waiting(200)
    pace.move(5000)
    pace.stop_waiting(210)
    assert pace.is_too_slow(), "what came before does not count for ever"
