"""Lines that break, servers that forget, refuse or are gone, and two who want the same folder."""

import os
from pathlib import Path

import pytest

from petri.errors import Busy, Conflict, Invalid, PathsConflict, PetriError, StorageFull, Unavailable
from petri.sdk.folder.mirror import Mirror
from petri.syncing.records import NOTHING, Agreed, Base, WholeFile
from tests.sync_server import SyncServer, noise

pytestmark = pytest.mark.long


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
    (folder / "big").write_bytes(os.urandom(2**21))  # which no server has
    told: list[tuple[int, int | None]] = []

    mirror.push(progress=lambda done, total: told.append((done, total)))

    assert told[-1] == (2**21, 2**21)


@pytest.mark.parametrize("syncs", ["real"], indirect=True)
def test_progress_of_a_pull_is_told_to_its_end(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "changes").write_bytes(old := noise(2**20))
    mirror.push()
    down = os.urandom(2**21)
    syncs.write(box, "down", down)
    syncs.write(box, "twin", down)
    syncs.write(box, "changes", old[: 2**19] + b"!" + old[2**19 :])
    told: list[tuple[int, int | None]] = []

    done = mirror.pull(progress=lambda done, total: told.append((done, total)))

    whole = 2**21 + 2**20 + 1
    assert told[-1] == (whole, whole)
    assert [each for each, _ in told] == sorted(each for each, _ in told)
    assert done.bytes_received < 2**21 + 2**17, "a content that comes twice is sent once"
    assert (folder / "twin").read_bytes() == down


@pytest.mark.parametrize("mode", ["push", "sync"])
@pytest.mark.parametrize("agreed", ["", "1"])
def test_what_is_edited_after_an_answer_was_lost_is_no_conflict(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str, mode: str, agreed: str
) -> None:
    if agreed:
        (folder / "a").write_text(agreed)
        mirror.push()
    (folder / "a").write_text("2")
    (folder / "new").write_text("2")
    syncs.cut_answer_after = 10
    with pytest.raises(Unavailable, match="broke"):
        getattr(mirror, mode)()
    syncs.write(box, "made by a run", b"theirs")
    (folder / "a").write_text("3")
    (folder / "new").unlink()

    done = getattr(mirror, mode)()

    assert done.conflicts == ()
    assert syncs.files(box) == {b"a": b"3", b"made by a run": b"theirs"}


def test_what_changed_there_after_an_answer_was_lost_is_a_conflict(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "a").write_text("1")
    mirror.push()
    (folder / "a").write_text("2")
    syncs.cut_answer_after = 10
    with pytest.raises(Unavailable, match="broke"):
        mirror.push()
    syncs.write(box, "a", b"theirs")
    (folder / "a").write_text("3")

    with pytest.raises(PathsConflict):
        mirror.push()

    assert syncs.files(box) == {b"a": b"theirs"}


def test_a_request_that_never_arrived_is_no_agreement(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "a").write_text("1")
    mirror.push()
    (folder / "a").write_text("2")
    (folder / "big").write_bytes(noise(2**21))
    syncs.cut_after = 2**20
    with pytest.raises(Unavailable):
        mirror.push()
    (folder / "big").unlink()

    mirror.push()

    assert syncs.files(box) == {b"a": b"2"}
