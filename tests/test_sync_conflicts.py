"""Both sides at once: what both changed is told and kept, and the rest goes both ways."""

import re
from pathlib import Path

import pytest

from petri.errors import InvalidField, PathsConflict
from petri.sdk.folder.mirror import Mirror
from petri.sdk.folder.results import PathConflict
from tests.sync_server import SyncServer, noise


def test_a_sync_goes_both_ways_in_one_request(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "a").write_text("1")
    mirror.push()
    (folder / "mine").write_text("m")
    syncs.write(box, "theirs", b"t")
    syncs.requests.clear()

    done = mirror.sync()

    assert len(syncs.requests) == 1
    assert (done.sent.added, done.received.added) == (("mine",), ("theirs",))
    assert syncs.files(box) == {b"a": b"1", b"mine": b"m", b"theirs": b"t"}
    assert (folder / "theirs").read_text() == "t"


def beside(folder: Path) -> str:
    """Return what the version that lost is called, as far as that can be known: the time is in it."""
    (name,) = [
        path.name for path in folder.iterdir() if re.match(r"f\.petri-conflict-\d{8}-\d{6}$", path.name)
    ]
    return name


@pytest.fixture
def torn(folder: Path, mirror: Mirror, syncs: SyncServer, box: str) -> None:
    """A file that both sides changed, and one more on each side."""
    (folder / "f").write_text("base")
    mirror.push()
    (folder / "f").write_text("mine")
    (folder / "mine").write_text("m")
    syncs.write(box, "f", b"theirs")
    syncs.write(box, "theirs", b"t")


CLASH = PathConflict("f", "the sandbox changed the file, the folder changed the file")


def test_a_push_that_conflicts_changes_nothing(
    torn: None, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    before = syncs.sandboxes[box]

    with pytest.raises(PathsConflict, match="f is in conflict") as refused:
        mirror.push()

    assert refused.value.conflicts == ((b"f", CLASH.reason),)
    assert syncs.sandboxes[box] == before


def test_a_sync_leaves_both_versions_and_takes_the_rest(
    torn: None, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    for _ in range(2):
        done = mirror.sync()

        assert done.conflicts == (CLASH,)
        assert (folder / "f").read_text() == "mine"
        assert (folder / "theirs").read_text() == "t"
        assert syncs.files(box) == {b"f": b"theirs", b"mine": b"m", b"theirs": b"t"}

    (folder / "f").write_text("theirs")
    assert mirror.sync().conflicts == ()


def test_a_pull_leaves_what_conflicts_and_takes_the_rest(
    torn: None, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    for _ in range(2):
        assert mirror.pull().conflicts == (CLASH,)
        assert (folder / "f").read_text() == "mine"
        assert (folder / "theirs").read_text() == "t"
    assert b"mine" not in syncs.files(box)


def test_preferring_what_is_local_keeps_the_other_beside_it(
    torn: None, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    done = mirror.sync(prefer="local")

    assert done.conflicts == ()
    assert syncs.files(box) == {
        b"f": b"mine",
        beside(folder).encode(): b"theirs",
        b"mine": b"m",
        b"theirs": b"t",
    }
    assert (folder / beside(folder)).read_text() == "theirs"
    assert mirror.sync().sent.is_nothing


def test_preferring_the_sandbox_keeps_the_other_beside_it(
    torn: None, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    mirror.sync(prefer="sandbox")

    assert (folder / "f").read_text() == "theirs"
    assert (folder / beside(folder)).read_text() == "mine"
    assert syncs.files(box)[beside(folder).encode()] == b"mine"


def test_a_push_may_prefer_what_is_local_and_a_pull_the_sandbox(
    torn: None, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    mirror.pull(prefer="sandbox")
    assert (folder / "f").read_text() == "theirs"
    assert (folder / beside(folder)).read_text() == "mine"
    mirror.push(prefer="local")
    assert syncs.files(box)[beside(folder).encode()] == b"mine"

    with pytest.raises(InvalidField, match="can only prefer"):
        mirror.push(prefer="sandbox")
    with pytest.raises(InvalidField, match="can only prefer"):
        mirror.pull(prefer="local")


def test_a_trial_says_what_would_move_and_moves_nothing(
    torn: None, folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    (folder / "large").write_bytes(noise(2**21))
    syncs.write(box, "large too", noise(2**21, 2))
    before, here = syncs.sandboxes[box], sorted(folder.rglob("*"))

    done = mirror.sync(dry_run=True)

    assert sorted(done.sent.added) == ["large", "mine"]
    assert sorted(done.received.added) == ["large too", "theirs"]
    assert done.conflicts == (CLASH,)
    assert done.is_dry_run
    assert done.bytes_sent + done.bytes_received < 2000
    assert (syncs.sandboxes[box], sorted(folder.rglob("*"))) == (before, here)
    assert sorted(mirror.sync().sent.added) == ["large", "mine"]


def test_two_that_lose_in_one_second_are_both_kept(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    versions = []
    for number in range(3):
        mirror.sync(prefer="local")
        (folder / "f").write_text(f"mine {number}")
        syncs.write(box, "f", b"theirs %d" % number)
        versions.append(b"theirs %d" % number)
        mirror.sync(prefer="local")

    kept = set(syncs.files(box).values())
    assert kept == {b"mine 2", *versions}
    assert {path.read_bytes() for path in folder.iterdir()} == kept


def test_two_names_that_are_one_when_cut_short_are_kept_apart(
    folder: Path, mirror: Mirror, syncs: SyncServer, box: str
) -> None:
    names = ["n" * 254 + end for end in "12"]
    for name in names:
        (folder / name).write_text("mine " + name[-1])
        syncs.write(box, name, b"theirs " + name[-1].encode())

    mirror.sync(prefer="local")

    assert set(syncs.files(box).values()) == {b"mine 1", b"mine 2", b"theirs 1", b"theirs 2"}
    assert all(len(path.name) <= 255 for path in folder.iterdir())
