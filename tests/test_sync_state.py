"""What is remembered of a folder: kept whole, by one at a time, and doubted when it is torn."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from petri.errors import Conflict, PetriError
from petri.sdk.folder import state as module
from petri.sdk.folder.state import Forgotten, Peer, State
from petri.syncing.delta import sign
from petri.trees import EMPTY, File, Folder, address, encode

URL = "http://127.0.0.1:8000"
BOX = "sb-aaaaaaaaaaaaaaaaaaaa"


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


def made(number: int) -> tuple[bytes, bytes]:
    encoded = encode({str(number).encode(): File(bytes(32), number, 6)})
    return address(encoded), encoded


def the_one(home: str) -> Path:
    return next((Path(home) / "sync").iterdir())


def test_what_is_kept_is_there_for_the_next_one(home: str) -> None:
    first = State(b"/project", home)
    with first.locked():
        first.keep(dict([made(1), made(2)]))
        first.save_peer(URL, BOX, Peer(made(1)[0], made(2)[0]))

    second = State(b"/project", home)
    with second.locked():
        assert second.fetch(made(1)[0]) == {b"1": File(bytes(32), 1, 6)}
        assert second.peer(URL, BOX) == Peer(made(1)[0], made(2)[0])
        assert second.peer(URL + "1", BOX) is None
        assert second.other_base(URL) == made(1)[0]
        assert second.other_base(URL + "1") is None
    other = State(b"/other", home)
    with other.locked(), pytest.raises(Forgotten):
        other.fetch(made(1)[0])
    assert (the_one(home) / "folder").read_bytes() in (b"/project\n", b"/other\n")


@pytest.mark.parametrize("torn", [1, 30, 40, 60])
def test_a_torn_object_is_cut_off_and_more_can_be_kept(home: str, torn: int) -> None:
    first = State(b"/project", home)
    with first.locked():
        first.keep(dict([made(1), made(2)]))
    objects = the_one(home) / "objects"
    objects.write_bytes(objects.read_bytes()[:-torn])

    second = State(b"/project", home)
    with second.locked():
        assert second.fetch(made(1)[0])
        with pytest.raises(Forgotten):
            second.fetch(made(2)[0])
        second.keep(dict([made(3)]))
    third = State(b"/project", home)
    with third.locked():
        assert third.fetch(made(3)[0]) == {b"3": File(bytes(32), 3, 6)}


def test_an_object_that_is_another_is_none(home: str) -> None:
    first = State(b"/project", home)
    with first.locked():
        first.keep(dict([made(1)]))
    objects = the_one(home) / "objects"
    content = bytearray(objects.read_bytes())
    content[-1] ^= 1
    objects.write_bytes(content)

    second = State(b"/project", home)
    with second.locked(), pytest.raises(Forgotten):
        second.fetch(made(1)[0])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": 1}', '{"url": "x", "base": "zz", "agreed": ""}'])
def test_a_torn_agreement_is_none(home: str, content: str) -> None:
    state = State(b"/project", home)
    with state.locked():
        state.save_peer(URL, BOX, Peer(EMPTY, EMPTY))
        next((the_one(home) / "peers").iterdir()).write_text(content)

        assert state.peer(URL, BOX) is None
        assert state.other_base(URL) is None


def test_what_another_process_wrote_is_seen(home: str) -> None:
    first, second = State(b"/project", home), State(b"/project", home)
    with first.locked():
        first.keep(dict([made(1)]))
    with second.locked():
        second.keep(dict([made(2)]))
    with first.locked():
        assert first.fetch(made(2)[0])
        first.keep(dict([made(3)]))
    with second.locked():
        assert second.fetch(made(1)[0])
        assert second.fetch(made(3)[0])


def test_another_process_waits_for_the_lock(home: str) -> None:
    state = State(b"/project", home)
    program = (
        "import sys; from petri.sdk.folder.state import State\n"
        f"with State(b'/project', {home!r}).locked(): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(Conflict, match=rf"another process \({other.pid}\)"), state.locked(wait_s=0):
            pass
        other.kill()  # whoever dies lets go
    with state.locked(wait_s=0):
        pass


@pytest.mark.long
def test_objects_nobody_needs_are_left_out_in_time(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTH_PACKING", 10_000)
    state = State(b"/project", home)
    inner = made(0)
    outer = encode({b"inner": Folder(inner[0])})
    with state.locked():
        state.keep(dict([inner, (address(outer), outer)]))
        for number in range(1, 300):
            state.keep(dict([made(number)]))
            state.save_peer(URL, BOX, Peer(address(outer), EMPTY))

        assert (the_one(home) / "objects").stat().st_size < 15_000
    again = State(b"/project", home)
    with again.locked():
        assert again.fetch(address(outer)) == {b"inner": Folder(inner[0])}
        assert again.fetch(inner[0])


def test_signatures_nobody_needs_are_left_out_once_there_are_many(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_SIGNATURES", 2)
    state = State(b"/project", home)
    signature = sign(lambda at, length: bytes(length), 1000)
    with state.locked():
        for number in range(4):
            state.save_signature(bytes([number]) * 32, signature)
        state.prune_signatures(lambda: [bytes([3]) * 32])

        assert state.signature(bytes([3]) * 32) == signature
        assert not state.has_signature(bytes([2]) * 32)
        assert state.signature(bytes([2]) * 32) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PetriError, match="set XDG_STATE_HOME"), State(b"/project", str(tmp_path)).locked():
        pass


def test_a_home_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(PetriError, match="set XDG_STATE_HOME"), State(b"/p", str(tmp_path / "home")).locked():
        pass
