"""Watching: what is saved is there in a moment, what runs write comes back, and a server may come and go."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from petri import AsyncClient, Client
from petri.errors import NotFound, PetriError
from petri.sdk import Mirror, Synced, Watching, Wish
from petri.sdk.folder.line import Line, Sending
from tests.calls import eventually
from tests.conftest import PETRI, Server
from tests.real_syncs import RealSyncs

pytestmark = pytest.mark.long


@contextmanager
def kept_in_step(folder: Path, box: str, url: str, troubles: list[str]) -> Iterator[list[Synced]]:
    """Watch in another thread; yields what was told."""
    told: list[Synced] = []
    with Mirror(folder, box, url, retries=0) as mirror:
        watching = Watching(mirror, trouble=lambda error: troubles.append(error.message))

        def watch() -> None:
            while (done := watching.next()) is not None:
                told.append(done)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield told
        finally:
            watching.stop()
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def real(server: Server) -> Iterator[RealSyncs]:
    syncs = RealSyncs(server)
    yield syncs
    syncs.close()


def test_a_save_is_in_the_sandbox_in_a_moment(folder: Path, real: RealSyncs) -> None:
    box = real.create()
    place = real.top(box)
    (folder / "first").write_text("1")
    with kept_in_step(folder, box, real.url, []) as told:
        eventually(lambda: (place / "first").exists())
        eventually(lambda: len(told) == 1)
        time.sleep(1.5)  # it watches by now, and has looked through everything once more
        took_s = []
        for number in range(5):
            begun = time.monotonic()
            (folder / "deep" / f"{number}").mkdir(parents=True)
            (folder / "deep" / f"{number}" / "saved.py").write_text(f"{number}")
            eventually(lambda n=number: _text(place / "deep" / f"{n}" / "saved.py") == f"{n}")  # type: ignore[misc]
            took_s.append(time.monotonic() - begun)
            time.sleep(0.1)
        eventually(lambda: told[-1].sent.added == ("deep/4/saved.py",))

    assert min(took_s) < 0.1, took_s


def test_a_save_does_not_wait_for_a_look_through_everything(
    folder: Path, real: RealSyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    exchange = Mirror.exchange

    def noting(self: Mirror, wish: Wish) -> Synced:
        asked.append(wish.touched)
        return exchange(self, wish)

    monkeypatch.setattr(Mirror, "exchange", noting)
    monkeypatch.setattr("petri.sdk.folder.watching.LOOK_S", 0.0)  # it is due all the time
    with kept_in_step(folder, real.create(), real.url, []):
        eventually(lambda: asked[1:].count(None) > 0)
        (folder / "saved").write_text("1")
        eventually(lambda: [b"saved"] in asked)


def test_what_a_run_writes_comes_back(folder: Path, real: RealSyncs) -> None:
    box = real.create()
    with kept_in_step(folder, box, real.url, []) as told:
        real.exec(box, "mkdir out; echo result > out/x; echo y > y")
        eventually(lambda: _text(folder / "out" / "x") == "result\n")
        real.exec(box, "rm y")
        eventually(lambda: not (folder / "y").exists())

    assert not (folder / ".petri-sync").exists()
    assert all(not done.conflicts for done in told)


def test_a_conflict_is_told_once(folder: Path, real: RealSyncs) -> None:
    box = real.create()
    (folder / "f").write_text("agreed")
    with Mirror(folder, box, real.url) as mirror:
        mirror.push()
    real.write(box, "f", b"theirs")
    (folder / "f").write_text("mine")
    with kept_in_step(folder, box, real.url, []) as told:
        eventually(lambda: len(told) == 1)
        time.sleep(2.5)  # it asks every second
        assert [each.path for each in told[0].conflicts] == ["f"]
        assert len(told) == 1


def test_what_is_skipped_is_told_once(folder: Path, real: RealSyncs) -> None:
    box = real.create()
    os.mkfifo(folder / "fifo")
    with kept_in_step(folder, box, real.url, []) as told:
        for number in range(3):
            (folder / "f").write_text(f"{number}")
            eventually(lambda n=number: real.files(box).get(b"f") == b"%d" % n)  # type: ignore[misc]
            eventually(lambda n=number: len(told) > n)  # type: ignore[misc]

    assert [each.path for done in told for each in done.skipped] == ["fifo"]


def test_a_server_may_be_away_for_a_while(folder: Path, new_server: Callable[..., Server]) -> None:
    server = new_server()
    server.env["PETRI_PORT"] = server.url.rpartition(":")[2]
    syncs = RealSyncs(server)
    box = syncs.create()
    troubles: list[str] = []
    (folder / "before").write_text("1")
    with kept_in_step(folder, box, server.url, troubles) as told:
        eventually(lambda: len(told) == 1)
        server.stop(signal.SIGKILL)
        (folder / "while it was away").write_text("2")
        eventually(lambda: bool(troubles))
        syncs.leave()
        server.start()
        syncs = RealSyncs(server)
        eventually(lambda: "while it was away" in {path.name for path in syncs.top(box).iterdir()}, 30)
        (folder / "after").write_text("3")
        eventually(lambda: "after" in {path.name for path in syncs.top(box).iterdir()}, 30)
    syncs.leave()


def test_a_dry_run_in_the_sandbox_is_waited_for(folder: Path, real: RealSyncs, server: Server) -> None:
    box = real.create()
    troubles: list[str] = []
    (folder / "before").write_text("1")
    with server.client() as http, kept_in_step(folder, box, real.url, troubles) as told:
        eventually(lambda: len(told) == 1)
        ask = {"command": "echo begun; sleep 60", "keep": "never"}
        events = {"Accept": "text/event-stream"}
        with http.stream("POST", f"/v1/sandboxes/{box}/exec", json=ask, headers=events) as answer:
            assert any("begun" in said for said in answer.iter_lines())
            (folder / "meanwhile").write_text("2")
            eventually(lambda: any("could be lost" in said for said in troubles))
        [run] = http.get(f"/v1/sandboxes/{box}/runs").json()["runs"]
        http.post(f"/v1/runs/{run['run_id']}/cancel")
        eventually(lambda: (real.top(box) / "meanwhile").exists(), 20)


def test_what_is_refused_for_long_is_said_once_and_asked_less_and_less(
    folder: Path, real: RealSyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = real.create()
    real.write(box, "x/theirs", b"1")
    (folder / ".gitignore").write_text("x/\n")
    (folder / "x").write_text("a file here, an ignored folder there")
    troubles: list[str] = []
    asked: list[float] = []
    exchange = Mirror.exchange

    def counted(mirror: Mirror, wish: Wish) -> Synced:
        asked.append(time.monotonic())
        return exchange(mirror, wish)

    monkeypatch.setattr(Mirror, "exchange", counted)
    with kept_in_step(folder, box, real.url, troubles):
        eventually(lambda: len(asked) >= 4, 30)
        assert asked[3] - asked[2] > 1.5 * (asked[2] - asked[1]), "it waits longer each time"
        assert len(troubles) == 1
        (folder / "x").unlink()  # and when something is saved, it does not wait at all
        eventually(lambda: ".gitignore" in {path.name for path in real.top(box).iterdir()}, 2)
    assert [("rules ignore" in said) for said in troubles] == [True]


def test_a_sandbox_that_is_deleted_meanwhile_ends_it(folder: Path, real: RealSyncs) -> None:
    box = real.create()
    (folder / "f").write_text("1")
    with Mirror(folder, box, real.url, retries=0) as mirror:
        watching = Watching(mirror)
        assert watching.next() is not None
        real.delete(box)
        with pytest.raises(PetriError, match=r"deleted|deleting|no sandbox"):
            watching.next()


def test_a_sandbox_that_is_gone_ends_it(folder: Path, real: RealSyncs) -> None:
    with Mirror(folder, "sb-" + "a" * 20, real.url) as mirror, pytest.raises(PetriError, match="no sandbox"):
        Watching(mirror).next()


# --------------------------------------------------------------------------------- from Python, and the shell


def test_a_client_pushes_runs_and_pulls(folder: Path, server: Server) -> None:
    (folder / "main.py").write_text("open('out.txt', 'w').write('made'); print('ran')")
    with Client(server.url) as client:
        answer = client.run(folder, "main.py", args=["x"])
        again = client.run(folder, "main.py")
        back = client.pull(folder, again.sandbox_id)
        nothing = client.sync(folder, again.sandbox_id)
        client.delete(again.sandbox_id)

    assert (answer.stdout, answer.sandbox_id) == ("ran\n", again.sandbox_id)
    assert back.received.added == ("out.txt",)
    assert (folder / "out.txt").read_text() == "made"
    assert nothing.sent.is_nothing and nothing.received.is_nothing


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the server, call by call."""
    found: list[str] = []
    send, begin = httpx.Client.send, Line.begin

    def sending(self: httpx.Client, request: httpx.Request, **rest: Any) -> httpx.Response:
        found.append(f"{request.method} {request.url.path.rpartition('/')[2]}")
        return send(self, request, **rest)

    def beginning(self: Line, method: str, path: str, headers: Mapping[str, str]) -> Sending:
        found.append(f"{method} {path.partition('?')[0].rpartition('/')[2]}")
        return begin(self, method, path, headers)

    monkeypatch.setattr(httpx.Client, "send", sending)
    monkeypatch.setattr(Line, "begin", beginning)
    return found


