"""What the benchmarks do with their figures. What they measure is only known on a quiet machine."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from benchmarks.__main__ import BENCHMARKS
from benchmarks.lanes import BareLane, Lane, closed, once, open_loop, poisson
from benchmarks.plot import distributions
from benchmarks.publish import README, place

TEXT = (
    "before\n\n<!-- a: measured -->\nold\n<!-- a: end -->\n\nbetween\n<!-- b: measured -->\n<!-- b: end -->\n"
)


def test_a_table_goes_between_its_marks_and_the_words_around_it_stay() -> None:
    placed = place(place(TEXT, "a", "new"), "b", "other")

    assert re.sub(r"\s+", " ", placed) == (
        "before <!-- a: measured --> new <!-- a: end --> between <!-- b: measured --> other <!-- b: end --> "
    )


def test_placing_twice_is_placing_once() -> None:
    once_placed = place(TEXT, "a", "new")

    assert place(once_placed, "a", "new") == once_placed


def test_a_table_without_a_place_is_said_so() -> None:
    with pytest.raises(ValueError, match="no place marked for c"):
        place(TEXT, "c", "lost")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_its_place_in_the_readme(name: str) -> None:
    assert "| it |" in place(README.read_text(), name, "| it |")


def test_a_drawing_is_svg_whose_curves_only_climb() -> None:
    drawn = distributions("<title> & such", {"a": [3.0, 1.0, 2.0, 250.0], "b": [5.0, 5.0]})

    root = ElementTree.fromstring(drawn)
    curves = [each.attrib["points"] for each in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(curves) == 2
    for curve in curves:
        points = [tuple(map(float, point.split(","))) for point in curve.split(" ")]
        assert all(a[0] <= b[0] and a[1] >= b[1] for a, b in pairwise(points)), curve
    assert "<title> & such" in "".join(root.itertext())


def test_callers_come_at_random_but_the_same_for_the_same_seed() -> None:
    moments = poisson(50, 100, seed=3)

    assert moments == poisson(50, 100, seed=3) != poisson(50, 100, seed=4)
    assert moments == sorted(moments)
    assert 4500 < len(moments) < 5500


@dataclass
class CountedLane(BareLane):
    """Says who was busy at the same time."""

    busy: list["CountedLane"] = field(default_factory=list)
    most: list[int] = field(default_factory=list)

    def begin(self) -> int:
        self.busy.append(self)
        self.most.append(len(self.busy))
        return super().begin()

    def advance(self) -> bool:
        over = super().advance()
        if over:
            self.busy.remove(self)
        return over


def _lanes(count: int) -> Sequence[CountedLane]:
    busy: list[CountedLane] = []
    most: list[int] = []
    return [CountedLane("", ("echo", "hello world"), busy=busy, most=most) for _ in range(count)]


@pytest.mark.long
def test_a_closed_loop_keeps_every_lane_busy() -> None:
    lanes = _lanes(3)

    took = closed(lanes, 0.3)

    assert len(took) == len(lanes[0].most) > 3
    assert lanes[0].most[3:] == [3] * (len(took) - 3)


def test_an_open_loop_begins_each_run_at_its_moment() -> None:
    lanes = _lanes(2)

    took = open_loop(lanes, [0.0, 0.0, 0.0, 0.05])

    assert len(took) == 4
    assert max(lanes[0].most) == 2


def test_a_wait_counts_from_the_moment_the_caller_came() -> None:
    slow: list[Lane] = [BareLane("", ("sh", "-c", "sleep 0.1; echo hello world"))]

    first, second = open_loop(slow, [0.0, 0.0])

    assert second >= first + 100


def test_what_does_not_say_hello_is_no_measurement() -> None:
    with pytest.raises(AssertionError):
        once(BareLane("", ("echo", "something else")))
