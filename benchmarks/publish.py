"""What was measured, put into `benchmarks/README.md`: tables between marks, the words around them kept."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

README = Path(__file__).parent / "README.md"


def place(text: str, name: str, content: str) -> str:
    """Return `text` with `content` where `name` is marked, and all else as it was."""
    begin, end = f"<!-- {name}: measured -->", f"<!-- {name}: end -->"
    found = re.search(f"{re.escape(begin)}\n.*?{re.escape(end)}", text, re.DOTALL)
    if found is None:
        raise ValueError(f"there is no place marked for {name}: put `{begin}` and `{end}` there")
    return f"{text[: found.start()]}{begin}\n\n{content}\n\n{end}{text[found.end() :]}"


def publish(name: str, table: str, conditions: str) -> None:
    """Put a table into the README, with when and where it was taken."""
    README.write_text(place(README.read_text(), name, f"{table}\n\n{conditions}"))


def conditions() -> str:
    """Return on what machine this runs, and how busy it is. Ask before you measure."""
    day = datetime.now(UTC).date().isoformat()
    bwrap = subprocess.run(["bwrap", "--version"], capture_output=True, text=True).stdout.split()[-1:]
    return (
        f"Taken on {day}: {os.cpu_count()} processors, Linux {platform.release().partition('-')[0]}, "
        f"bubblewrap {''.join(bwrap)}, load {os.getloadavg()[0]:.1f} in the minute before."
    )
