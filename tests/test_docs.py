"""What is written is what is: the documents against the code they speak of."""

import os
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from pydantic.fields import FieldInfo

from petri import errors
from petri.api.problems import RETRY_AFTER_S, STATUS
from petri.cli import main
from petri.errors import PetriError
from petri.model.lifecycle import diagram
from petri.sdk.racing import RACER
from petri.settings import CLIENT_ONLY, PREFIX, Settings

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
)
DECISIONS = [name for name in DOCUMENTS if name.startswith("docs/adr/")]
THREE_CALLS = (
    """curl -X POST localhost:8000/v1/sandboxes -d '{"language": "python"}'""",
    """curl -X POST localhost:8000/v1/sandboxes/$ID/files -F "file=@main.py\"""",
    """curl -X POST localhost:8000/v1/sandboxes/$ID/exec -d '{"filename": "main.py"}'""",
)
"""As the contract has them: they must work exactly as typed."""

COMPUTED: Mapping[str, str] = {
    "home": "`~/.petri`",
    "max_runs": "16 for each processor",
    "max_connections": "1024, or what the limit on descriptors allows",
    "memory_max_bytes": "the host's memory",
    "total_memory_bytes": "80 % of the host's memory",
}
"""Defaults that depend on the host, in words."""
NO_CLASS = {
    "method_not_allowed": 405,
    "request_timeout": 408,
    "uri_too_long": 414,
    "headers_too_large": 431,
    "bug": 500,
}
"""Codes that are the HTTP layer's own; no operation raises them."""

NAMED_FROM = (ROOT, ROOT / "src" / "petri")
"""Where paths in documents start: the top of the repository, or the package."""

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _blocks(name: str, language: str) -> list[str]:
    return [found[2] for found in _FENCED.finditer(_read(name)) if found[1] == language]


def _code(name: str) -> str:
    """Return what of a document is code, between fences or between backticks."""
    text = _read(name)
    return "\n".join([*(found[2] for found in _FENCED.finditer(text)), *re.findall(r"`([^`\n]+)`", text)])


# --------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("name", Settings.model_fields)
def test_setting_is_documented_with_its_default_and_its_sentence(name: str) -> None:
    field = Settings.model_fields[name]
    assert field.description, f"{name} has no sentence"
    sentence = " ".join(field.description.split())

    row = f"| `{PREFIX}{name.upper()}` | {_default(name, field)} | {sentence} |"

    assert row in _read("docs/settings.md").splitlines()


def test_no_setting_is_documented_that_does_not_exist() -> None:
    named = set(re.findall(rf"^\| `({PREFIX}\w+)`", _read("docs/settings.md"), re.MULTILINE))

    assert named - CLIENT_ONLY == {PREFIX + name.upper() for name in Settings.model_fields}


def test_defaults_in_words_are_true() -> None:
    fresh = Settings.model_construct()

    assert fresh.home == Path.home() / ".petri"
    assert fresh.max_runs == 16 * (os.cpu_count() or 1)
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert fresh.memory_max_bytes == memory_bytes
    assert fresh.total_memory_bytes == memory_bytes * 4 // 5


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_setting_a_document_names_exists(document: str) -> None:
    named = set(re.findall(rf"\b{PREFIX}[A-Z_]+\b", _read(document)))
    known = {PREFIX + name.upper() for name in Settings.model_fields} | CLIENT_ONLY

    # The last one is no setting: a race tells each command by it which of the racers it is.
    assert named - known - {RACER} == set()


def _default(name: str, field: FieldInfo) -> str:
    if name in COMPUTED:
        return COMPUTED[name]
    if field.default is None:
        return "not set"
    if name.endswith("_bytes"):
        return f"`{field.default}` ({_size(field.default)})"
    return f"`{field.default}`"


def _size(count: int) -> str:
    for unit, step in (("GiB", 2**30), ("MiB", 2**20)):
        if count % step == 0:
            return f"{count // step} {unit}"
    raise AssertionError(f"{count} is no round size")


# ----------------------------------------------------------------------------------------------- errors


def _error_classes() -> list[type[PetriError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, PetriError) and "code" in vars(kind)
    ]


RAISED = [kind for kind in _error_classes() if kind is not PetriError]


def test_every_error_has_a_status() -> None:
    assert set(STATUS) == set(RAISED)


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.code)
def test_error_is_documented_with_its_status(kind: type[PetriError]) -> None:
    retry = "yes" if kind.retryable else "no"
    row = f"| `{kind.code}` | {STATUS[kind]} | `{kind.__name__}` | {retry} |"

    assert any(line.startswith(row) for line in _read("docs/errors.md").splitlines()), row


