"""Both clients against a real server: everything the API offers, as Python has it."""

import asyncio
import io
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from select import select
from threading import Thread

import pytest

from petri import AsyncClient, Client
from petri.errors import Conflict, Invalid, InvalidField, NotFound, PreconditionFailed, StorageFull
from petri.sdk import Done, Event, Output, Started
from tests.conftest import Server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as found:
        yield found


@pytest.fixture
def box(client: Client) -> Iterator[str]:
    sandbox = client.create(metadata={"for": "sdk"})
    yield sandbox.id
    client.delete(sandbox.id)


def text(events: list[Event], stream: str = "stdout") -> str:
    return "".join(event.text for event in events if isinstance(event, Output) and event.stream == stream)


# ------------------------------------------------------------------------------------------- sandboxes


def test_upload_once_run_as_often_as_you_like(client: Client, box: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import sys; print('hello', *sys.argv[1:]); sys.exit(3)")
    client.upload(box, tmp_path / "main.py")

    for name in ("one", "two"):
        answer = client.exec(box, filename="main.py", args=[name])
        assert (answer.exit_code, answer.stdout) == (3, f"hello {name}\n")


def test_a_name_finds_its_sandbox_and_makes_no_second_one(client: Client) -> None:
    first = client.create(name="sdk-named", language="bash", idle_s=600)
    try:
        assert client.create(name="sdk-named").id == first.id
        assert client.sandbox("sdk-named").id == first.id == client.sandbox_id("sdk-named")
        assert client.sandbox_id(first.id) == first.id
        assert (first.language, first.expires_because) == ("bash", "idle")
    finally:
        client.delete(first.id)
    with pytest.raises(NotFound):
        client.sandbox("sdk-named")
    assert client.sandbox(first.id).ended_because == "deleted"


def test_lists_keep_those_asked_for(client: Client) -> None:
    made = [client.create(metadata={"lists": "sdk & more"}).id for _ in range(3)]
    try:
        found = [sandbox.id for sandbox in client.sandboxes(metadata={"lists": "sdk & more"}, state="ready")]
        assert found == made[::-1]
        assert [each.id for each in client.sandboxes(metadata={"lists": "sdk & more"}, limit=2)] == found[:2]
    finally:
        for sandbox in made:
            client.delete(sandbox)
    assert list(client.sandboxes(metadata={"lists": "sdk & more"}, state="ready")) == []


def test_what_is_not_named_in_an_update_stays(client: Client, box: str) -> None:
    client.update(box, ttl_s=900, limits={"processes": 20})
    changed = client.update(box, metadata={"a": "b"})

    assert (changed.ttl_s, changed.limits.processes, changed.metadata) == (900, 20, {"a": "b"})
    assert client.update(box, ttl_s=None).expires_at is None


def test_what_the_server_refuses_names_the_field(client: Client) -> None:
    with pytest.raises(InvalidField) as refused:
        client.create(ttl_s=-1)

    assert refused.value.field == "ttl_s"


def test_deleting_twice_is_fine(client: Client) -> None:
    sandbox = client.create()
    client.delete(sandbox.id)
    client.delete(sandbox.id)

    assert client.sandbox(sandbox.id).state == "deleted"
    assert [event.number for event in client.events(sandbox.id)]


# ----------------------------------------------------------------------------------------------- files


def test_files_folders_and_bytes_in_one_request(client: Client, box: str, tmp_path: Path) -> None:
    (tmp_path / "pkg" / "deep").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "deep" / "mod.py").write_text("x = 1\n")

    written = client.upload(box, tmp_path / "pkg", {"data/in.bin": b"\0\xff", "note.txt": "Grüße"})

    assert [file.path for file in written.files] == [
        "pkg/__init__.py",
        "pkg/deep/mod.py",
        "data/in.bin",
        "note.txt",
    ]
    assert client.read(box, "data/in.bin") == b"\0\xff"
    kinds = {entry.path: entry.kind for entry in client.list_files(box, recursive=True).entries}
    assert kinds["pkg/deep"] == "folder" and kinds["pkg/deep/mod.py"] == "file"
    assert [entry.path for entry in client.list_files(box, "pkg/deep").entries] == ["pkg/deep/mod.py"]


@pytest.mark.parametrize(
    "name", ['quo"te', "per%20cent", "sp ace", "über/世界", "semi;colon", "a\\b", "#?&=+", "'", ":"]
)
def test_odd_names_stay_what_they_are(client: Client, box: str, name: str) -> None:
    client.write(box, name, b"put")
    assert client.read(box, name) == b"put"
    client.upload(box, {name: b"posted"})
    assert client.read(box, name) == b"posted"
    listed = [entry.path for entry in client.list_files(box, recursive=True).entries if entry.kind == "file"]
    assert listed == [name]


