"""Poetry's own way of writing versions, as everybody else's."""

import re
from collections.abc import Iterator

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def requirement(name: str, said: object) -> str | None:
    """Return an entry of `[tool.poetry.dependencies]` as PEP 508; None for one not from the index."""
    if isinstance(said, list):
        said = said[0] if said else "*"
    if isinstance(said, str):
        return name + versions(said)
    if not isinstance(said, dict) or not isinstance(said.get("version"), str):
        return None
    extras = [each for each in said.get("extras") or [] if isinstance(each, str)]
    named = f"{name}[{','.join(extras)}]" if extras else name
    marker = said.get("markers")
    return f"{named}{versions(said['version'])}" + (f"; {marker}" if isinstance(marker, str) else "")


def versions(said: str) -> str:
    """Return `^1.2` as `>=1.2,<2`, and so on; nothing for any version."""
    if "||" in said or "|" in said:
        return ""
    return ",".join(each for part in said.split(",") for each in _translated(part.strip()))


def _translated(part: str) -> Iterator[str]:
    bare = part.lstrip("^~ ")
    match = _NUMBERS.match(bare)
    if part.startswith(("<", ">", "!", "=", "~=")):
        yield part
    elif match is None:
        return
    elif part.startswith(("^", "~")):
        numbers = [int(each[:9]) for each in match[0].split(".")]
        counts = _first_that_counts(numbers) if part.startswith("^") else min(1, len(numbers) - 1)
        yield from (f">={bare}", f"<{_next(numbers, counts)}")
    else:
        yield f"=={part}"


def _first_that_counts(numbers: list[int]) -> int:
    return next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)


def _next(numbers: list[int], index: int) -> str:
    return ".".join(str(each) for each in [*numbers[:index], numbers[index] + 1])
