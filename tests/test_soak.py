"""A few hundred lives of sandboxes, ended in every way there is, leave nothing that adds up.

`python -m benchmarks soak` is the same with thousands.
"""

import os

import pytest
from benchmarks.bench import served
from benchmarks.soak import AT_ONCE, ENDINGS, MEASURES, cells_that_stood, soak

CYCLES, LOOKS = 560, 10
WARM = 4
"""By then caches are filled."""
LEEWAY = {
    "threads of the server": AT_ONCE,  # a pool gets one more whenever all it has are busy, up to so many
    "memory of the server, MiB": 6,  # allocators keep a little here and there
    "memory of the launcher, MiB": 1,
}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")
def test_hundreds_of_lives_leave_nothing_that_adds_up() -> None:
    assert CYCLES % (2 * len(ENDINGS)) == 0, "each way to end comes up equally often, in both kinds of cell"
    with served() as server:
        seen = soak(server, CYCLES, LOOKS)
        stood = cells_that_stood(server)

    assert stood > CYCLES // 4

    for name, of in MEASURES.items():
        values = [of(each) for each in seen[WARM:]]
        # What the server still does for itself adds to a look now and then; a leak adds to all that follow.
        first, last = values[: len(values) // 2], values[len(values) // 2 :]
        assert min(last) - min(first) <= LEEWAY.get(name, 0), (name, values)
        assert "memory" in name or max(values) - min(values) <= LEEWAY.get(name, 0), (name, values)
