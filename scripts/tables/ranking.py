"""Which packages are used most: the lists that come with guarddog, a scanner for bad packages."""

import json
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from subprocess import run
from typing import NamedTuple

CARRIER = "guarddog"
_INSIDE = "guarddog/analyzer/metadata/resources/top_{}_packages.json"


class Ranking(NamedTuple):
    """Names, the most used first, and where they are from."""

    names: list[str]
    provenance: str


def ranking(registry: str) -> Ranking:
    """Return the ranking of `pypi` or `npm`, taken from the newest `guarddog` that pip finds."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        run([*pip, "--dest", folder, CARRIER], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as inside:
            said = json.loads(inside.read(_INSIDE.format(registry)))
        day = datetime.fromtimestamp(said["downloaded_timestamp"], UTC).date().isoformat()
        return Ranking(said["packages"], f"ranked by {wheel.name} ({day})")


def index_address() -> str:
    """Return the address of the package index that pip is set up with."""
    asked = run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    if asked.returncode == 0:
        return asked.stdout.strip()
    default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return run([sys.executable, "-c", default], capture_output=True, text=True, check=True).stdout.strip()
