"""A program cannot tell a cell from the bare machine, nor can who looks at what it did.

The programs stand in `tests/exactly/tables`; each is run by bare Python, in a cold cell and in a parked one.
Only root can give bare Python a `/workspace`; for an ordinary user, the two cells are compared.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest

from petri.engine.ahead import _MOST_CODE, _MOST_FILENAME
from petri.settings import Settings
from tests.conftest import Server
from tests.exactly.bare import Bare
from tests.exactly.cells import Cells
from tests.exactly.programs import Program, programs
from tests.exactly.seen import Seen

pytestmark = pytest.mark.long

IS_ROOT = os.geteuid() == 0
needs_bare = pytest.mark.skipif(not IS_ROOT, reason="only root can give bare Python a /workspace")
NONE_PARKED = {"PETRI_PARKED_BYTES": "0"}


@dataclass
class Ways:
    """The ways to run a program, in turn or at the same time."""

    bare: Bare | None
    cold: Cells
    parked: Cells

    def run(self, program: Program) -> dict[str, Seen]:
        """Return what it did in each way."""
        ways: dict[str, Bare | Cells] = {"cold": self.cold, "parked": self.parked}
        if self.bare is not None:
            ways["bare"] = self.bare
        with ThreadPoolExecutor(len(ways)) as pool:
            return dict(zip(ways, pool.map(lambda way: way.run(program), ways.values()), strict=True))


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    cold = _server(tmp_path_factory.mktemp("cold"), NONE_PARKED)
    parked = _server(tmp_path_factory.mktemp("parked"), {})
    etc = cold.home / "petri" / "engine" / "rootfs" / "etc"
    bare = Bare(tmp_path_factory.mktemp("bare"), etc, Settings().open_files).build() if IS_ROOT else None
    with cold.client() as cold_http, parked.client() as parked_http:
        yield Ways(
            bare,
            Cells(cold, cold_http, must_park=False),
            Cells(parked, parked_http, must_park=True),
        )
    for server in (cold, parked):
        assert server.stop() == 0, server.log()
    # Or it would be a cell without a Python that was compared, and nobody would know.
    assert "is not started ahead" not in parked.log(), parked.log()


def _server(home: Path, more: dict[str, str]) -> Server:
    return Server(home, {"PETRI_DEPENDENCIES": "off", **more}).start()


def _case(program: Program) -> object:
    marks = [pytest.mark.xfail(reason=program.known)] if program.known else []
    return pytest.param(program, id=program.name, marks=marks)


@pytest.mark.parametrize("program", [_case(program) for program in programs()])
def test_a_program_cannot_tell_the_difference(ways: Ways, program: Program) -> None:
    seen = {way: each.blurred(program) for way, each in ways.run(program).items()}

    assert seen["cold"] == seen.get("bare", seen["cold"])
    assert seen["parked"] == seen["cold"]


PROBES = {"file": {"filename": "main.py"}, "code": {"code": "print(len(open('/proc/self/cmdline').read()))"}}


@needs_bare
@pytest.mark.parametrize("body", PROBES.values(), ids=PROBES)
def test_what_is_parked_is_a_python_that_was_started_ahead(ways: Ways, body: dict[str, str]) -> None:
    # The one thing that shows it: room for a name, or code, that was not known yet.
    source = PROBES["code"]["code"].encode()

    seen = ways.run(Program("probe", body, {"main.py": source}, {}))

    assert int(seen["cold"].stdout) == int(seen["bare"].stdout) < 200
    assert int(seen["parked"].stdout) > 1000


def _code_of(length: int) -> Program:
    head, tail = "print(len('", "'))"
    return Program("code", {"code": head + "ü" * (length - len(head + tail)) + tail}, {}, {})


def _file_of(length: int) -> Program:
    folders = "folder/" * (length // 7 - 2)
    name = folders + "m" * (length - len(folders) - 3) + ".py"
    source = b"import sys\nprint(sys.argv, __file__, sys.path[0])\nraise ValueError"
    return Program("file", {"filename": name, "args": ["x"]}, {name: source}, {})


@pytest.mark.parametrize("over", [-1, 0, 1, len("petri-parked"), len("petri-parked") + 1])
@pytest.mark.parametrize(("program", "most"), [(_code_of, _MOST_CODE), (_file_of, _MOST_FILENAME)])
def test_what_just_fits_and_what_just_does_not_are_no_different(
    ways: Ways, program: Callable[[int], Program], most: int, over: int
) -> None:
    seen = ways.run(program(most + over))

    assert seen["parked"] == seen["cold"] == seen.get("bare", seen["cold"])


_TELL = b"""import hashlib, os, sys
said = (sys.argv, sys.orig_argv, list(os.environ.items()), sys.stdin.read())
print([len(each) for each in said], hashlib.sha256(repr(said).encode()).hexdigest())
"""
LARGE: dict[str, dict[str, Any]] = {
    "stdin": {"stdin": "x\u00fc\U0001f600\n" * 400_000},
    "one argument": {"args": ["x" * 131_071]},
    "arguments": {"args": ["x" * 100_000] * 14},
    "many arguments": {"args": [str(number) for number in range(7_000)]},
    "wide arguments": {"args": ["\u00fc" * 5_000, "\U0001f600" * 5_000]},
    "variables": {"env": {"LONG": "x" * 100_000, **{f"V{number}": "\u00fc" for number in range(500)}}},
    "all": {"stdin": "x" * 3_000_000, "args": ["x" * 100_000] * 10, "env": {"LONG": "x" * 100_000}},
}


@pytest.mark.parametrize("form", ["file", "code"])
@pytest.mark.parametrize("body", LARGE.values(), ids=LARGE)
def test_what_is_large_is_no_different(ways: Ways, form: str, body: dict[str, Any]) -> None:
    said = {"filename": "main.py"} if form == "file" else {"code": _TELL.decode()}

    seen = ways.run(Program("large", {**said, **body}, {"main.py": _TELL}, {}))

    assert (seen["cold"].exit_code, seen["cold"].stderr) == (0, b"")
    assert seen["parked"] == seen["cold"] == seen.get("bare", seen["cold"])


_COVERED = {
    "target.py": b"def f(x):\n    if x:\n        return 1\n    return 2\nf(1)\n",
    "main.py": b"import sys, target\nprint(sys.argv, __name__)\n",
}
_MEASURE = """
import sys
sys.dont_write_bytecode = True
import coverage
measured = coverage.Coverage(branch=True, data_file=None)
measured.start()
import target
measured.stop()
measured.report(show_missing=True, file=sys.stdout)
"""
COVERAGES: dict[str, dict[str, Any]] = {
    "by the script": {"filename": "measure.py"},
    "by code": {"code": _MEASURE},
    "of a script": {
        "command": "run='python3 -B -m coverage'; $run run --branch main.py a && $run report -m; rm .coverage"
    },
}


@pytest.mark.parametrize("body", COVERAGES.values(), ids=COVERAGES)
def test_coverage_measures_the_same(ways: Ways, body: dict[str, Any]) -> None:
    installed = Path(coverage.__file__).parent
    package = {str(file.relative_to(installed.parent)): file for file in installed.rglob("*.py")}
    files = {**{path: file.read_bytes() for path, file in package.items()}, **_COVERED}

    seen = ways.run(Program("coverage", body, {**files, "measure.py": _MEASURE.encode()}, {}))

    assert b"target.py       5      1      2      1    71%   4\n" in seen["cold"].stdout, seen["cold"].stderr
    assert seen["parked"] == seen["cold"] == seen.get("bare", seen["cold"])


OF_A_HOST = "main: names of main", "state: order of loaded modules", "state: cache of importers"
"""Of the programs above, those that would tell."""


@pytest.mark.parametrize("name", OF_A_HOST)
def test_where_the_host_has_no_sitecustomize_it_is_no_different(ways: Ways, name: str) -> None:
    program = next(each for each in programs() if each.name == name)
    with ExitStack() as stack:
        for server in (ways.cold.server, ways.parked.server):
            for own in (server.home / "petri/engine/rootfs/etc").glob("python3*/sitecustomize.py"):
                stack.callback(own.with_suffix(".aside").rename, own)
                own.rename(own.with_suffix(".aside"))
        cold, parked = (Cells(each.server, each.http, each.must_park) for each in (ways.cold, ways.parked))
        seen = Ways(ways.bare, cold, parked).run(program)

    assert b"sitecustomize" not in seen["cold"].stdout
    assert seen["parked"] == seen["cold"] == seen.get("bare", seen["cold"])


def test_hashes_differ_from_run_to_run(ways: Ways) -> None:
    program = Program("hashes", {"filename": "main.py"}, {"main.py": b"print(hash('x'))"}, {})
    said: defaultdict[str, set[bytes]] = defaultdict(set)

    for _ in range(5):
        for way, seen in ways.run(program).items():
            said[way].add(seen.stdout)

    assert all(len(values) > 1 for values in said.values()), said


TELLTALES = {
    "said": "import os; print(os.getppid() == 1)",
    "ended": "import os, sys; sys.exit(os.getppid() == 1)",
    "left": "import os; open('out', 'w').write(str(os.getppid() == 1))",
    "complained": "import os; os.write(2, b'x' * (os.getppid() == 1))",
}


@needs_bare
@pytest.mark.parametrize("source", TELLTALES.values(), ids=TELLTALES)
def test_a_difference_would_be_seen(ways: Ways, source: str) -> None:
    program = Program("telltale", {"filename": "main.py"}, {"main.py": source.encode()}, {})

    seen = ways.run(program)

    assert seen["cold"] == seen["parked"] != seen["bare"]
