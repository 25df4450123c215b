"""Writing to a folder that somebody else writes to at the same time: what changed there stays."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from petri.errors import Invalid, PetriError
from petri.sdk.folder.collisions import folding, refuse_collisions
from petri.sdk.folder.mirror import Mirror
from petri.sdk.folder.results import Moved
from tests.sync_server import SyncServer

LATE = "it changed here in the meantime"


class Race:
    """A folder and a sandbox in step, and something that happens while the next answer is on its way."""

    def __init__(self, folder: Path, server: SyncServer, sandbox: str, mirror: Mirror) -> None:
        self.folder = folder
        self.server = server
        self.sandbox = sandbox
        self.mirror = mirror

    def has(self, **files: str) -> None:
        for name, content in files.items():
            path = self.folder / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        self.mirror.push()

    def there(self, path: str, content: str | None) -> None:
        self.server.write(self.sandbox, path, None if content is None else content.encode())

    def pull(self, meanwhile: Callable[[], object]) -> list[str]:
        """Pull, and return the paths that were left alone."""
        self.server.meanwhile = meanwhile
        try:
            done = self.mirror.pull()
        finally:
            self.server.meanwhile = lambda: None
        assert not (self.folder / ".petri-sync").exists()
        assert {each.reason for each in done.conflicts} <= {LATE}
        return sorted(each.path for each in done.conflicts)


@pytest.fixture
def race(folder: Path, syncs: SyncServer, box: str, mirror: Mirror) -> Race:
    return Race(folder, syncs, box, mirror)


def test_a_file_saved_in_the_meantime_is_not_overwritten(race: Race) -> None:
    race.has(f="1", g="1")
    race.there("f", "theirs")
    race.there("g", "theirs")

    kept = race.pull(lambda: (race.folder / "f").write_text("mine"))

    assert kept == ["f"]
    assert (race.folder / "f").read_text() == "mine"
    assert (race.folder / "g").read_text() == "theirs"
    again = race.mirror.sync()
    assert [each.path for each in again.conflicts] == ["f"], "it is still known that both changed it"
    assert race.server.files(race.sandbox)[b"f"] == b"theirs"


def test_what_was_left_alone_is_not_told_as_received(race: Race) -> None:
    race.has(f="1", g="1", h="1")
    race.there("f", "theirs")
    race.there("g", "theirs")
    race.there("h", None)
    race.there("moved", "1")
    race.server.meanwhile = lambda: [(race.folder / name).write_text("mine") for name in "fh"]

    done = race.mirror.pull()

    race.server.meanwhile = lambda: None
    assert sorted(each.path for each in done.conflicts) == ["f", "h", "moved"]
    assert done.received == Moved(modified=("g",))


def test_a_file_touched_in_the_meantime_is_as_it_was(race: Race) -> None:
    race.has(f="1")
    race.there("f", "theirs")

    assert race.pull(lambda: (race.folder / "f").write_text("1")) == []
    assert (race.folder / "f").read_text() == "theirs"


def test_a_file_made_in_the_meantime_is_not_overwritten(race: Race) -> None:
    race.there("new", "theirs")

    assert race.pull(lambda: (race.folder / "new").write_text("mine")) == ["new"]
    assert (race.folder / "new").read_text() == "mine"


def test_a_file_deleted_in_the_meantime_stays_deleted_until_it_is_decided(race: Race) -> None:
    race.has(f="1")
    race.there("f", "theirs")

    assert race.pull(lambda: (race.folder / "f").unlink()) == ["f"]
    assert not (race.folder / "f").exists()
    assert [each.path for each in race.mirror.sync().conflicts] == ["f"]


def test_a_file_saved_in_the_meantime_is_not_deleted(race: Race) -> None:
    race.has(f="1", d__x="1", d__y="1")
    race.there("f", None)
    race.there("d", None)

    def save() -> None:
        (race.folder / "f").write_text("mine")
        (race.folder / "d" / "x").write_text("mine")

    assert race.pull(save) == ["d/x", "f"]
    assert (race.folder / "f").read_text() == (race.folder / "d" / "x").read_text() == "mine"
    assert not (race.folder / "d" / "y").exists()


def test_a_file_made_in_a_folder_that_goes_keeps_it(race: Race) -> None:
    race.has(d__x="1")
    race.there("d", None)

    assert race.pull(lambda: (race.folder / "d" / "new").write_text("mine")) == []
    assert [path.name for path in (race.folder / "d").iterdir()] == ["new"]
    assert race.mirror.sync().sent.added == ("d/new",)


def test_a_folder_replaced_by_a_link_leads_nowhere(race: Race, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("1")
    race.has(d__x="1", d__z="1")
    race.there("d/x", "theirs")
    race.there("d/y", "theirs")
    race.there("d/z", None)

    def swap() -> None:
        shutil.rmtree(race.folder / "d")
        (race.folder / "d").symlink_to(outside)

    assert race.pull(swap) == ["d/x", "d/y", "d/z"]
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("x", "1")]


def test_a_link_made_where_a_file_arrives_is_not_written_through(race: Race, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("1")
    race.has(f="1")
    race.there("f", "theirs")

    def swap() -> None:
        (race.folder / "f").unlink()
        (race.folder / "f").symlink_to(tmp_path / "outside")

    assert race.pull(swap) == ["f"]
    assert (tmp_path / "outside").read_text() == "1"
    assert (race.folder / "f").is_symlink()


def test_a_folder_does_not_move_onto_another(race: Race) -> None:
    race.has(src__x="one", src__y="two")
    for name, content in (("x", "one"), ("y", "two")):
        race.there(f"lib/{name}", content)
    race.there("src", None)
    race.there("lib/z", "three")

    def occupy() -> None:
        (race.folder / "lib").mkdir()
        (race.folder / "lib" / "mine").write_text("mine")

    kept = race.pull(occupy)

    assert kept == ["lib", "lib/z", "src"]
    assert sorted(path.name for path in (race.folder / "src").iterdir()) == ["x", "y"]
    assert [path.name for path in (race.folder / "lib").iterdir()] == ["mine"]
    race.mirror.sync()
    assert (race.folder / "lib" / "mine").read_text() == "mine"
    assert (race.folder / "lib" / "z").read_text() == "three"
    assert race.server.files(race.sandbox)[b"lib/x"] == b"one"


def test_what_a_crash_left_on_the_stage_is_removed(race: Race) -> None:
    (race.folder / ".petri-sync").mkdir()
    (race.folder / ".petri-sync" / "0123").write_text("half a file")
    race.there("f", "theirs")

    race.mirror.pull()

    assert [path.name for path in race.folder.iterdir()] == ["f"]
    (race.folder / ".petri-sync").mkdir()
    race.mirror.pull()
    assert [path.name for path in race.folder.iterdir()] == ["f"], "nor is it there if nothing came"


def test_a_stage_that_is_a_link_is_refused(race: Race, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (race.folder / ".petri-sync").symlink_to(tmp_path / "outside")
    race.there("f", "theirs")

    with pytest.raises(PetriError, match="must be a folder"):
        race.mirror.pull()
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_content_that_is_not_the_one_announced_is_refused(race: Race) -> None:
    race.has(f="1")
    race.there("f", "theirs")
    race.server.forge(b"theirs", b"forged")

    with pytest.raises(Invalid, match="not the one announced"):
        race.mirror.pull()
    assert (race.folder / "f").read_text() == "1"


def test_two_names_that_are_one_here_are_refused_with_both() -> None:
    refuse_collisions(b"pkg", [b"Main.py", b"main.py"], lambda name: name)
    with pytest.raises(Invalid, match=r"'Main\.py' and 'main\.py' in pkg are one name"):
        refuse_collisions(b"pkg", [b"Main.py", b"x", b"main.py"], bytes.lower)


def test_this_file_system_takes_names_as_they_are(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert folding(fd) is None
    finally:
        os.close(fd)
    assert list(tmp_path.iterdir()) == []


def test_a_pull_onto_such_a_file_system_changes_nothing(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    race.has(f="1")
    race.there("f", "2")
    race.there("pkg/Main.py", "one")
    race.there("pkg/main.py", "two")
    monkeypatch.setattr("petri.sdk.folder.placing.folding", lambda _: bytes.lower)

    with pytest.raises(Invalid, match=r"'Main\.py' and 'main\.py' in pkg are one name"):
        race.mirror.pull()
    assert [(path.name, path.read_text()) for path in race.folder.iterdir()] == [("f", "1")]