def test_a_file_is_replaced_only_if_it_is_the_one_we_know(client: Client, box: str) -> None:
    first = client.write(box, "a.txt", "one")
    second = client.write(box, "a.txt", io.BytesIO(b"two"), if_match=first.digest)

    with pytest.raises(PreconditionFailed):
        client.write(box, "a.txt", b"three", if_match=first.digest)

    assert client.read(box, "a.txt") == b"two"
    assert second.digest != first.digest


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "/etc/passwd", "nul\0"])
def test_a_path_that_leaves_the_workspace_is_refused(client: Client, box: str, path: str) -> None:
    with pytest.raises(Invalid):
        client.read(box, path)
    with pytest.raises(Invalid):
        client.write(box, path, b"")
    with pytest.raises(Invalid):
        client.delete_file(box, path)
    assert client.sandbox(box).state == "ready"


@pytest.mark.long
def test_a_large_file_goes_there_and_back(client: Client, box: str, tmp_path: Path) -> None:
    source = tmp_path / "large.bin"
    source.write_bytes(bytes(range(256)) * 40_000)
    seen: list[int] = []

    client.upload(box, source, progress=lambda done, _: seen.append(done))
    path = client.download(box, "large.bin", tmp_path / "back.bin")

    assert path.read_bytes() == source.read_bytes()
    assert seen[-1] > source.stat().st_size and len(seen) > 10


