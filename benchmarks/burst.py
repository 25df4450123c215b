"""All at once: a hundred sandboxes created, given a file and run for the first time; a thousand runs in line.

Beside bare `python3 main.py`: a hundred at once, and a thousand, as many at a time as there are processors.
"""

import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench import Row, p50, progress, served
from benchmarks.lanes import HELLO, BareLane, Lane, PetriLane, closed

BORN, ROUNDS = 100, 5
IN_LINE, SANDBOXES = 1000, 32
PROCESSORS = len(os.sched_getaffinity(0))


@dataclass
class NewLane(PetriLane):
    """Creates a sandbox, puts hello world into it and runs it."""

    sandbox: str = ""
    _to_come: list[tuple[str, str, str]] = field(default_factory=list)

    def begin(self) -> int:
        self.sandbox = ""
        return self.send("POST", "/v1/sandboxes", "{}")

    def advance(self) -> bool:
        if not self.has_answer():
            return False
        if not self.sandbox:
            self.sandbox = json.loads(self.answer())["id"]
            here = f"/v1/sandboxes/{self.sandbox}"
            self._to_come = [
                ("PUT", f"{here}/files/main.py", HELLO),
                ("POST", f"{here}/exec", json.dumps({"filename": "main.py"})),
            ]
        if not self._to_come:
            self.take_outcome()
            return True
        self.send(*self._to_come.pop(0))
        return False


def measure() -> list[Row]:
    """Return what both bursts took."""
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch:
        script = Path(scratch) / "main.py"
        script.write_text(HELLO)
        return [*_birth_rows(str(script)), *_line_rows(str(script))]


def _birth_rows(script: str) -> list[Row]:
    bare, ours = [], []
    with served() as server:
        for number in range(ROUNDS):
            bare.append(_all([BareLane(script) for _ in range(BORN)])[1])
            with ExitStack() as held:
                lanes = [held.enter_context(closing(NewLane(server))) for _ in range(BORN)]
                ours.append(_all(lanes)[1])
                for lane in lanes:
                    lane.ask("DELETE", f"/v1/sandboxes/{lane.sandbox}", "")
            server.rest()
            progress(number + 1, ROUNDS)
    what = f"{BORN} sandboxes at once, from creation to the first run's answer: the last"
    against = f"{p50(ours) / p50(bare):.2f} x {BORN} bare python3 at once ({p50(bare):.0f} ms)"
    return [Row(what, f"{p50(ours):.0f} ms", against)]


def _line_rows(script: str) -> list[Row]:
    with served() as server, ExitStack() as held:
        lanes = [held.enter_context(closing(PetriLane(server))) for _ in range(IN_LINE)]
        for lane in lanes[:SANDBOXES]:
            lane.fill(lane.create())
        for number, lane in enumerate(lanes):
            lane.requests = lanes[number % SANDBOXES].requests
        _all(lanes)  # connections, and memory that the first thousand take for good
        server.rest()
        before = server.resident_bytes()
        took, until_last_ms = _all(lanes)
        grown = server.resident_bytes() - before
    bare_ms = _in_turn([BareLane(script) for _ in range(PROCESSORS)], IN_LINE)
    return [
        Row(
            f"{IN_LINE} runs in line in {SANDBOXES} sandboxes: the last",
            f"{until_last_ms / 1e3:.1f} s, {IN_LINE / until_last_ms * 1e3:.0f}/s",
            f"{bare_ms / until_last_ms:.2f} x the rate of {IN_LINE} bare, {PROCESSORS} at a time",
        ),
        Row("answers that were no success", str(IN_LINE - len(took)), "bar: none"),
        Row("memory of the server, more than before", f"{grown / 2**20:.1f} MiB", "for the second thousand"),
    ]


def _all(lanes: Sequence[Lane]) -> tuple[list[float], float]:
    """Begin in every lane at once; return what each run took, and until the last was over, in ms."""
    begun = time.perf_counter()
    took = closed(list(lanes), 0)
    return took, (time.perf_counter() - begun) * 1e3


def _in_turn(lanes: Sequence[Lane], runs: int) -> float:
    """Do so many runs, one in each lane at a time; return what all took, in ms."""
    begun, done = time.perf_counter(), 0
    while done < runs:
        done += len(closed(lanes, 0))
    return (time.perf_counter() - begun) * 1e3
