"""With packages, too, no program can tell a parked cell from a cold one. No bare machine has them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.calls import create, eventually, put, run
from tests.conftest import Server
from tests.exactly.cells import Cells
from tests.exactly.programs import WITH_PACKAGES, Program, programs
from tests.package_index import PackageIndex, wheel
from tests.ready import first_processes

pytestmark = pytest.mark.long

PLAIN = "version = '1.0'\ndef fail():\n    raise ValueError('in a package')\n"
EARLY = {"early.py": "import os\nos.write(1, b'early\\n')\n", "early.pth": "import early\n"}
"""In one piece: `print` writes the line and its end apart, and two processes may do so at once."""


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    index = PackageIndex()
    index.add("plain", "1.0", plain=PLAIN)
    index.add("other", "1.0")
    index.put("early", "1.0", wheel("early", "1.0", files=EARLY))
    yield index
    index.stop()


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, index: PackageIndex) -> Iterator[tuple[Cells, Cells]]:
    """A cold way and a parked one."""
    asks = {"PETRI_INDEX_URL": index.url, "UV_HTTP_RETRIES": "0"}
    cold = Server(tmp_path_factory.mktemp("cold"), {**asks, "PETRI_PARKED_BYTES": "0"}).start()
    parked = Server(tmp_path_factory.mktemp("parked"), asks).start()
    with cold.client() as cold_http, parked.client() as parked_http:
        yield Cells(cold, cold_http, must_park=False), Cells(parked, parked_http, must_park=True)
    for server in (cold, parked):
        assert server.stop() == 0, server.log()
    # Or it would be a cell without a Python that was compared, and nobody would know.
    assert "is not started ahead" not in parked.log(), parked.log()


PACKAGES = {"plain": "plain", "and-early": "plain\nearly"}


@pytest.mark.parametrize("packages", PACKAGES.values(), ids=PACKAGES)
@pytest.mark.parametrize("program", programs(WITH_PACKAGES), ids=lambda program: program.name)
def test_a_program_with_packages_cannot_tell_the_difference(
    cells: tuple[Cells, Cells], program: Program, packages: str
) -> None:
    program = replace(program, files={**program.files, "requirements.txt": packages.encode()})

    cold, parked = (way.run(program).blurred(program) for way in cells)

    assert parked == cold
    assert ("early" in cold.stdout.decode()) >= (packages != "plain" and program.form != "command")


@pytest.mark.parametrize(("packages", "is_ahead"), [("plain", True), ("plain\nearly", False)], ids=PACKAGES)
def test_no_python_is_started_ahead_where_packages_bring_code_for_every_start(
    cells: tuple[Cells, Cells], packages: str, *, is_ahead: bool
) -> None:
    source = (
        b"print(len(open('/proc/self/cmdline').read()))"  # there is room in it for what was not known yet
    )
    files = {"main.py": source, "requirements.txt": packages.encode()}
    program = Program("probe", {"filename": "main.py"}, files, {})
    cells[1].run(program)  # the next cell is parked for one like it

    seen = cells[1].run(program)

    assert (int(seen.stdout.split()[-1]) > 1000) == is_ahead


def test_a_cell_that_stands_with_the_former_packages_serves_no_run_with_others(
    cells: tuple[Cells, Cells],
) -> None:
    http = cells[1].http
    sandbox = create(http)
    put(http, sandbox, "main.py", "import other\nprint(other.version)")
    put(http, sandbox, "requirements.txt", "plain")
    run(http, sandbox, filename="main.py", dependencies="manifest-only")
    eventually(lambda: first_processes(cells[1].server, sandbox) != [])

    put(http, sandbox, "requirements.txt", "other")
    told = run(http, sandbox, filename="main.py", dependencies="manifest-only")

    assert (told["exit_code"], told["stdout"]) == (0, "1.0\n")
