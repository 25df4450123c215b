"""Run every benchmark, or those named: `python -m benchmarks exec transfer`."""

import sys

from benchmarks import exec_overhead, idle, neighbour, transfer, walls
from benchmarks.bench import Row, table

BENCHMARKS = {
    "exec": exec_overhead.measure,
    "transfer": transfer.measure,
    "idle": idle.measure,
    "walls": walls.measure,
    "neighbour": neighbour.measure,
}


def main() -> None:
    """Print a table for each benchmark asked for."""
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    for name in names:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        rows: list[Row] = BENCHMARKS[name]()
        print(f"\n## {name}\n\n{table(rows)}\n", flush=True)


main()
