"""What each wall adds to one start of hello world, and how many runs a second go through all of them.

Each row has one wall more than the one before, started as the launcher starts cells, with no server around:
the walls alone. Then the same work over HTTP, in 1, 2, 4 and 8 sandboxes at once, against as many
bare interpreters.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.bench import Row, interleaved, p50, served
from benchmarks.exec_overhead import HELLO, PLAIN, PYTHON, HelloSandbox
from petri.engine import rootfs, seccomp
from petri.engine.brief import brief, word
from petri.engine.confine import (
    ARGUMENTS_FD,
    INIT,
    MASKED,
    TARGETS,
    Walls,
    confine,
    readable,
)
from petri.engine.wiring import filled
from petri.launcher import cgroups
from petri.launcher.cells import Cells
from petri.model import Command

ROUNDS = 60
AT_ONCE = (1, 2, 4, 8)
WINDOW_S = 4.0
_UID = 180_001
_START = ("/usr/bin/bwrap", "--args", str(ARGUMENTS_FD), "--", *INIT, "0")
_HELLO = Command((PYTHON, "main.py"), "/workspace", 0, {"PATH": "/usr/bin:/bin"})


def measure() -> list[Row]:
    """Return the price of each wall, then the throughput behind all of them."""
    return [*_prices(), *_throughput()]


def _prices() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch, ExitStack() as stack:
        bench = _Bench(Path(scratch))
        variants: dict[str, Callable[[], object]] = {
            "bare python3 main.py": lambda: _check([PYTHON, str(bench.folder / "main.py")]),
            "bubblewrap, plain": lambda: _check(bench.plain),
            "+ our mounts, masks and init": lambda: bench.walled(filtered=False),
            "+ seccomp": lambda: bench.walled(),
        }
        if os.geteuid() == 0:
            hierarchy = stack.enter_context(_groups())
            variants["+ a cgroup of its own"] = lambda: bench.walled(hierarchy=hierarchy)
            variants["+ a uid of its own"] = lambda: bench.walled(hierarchy=hierarchy, uid=_UID)
        times = interleaved(variants, ROUNDS)
    medians = {name: p50(each) for name, each in times.items()}
    before = [0.0, *medians.values()]
    return [
        Row(name, f"{median:.1f} ms", f"{median - earlier:+.1f} ms")
        for (name, median), earlier in zip(medians.items(), before, strict=False)
    ]


@contextmanager
def _groups() -> Iterator[cgroups.Hierarchy]:
    hierarchy = cgroups.find(f"petri-bench-{os.getpid()}")
    try:
        yield hierarchy
    finally:
        for base in hierarchy.bases():
            cgroups.sweep(base)


class _Bench:
    """A folder to run in, and cells started as the launcher starts them."""

    def __init__(self, scratch: Path) -> None:
        scratch.chmod(0o755)
        self.folder = scratch / "workspace"
        self.folder.mkdir()
        (self.folder / "main.py").write_text(HELLO)
        rootfs.build(scratch / "rootfs")
        for path in (self.folder, self.folder / "main.py"):
            path.chmod(0o755)
        self._gate = str(scratch / "rootfs" / "gate")
        masked = readable(path for path, _ in MASKED)
        walls = Walls(str(self.folder), str(scratch / "rootfs"), masked, tmp_bytes=2**26, devices=None)
        self._words = confine(walls, {})
        self._filter = seccomp.program()
        self.plain = [
            *(*PLAIN, "--bind", str(self.folder), "/workspace", "--chdir", "/workspace"),
            *(PYTHON, "main.py"),
        ]

    def walled(
        self, *, filtered: bool = True, hierarchy: cgroups.Hierarchy | None = None, uid: int | None = None
    ) -> None:
        """Run hello world in a cell of these walls, to its end."""
        cells = Cells(self._gate, hierarchy, None, None)
        words = list(self._words)
        if not filtered:
            at = words.index("--seccomp")
            del words[at : at + 2]
        order = {
            "id": 1,
            "argv": list(_START),
            "targets": TARGETS,
            "uid": uid,
            "limits": {"cpus": 1, "memory_bytes": 2**28, "processes": 64},
            "rlimits": [],
        }
        with ExitStack() as stack:
            reading, writing = (_held(stack, end) for end in os.pipe2(os.O_CLOEXEC))
            null = _held(stack, os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))
            go = _held(stack, filled(word(None)))
            arguments = _held(stack, filled(("\0".join(words) + "\0").encode()))
            rules = _held(stack, filled(self._filter))
            told = _held(stack, filled(brief(_HELLO)))
            cells.spawn(order, (null, writing, null, null, go, arguments, rules, told, null))
            while len(cells):
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                cells.reap()
                list(cells.finished())
            assert os.read(reading, 64) == b"hello world\n"


def _held(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _check(argv: list[str]) -> None:
    assert subprocess.run(argv, capture_output=True, check=True).stdout == b"hello world\n"


def _throughput() -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch, served() as server:
        script = Path(scratch) / "main.py"
        script.write_text(HELLO)
        for number in AT_ONCE:
            bare = _rate([lambda: _check([PYTHON, str(script)])] * number)
            ours = _rate([HelloSandbox(server).exec for _ in range(number)])
            rows.append(
                Row(f"{number} at once", f"{ours:.0f} runs/s", f"{ours / bare:.2f} x bare ({bare:.0f}/s)")
            )
    return rows


def _rate(workers: list[Callable[[], None]]) -> float:
    """Have each worker work without a pause for a while; return how often they did together, a second."""
    begun = time.monotonic()

    def work(worker: Callable[[], None]) -> int:
        count = 0
        while time.monotonic() < begun + WINDOW_S:
            worker()
            count += 1
        return count

    with ThreadPoolExecutor(len(workers)) as pool:
        return sum(pool.map(work, workers)) / (time.monotonic() - begun)
