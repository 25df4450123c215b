"""A sandbox that does nothing costs next to nothing. `python -m benchmarks idle` prints the figures."""

import pytest
from benchmarks.bench import served
from benchmarks.idle import cost


@pytest.mark.slow
def test_a_thousand_idle_sandboxes_cost_no_process_and_less_than_a_megabyte() -> None:
    with served() as server:
        processes, memory_bytes = cost(server)

    assert processes == 0
    assert memory_bytes < 1_000_000