def test_archives_go_in_and_come_out(client: Client, box: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        archive.writestr("lib/mod.py", "x = 1\n")
    client.upload(box, tmp_path / "in.zip", extract=True)
    assert client.read(box, "lib/mod.py") == b"x = 1\n"

    path = client.download_archive(box, "lib", tmp_path, archive="tar.gz")
    assert path.name == "lib.tar.gz"
    with tarfile.open(path) as members:
        assert any(name.endswith("mod.py") for name in members.getnames())
    assert client.download_archive(box, "", tmp_path, archive="tar").stat().st_size > 0


def test_a_deleted_file_is_gone(client: Client, box: str) -> None:
    client.upload(box, {"pkg/a": b"", "pkg/b": b""})
    client.delete_file(box, "pkg")

    with pytest.raises(NotFound):
        client.read(box, "pkg/a")


# ------------------------------------------------------------------------------------------------ runs


def test_everything_a_run_can_be_told(client: Client, box: str) -> None:
    client.upload(box, {"sub/here.txt": "x"})
    code = "import os, sys; print(sys.argv[1:], os.environ['A'], os.listdir(), sys.stdin.read())"

    answer = client.exec(
        box, code=code, language="python", args=["1"], env={"A": "b"}, cwd="sub", stdin="in", timeout_s=20
    )

    assert answer.stdout == "['1'] b ['here.txt'] in\n", answer.stderr


def test_a_time_limit_is_an_answer(client: Client, box: str) -> None:
    answer = client.exec(box, command=["sleep", "60"], timeout_s=0.3)

    assert answer.timed_out and answer.exit_code is None


def test_a_stream_brings_output_while_the_run_goes_on(client: Client, box: str) -> None:
    events = client.stream(
        box, command="echo one; echo two >&2; while [ ! -e go ]; do sleep 0.02; done; echo three"
    )
    seen: list[Event] = []
    for event in events:
        seen.append(event)
        if isinstance(event, Output) and event.stream == "stderr":
            client.write(box, "go", b"")

    assert isinstance(seen[0], Started) and isinstance(seen[-1], Done)
    assert (text(seen), text(seen, "stderr")) == ("one\nthree\n", "two\n")
    assert seen[-1].answer.exit_code == 0


def test_a_run_can_be_watched_again_from_anywhere(client: Client, box: str) -> None:
    seen = list(client.stream(box, command="echo one; sleep 0.1; echo two"))
    assert isinstance(seen[0], Started) and isinstance(seen[1], Output)

    assert text(list(client.attach(seen[0].run_id))) == "one\ntwo\n"
    assert text(list(client.attach(seen[0].run_id, from_=seen[1].position))) == text(seen[2:])


def test_cancelling_ends_a_run_once(client: Client, box: str) -> None:
    events = client.stream(box, command="echo up; sleep 60")
    started = next(events)
    assert isinstance(started, Started)
    assert isinstance(next(events), Output)

    ended = client.cancel(started.run_id)

    assert (ended.state, ended.cancelled) == ("cancelled", True)
    last = list(events)[-1]
    assert isinstance(last, Done) and last.answer.cancelled
    with pytest.raises(Conflict):
        client.cancel(started.run_id)


def test_the_exact_bytes_of_a_run_are_kept(client: Client, box: str) -> None:
    answer = client.exec(box, command=r"printf '\377\000\n'; printf 'no\n' >&2; exit 4")

    assert client.run_output(answer.run_id) == b"\xff\0\n"
    assert client.run_output(answer.run_id, "stderr") == b"no\n"
    run = client.show_run(answer.run_id)
    assert (run.exit_code, run.stdout.bytes) == (4, 3)
    assert [each.run_id for each in client.runs(box, limit=5)] == [answer.run_id]


def test_one_call_leaves_nothing(client: Client) -> None:
    answer = client.run_once(
        files={"main.py": "print(open('data', 'rb').read())", "data": b"\xff"}, filename="main.py"
    )

    assert answer.stdout == "b'\\xff'\n", answer.stderr
    assert client.sandbox(answer.sandbox_id).state == "deleted"


def test_a_stranger_s_id_is_not_found(client: Client) -> None:
    for call in (client.sandbox, client.list_files, client.delete, client.show_run):
        with pytest.raises(NotFound):
            call("sb-aaaaaaaaaaaaaaaaaaaa")


def test_the_server_says_what_it_is(client: Client) -> None:
    assert "python" in [each.name for each in client.languages().languages if each.available]
    assert client.health().layers
    assert client.metrics().uptime_s > 0


# ----------------------------------------------------------------------------------------- both at once


@pytest.mark.long
async def test_many_runs_at_once_with_an_event_loop(server: Server) -> None:
    async with AsyncClient(server.url) as client:
        boxes = [await client.create() for _ in range(4)]
        answers = await asyncio.gather(
            *(client.exec(box.id, code=f"print({number})") for number, box in enumerate(boxes))
        )
        for box in boxes:
            await client.delete(box.id)

    assert [answer.stdout for answer in answers] == ["0\n", "1\n", "2\n", "3\n"]


async def test_leaving_a_stream_leaves_the_run_running(server: Server) -> None:
    async with AsyncClient(server.url) as client:
        box = await client.create()
        async with aclosing(client.stream(box.id, command="sleep 0.3; echo done")) as events:
            started = await anext(events)
        assert isinstance(started, Started)
        seen = [each async for each in client.attach(started.run_id)]
        await client.delete(box.id)

    assert text(seen) == "done\n"


@pytest.mark.long
def test_a_line_that_is_cut_in_the_middle_of_a_run_loses_nothing(server: Server, box: str) -> None:
    with CutLine(server.url, after_bytes=5000) as line, Client(line.url) as client:
        command = "for i in $(seq 200); do echo line $i; sleep 0.002; done"
        seen = list(client.stream(box, command=command))

    assert text(seen) == "".join(f"line {number}\n" for number in range(1, 201))
    assert line.cuts > 1


class CutLine:
    """A proxy that cuts each connection after so many bytes of answer."""

    def __init__(self, url: str, after_bytes: int) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._to = (host, int(port))
        self._after_bytes = after_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = Thread(target=self._serve)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0

    def __enter__(self) -> "CutLine":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with near, socket.create_connection(self._to) as far:
                    self._carry(near, far)

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        left = self._after_bytes
        while left > 0:
            ready, _, _ = select([near, far], [], [])
            source, sink = (near, far) if near in ready else (far, near)
            piece = source.recv(min(left, 512))
            if not piece:
                return
            sink.sendall(piece)
            left -= len(piece) if source is far else 0
        self.cuts += 1


@pytest.mark.long
def test_limits_are_named_for_a_sandbox_and_tightened_for_a_run(client: Client) -> None:
    box = client.create(limits={"disk_bytes": 16 << 20, "inodes": 600, "open_files": 100})
    try:
        answer = client.exec(box.id, command="ulimit -n", limits={"open_files": 64})
        full = client.exec(box.id, command="for n in $(seq 900); do : > f$n; done", timeout_s=30)
        run = client.show_run(full.run_id)
        used = client.sandbox(box.id).usage

        assert answer.stdout == "64\n"
        assert (full.disk_full, run.disk_full) == (True, True)
        assert full.remark is not None
        assert "limits.inodes" in full.remark
        assert run.limits is not None
        assert run.limits.inodes == 600
        assert used is not None
        assert used.inodes > 600
        with pytest.raises(StorageFull) as refused:
            client.upload(box.id, {"one": "more"})
        assert refused.value.field == "limits.inodes"
    finally:
        client.delete(box.id)
