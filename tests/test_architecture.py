"""The arrows, as data: which room may import which, and through which door."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "petri"

MOST_LINES_OF_A_FUNCTION = 60

MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "errors": frozenset(),
    "logs": frozenset(),
    "heap": frozenset(),
    "threads": frozenset(),
    "wire": frozenset(),
    "tally": frozenset(),
    "holes": frozenset(),
    "launcher": frozenset(),
    "cell": frozenset(),
    "model": frozenset({"errors"}),
    "settings": frozenset({"errors"}),
    "trees": frozenset({"errors"}),
    "patches": frozenset({"trees"}),
    "syncing": frozenset({"trees", "errors"}),
    "store": frozenset({"trees", "holes", "errors"}),
    "workspace": frozenset({"trees", "tally", "holes", "errors"}),
    "environment": frozenset({"engine", "model", "threads", "errors"}),
    "transcript": frozenset({"model", "threads", "errors"}),
    "ledger": frozenset({"model", "errors"}),
    "engine": frozenset({"launcher", "tally", "model", "threads", "errors"}),
    "operations": frozenset(
        {
            *("workspace", "environment", "store", "syncing", "trees", "patches", "transcript", "engine"),
            *("ledger", "tally", "model", "threads", "errors"),
        }
    ),
    "api": frozenset({"operations", "workspace", "engine", "ledger", "model", "threads", "wire", "errors"}),
    "sdk": frozenset({"syncing", "trees", "wire", "errors"}),
    "cli": frozenset({"sdk", "wire", "home", "app", "errors"}),
    "home": frozenset({"api", "operations", "store", "ledger", "model", "wire", "settings", "errors"}),
    "app": frozenset(
        {
            *("api", "operations", "workspace", "environment", "store", "transcript", "engine", "ledger"),
            *("model", "home", "heap", "wire", "settings", "logs", "errors"),
        }
    ),
    "petri": frozenset({"sdk"}),
}
"""Every room. A room is a folder or a file of `src/petri`; `petri` is the package's own `__init__.py`."""

