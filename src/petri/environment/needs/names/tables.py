"""The tables of facts, each unpacked when first asked for. `scripts/build-tables` makes them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import zstandard

_FOLDER = Path(__file__).parents[1] / "tables"
_MOST_BYTES = 64 << 20


def _text(name: str) -> str:
    packed = (_FOLDER / f"{name}.zst").read_bytes()
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=_MOST_BYTES).decode()


def provenance(name: str) -> str:
    """Return where a table's facts are from, as its first line says."""
    return _text(name).partition("\n")[0]


def _lines(name: str) -> list[str]:
    return _text(name).splitlines()[1:]


def _pairs(name: str) -> dict[str, str]:
    return dict([line.split("\t", 1) for line in _lines(name)])


@cache
def imports() -> Mapping[str, str]:
    """Return import → distributions that bring it, the most used first, with spaces between."""
    return _pairs("imports")


@cache
def pypi_ranks() -> Mapping[str, int]:
    """Return the well-known distributions and their place, the most used being 0."""
    return {line.partition("\t")[0]: rank for rank, line in enumerate(_lines("pypi"))}


@cache
def without_wheel() -> frozenset[str]:
    """Return those well-known distributions of which no wheel could be looked into."""
    return frozenset(line.partition("\t")[0] for line in _lines("pypi") if "\t" in line)


@cache
def npm_ranks() -> Mapping[str, int]:
    """Return the well-known npm packages and their place, the most used being 0."""
    return {name: rank for rank, name in enumerate(_lines("npm"))}


@cache
def commands() -> Mapping[str, str]:
    """Return command → Debian packages that have it, the likeliest first, with spaces between."""
    return _pairs("commands")
