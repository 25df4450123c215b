"""What people read on a terminal, and what programs read with `--json`."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from petri.cli.plain import plain as plain

if TYPE_CHECKING:
    from pydantic import BaseModel

    from petri.wire import NotInstalled

NOTHING = "-"
WIDEST = 60
"""Columns; a longer text is cut, or one name could push every other column off the screen."""


def print_json(value: "BaseModel | Sequence[BaseModel] | dict[str, Any]") -> None:
    """Print one line that a program can read."""
    # ASCII only, so that no name in it can speak to a terminal.
    click.echo(json.dumps(_as_data(value)))


def without(missing: "Iterable[NotInstalled]") -> list[tuple[str, str]]:
    """Return why packages are not there, each reason once, behind the names of all that it holds for."""
    names: dict[str, list[str]] = {}
    for each in missing:
        names.setdefault(each.why, []).append(each.name)
    return [(", ".join(those), why) for why, those in names.items()]


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print `rows` in aligned columns under `headings`."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[column]) for line in [headings, *cells]) for column in range(len(headings))]
    click.secho(_aligned(headings, widths), bold=True)
    for line in cells:
        click.echo(_aligned(line, widths))


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print one `name  value` line for each field that has a value."""
    lines = [(name, plain(str(value))) for name, value in fields if value not in (None, "", [], {})]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")


def age(moment: str | None, now: datetime | None = None) -> str:
    """Return how long ago `moment` was, as one would say it: `3 min`."""
    if moment is None:
        return NOTHING
    return span_s(((now or datetime.now(UTC)) - datetime.fromisoformat(moment)).total_seconds())


def span_s(seconds: float) -> str:
    """Return a stretch of time in its largest unit."""
    for unit, length in (("day", 86_400), ("h", 3600), ("min", 60)):
        if (count := int(seconds // length)) > 0:
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}"
    return f"{max(int(seconds), 0)} s"


def duration(milliseconds: float | None) -> str:
    """Return how long a run took."""
    if milliseconds is None:
        return NOTHING
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def size(count: float) -> str:
    """Return a number of bytes in the unit that needs the fewest digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _as_data(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if isinstance(value, Sequence):
        return [_as_data(item) for item in value]
    return value.model_dump(mode="json")


def _cell(value: object) -> str:
    text = NOTHING if value in (None, "") else plain(str(value))
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