BACK_DOORS: Mapping[tuple[str, str], str] = {
    ("engine", "petri.launcher.cgroups"): "what a cell has used can be read without asking the launcher",
    ("app", "petri.operations.parking"): "made once, handed to `Host`",
    ("api", "petri.operations.amend"): "an operation is a file: this is its door",
    ("api", "petri.operations.cancel"): "an operation is a file: this is its door",
    ("api", "petri.operations.create"): "an operation is a file: this is its door",
    ("api", "petri.operations.destroy"): "an operation is a file: this is its door",
    ("api", "petri.operations.environment"): "an operation is a file: this is its door",
    ("api", "petri.operations.exec"): "an operation is a file: this is its door",
    ("api", "petri.operations.files"): "an operation is a file: this is its door",
    ("api", "petri.operations.health"): "an operation is a file: this is its door",
    ("api", "petri.operations.history"): "an operation is a file: this is its door",
    ("api", "petri.operations.keys"): "an operation is a file: this is its door",
    ("api", "petri.operations.blaming"): "an operation is a file: this is its door",
    ("api", "petri.operations.comparing"): "an operation is a file: this is its door",
    ("api", "petri.operations.merging"): "an operation is a file: this is its door",
    ("api", "petri.operations.once"): "an operation is a file: this is its door",
    ("api", "petri.operations.fork"): "an operation is a file: this is its door",
    ("api", "petri.operations.restore"): "an operation is a file: this is its door",
    ("api", "petri.operations.snapshots"): "an operation is a file: this is its door",
    ("api", "petri.operations.sync"): "an operation is a file: this is its door",
    ("api", "petri.operations.sync_request"): "`BrokenOff`: how the thread that reads a body is told",
    ("api", "petri.operations.tenants"): "an operation is a file: this is its door",
    ("api", "petri.operations.command"): "`Ask`, what an exec is asked with",
    ("api", "petri.operations.languages"): "`Language`, to show it",
    ("api", "petri.operations.steps"): "`Step`, to show it",
    ("api", "petri.operations.shares"): "`Measured`, to show it",
    ("app", "petri.engine.bubblewrap"): "the one who chooses the driver",
    ("app", "petri.engine.process"): "whoever has a large workspace counted needs a process for it",
    ("app", "petri.operations.health"): "`petri doctor` shows the layer of the disk as `/health` does",
    ("app", "petri.operations.shares"): "makes the host, and the host has everybody's share of the disk",
    ("app", "petri.operations.desk"): "makes the host, and the host has a desk",
    ("app", "petri.operations.tenant_disk"): "makes the host, and has somebody keep an eye on tenants' disk",
    ("app", "petri.operations.keys"): "has somebody write down now and then which keys are in use",
    ("app", "petri.operations.languages"): "makes the host, and the host has languages",
    ("app", "petri.operations.outfitter"): "makes the host, and the host has somebody who installs packages",
    ("app", "petri.environment.building"): "says where environments lie, and what they may take of the disk",
    (
        "operations",
        "petri.environment.building",
    ): "what is wanted is one half of that room, having it the other",
    ("app", "petri.operations.reap"): "recovers before the first request, and reaps for ever",
    ("app", "petri.api.front"): "the protocol of each connection: uvicorn is handed it by whoever starts it",
    ("app", "petri.api.guard"): "`is_loopback`: one answer to who may call without a key",
    ("app", "petri.api.shapes"): "`petri doctor` shows layers as `/health` does",
    ("home", "petri.api.shapes"): "without a server, keys and tenants look as they do with one",
    ("home", "petri.operations.keys"): "an operation is a file: this is its door",
    ("home", "petri.operations.tenants"): "an operation is a file: this is its door",
    ("environment", "petri.engine.tools"): "installers are children, and this is the one who may have some",
    ("environment", "petri.engine.process"): "what a build writes is counted by a process, as a workspace is",
    ("engine", "petri.launcher.protocol"): "the two ends of one line must speak alike",
}
"""Whoever enters another room otherwise than by its front door, and why."""

LAZY: Mapping[tuple[str, str], str] = {
    ("petri", "petri.sdk"): "the launcher imports this package too, and must stay small",
    ("petri.app", "uvloop"): "only a server needs it, and the doctor is in this file too",
    ("petri.cli", "petri.cli.commands"): "a sync does without click, which takes as long to load as it takes",
    ("petri.cli.quick", "petri.cli.folders"): "every other command does without",
    ("petri.cli.folders", "petri.sdk"): "push, pull and sync do without",
    ("petri.cli.folder_commands", "petri.cli"): "`petri --help` is there at once",
    ("petri.cli.folder_commands", "petri.cli.folders"): "`petri --help` is there at once",
    ("petri.cli.progress", "click"): "a sync does without, unless it takes so long that a bar is worth it",
    ("petri.cli.runs", "petri.sdk"): "`petri --help` is there at once",
    ("petri.cli.races", "petri.sdk"): "`petri --help` is there at once",
    ("petri.cell.tools.continuing.sitecustomize", "runpy"): "most runs miss nothing",
    ("petri.sdk.folder.mirror", "random"): "most syncs do without",
    ("petri.sdk.folder.watching", "watchfiles"): "push, pull and sync do without",
    ("petri.cli.server", "petri.app"): "every other command does without the server",
    ("petri.cli.access", "petri.home"): "needed where no server runs, and brings most of one",
    ("petri.cli.store", "petri.home"): "needed where no server runs, and brings most of one",
    ("petri.cli.options", "petri.sdk"): "`petri --help` is there at once",
    ("petri.cli.live", "petri.sdk"): "`petri --help` is there at once",
    ("petri.cli.files", "tempfile"): "`petri --help` is there at once",
    ("petri.cli.files", "petri.cli.unpacking"): "`petri --help` is there at once",
    ("petri.cli.unpacking", "zstandard"): "`petri --help` is there at once",
    ("petri.sdk.folder.line", "ssl"): "a server on this machine speaks plain HTTP",
    ("petri.engine.bubblewrap", "petri.engine.seccomp"): "loads a library that the host may lack",
    ("petri.syncing.delta", "pyfastcdc"): "only a large file that is new or changed needs it",
    ("petri.trees.hashing", "queue"): "only a large content is worth a second thread",
    ("petri.trees.hashing", "threading"): "only a large content is worth a second thread",
    ("petri.ledger.migrations", "alembic"): "importing it takes longer than opening a ledger",
}
"""Imports inside functions. None of them is there to get around an arrow."""

