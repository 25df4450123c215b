"""No file is longer than one idea takes, of the tests neither."""

from pathlib import Path

from tests.test_architecture import MODULES

TESTS = Path(__file__).parent
MOST_LINES_OF_A_FILE = 400
TO_BE_SPLIT = frozenset(
    {
        *("sync_server.py", "test_api_environments.py", "test_bubblewrap.py", "test_builds.py"),
        *("test_environments.py", "test_launcher.py", "test_nothing_survives.py"),
    }
)
"""Tests that were longer before they were held to it."""


def test_no_file_is_too_long_to_be_one_idea() -> None:
    files = [*MODULES.values(), *TESTS.rglob("*.py")]
    long = {path.name for path in files if _lines(path) > MOST_LINES_OF_A_FILE}

    assert long - TO_BE_SPLIT == set()


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
