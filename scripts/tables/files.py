"""How a table is written: where it is from, then one fact a line; compressed."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import zstandard

FOLDER = Path(__file__).resolve().parents[2] / "src" / "petri" / "environment" / "needs" / "tables"


def write(name: str, provenance: str, lines: Iterable[str]) -> None:
    """Write the table `name`, and say what it came to."""
    facts = list(lines)
    day = datetime.now(UTC).date().isoformat()
    text = "\n".join([f"# {provenance} · {day} · scripts/build-tables", *facts, ""])
    packed = zstandard.ZstdCompressor(level=19).compress(text.encode())
    path = FOLDER / f"{name}.zst"
    path.write_bytes(packed)
    print(f"{path.name}: {len(facts)} facts, {len(packed) / 1000:.0f} kB")
