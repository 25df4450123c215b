"""Lines that break, servers that forget, refuse or are gone, and two who want the same folder."""

import os
from pathlib import Path

import pytest

from petri.errors import Busy, Conflict, Invalid, PetriError, StorageFull, Unavailable
from petri.sdk.folder.mirror import Mirror
from petri.syncing.records import NOTHING, Agreed, Base, WholeFile
from tests.sync_server import SyncServer, noise


def test_a_server_that_forgot_is_told_again_and_deletions_still_count(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_text(name)
    mirror.push()
    syncs.write(box, "made", b"x")
    syncs.forget()
    (folder / "b").unlink()
    (folder / "c").write_text("changed")

    done = mirror.sync()

    assert syncs.received[0] == Base(NOTHING)
    assert any(isinstance(record, Agreed) for record in syncs.received)
    assert (done.sent.modified, done.sent.deleted, done.received.added) == (("c",), ("b",), ("made",))
    assert set(syncs.files(box)) == {b"a", b"c", b"made"}


def test_what_arrived_before_a_cut_is_not_sent_again(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    for number in range(8):
        (folder / f"{number}").write_bytes(noise(2**19, number))
    before = syncs.sandboxes[box]
    syncs.cut_after = 2 * 2**20

    with pytest.raises(Unavailable, match="broke"):
        mirror.push()
    assert syncs.sandboxes[box] == before
    done = mirror.push()

    assert len(syncs.files(box)) == 8
    assert done.bytes_sent < 2.7 * 2**20


def test_of_one_large_file_the_rest_is_sent_after_a_cut(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "big").write_bytes(noise(2**23))
    syncs.cut_after = 6 * 2**20

    with pytest.raises(Unavailable, match="broke"):
        mirror.push()
    done = mirror.push()

    assert syncs.files(box)[b"big"] == noise(2**23)
    assert done.bytes_sent < 2.7 * 2**20


def test_a_broken_line_is_tried_again(folder: Path, box: str, syncs: SyncServer) -> None:
    (folder / "big").write_bytes(noise(2**21))
    syncs.cut_after = 2**20

    with Mirror(folder, box, syncs.url, retries=2) as mirror:
        mirror.push()

    assert syncs.files(box)[b"big"] == noise(2**21)


def test_an_answer_that_breaks_off_leaves_the_folder_as_it_was(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "a").write_text("1")
    mirror.push()
    syncs.write(box, "a", b"2")
    syncs.write(box, "big", noise(2**20))
    syncs.cut_answer_after = 2**19

    with pytest.raises(Unavailable, match="broke"):
        mirror.pull()

    assert [path.name for path in folder.iterdir()] == ["a"]
    assert (folder / "a").read_text() == "1"
    assert mirror.pull().received.added == ("big",)


def test_a_sync_whose_answer_was_lost_is_done_again_without_a_conflict(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "a").write_text("1")
    mirror.push()
    (folder / "a").write_text("mine")
    syncs.write(box, "b", b"theirs")
    syncs.cut_answer_after = 10

    with pytest.raises(Unavailable, match="broke"):
        mirror.sync()
    assert syncs.files(box)[b"a"] == b"mine", "it was committed, only the answer was lost"
    done = mirror.sync()

    assert done.conflicts == ()
    assert (folder / "b").read_text() == "theirs"


@pytest.mark.parametrize("error", [Unavailable("stopping"), Busy("full")])
def test_a_server_that_is_busy_or_stopping_is_asked_again(
    folder: Path, box: str, syncs: SyncServer, error: PetriError
) -> None:
    syncs.refusals = [error, error]

    with Mirror(folder, box, syncs.url, retries=2) as mirror:
        mirror.push()

    assert len(syncs.requests) == 3


def test_a_server_that_is_full_is_not_asked_again(folder: Path, box: str, syncs: SyncServer) -> None:
    syncs.refusals = [StorageFull("full")]

    with Mirror(folder, box, syncs.url, retries=2) as mirror, pytest.raises(StorageFull):
        mirror.push()
    assert len(syncs.requests) == 1


def test_a_delta_that_does_not_work_out_is_replaced_by_the_whole(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "big").write_bytes(noise(100_000))
    mirror.push()
    (folder / "big").write_bytes(noise(50_000) + b"!" + noise(100_000)[50_000:])
    syncs.refusals = [Invalid("the content is not the one announced")]

    mirror.push()

    assert "whole=true" in syncs.requests[-1]
    assert isinstance(syncs.received[1], WholeFile)


def test_a_delta_from_what_is_not_here_any_more_is_replaced_by_the_whole(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "big").write_bytes(noise(100_000))
    mirror.push()
    syncs.write(box, "big", noise(50_000) + b"!" + noise(100_000)[50_000:])
    monkeypatch.setattr("petri.sdk.folder.index.Index.places", lambda _: {})

    mirror.pull()

    assert "whole=true" in syncs.requests[-1]
    assert b"!" in (folder / "big").read_bytes()


def test_no_server_is_a_sentence_that_says_what_to_do(folder: Path, box: str, syncs: SyncServer) -> None:
    syncs.stop()
    try:
        with (
            Mirror(folder, box, syncs.url, retries=1) as mirror,
            pytest.raises(Unavailable, match="start one"),
        ):
            mirror.push()
    finally:
        syncs.start()


def test_two_who_sync_one_folder_take_turns(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "a").write_text("1")
    with (
        Mirror(folder, box, syncs.url) as other,
        mirror._state.locked(),
        pytest.raises(Conflict, match=rf"synced by another process \({os.getpid()}\)"),
        other._state.locked(wait_s=0.1),
    ):
        pass

    with Mirror(folder, box, syncs.url) as other:
        other.push()
        (folder / "b").write_text("1")
        mirror.push()
        assert other.push().sent.is_nothing


def test_progress_is_told(folder: Path, mirror: Mirror, syncs: SyncServer, box: str) -> None:
    (folder / "big").write_bytes(noise(2**21))
    told: list[tuple[int, int | None]] = []

    mirror.push(progress=lambda done, total: told.append((done, total)))

    assert told[-1] == (2**21, 2**21)
    syncs.write(box, "down", noise(2**21, 2))
    fetched: list[int] = []
    mirror.pull(progress=lambda done, total: fetched.append(done))
    assert fetched[-1] == 2**21
