"""Any history of edits and syncs on both sides ends with both the same, byte for byte."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from petri.errors import PathsConflict
from petri.sdk.folder.mirror import Mirror
from petri.sdk.folder.placing import OCCUPIED
from petri.sdk.folder.results import Synced
from petri.syncing.growing import Growing
from petri.syncing.ignoring import Ignoring
from petri.trees import EMPTY, File, Folder, Link, find, walk
from tests.examples import examples
from tests.sync_server import SyncServer

NAMES = some.sampled_from(["a", "b", "c", "junk", "é", "x\n"])
PATHS = some.lists(NAMES, min_size=1, max_size=3).map("/".join)
SMALL = some.sampled_from([b"", b"one", b"two", b"three", b"#!/bin/sh\n"])
LARGE = some.integers(0, 3).map(lambda seed: bytes([seed]) * 20_000)
CONTENTS = SMALL | LARGE
MODES = some.sampled_from([6, 7])


class Histories(RuleBasedStateMachine):
    """A folder, a sandbox, and whatever may happen to them."""

    server: SyncServer
    state: str

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="history-", dir=self.state))
        self.sandbox = self.server.create()
        self.mirror = Mirror(self.folder, self.sandbox, self.server.url)

    def teardown(self) -> None:
        self.mirror.close()
        shutil.rmtree(self.folder)

    # ------------------------------------------------------------------------------------------- edits

    @rule(path=PATHS, content=CONTENTS, mode=MODES)
    def write_here(self, path: str, content: bytes, mode: int) -> None:
        place = self._made_way(path)
        place.write_bytes(content)
        place.chmod(mode << 6 | 0o044)

    @rule(path=PATHS)
    def link_here(self, path: str) -> None:
        self._made_way(path).symlink_to("../elsewhere")

    @rule(path=PATHS)
    def make_folder_here(self, path: str) -> None:
        self._made_way(path).mkdir()

    @rule(path=PATHS)
    def remove_here(self, path: str) -> None:
        place = self.folder / path
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.is_dir():
            shutil.rmtree(place)

    @rule(path=PATHS, to=PATHS)
    def rename_here(self, path: str, to: str) -> None:
        if os.path.lexists(self.folder / path) and not (to + "/").startswith(path + "/"):
            place = self._made_way(to)
            if os.path.lexists(self.folder / path):
                (self.folder / path).rename(place)

    @rule(rules=some.sampled_from(["junk\n", "junk/\n", "", "b\n!a/b\n"]))
    def ignore_here(self, rules: str) -> None:
        (self.folder / ".gitignore").write_text(rules)

    @rule(path=PATHS, content=CONTENTS, mode=MODES)
    def write_there(self, path: str, content: bytes, mode: int) -> None:
        self._clear_there(path)
        self.server.write(self.sandbox, path, content, mode)

    @rule(path=PATHS)
    def remove_there(self, path: str) -> None:
        self.server.write(self.sandbox, path, None)

    @rule(path=PATHS, to=PATHS)
    def rename_there(self, path: str, to: str) -> None:
        entry = find(self.server.fetch, self.server.sandboxes[self.sandbox], path.encode())
        if entry is not None and not (to + "/").startswith(path + "/"):
            self._clear_there(to)
            growing = Growing(self.server.fetch, self.server.sandboxes[self.sandbox])
            growing.set(path.encode(), None)
            growing.set(to.encode(), entry)
            self.server.sandboxes[self.sandbox] = growing.tree(self.server.put)

    def _made_way(self, path: str) -> Path:
        """Return a place with nothing at it and folders around it."""
        place = self.folder
        for name in path.split("/")[:-1]:
            place = place / name
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                place.unlink()
            place.mkdir(exist_ok=True)
        self.remove_here(path)
        return self.folder / path

    def _clear_there(self, path: str) -> None:
        parts = path.split("/")
        for end in range(1, len(parts)):
            above = "/".join(parts[:end])
            entry = find(self.server.fetch, self.server.sandboxes[self.sandbox], above.encode())
            if entry is not None and not isinstance(entry, Folder):
                self.server.write(self.sandbox, above, None)

    # ------------------------------------------------------------------------------------------- syncs

    @rule()
    def push(self) -> None:
        before = self.server.sandboxes[self.sandbox]
        try:
            self.mirror.push()
        except PathsConflict as error:
            assert error.conflicts
            assert self.server.sandboxes[self.sandbox] == before

    @rule()
    def pull(self) -> None:
        before = self.server.sandboxes[self.sandbox]
        self.mirror.pull()
        assert self.server.sandboxes[self.sandbox] == before

    @rule()
    def sync(self) -> None:
        self._refused_or(lambda: self.mirror.sync())

    @rule(prefer=some.sampled_from(["local", "sandbox"]))
    def sync_for_good(self, prefer: str) -> None:
        done: list[Synced] = []
        if not self._refused_or(lambda: done.append(self.mirror.sync(prefer=prefer))):  # type: ignore[arg-type]
            return
        if {each.reason for each in done[0].conflicts} == {OCCUPIED}:
            return
        assert self._here() == self._there(), "after a sync with a preference both are the same"
        again = self.mirror.sync()
        assert again.sent.is_nothing
        assert again.received.is_nothing

    @rule()
    def try_it(self) -> None:
        here, there = self._here(), self.server.sandboxes[self.sandbox]
        self._refused_or(lambda: self.mirror.sync(dry_run=True))
        assert (self._here(), self.server.sandboxes[self.sandbox]) == (here, there)

    @rule()
    def forget_here(self) -> None:
        self.mirror.close()
        shutil.rmtree(Path(self.state) / "petri", ignore_errors=True)
        self.mirror = Mirror(self.folder, self.sandbox, self.server.url)

    @rule()
    def forget_there(self) -> None:
        self.server.forget()

    def _refused_or(self, work: object) -> bool:
        try:
            work()  # type: ignore[operator]
        except PathsConflict as error:
            assert "rules ignore" in error.message
            return False
        return True

    @invariant()
    def no_scraps(self) -> None:
        if hasattr(self, "folder"):
            assert not (self.folder / ".petri-sync").exists()

    # ------------------------------------------------------------------------------------------ looking

    def _here(self) -> dict[str, object]:
        return dict(_leaves(self.folder, self._is_ignored))

    def _there(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path, entry in walk(self.server.fetch, self.server.sandboxes[self.sandbox]):
            shown = os.fsdecode(path)
            if self._is_ignored(shown, isinstance(entry, Folder)):
                continue
            if isinstance(entry, File):
                found[shown] = self.server.contents[entry.digest], entry.mode
            elif isinstance(entry, Link):
                found[shown] = os.fsdecode(entry.target)
            elif entry.address == EMPTY:
                found[shown] = None
        return found

    def _is_ignored(self, path: str, is_folder: bool) -> bool:  # noqa: FBT001
        rules = self.folder / ".gitignore"
        text = rules.read_bytes() if rules.is_file() else None
        ignoring = Ignoring(lambda each: text if each == b".gitignore" else None)
        return ignoring.ignores(os.fsencode(path), is_folder=is_folder)


def _leaves(top: Path, is_ignored: object) -> Iterator[tuple[str, object]]:
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            place = Path(folder, name)
            path = place.relative_to(top).as_posix()
            is_folder = place.is_dir() and not place.is_symlink()
            if is_ignored(path, is_folder):  # type: ignore[operator]
                continue
            if place.is_symlink():
                yield path, str(place.readlink())
            elif place.is_file():
                yield path, (place.read_bytes(), place.stat().st_mode >> 6 & 7)
            elif not any(place.iterdir()):
                yield path, None


@pytest.mark.slow
def test_any_history_ends_in_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    Histories.server, Histories.state = SyncServer(), str(tmp_path)
    try:
        run_state_machine_as_test(
            Histories,
            settings=settings(
                examples(40),
                stateful_step_count=25,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
    finally:
        Histories.server.stop()
