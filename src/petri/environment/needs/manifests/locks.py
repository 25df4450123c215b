"""Python's locks: which version of each package a project has settled on, and the hashes of its files."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from petri.environment.needs.manifests.parsing import json_object, string, strings, table, tables, toml
from petri.environment.needs.names.known import normalised
from petri.environment.needs.names.python import is_name
from petri.environment.needs.nouns import Pin

_NOT_FROM_AN_INDEX = ("editable", "virtual", "directory", "git", "path", "url")


def _hashes(files: object) -> tuple[str, ...]:
    return tuple(each for file in tables(files) if (each := string(file.get("hash"))) is not None)


def uv(text: str) -> Iterator[Pin]:
    """Yield the pins of a uv.lock."""
    for package in tables(toml(text).get("package")):
        if not any(key in table(package, "source") for key in _NOT_FROM_AN_INDEX):
            files = [*tables(package.get("wheels")), table(package, "sdist")]
            yield from _pin(package.get("name"), package.get("version"), _hashes(files))


def pylock(text: str) -> Iterator[Pin]:
    """Yield the pins of a pylock.toml (PEP 751)."""
    for package in tables(toml(text).get("packages")):
        files = [*tables(package.get("wheels")), table(package, "sdist")]
        hashes = tuple(
            f"{kind}:{value}"
            for file in files
            for kind, value in table(file, "hashes").items()
            if string(value)
        )
        marker = string(package.get("marker"))
        if not any(key in package for key in ("vcs", "directory", "archive")):
            yield from _pin(package.get("name"), package.get("version"), hashes, marker)


def poetry(text: str) -> Iterator[Pin]:
    """Yield the pins of a poetry.lock or a pdm.lock."""
    for package in tables(toml(text).get("package")):
        kind = table(package, "source").get("type")
        if kind in (None, "legacy"):
            yield from _pin(package.get("name"), package.get("version"), _hashes(package.get("files")))


def pipenv(text: str) -> Iterator[Pin]:
    """Yield the pins of a Pipfile.lock."""
    for name, package in table(json_object(text), "default").items():
        version = string(table({"": package}, "").get("version"))
        if version is not None and version.startswith("=="):
            marker = string(package.get("markers"))
            yield from _pin(name, version[2:], tuple(strings(package.get("hashes"))), marker)


def _pin(name: object, version: object, hashes: tuple[str, ...], marker: str | None = None) -> Iterator[Pin]:
    if isinstance(name, str) and isinstance(version, str) and is_name(name):
        yield Pin(normalised(name), version, hashes, marker)


LOCKS: Mapping[str, Callable[[str], Iterator[Pin]]] = {
    "uv.lock": uv,
    "pylock.toml": pylock,
    "poetry.lock": poetry,
    "pdm.lock": poetry,
    "Pipfile.lock": pipenv,
}
"""By the name of the file, the first that is there deciding."""
FLAT = ("pylock.toml", "Pipfile.lock")
"""Those in which every package is wanted; in the others that depends on who asks for it."""


def roots(lock: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the project itself asks for in a uv.lock."""
    for package in tables(lock.get("package")):
        if any(key in table(package, "source") for key in ("editable", "virtual")):
            for each in tables(package.get("dependencies")):
                name, marker = string(each.get("name")), string(each.get("marker"))
                if name is not None:
                    yield f"{name}; {marker}" if marker else name
