"""The clients against a server that answers by script: refusals, retries, and lines that break."""

import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from petri import errors
from petri.errors import Busy, Invalid, InvalidField, PetriError, Unavailable
from petri.sdk import AsyncClient, Client, Done, Output, Started
from petri.sdk.codes import BY_CODE
from tests.test_sdk_following import ANSWER, STARTED, event

Answer = Callable[[BaseHTTPRequestHandler], None]
HEALTH = {"status": "ok", "version": "0", "layers": []}


class ScriptedServer(ThreadingHTTPServer):
    """Answers each request with the next line of its script, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Answer] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.headers.append(dict(self.headers))
        self.server.script.pop(0)(self)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
async def client(scripted: ScriptedServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(scripted.url) as found:
        yield found


def says(status: int, body: object, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def refuses(status: int, code: str, detail: str = "no", field: str | None = None, **headers: str) -> Answer:
    problem = {"type": "x", "title": "x", "status": status, "detail": detail, "code": code, "field": field}
    return says(status, problem, **headers)


def breaks_after(content: bytes, length: int = 10_000) -> Answer:
    """Promise `length` bytes, send `content`, and cut the line."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(length))
        handler.end_headers()
        handler.wfile.write(content)
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    return answer


# -------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=list(BY_CODE))
async def test_every_error_arrives_as_its_own_class(
    scripted: ScriptedServer, client: AsyncClient, kind: type[PetriError]
) -> None:
    scripted.script = [refuses(418, kind.code, "a sentence", "name")]

    with pytest.raises(PetriError) as caught:
        await client.show_run("run-a")

    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.field) == ("a sentence", "name")


def test_every_error_class_with_a_code_is_known() -> None:
    leaves = {kind for kind in vars(errors).values() if isinstance(kind, type) and not kind.__subclasses__()}

    assert {kind.code for kind in leaves if issubclass(kind, PetriError)} <= set(BY_CODE)


async def test_a_code_of_a_later_release_is_still_a_petri_error(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script = [refuses(418, "os.system", "a sentence")]

    with pytest.raises(PetriError, match="a sentence") as caught:
        await client.show_run("run-a")

    assert type(caught.value) is PetriError


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (says(502, b"<html>bad gateway</html>"), Unavailable),
        (says(404, b"nothing here"), PetriError),
        (says(302, b"", Location="http://elsewhere.invalid/"), PetriError),
        (says(200, b"<html>a router's front page</html>"), PetriError),
        (says(200, {"hello": "world"}), PetriError),
    ],
)
async def test_whoever_does_not_speak_petri_is_a_sentence(
    scripted: ScriptedServer, client: AsyncClient, answer: Answer, kind: type[PetriError]
) -> None:
    scripted.script = [answer]

    with pytest.raises(kind, match="is PETRI_URL right"):
        await client.health()


def test_no_server_is_a_sentence_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with (
        Client(url, retries=0) as client,
        pytest.raises(Unavailable, match=f"no Petri server answers at {url}; start one"),
    ):
        client.health()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(Invalid, match="not the address of a server"):
        Client(url)


