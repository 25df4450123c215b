"""Is running a file in a cell as fast as running it with no sandbox at all? The table of bars, and a drawing.

Everything is taken beside bare `python3 main.py`, the same interpreter, in turn. Latency is what one caller
waits who pauses between calls, as an agent does; throughput is what many callers get who do not pause.
"""

import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.bench import Row, Served, p50, p95, progress, served
from benchmarks.containers import RUN, ready
from benchmarks.footprint import launcher_of
from benchmarks.lanes import HELLO, BareLane, Lane, PetriLane, closed, once, open_loop, poisson, spent_ms
from benchmarks.plot import distributions

ROUNDS, PAUSE_S = 150, 0.05
CONTAINER_ROUNDS = 15
CLIENTS, WINDOWS, WINDOW_S = (1, 2, 4, 8, 16), 3, 3.0
SANDBOXES_EACH = 4
OPEN_RATE, OPEN_S, OPEN_WINDOWS = 40, 8.0, 3
OPEN_LANES = 16
LOADED, LOADED_S = 0.8, 20.0
DRAWING = Path(__file__).parent / "latency.svg"
BARE, IN_USE, FIRST = "bare python3 main.py", "exec, sandbox in use", "first exec after create"


def measure() -> list[Row]:
    """Return the table, and leave the drawing beside this file."""
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch, served() as server:
        script = Path(scratch) / "main.py"
        script.write_text(HELLO)
        times = _latencies(server, script)
        DRAWING.write_text(distributions("hello world: how long one caller waits", _drawn(times)))
        rows = _latency_rows(times)
        through = _throughput(server, script)
        rows += _throughput_rows(through)
        rows += _open_rows(server, script)
        return rows + _loaded_rows(server, script, through) + _container_rows(script)


# ------------------------------------------------------------------------------------------------- latency


def _latencies(server: Served, script: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in (BARE, IN_USE, FIRST, "create")}
    bare, used, fresh = BareLane(str(script)), PetriLane(server), PetriLane(server)
    used.fill(used.create())
    for number in range(ROUNDS + 3):
        took = {BARE: rested(partial(once, bare)), IN_USE: rested(partial(once, used))}
        time.sleep(PAUSE_S)
        begun = time.perf_counter()
        sandbox = fresh.create()
        took["create"] = (time.perf_counter() - begun) * 1e3
        fresh.requests.clear()
        fresh.fill(sandbox)
        took[FIRST] = once(fresh)
        fresh.ask("DELETE", f"/v1/sandboxes/{sandbox}", "")
        if number >= 3:  # the first rounds only warm caches
            for name, each in took.items():
                times[name].append(each)
        progress(number + 1, ROUNDS + 3)
    used.close()
    fresh.close()
    return times


def rested(work: partial[float]) -> float:
    """Do something after a pause, in which whatever goes on behind the last answer can end."""
    time.sleep(PAUSE_S)
    return work()


def _drawn(times: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: times[name] for name in (BARE, IN_USE, FIRST)}


def _latency_rows(times: dict[str, list[float]]) -> list[Row]:
    bare, used, first = times[BARE], times[IN_USE], times[FIRST]
    return [
        Row(f"{BARE}, p50 / p95", f"{p50(bare):.1f} / {p95(bare):.1f} ms"),
        _beside(f"{IN_USE}, p50", p50(used), p50(bare), 0.8),
        _beside(f"{IN_USE}, p95", p95(used), p95(bare), 1.2),
        _beside(f"{FIRST}, p50", p50(first), p50(bare), 1.6),
        Row(
            "create sandbox, p50 / p95",
            f"{p50(times['create']):.1f} / {p95(times['create']):.1f} ms",
            "bar: 5 ms at p50",
        ),
    ]


def _beside(what: str, ours_ms: float, bare_ms: float, bar: float) -> Row:
    return Row(what, f"{ours_ms:.1f} ms", f"{ours_ms / bare_ms:.2f} x bare, bar: {bar:g} x")


# ---------------------------------------------------------------------------------------------- throughput


@dataclass(frozen=True)
class Window:
    """What went through in some seconds, and what each run cost whom, in ms of processor time."""

    rate: float
    server_ms: float = 0
    launcher_ms: float = 0
    cells_ms: float = 0
    client_ms: float = 0


@contextmanager
def _lanes(server: Served, count: int, sandboxes: int) -> Iterator[list[PetriLane]]:
    """Hold so many lanes, each with sandboxes of its own."""
    with ExitStack() as closing:
        lanes = []
        for _ in range(count):
            lane = PetriLane(server)
            closing.callback(lane.close)
            made = [lane.create() for _ in range(sandboxes)]
            for sandbox in made:
                lane.fill(sandbox)
                closing.callback(lane.ask, "DELETE", f"/v1/sandboxes/{sandbox}", "")
            lanes.append(lane)
        yield lanes


