"""Does a cell that stands ready pay where no interpreter can be started in it ahead? Hello, in each language.

Python is parked with its interpreter started. Node and bash find a cell that stands with nothing in it: what
it saves them is the making of the cell.
"""

import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.bench import Row, p50, progress, served
from benchmarks.lanes import HELLO, PYTHON, BareLane, PetriLane, once
from benchmarks.speed import rested

ROUNDS = 60
PROGRAMS = {
    "python": (PYTHON, "main.py", HELLO),
    "javascript": ("node", "main.js", 'console.log("hello world")\n'),
    "bash": ("bash", "main.sh", "echo hello world\n"),
}
BARE, STANDING, COLD = "bare", "in a cell that stood ready", "in a cell made for it"


def measure() -> list[Row]:
    """Return a row for each language that this host has."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="petri-bench-")))
        parking, plain = held.enter_context(served()), held.enter_context(served(PETRI_PARKED_BYTES="0"))
        rows = []
        for program, name, text in PROGRAMS.values():
            if shutil.which(program) is None:
                rows.append(Row(program, "not measured", "this host has none"))
                continue
            (folder / name).write_text(text)
            lanes = {STANDING: PetriLane(parking), COLD: PetriLane(plain)}
            for lane in lanes.values():
                held.callback(lane.close)
                lane.fill(lane.create(), name, text)
            bare = BareLane(str(folder / name), [program, str(folder / name)])
            rows.append(_row(program, _times({BARE: bare, **lanes})))
        return rows


def _times(lanes: dict[str, BareLane | PetriLane]) -> dict[str, float]:
    """Return the middle one of the times of each, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in lanes}
    for number in range(ROUNDS + 3):
        for name, lane in lanes.items():
            took = rested(partial(once, lane))
            if number >= 3:  # the first rounds only warm caches
                times[name].append(took)
        progress(number + 1, ROUNDS + 3)
    return {name: p50(each) for name, each in times.items()}


def _row(program: str, took: dict[str, float]) -> Row:
    bare = took[BARE]
    value = f"{took[STANDING]:.1f} ms {STANDING}, {took[COLD]:.1f} ms {COLD}"
    against = f"{took[STANDING] / bare:.2f} x and {took[COLD] / bare:.2f} x bare ({bare:.1f} ms)"
    return Row(f"{Path(program).name}, p50", value, against)