def test_url_and_key_come_from_the_environment(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETRI_URL", scripted.url + "/")
    monkeypatch.setenv("PETRI_API_KEY", "secret\n")
    scripted.script = [says(200, HEALTH)]

    with Client() as client:
        client.health()

    assert scripted.headers[0]["Authorization"] == "Bearer secret"


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(Invalid, match="API key"):
        Client(api_key="sécret")


def test_an_empty_id_never_reaches_the_list(scripted: ScriptedServer) -> None:
    with Client(scripted.url) as client, pytest.raises(InvalidField):
        client.delete("")

    assert scripted.asked == []


def test_a_path_that_climbs_reaches_the_server_as_it_is(scripted: ScriptedServer) -> None:
    scripted.script = [refuses(400, "invalid_request", "'..' leaves the workspace")]

    with Client(scripted.url) as client, pytest.raises(Invalid):
        client.delete_file("sb-a", "..")

    assert scripted.asked == ["DELETE /v1/sandboxes/sb-a/files/%2E%2E"]


# --------------------------------------------------------------------------------------------- retries


async def test_a_full_server_is_asked_again(scripted: ScriptedServer, client: AsyncClient) -> None:
    scripted.script = [refuses(429, "busy", Retry_After="0"), says(200, ANSWER)]

    answer = await client.exec("sb-a", command="true")

    assert answer.exit_code == 0
    assert len(scripted.asked) == 2


async def test_a_server_that_stays_full_is_not_asked_for_ever(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script = [refuses(429, "busy", Retry_After="0")] * 9

    with pytest.raises(Busy):
        await client.health()

    assert len(scripted.asked) == 4


async def test_no_retries_means_none(scripted: ScriptedServer) -> None:
    scripted.script = [refuses(429, "busy", Retry_After="0")]

    async with AsyncClient(scripted.url, retries=0) as client:
        with pytest.raises(Busy):
            await client.health()


async def test_what_may_have_started_something_is_asked_once(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script = [refuses(503, "unavailable", Retry_After="0")]

    with pytest.raises(Unavailable):
        await client.exec("sb-a", command="true")


async def test_an_upload_is_sent_again_whole(
    scripted: ScriptedServer, client: AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("print(1)\n")
    scripted.script = [refuses(429, "busy", Retry_After="0"), says(201, {"files": []})]

    await client.upload("sb-a", tmp_path / "main.py")

    assert scripted.headers[0]["Content-Length"] == scripted.headers[1]["Content-Length"]


# --------------------------------------------------------------------------------------------- streams


async def test_a_broken_stream_is_taken_up_again_where_it_broke(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script = [
        breaks_after(STARTED + event("stdout", 8, text="one ")),
        breaks_after(b""),
        breaks_after(STARTED + event("stdout", 16, text="two ") + b"id: 24\nevent: std"),
        says(200, event("stdout", 24, text="three") + event("done", 24, **ANSWER)),
    ]

    found = [each async for each in client.stream("sb-a", command="count")]

    assert isinstance(found[0], Started) and isinstance(found[-1], Done)
    assert "".join(each.text for each in found if isinstance(each, Output)) == "one two three"
    assert [call.rpartition("/")[2] for call in scripted.asked] == [
        "exec",
        *(f"events?from={n}" for n in (8, 8, 16)),
    ]


def test_the_generated_client_takes_it_up_again_too(scripted: ScriptedServer) -> None:
    scripted.script = [breaks_after(STARTED), says(200, STARTED + event("done", 0, **ANSWER))]

    with Client(scripted.url) as client:
        found = list(client.stream("sb-a", code="1"))

    assert [type(each) for each in found] == [Started, Done]


async def test_a_stream_that_breaks_before_its_run_has_a_name_is_not_started_again(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script = [breaks_after(b": keep-alive\n\n")]

    with pytest.raises(Unavailable, match="broke"):
        [each async for each in client.stream("sb-a", command="true")]

    assert len(scripted.asked) == 1


async def test_a_stream_that_closes_politely_but_early_is_taken_up_again(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script = [says(200, STARTED), says(200, event("done", 0, **ANSWER))]

    assert len([each async for each in client.stream("sb-a", command="true")]) == 2


async def test_attach_begins_where_it_is_told(scripted: ScriptedServer, client: AsyncClient) -> None:
    scripted.script = [says(200, STARTED + event("done", 30, **ANSWER))]

    found = [each async for each in client.attach("run-a", from_=30)]

    assert scripted.asked == ["GET /v1/runs/run-a/events?from=30"]
    assert [type(each) for each in found] == [Started, Done]


async def test_the_end_of_a_run_is_the_end_of_its_stream(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script = [breaks_after(STARTED + event("done", 0, **ANSWER))]

    assert len([each async for each in client.stream("sb-a", command="true")]) == 2
    assert len(scripted.asked) == 1


# ------------------------------------------------------------------------------------------- downloads


def test_a_download_appears_whole_or_not_at_all(scripted: ScriptedServer, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")
    scripted.script = [breaks_after(b"half")]

    with Client(scripted.url) as client, pytest.raises(Unavailable):
        client.download("sb-a", "out.csv", target)

    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert target.read_text() == "old"


async def test_a_download_into_a_folder_keeps_its_name(
    scripted: ScriptedServer, client: AsyncClient, tmp_path: Path
) -> None:
    scripted.script = [says(200, b"1,2")]
    seen: list[tuple[int, int | None]] = []

    path = await client.download("sb-a", "data/out.csv", tmp_path, progress=lambda *step: seen.append(step))

    assert path == tmp_path / "out.csv" and path.read_bytes() == b"1,2"
    assert seen == [(3, 3)]


async def test_a_file_cannot_choose_the_folder_it_lands_in(client: AsyncClient, tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        await client.download("sb-a", "data/..", tmp_path)


# ----------------------------------------------------------------------------------------------- pages


async def test_lists_go_from_page_to_page(scripted: ScriptedServer, client: AsyncClient) -> None:
    row = {"number": 1, "at": "", "kind": "created", "run_id": None, "detail": {}}
    scripted.script = [
        says(200, {"events": [row], "next_cursor": "MQ=="}),
        says(200, {"events": [row], "next_cursor": None}),
    ]

    assert len([each async for each in client.events("sb-a")]) == 2
    assert scripted.asked[1] == "GET /v1/sandboxes/sb-a/events?limit=100&cursor=MQ%3D%3D"


async def test_a_limit_ends_the_list(scripted: ScriptedServer, client: AsyncClient) -> None:
    scripted.script = [says(200, {"sandboxes": [], "next_cursor": "x"})]

    [each async for each in client.sandboxes(state="ready", metadata={"a": "b c"}, limit=7)]

    assert scripted.asked == ["GET /v1/sandboxes?metadata.a=b+c&state=ready&limit=7"]


async def test_a_silent_server_is_given_up(scripted: ScriptedServer) -> None:
    scripted.script = [lambda handler: time.sleep(0.5)]

    async with AsyncClient(scripted.url, timeout_s=0.1) as client:
        with pytest.raises(Unavailable, match="fell silent"):
            await client.health()