def test_no_error_is_documented_that_does_not_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", _read("docs/errors.md"), re.MULTILINE)

    documented = {code: int(status) for code, status in rows}

    assert documented == {kind.code: STATUS[kind] for kind in RAISED} | NO_CLASS


def test_the_wait_that_errors_md_names_is_the_one_sent() -> None:
    assert f"`Retry-After: {RETRY_AFTER_S}`" in _read("docs/errors.md")


# --------------------------------------------------------------------------------------------- the rest


def test_the_lifecycle_diagram_is_the_table() -> None:
    assert _blocks("ARCHITECTURE.md", "mermaid") == [diagram() + "\n"]


@pytest.mark.parametrize("document", DECISIONS)
def test_decision_has_every_part(document: str) -> None:
    number = Path(document).name[:4]
    text = _read(document)
    title, status = text.splitlines()[:2]

    assert title.startswith(f"# {number}. ")
    assert re.fullmatch(r"(Accepted|Superseded by \d{4}) · \d{4}-\d{2}-\d{2}", status)
    parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
    assert parts == ["Context", "Decision", "Consequences", "Rejected"]


NEVER_WRITTEN = frozenset({21, 24, 26})
"""Numbers given out in advance to decisions that turned out to need none."""


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(Path(name).name[:4]) for name in DECISIONS]

    assert len(set(numbers)) == len(numbers)
    assert set(range(1, max(numbers) + 1)) - set(numbers) == NEVER_WRITTEN


def test_every_decision_is_in_the_list_of_architecture_md() -> None:
    listed = set(_LINK.findall(_read("ARCHITECTURE.md")))

    assert set(DECISIONS) - listed == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_leads_somewhere(document: str) -> None:
    folder = (ROOT / document).parent
    links = [link for link in _LINK.findall(_read(document)) if "://" not in link]

    assert [link for link in links if not _leads_somewhere(folder, link)] == []


def _leads_somewhere(folder: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    if not path:
        return False  # inside one page a reader needs no link; none is used, so none can rot
    target = folder / path
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_a_document_names_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", _read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"^(?:\w+=\S+ )*make ([a-z]+)", _code(document), re.MULTILINE))

    assert named - targets == set()


def test_the_readme_has_both_commands() -> None:
    code = _code("README.md")

    assert {"make serve", "make test"} <= set(code.splitlines())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_cli_command_a_document_names_exists(document: str) -> None:
    assert isinstance(main, click.Group)
    named = set(re.findall(r"^(?:\$ )?(?:\.venv/bin/)?petri ([a-z]+)", _code(document), re.MULTILINE))

    assert named - set(main.commands) == set()


def test_the_readme_shows_every_cli_command() -> None:
    assert isinstance(main, click.Group)
    code = _code("README.md")

    assert [name for name in main.commands if f"petri {name}" not in code] == []


def test_the_three_calls_stand_in_the_readme_exactly() -> None:
    typed = [line for block in _blocks("README.md", "bash") for line in block.splitlines()]

    assert [call for call in THREE_CALLS if call not in typed] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_a_document_names_exists(document: str) -> None:
    named = re.findall(r"`((?:[a-z_.-]+/)+[a-z0-9_-]+\.(?:py|c|md))`", _read(document))

    assert [name for name in named if not any((place / name).exists() for place in NAMED_FROM)] == []


def test_the_walk_of_an_exec_names_what_is_there() -> None:
    walk = next(block for block in _blocks("ARCHITECTURE.md", "text") if "api.guard" in block)
    rooms = "api|operations|engine|ledger|transcript|launcher"
    named = re.findall(rf"^\S?\s+((?:{rooms})\.[\w.]+)", walk, re.MULTILINE)

    assert len(named) > 15
    assert [name for name in named if not _is_there(name)] == []


def _is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(f"petri.{name}")
    except (ImportError, AttributeError):
        return False
    return True


def test_the_examples_in_python_are_python() -> None:
    for document in DOCUMENTS:
        for block in _blocks(document, "python"):
            compile(block, document, "exec")


def test_the_licence_is_the_one_the_package_names() -> None:
    assert 'license = "Apache-2.0"' in _read("pyproject.toml")
    assert "Apache License" in _read("LICENSE")
    assert "Version 2.0, January 2004" in _read("LICENSE")
