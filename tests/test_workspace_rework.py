"""From one tree to another: all steps or none, also after a crash at any of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from petri.errors import Conflict
from petri.workspace.commit import Site
from petri.workspace.rework import Rework, Step


class Bench:
    """A workspace with something in it, and a stage with something for it."""

    def __init__(self, top: Path) -> None:
        self.top, self.stage = top / "workspace", top / "stage"
        (self.top / "pkg" / "deep").mkdir(parents=True)
        self.stage.mkdir()
        for path in ("a", "b", "pkg/m", "pkg/deep/n"):
            (self.top / path).write_text(f"old {path}")
        (self.stage / "1").write_text("new a")
        (self.stage / "2").mkdir()
        self.before = self.state()

    def steps(self) -> list[Step]:
        """Replace a, move pkg into a new folder, delete b, put what was pkg/m beside it."""
        seen = {path: os.lstat(self.top / path) for path in ("a", "b", "pkg", "pkg/m")}
        old = seen["a"]
        return [
            Step(
                *("swap", "a", "1", (self.stage / "1").stat().st_ino),
                *(old.st_ino, old.st_size, old.st_mtime_ns),
            ),
            Step("take", "pkg/m", "3", seen["pkg/m"].st_ino),
            Step("take", "pkg", "4", seen["pkg"].st_ino),
            Step("take", "b", "5", seen["b"].st_ino, -1, seen["b"].st_size, seen["b"].st_mtime_ns),
            Step("put", "lib", "2", (self.stage / "2").stat().st_ino),
            Step("put", "lib/pkg", "4", seen["pkg"].st_ino),
            Step("put", "lib/m", "3", seen["pkg/m"].st_ino),
        ]

    def state(self) -> dict[str, str | None]:
        return {
            str(path.relative_to(self.top)): path.read_text() if path.is_file() else None
            for path in sorted(self.top.rglob("*"))
        }

    @contextmanager
    def site(self) -> Iterator[Site]:
        workspace = os.open(self.top, os.O_PATH | os.O_DIRECTORY)
        staging = os.open(self.stage, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield Site(workspace, staging, None)
        finally:
            os.close(workspace)
            os.close(staging)


AFTER: dict[str, str | None] = {
    "a": "new a",
    "lib": None,
    "lib/m": "old pkg/m",
    "lib/pkg": None,
    "lib/pkg/deep": None,
    "lib/pkg/deep/n": "old pkg/deep/n",
}
STEPS = 7


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_step_is_made(bench: Bench) -> None:
    with bench.site() as site:
        Rework("sb-x", None, bench.steps()).carry_out(site)

    assert bench.state() == AFTER


@pytest.mark.parametrize("at", range(STEPS))
def test_a_step_that_cannot_be_made_undoes_all_before_it(bench: Bench, at: int) -> None:
    steps = bench.steps()
    steps.insert(at, Step("take", "never/there", "9", 1))

    with bench.site() as site, pytest.raises(Exception, match="never/there"):
        Rework("sb-x", None, steps).carry_out(site)

    assert bench.state() == bench.before
    assert Rework.read(bench.stage) is None


@pytest.mark.parametrize("at", range(STEPS + 1))
def test_after_a_crash_at_any_step_the_rest_is_made(bench: Bench, at: int) -> None:
    steps = bench.steps()
    with bench.site() as site:
        Rework("sb-x", None, steps)._write(site.staging)
        Rework("sb-x", None, steps[:at]).roll_forward(site)

    found = Rework.read(bench.stage)
    assert found is not None
    with bench.site() as site:
        found.roll_forward(site)

    assert bench.state() == AFTER


@pytest.mark.parametrize("path", ["a", "b"])
def test_what_the_code_changed_meanwhile_is_not_taken_from_it(bench: Bench, path: str) -> None:
    steps = bench.steps()
    (bench.top / path).write_text("written by a run just now")
    before = bench.state()

    with bench.site() as site, pytest.raises(Conflict, match=f"'{path}' changed"):
        Rework("sb-x", None, steps).carry_out(site)

    assert bench.state() == before


def test_what_got_in_the_way_stays_and_all_is_undone(bench: Bench) -> None:
    steps = bench.steps()
    (bench.top / "lib").write_text("mine")

    with bench.site() as site, pytest.raises(Conflict):
        Rework("sb-x", None, steps).carry_out(site)

    assert bench.state() == {**bench.before, "lib": "mine"}


def test_a_link_planted_on_the_way_leads_nowhere(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    steps = [*bench.steps()[:4], Step("put", "way/in", "2", (bench.stage / "2").stat().st_ino)]
    (bench.top / "way").symlink_to(outside)

    with bench.site() as site, pytest.raises(Exception, match="link"):
        Rework("sb-x", None, steps).carry_out(site)

    assert list(outside.iterdir()) == []
    assert {**bench.state(), "way": None} == {**bench.before, "way": None}
