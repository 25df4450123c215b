"""What exactly is installed: packages, versions and hashes, and the address that they make. Pure.

A lock is kept as what the installer itself understands (`pylock.toml` of PEP 751, or `bun.lock`), and known
by an address. Into the address goes what decides what is installed and where it works: every package with
its version and its hashes, the interpreter and the platform. Comments, the order of lines and where a file
was fetched from do not count, so that whoever comes to the same packages comes to the same environment.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from blake3 import blake3

from petri.environment.building.sources import Source
from petri.environment.needs.nouns import Pin

Ecosystem = Literal["python", "javascript"]
_SHA256 = re.compile(r"[0-9a-f]{64}")
SEPARATOR: Mapping[Ecosystem, str] = {"python": "==", "javascript": "@"}


@dataclass(frozen=True, slots=True)
class Built:
    """Of what a wheel was built, in a cell of this host."""

    key: str
    """Where it lies here."""
    sdist: str
    """Hash of the source distribution, as in `sha256:…`: others can have that one."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """Of every file of it that would do here, as in `sha256:…`; sorted."""
    built: Built | None = None
    """Where its one wheel comes from, if that was made here."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A set of packages that belong together, and how the installer has it."""

    ecosystem: Ecosystem
    packages: tuple[Package, ...]
    text: str
    """For the installer; it may name places on the network, so it stays here."""
    form: Literal["pylock.toml", "requirements.txt", "bun.lock"]

    @property
    def pinned(self) -> list[str]:
        """Its packages as answers name them: `numpy==2.3.1`, `chalk@5.3.0`."""
        return [f"{each.name}{SEPARATOR[self.ecosystem]}{each.version}" for each in self.packages]

    def address(self, platform: str) -> str:
        """Return what an environment of this lock is called where `platform` says what runs it."""
        lines = [f"petri environment 2\n{self.ecosystem}\n{platform}\n"]
        lines += [
            f"{each.name} {each.version} {' '.join(each.hashes)}\n"
            for each in sorted(self.packages, key=lambda each: (each.name, each.version))
        ]
        return blake3("".join(lines).encode()).hexdigest()


class Unreadable(Exception):
    """A lock that is not one. Says why."""


def read_pylock(text: str) -> Lock:
    """Return the lock that a `pylock.toml` is; `Unreadable` if it asks for anything but wheels by hash."""
    with _reading():
        packages = tomllib.loads(text).get("packages", [])
        return Lock("python", tuple(_package(each) for each in packages), text, "pylock.toml")


def read_sources(text: str) -> list[Source]:
    """Return the source distributions that a `pylock.toml` asks for."""
    with _reading():
        entries = [each for each in tomllib.loads(text).get("packages", []) if not each.get("wheels")]
        return [_source(each) for each in entries]


def _source(entry: Mapping[str, Any]) -> Source:
    digest = entry["sdist"]["hashes"]["sha256"]
    if not _SHA256.fullmatch(digest):  # an index says it, and it is to be a file's name here
        raise Unreadable(f"the index has no hash of {entry['name']} {entry['version']}")
    return Source(entry["name"], entry["version"], entry["sdist"]["url"], digest)


def with_built(text: str, built: Mapping[str, Package]) -> Lock:
    """Return the lock that a `pylock.toml` is, with packages that were built where it asks for a source."""
    with _reading():
        entries = tomllib.loads(text).get("packages", [])
        packages = tuple(built.get(each["name"]) or _package(each) for each in entries)
        return Lock("python", packages, requirements_text(packages), "requirements.txt")


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"the resolver's lock cannot be read: {error}") from error


def _package(entry: Mapping[str, Any]) -> Package:
    if not entry.get("wheels"):
        raise Unreadable(f"{entry['name']} has no wheel for this platform")
    hashes = {f"sha256:{wheel['hashes']['sha256']}" for wheel in entry["wheels"]}
    return Package(entry["name"], entry["version"], tuple(sorted(hashes)))


def requirements_text(packages: Iterable[Package]) -> str:
    """Return packages as a requirements file with hashes, which pip and uv install anywhere."""
    lines = []
    for each in packages:
        hashes = "".join(f" \\\n    --hash={digest}" for digest in each.hashes)
        lines.append(f"{each.name}=={each.version}{hashes}\n")
    return "".join(lines)


def portable_requirements(packages: Iterable[Package]) -> str:
    """Return packages as a requirements file for elsewhere: what was built here is to be built there, too."""
    lines = []
    for each in packages:
        if each.built is not None:
            lines.append(
                f"# {each.name} has no wheel for this platform. Petri built it in a cell ({each.hashes[0]})\n"
                "# from the source distribution whose hash is below; whoever installs this builds it, too.\n"
            )
            each = replace(each, hashes=(each.built.sdist,))
        lines.append(requirements_text([each]))
    return "".join(lines)


def held_to(lock: Lock, pins: Iterable[Pin]) -> Lock:
    """Return `lock` with only those files that the project's own lock promised, where it promised some.

    `Unreadable` if none of a package's files is among them.
    """
    promised = {(pin.name, pin.version): set(pin.hashes) for pin in pins if pin.hashes}
    if not promised:
        return lock
    packages = tuple(_held(each, promised.get((each.name, each.version))) for each in lock.packages)
    return Lock(lock.ecosystem, packages, requirements_text(packages), "requirements.txt")


def _held(package: Package, promised: set[str] | None) -> Package:
    if promised is None:
        return package
    hashes = tuple(digest for digest in package.hashes if digest in promised)
    if package.built is not None and package.built.sdist in promised:
        hashes = package.hashes
    if not hashes:
        raise Unreadable(
            f"{package.name} {package.version} is not what the project's lock promises: the index has no "
            "file with a hash that is in it. Lock the project anew, or find out who changed the package"
        )
    return replace(package, hashes=hashes)