def test_a_run_of_a_folder_asks_as_little_as_can_be(folder: Path, server: Server, asked: list[str]) -> None:
    (folder / "main.py").write_text("print(1)")
    with Client(server.url) as client:
        client.run(folder, "main.py")
        assert asked == ["POST sandboxes", "POST sync", "POST exec"]
        asked.clear()
        client.run(folder, "main.py")
        assert asked == ["POST exec"]
        asked.clear()
        (folder / "main.py").write_text("print(2)")
        answer = client.run(folder, "main.py")
        assert asked == ["POST sync", "POST exec"]
        assert answer.stdout == "2\n"
        client.delete(answer.sandbox_id)


@pytest.mark.parametrize("name", ["named", None])
def test_a_run_goes_to_whoever_has_the_name_now(folder: Path, server: Server, name: str | None) -> None:
    (folder / "main.py").write_text("print(1)")
    with Client(server.url) as client:
        if name is not None:
            client.create(name=name)
        first = client.run(folder, "main.py", sandbox=name)
        client.delete(first.sandbox_id)
        if name is not None:
            with pytest.raises(NotFound, match="no sandbox 'named'"):
                client.run(folder, "main.py", sandbox=name)
            client.create(name=name)
        second = client.run(folder, "main.py", sandbox=name)
        client.delete(second.sandbox_id)

    assert (second.stdout, second.sandbox_id != first.sandbox_id) == ("1\n", True)


