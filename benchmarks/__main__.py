"""Run every benchmark, or those named: `python -m benchmarks exec transfer`.

With `--publish`, which is what `make bench` does, the tables also go into `benchmarks/README.md`.
"""

import sys

from benchmarks import (
    burst,
    environments,
    exec_overhead,
    idle,
    installing,
    languages,
    neighbour,
    soak,
    speed,
    sync,
    transfer,
    trees,
    walls,
)
from benchmarks.bench import Row, table
from benchmarks.publish import conditions, publish

BENCHMARKS = {
    "speed": speed.measure,
    "burst": burst.measure,
    "languages": languages.measure,
    "exec": exec_overhead.measure,
    "transfer": transfer.measure,
    "idle": idle.measure,
    "walls": walls.measure,
    "neighbour": neighbour.measure,
    "sync": sync.measure,
    "soak": soak.measure,
    "detect": environments.measure,
    "install": installing.measure,
    "trees": trees.measure,
}


def main() -> None:
    """Print a table for each benchmark asked for, and publish it if that is asked for."""
    words = sys.argv[1:]
    names = [word for word in words if word != "--publish"] or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    for number, name in enumerate(names, 1):
        print(f"measuring {name}, {number} of {len(names)} …", file=sys.stderr, flush=True)
        before = conditions()
        rows: list[Row] = BENCHMARKS[name]()
        print(f"\n## {name}\n\n{table(rows)}\n", flush=True)
        if "--publish" in words:
            publish(name, table(rows), before)


if __name__ == "__main__":
    main()