NAMED_FOR_TYPES: Mapping[str, str] = {
    "petri": "`petri.Client` is found on first use",
    "cli": "its clients and answers come on first use, see `LAZY`",
    "sdk": "its clients bring httpx and pydantic, and come on first use",
}
"""Rooms that import for type checkers alone. What they name counts as an arrow all the same."""

PURE = ("errors", "model", "launcher", "tally", "holes", "cell")
"""Rooms that need nothing but the standard library, and nothing of the host's doing at import."""

READS_THE_ENVIRONMENT = frozenset(
    {"petri.settings", "petri.sdk.config", "petri.cell.python.sitecustomize", "petri.cell.tools.pip"}
)
"""The server's settings, the two the clients share, and a Python inside a cell, which is given its own."""


@dataclass(frozen=True)
class Import:
    """One module that another one imports."""

    importer: str
    target: str
    line: int
    is_lazy: bool
    is_for_types: bool

    @property
    def room(self) -> str:
        """The room that imports."""
        return _room(self.importer)

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


@dataclass(frozen=True)
class Met:
    """An import or a function of a module, and where it stands."""

    module: str
    node: ast.stmt
    is_lazy: bool
    is_for_types: bool


HOLDS_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)


@cache
def met() -> list[Met]:
    """Return all of them. Every file is gone through once, and on use: whoever only collects does without."""
    return [each for name, path in MODULES.items() for each in _met_in(name, path)]


def _met_in(module: str, path: Path) -> Iterator[Met]:
    left: list[tuple[ast.AST, bool, bool]] = [(parsed(path), False, False)]
    while left:
        node, is_lazy, is_for_types = left.pop()
        if isinstance(node, (*FUNCTIONS, *IMPORTS)):
            yield Met(module, node, is_lazy, is_for_types)
        is_lazy |= isinstance(node, FUNCTIONS)
        is_for_types |= isinstance(node, ast.If) and _names_type_checking(node.test)
        for child in ast.iter_child_nodes(node):  # but not into expressions, which are most of a file
            if isinstance(child, HOLDS_STATEMENTS):
                left.append((child, is_lazy, is_for_types))