async def test_a_client_with_an_event_loop_watches(folder: Path, real: RealSyncs) -> None:
    box = real.create()
    (folder / "f").write_text("1")
    async with AsyncClient(real.url) as client:
        watching = client.watch(folder, box)
        first = await anext(watching)
        (folder / "g").write_text("2")
        second = await anext(watching)
        await watching.aclose()
        pushed = await client.push(folder, box, dry_run=True)

    assert (first.sent.added, second.sent.added) == (("f",), ("g",))
    assert pushed.sent.is_nothing and pushed.is_dry_run


def test_the_command_watches_until_it_is_interrupted(
    folder: Path, real: RealSyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = real.create()
    monkeypatch.setenv("PETRI_URL", real.url)
    command = [str(PETRI), "watch", str(folder), box, "--json"]
    (folder / "f").write_text("1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert '"added": ["f"]' in process.stdout.readline()
        (folder / "g").write_text("2")
        assert '"added": ["g"]' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def petri(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PETRI), *words], capture_output=True, text=True, check=False)


def test_the_commands_say_what_moved_and_exit_by_conflicts(
    folder: Path, real: RealSyncs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box = real.create()
    monkeypatch.setenv("PETRI_URL", real.url)
    (folder / "f").write_text("agreed")
    pushed = petri("push", str(folder), box)
    assert (pushed.returncode, pushed.stdout.splitlines()[0]) == (0, "↑ + f")
    real.write(box, "f", b"theirs")
    (folder / "f").write_text("mine")

    refused = petri("push", str(folder), box)
    assert refused.returncode == 1
    assert "! f: the sandbox changed the file, the folder changed the file" in refused.stdout
    assert "nothing was sent" in refused.stderr
    told = petri("sync", str(folder), box, "--json")
    assert told.returncode == 1
    assert '"conflicts": [{"path": "f"' in told.stdout
    assert petri("sync", str(folder), box, "--prefer", "sandbox").returncode == 0
    assert (folder / "f").read_text() == "theirs"
    pulled = petri("pull", box, str(tmp_path / "copy"))
    assert pulled.returncode == 0
    assert (tmp_path / "copy" / "f").read_text() == "theirs"
    assert petri("pull", box, str(folder), "--prefer", "local").returncode == 125
    assert petri("push", str(tmp_path / "nowhere"), box).stderr.startswith("petri: there is no folder")
    assert petri("push", str(folder)).returncode == 2
    assert petri("push", str(folder), box, "--prefer", "neither").returncode == 2


def test_a_sync_loads_neither_click_nor_httpx_nor_pydantic() -> None:
    code = (
        "import sys, petri.cli.folders;"
        "sys.exit(bool({'click', 'httpx', 'pydantic', 'asyncio', 'ssl', 'watchfiles'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