def _throughput(server: Served, script: Path) -> dict[int, tuple[Window, Window]]:
    """Return, for each number of clients, the middle one of the windows of bare Python and of ours."""
    found = {}
    for place, clients in enumerate(CLIENTS):
        bare: list[Window] = []
        ours: list[Window] = []
        with _lanes(server, clients, SANDBOXES_EACH) as lanes:
            closed(lanes, 1)  # until as many cells are parked as will be
            for _ in range(WINDOWS):
                bare.append(_bare_window([BareLane(str(script)) for _ in range(clients)]))
                ours.append(_our_window(server, lanes))
        found[clients] = (_middle(bare), _middle(ours))
        progress(place + 1, len(CLIENTS))
    return found


def _middle(windows: Sequence[Window]) -> Window:
    return sorted(windows, key=lambda window: window.rate)[len(windows) // 2]


def _bare_window(lanes: Sequence[Lane]) -> Window:
    before, client = _children_ms(), time.process_time()
    begun = time.perf_counter()
    runs = len(closed(lanes, WINDOW_S))
    rate = runs / (time.perf_counter() - begun)
    client_ms = (time.process_time() - client) * 1e3
    return Window(rate, cells_ms=(_children_ms() - before) / runs, client_ms=client_ms / runs)


def _children_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def _our_window(server: Served, lanes: Sequence[PetriLane]) -> Window:
    launcher = launcher_of(server.pid)

    def spent() -> tuple[float, ...]:
        cells = sum(lane.cell_ms for lane in lanes)
        return spent_ms(server.pid), spent_ms(launcher), cells, time.process_time() * 1e3

    before, begun = spent(), time.perf_counter()
    runs = len(closed(lanes, WINDOW_S))
    took_s = time.perf_counter() - begun
    return Window(
        runs / took_s, *((after - each) / runs for each, after in zip(before, spent(), strict=True))
    )


def _throughput_rows(found: dict[int, tuple[Window, Window]]) -> list[Row]:
    rows = []
    for clients, (bare, ours) in found.items():
        against = f"{ours.rate / bare.rate:.2f} x bare ({bare.rate:.0f}/s), bar: 0.5 x"
        rows.append(Row(f"throughput, {clients} client{'s'[: clients > 1]}", f"{ours.rate:.0f}/s", against))
    clients, (bare, ours) = max(found.items(), key=lambda each: each[1][1].rate)
    shared = (
        f"server {ours.server_ms:.1f}, launcher {ours.launcher_ms:.1f}, cell {ours.cells_ms:.1f}, "
        f"client {ours.client_ms:.1f} ms"
    )
    against = f"bare: {bare.cells_ms:.1f}, its client {bare.client_ms:.1f} ms"
    return [*rows, Row(f"processor time for each exec, {clients} clients", shared, against)]


# ----------------------------------------------------------------------------------------------- open loop


def _open_rows(server: Served, script: Path) -> list[Row]:
    bare: list[float] = []
    ours: list[float] = []
    with _lanes(server, OPEN_LANES, 1) as lanes:
        for seed in range(OPEN_WINDOWS):
            moments = poisson(OPEN_RATE, OPEN_S, seed)
            bare += open_loop([BareLane(str(script)) for _ in range(OPEN_LANES)], moments)
            ours += open_loop(lanes, moments)
            progress(seed + 1, OPEN_WINDOWS)
    return [
        _beside(f"open loop at {OPEN_RATE}/s, p50", p50(ours), p50(bare), 0.8),
        _beside(f"open loop at {OPEN_RATE}/s, p95", p95(ours), p95(bare), 0.8),
    ]


def _loaded_rows(server: Served, script: Path, found: dict[int, tuple[Window, Window]]) -> list[Row]:
    """Return the waits of callers who come at 80 % of what goes through at most."""
    bare_rate, our_rate = (max(pair[which].rate for pair in found.values()) * LOADED for which in (0, 1))
    bare = open_loop([BareLane(str(script)) for _ in range(OPEN_LANES)], poisson(bare_rate, LOADED_S, 7))
    with _lanes(server, OPEN_LANES, 1) as lanes:
        closed(lanes, 1)
        ours = open_loop(lanes, poisson(our_rate, LOADED_S, 7))
    return [
        Row(
            f"at {LOADED:.0%} of capacity, {our_rate:.0f}/s, p50 / p99",
            f"{p50(ours):.1f} / {p99(ours):.1f} ms",
            f"bare at {bare_rate:.0f}/s: {p50(bare):.1f} / {p99(bare):.1f} ms",
        )
    ]


def p99(times: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(times, n=100)[-1]


# ---------------------------------------------------------------------------------------------- containers


def _container_rows(script: Path) -> list[Row]:
    rows = []
    for engine in RUN:
        with ready(engine, script.parent) as (argv, why), served() as server:
            if why:
                rows.append(Row(f"{engine} run", "not measured", why))
                continue
            lane = PetriLane(server)
            lane.fill(lane.create())
            theirs, ours = [], []
            for number in range(CONTAINER_ROUNDS):
                theirs.append(once(BareLane(str(script), argv)))
                ours.append(rested(partial(once, lane)))
                progress(number + 1, CONTAINER_ROUNDS)
            lane.close()
        against = f"{p50(theirs) / p50(ours):.0f} x slower than our exec ({p50(ours):.1f} ms), bar: 15 x"
        rows.append(Row(f"{engine} run --rm, p50", f"{p50(theirs):.0f} ms", against))
    return rows
