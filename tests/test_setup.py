"""`scripts/setup` where something is missing that only an administrator can install."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "scripts" / "setup"
NOBODY = 65_534
SETPRIV = shutil.which("setpriv")
TOOLS = ("bash", "dirname", "id", "python3")


@pytest.fixture
def bare() -> Iterator[Path]:
    """A checkout that an ordinary user may enter, and a PATH of little more than a shell beside it."""
    if os.geteuid() == 0 and SETPRIV is None:
        pytest.skip("without setpriv, root cannot be an ordinary user")
    with tempfile.TemporaryDirectory(prefix="petri-setup-") as made:
        top = Path(made)
        top.chmod(0o755)
        (top / "scripts").mkdir(mode=0o755)
        shutil.copy(SETUP, top / "scripts")
        (top / "bin").mkdir(mode=0o755)
        for tool in TOOLS:
            (top / "bin" / tool).symlink_to(shutil.which(tool, path="/usr/bin:/bin") or tool)
        yield top


def test_an_ordinary_user_is_told_what_to_have_installed(bare: Path) -> None:
    line = ["/bin/bash", str(bare / "scripts" / "setup"), "serve"]
    if os.geteuid() == 0:
        line = [str(SETPRIV), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *line]

    done = subprocess.run(
        line, env={"PATH": str(bare / "bin")}, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, "one sentence"
    lacks, _, asks = done.stderr.partition(". Ask an administrator for: apt-get install ")
    missing = lacks.removeprefix("petri: this host lacks: ")
    assert {"bubblewrap", "tcc"} <= set(missing.split())
    assert asks == f"--no-install-recommends {missing}\n"
    assert not (bare / ".venv").exists()
