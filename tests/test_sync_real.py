"""Any history of edits, runs and syncs with the real server ends with both sides the same, byte for byte."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as some
from hypothesis.stateful import rule, run_state_machine_as_test

from petri.sdk import Mirror
from petri.store import Store
from tests.conftest import Server
from tests.real_syncs import RealSyncs, remove
from tests.test_sync_histories import PATHS, Histories

SCRIPTS = (
    "echo run > from-run; mkdir -p a/b; date +%N > a/b/c",
    "rm -rf a; ln -s b link-of-run",
    "mv a moved 2>/dev/null; mkdir -p junk; echo 1 > junk/x",
    "chmod 700 b c 2>/dev/null; true",
)


class RealHistories(Histories):
    """The same, but the sandbox is one of a real server, and runs work in it."""

    server: RealSyncs  # type: ignore[assignment]

    @rule(script=some.sampled_from(SCRIPTS))
    def run_there(self, script: str) -> None:
        assert self.server.exec(self.sandbox, script).status_code == 200

    @rule(path=PATHS, to=PATHS)
    def rename_there(self, path: str, to: str) -> None:
        top = self.server.top(self.sandbox)
        if os.path.lexists(top / path) and not (to + "/").startswith(path + "/"):
            self._clear_there(to)
            if os.path.lexists(top / path) and _is_reached(top, path):
                remove(top / to)
                if os.path.lexists(top / path):
                    self.server.move(self.sandbox, path, to)

    @rule()
    def forget_there(self) -> None:
        """It is up to the server what it forgets."""

    def _clear_there(self, path: str) -> None:
        top = self.server.top(self.sandbox)
        parts = path.split("/")
        for end in range(1, len(parts)):
            above = top / "/".join(parts[:end])
            if above.is_symlink() or (above.exists() and not above.is_dir()):
                above.unlink()


def _is_reached(top: Path, path: str) -> bool:
    """Say whether no link is on the way."""
    return not any((top / above).is_symlink() for above in map(str, Path(path).parents) if above != ".")


@pytest.mark.slow
def test_any_history_with_the_real_server_ends_in_agreement(
    tmp_path: Path, new_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    server = new_server()
    RealHistories.server, RealHistories.state = RealSyncs(server), str(tmp_path)
    run_state_machine_as_test(
        RealHistories,
        settings=settings(
            max_examples=20,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
    assert "ERROR" not in server.log()
    assert server.stop() == 0
    store = Store(server.home / "petri" / "store")
    assert store.fsck("default", deep=True) == []
    store.close()


@pytest.mark.long
def test_the_same_folder_in_two_sandboxes_and_back(
    folder: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = RealSyncs(server)
    boxes = [syncs.create(), syncs.create()]
    for number in range(200):
        (folder / f"{number}.py").write_bytes(os.urandom(300))
    with Mirror(folder, boxes[0], server.url) as first, Mirror(folder, boxes[1], server.url) as second:
        sent = first.push()
        again = second.push()
        assert again.bytes_sent + again.bytes_received < 2_000 < sent.bytes_sent
        syncs.exec(boxes[1], "echo 1 > made; rm 7.py; mv 8.py eight.py")
        back = second.pull()
        assert (back.received.added, back.received.deleted) == (("made",), ("7.py",))
        assert back.received.renamed == (("8.py", "eight.py"),)
        first.push()
    assert syncs.files(boxes[0]) == syncs.files(boxes[1])
    syncs.close()


@pytest.mark.long
def test_a_large_file_that_changes_in_every_way_arrives_as_it_is(
    folder: Path, new_server: Callable[..., Server]
) -> None:
    server = new_server()
    syncs = RealSyncs(server)
    box = syncs.create()
    change = random.Random(5)
    content = bytearray(change.randbytes(9 << 20))
    (folder / "same").write_bytes(bytes(content))
    with Mirror(folder, box, server.url) as mirror:
        for number in range(14):
            at, size = change.randrange(len(content)), change.choice([1, 1000, 200_000])
            if number % 4 == 0:
                content[at : at + size] = change.randbytes(size)
            elif number % 4 == 1:
                content[at:at] = change.randbytes(size)
            elif number % 4 == 2:
                del content[at : at + size]
            else:
                content += content[:size] + change.randbytes(size)
            (folder / "large").write_bytes(bytes(content))
            time.sleep(0.12)  # so that what is there is known, and copied rather than written anew
            done = mirror.push()
            assert syncs.files(box)[b"large"] == bytes(content), f"after change {number}"
            assert number == 0 or done.bytes_sent < 2 * size + 20_000
    syncs.leave()
    assert "ERROR" not in server.log()
    server.stop()
    store = Store(server.home / "petri" / "store")
    assert store.fsck("default", deep=True) == []
    store.close()