def parsed(path: Path) -> ast.Module:
    """Return a file as a tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports() -> list[Import]:
    """Return every import there is."""
    return [
        Import(each.module, target, each.node.lineno, each.is_lazy, each.is_for_types)
        for each in met()
        if isinstance(each.node, IMPORTS)
        for target in _targets(each.node)
    ]


def _names_type_checking(test: ast.expr) -> bool:
    return getattr(test, "id", getattr(test, "attr", None)) == "TYPE_CHECKING"


def _targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules an import brings in; `from petri.api import files` means `petri.api.files`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "Petri imports by full name"
    module = node.module or ""
    inner = [f"{module}.{alias.name}" for alias in node.names]
    return sorted({each if each in MODULES else module for each in inner})


def ours() -> list[Import]:
    """Return those of our own modules."""
    return [each for each in imports() if _top_level(each.target) == "petri"]


def _top_level(module: str) -> str:
    return module.split(".")[0]


def _leaves_its_room(each: Import) -> bool:
    # `from petri import __version__` asks the package its name; that is no arrow.
    return each.target != "petri" and _room(each.target) != each.room


def _passes_a_back_door(each: Import) -> bool:
    is_front_door = each.target.count(".") <= 1
    return _leaves_its_room(each) and not is_front_door


def test_every_room_is_in_the_table() -> None:
    here = {_room(name) for name in MODULES}

    assert here == set(MAY_IMPORT)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_room_imports_only_what_it_may(room: str) -> None:
    crossings = [each for each in ours() if each.room == room and _leaves_its_room(each)]

    assert [str(each) for each in crossings if _room(each.target) not in MAY_IMPORT[room]] == []


def test_rooms_are_entered_by_their_front_doors() -> None:
    entries = [each for each in ours() if _passes_a_back_door(each)]

    assert [str(each) for each in entries if (each.room, each.target) not in BACK_DOORS] == []


@pytest.mark.parametrize("room", PURE)
def test_pure_room_needs_the_standard_library_alone(room: str) -> None:
    theirs = [each for each in imports() if each.room == room and _top_level(each.target) != "petri"]

    assert [str(each) for each in theirs if _top_level(each.target) not in sys.stdlib_module_names] == []


def test_no_arrow_points_in_a_circle() -> None:
    left = {room: set(targets) for room, targets in MAY_IMPORT.items()}

    while free := [room for room, targets in left.items() if not targets]:
        for room in free:
            del left[room]
        for targets in left.values():
            targets.difference_update(free)

    assert left == {}


def test_imports_inside_functions_are_the_listed_ones() -> None:
    lazy = [each for each in imports() if each.is_lazy]

    assert [str(each) for each in lazy if not _is_listed_as_lazy(each)] == []


def _is_listed_as_lazy(each: Import) -> bool:
    return any(
        each.importer == importer and f"{each.target}.".startswith(f"{target}.") for importer, target in LAZY
    )


def test_imports_for_type_checkers_stay_where_they_are_listed() -> None:
    for_types = [each for each in imports() if each.is_for_types]

    assert [str(each) for each in for_types if each.room not in NAMED_FOR_TYPES] == []


def test_no_exception_has_outlived_its_reason() -> None:
    doors = {(each.room, each.target) for each in ours() if _passes_a_back_door(each)}
    lazy = {
        (importer, target)
        for importer, target in LAZY
        for each in imports()
        if each.is_lazy and each.importer == importer and f"{each.target}.".startswith(f"{target}.")
    }
    arrows = {(each.room, _room(each.target)) for each in ours() if _leaves_its_room(each)}

    assert set(BACK_DOORS) - doors == set()
    assert set(LAZY) - lazy == set()
    assert set(NAMED_FOR_TYPES) - {each.room for each in imports() if each.is_for_types} == set()
    assert {(room, target) for room, targets in MAY_IMPORT.items() for target in targets} - arrows == set()


def test_the_environment_is_read_in_two_places() -> None:
    readers = {
        name
        for name, path in MODULES.items()
        if re.search(
            r"\b(environ|getenv)\b", path.read_text(encoding="utf-8")
        )  # most need not be parsed again
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")  # of `posix` too
    }

    assert readers == READS_THE_ENVIRONMENT


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{each.module}.{each.node.name} has {1 + (each.node.end_lineno or 0) - each.node.lineno} lines"
        for each in met()
        if isinstance(each.node, FUNCTIONS)
        and (each.node.end_lineno or 0) - each.node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]

    assert long == []


def test_the_table_in_architecture_md_is_this_one() -> None:
    text = (SOURCE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("## Rooms and arrows")
    section, _, _ = rest.partition("\n## ")
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    shown = {row[1].strip(" `"): _names(row[2]) for row in rows}

    assert shown == {room: set(targets) for room, targets in MAY_IMPORT.items()}


def _names(cell: str) -> set[str]:
    return {word.strip(" `") for word in cell.split(",")} - {"nothing"}
