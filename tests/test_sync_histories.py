"""Any history of edits and syncs on both sides ends with both the same, byte for byte."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from petri.errors import PathsConflict
from petri.sdk.folder.mirror import Mirror
from petri.sdk.folder.placing import IGNORED, OCCUPIED
from petri.sdk.folder.results import Synced
from petri.syncing.growing import Growing
from petri.syncing.ignoring import Ignoring
from petri.syncing.settling import Prefer
from petri.trees import File, Folder, Link, find, walk
from tests.examples import examples
from tests.sync_claims import (
    FOLDER,
    HOLLOW,
    UNKNOWN,
    Content,
    Picture,
    Target,
    Thing,
    agreed_after,
    around,
    claim,
    claim_told,
    claim_untouched,
    is_in,
    met,
    pictured,
    sifted,
    versions,
)
from tests.sync_server import SyncServer

LONG = "n" * 254
ODD = ["é", "e\u0301", "x\n", "A", "-n b", os.fsdecode(b"\xff"), LONG + "1", LONG + "2"]
NAMES = some.sampled_from(["a"] * 7 + ["b", "junk"] * 3 + ODD)
PATHS = some.lists(NAMES, min_size=1, max_size=3).map("/".join)
SMALL = some.sampled_from([b"", b"one", b"two", b"three", b"#!/bin/sh\n"])
LARGE = some.integers(0, 3).map(lambda seed: bytes([seed]) * 20_000)
CONFLICT = ".petri-conflict-"
NEW = some.none()
"""A content that nobody has written before, so that its loss cannot go unseen."""
CONTENTS = NEW | SMALL | LARGE
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
        self.agreed: Picture = {}
        """What both had in common when they last met."""
        self.is_rules_told = True
        """Whether the server has what is ignored here; a pull sends no content, not even that one."""
        self.written = 0

    def teardown(self) -> None:
        self.mirror.close()
        shutil.rmtree(self.folder)

    # ------------------------------------------------------------------------------------------- edits

    @rule(path=PATHS, content=CONTENTS, mode=MODES)
    def write_here(self, path: str, content: bytes | None, mode: int) -> None:
        place = self._made_way(path)
        place.write_bytes(self._new(content))
        place.chmod(mode << 6 | 0o044)

    @rule(which=some.integers(0, 9), mode=MODES)
    def change_mode_here(self, which: int, mode: int) -> None:
        files = sorted(path for path, each in pictured(self.folder).items() if isinstance(each, Content))
        if files:
            (self.folder / files[which % len(files)]).chmod(mode << 6 | 0o044)

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
        self.is_rules_told = False

    @rule(path=PATHS, content=CONTENTS, mode=MODES)
    def write_there(self, path: str, content: bytes | None, mode: int) -> None:
        self._clear_there(path)
        self.server.write(self.sandbox, path, self._new(content), mode)

    @rule(which=some.integers(0, 9), mode=MODES)
    def change_mode_there(self, which: int, mode: int) -> None:
        files = sorted((path, each) for path, each in self._there().items() if isinstance(each, Content))
        if files:
            path, file = files[which % len(files)]
            self.server.write(self.sandbox, path, file.data, mode)

    @rule(path=PATHS)
    def link_there(self, path: str) -> None:
        self._clear_there(path)
        self.server.link(self.sandbox, path, "nowhere")

    @rule(path=PATHS)
    def make_folder_there(self, path: str) -> None:
        self._clear_there(path)
        self.server.make_folder(self.sandbox, path)

    @rule(path=PATHS)
    def remove_there(self, path: str) -> None:
        self.server.write(self.sandbox, path, None)

    @rule(path=PATHS, to=PATHS)
    def rename_there(self, path: str, to: str) -> None:
        entry = find(self.server.fetch, self.server.sandboxes[self.sandbox], os.fsencode(path))
        if entry is not None and not (to + "/").startswith(path + "/"):
            self._clear_there(to)
            growing = Growing(self.server.fetch, self.server.sandboxes[self.sandbox])
            growing.set(os.fsencode(path), None)
            growing.set(os.fsencode(to), entry)
            self.server.sandboxes[self.sandbox] = growing.tree(self.server.put)

    def _new(self, content: bytes | None) -> bytes:
        self.written += 1
        return b"version %d" % self.written if content is None else content

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
            entry = find(self.server.fetch, self.server.sandboxes[self.sandbox], os.fsencode(above))
            if entry is not None and not isinstance(entry, Folder):
                self.server.write(self.sandbox, above, None)

    # ------------------------------------------------------------------------------------------- syncs

    @rule()
    def push(self) -> None:
        base, here, there = self._pictures()
        wanted = met(base, here, there)
        before = self.server.sandboxes[self.sandbox]
        try:
            self.mirror.push()
        except PathsConflict as error:
            assert error.conflicts
            assert self.server.sandboxes[self.sandbox] == before
            claim_told({_shown(path): each for path, each in wanted.items()}, _paths(error))
            return
        self.is_rules_told = True
        claim_told(wanted, ())
        claim(self._there(), wanted, ())
        claim(self._here(), here, ())
        self.agreed = agreed_after({}, here, ())

    @rule()
    def pull(self) -> None:
        base, here, there = self._pictures()
        before = self.server.sandboxes[self.sandbox]
        told = [each.path for each in self.mirror.pull().conflicts]
        assert self.server.sandboxes[self.sandbox] == before
        if not self.is_rules_told:
            self.agreed = agreed_after({}, dict.fromkeys({*base, *here, *there}, UNKNOWN), ())
            return
        wanted = met(base, here, there)
        claim_told(wanted, told)
        claim(self._here(), wanted, told)
        claim_untouched(here, self._here(), told)
        self.agreed = agreed_after(base, there, told)

    @rule()
    def sync(self) -> None:
        base, here, there = self._pictures()
        wanted = met(base, here, there)
        done: list[Synced] = []
        if not self._refused_or(lambda: done.append(self.mirror.sync())):
            return
        self.is_rules_told = True
        told = [each.path for each in done[0].conflicts]
        claim_told(wanted, told)
        for before, after in ((here, self._here()), (there, self._there())):
            claim(after, wanted, told)
            claim_untouched(before, after, told)
        assert told or self._are_the_same(), "without a conflict both are the same"
        self.agreed = agreed_after(base, wanted, told)

    @rule(prefer=some.sampled_from(["local", "sandbox"]))
    def sync_for_good(self, prefer: Prefer) -> None:
        base, here, there = self._pictures()
        wanted = met(base, here, there)
        done: list[Synced] = []
        if not self._refused_or(lambda: done.append(self.mirror.sync(dry_run=True))):
            return
        clashes = [each.path for each in done.pop().conflicts]
        if not self._refused_or(lambda: done.append(self.mirror.sync(prefer=prefer))):
            return
        self.is_rules_told = True
        if done[0].conflicts:
            assert {each.reason for each in done[0].conflicts} <= {OCCUPIED, IGNORED}
            self.agreed = dict.fromkeys({*base, *here, *there}, UNKNOWN)
            return
        assert self._are_the_same(), "after a sync with a preference both are the same"
        self._claim_nothing_lost(wanted, clashes, here, there)
        again = self.mirror.sync()
        assert again.sent.is_nothing
        assert again.received.is_nothing
        self.agreed = agreed_after({}, self._here(), ())

    def _claim_nothing_lost(self, wanted: Picture, clashes: list[str], here: Picture, there: Picture) -> None:
        """Claim that both versions of every conflict are kept, beside all that was in none."""
        now = self._here()
        claim({path: now[path] for path in now if path in wanted or CONFLICT not in path}, wanted, clashes)
        for side in (here, there):
            torn = versions({path: side[path] for path in side if is_in(path, clashes)})
            # Beside its old place, a version may be ignored, and is then in the sandbox alone.
            lost = torn - versions(pictured(self.folder), self._all_there())
            assert not lost, "both versions of what was in conflict are kept"

    @rule()
    def try_it(self) -> None:
        here, there = pictured(self.folder), self.server.sandboxes[self.sandbox]
        self._refused_or(lambda: self.mirror.sync(dry_run=True))
        assert (pictured(self.folder), self.server.sandboxes[self.sandbox]) == (here, there)

    @rule()
    def forget_here(self) -> None:
        self.mirror.close()
        shutil.rmtree(Path(self.state) / "petri", ignore_errors=True)
        self.mirror = Mirror(self.folder, self.sandbox, self.server.url)
        self.agreed = {}

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

    def _pictures(self) -> tuple[Picture, Picture, Picture]:
        """Return what was agreed on, what is here and what is there, of all that takes part now."""
        agreed = {
            path: each for path, each in self.agreed.items() if not self._is_ignored(path, each == FOLDER)
        }
        sides = (
            {
                path: FOLDER if each == HOLLOW and agreed.get(path) == FOLDER else each
                for path, each in side.items()
            }
            for side in (self._here(), self._there())
        )
        return agreed, *sides  # type: ignore[return-value]

    def _here(self) -> Picture:
        return sifted(pictured(self.folder), self._is_ignored)

    def _there(self) -> Picture:
        return sifted(self._all_there(), self._is_ignored)

    def _all_there(self) -> dict[str, Thing]:
        found: dict[str, Thing] = {}
        for path, entry in walk(self.server.fetch, self.server.sandboxes[self.sandbox]):
            if isinstance(entry, File):
                thing: Thing = Content(self.server.contents[entry.digest], entry.mode)
            else:
                thing = Target(os.fsdecode(entry.target)) if isinstance(entry, Link) else FOLDER
            found[os.fsdecode(path)] = thing
        return found

    def _are_the_same(self) -> bool:
        here, there = self._here(), self._there()
        hollow = {path for side in (here, there) for path in side if side[path] == HOLLOW}
        return _leaves(here, hollow) == _leaves(there, hollow)

    def _is_ignored(self, path: str, is_folder: bool) -> bool:  # noqa: FBT001
        rules = self.folder / ".gitignore"
        text = rules.read_bytes() if rules.is_file() else None
        ignoring = Ignoring(lambda each: text if each == b".gitignore" else None)
        return ignoring.ignores(os.fsencode(path), is_folder=is_folder)


def _leaves(picture: Picture, but: set[str]) -> Picture:
    """Return what is in a picture `but` for some, and for folders with something in them."""
    full = {above for path in picture for above in around(path)}
    return {path: each for path, each in picture.items() if path not in but and path not in full}


def _paths(error: PathsConflict) -> list[str]:
    return [path.decode() for path, _ in error.conflicts]


def _shown(path: str) -> str:
    """Return a path as JSON has it."""
    return os.fsencode(path).decode(errors="replace")


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
