"""bun, as words to start it with, files it reads and words it says. Pure.

It resolves and installs from the registry that npm on this host is set up for, and never runs a script of a
package: those stay for cells, where they do not run either.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from petri.environment.building.locks import Lock, Package, Unreadable
from petri.environment.needs.nouns import Pin, Requirement

VERSION = "1.4.4"
BUILDS: Mapping[str, tuple[str, str]] = {
    "x86_64": (
        "@oven/bun-linux-x64-baseline",
        "sha512-FBU6T21NT+i+rESbi0Z8A8G5xN51c+WZ0v6pIjI6szSzOlqVNv64nf7FPnwNIyxKD1M7Wg5cEobLC/QbzCeLtA==",
    ),
    "aarch64": (
        "@oven/bun-linux-aarch64",
        "sha512-ZTVtpf9zmHSBVPX1sBwe5agGb/rN34yPGg/Hby8e2Ax2uCUA2URZKlZH7qLntK7qaFJCMXh9v0GWNYN2zINz1w==",
    ),
}
"""Which npm package has bun for a machine, and its integrity: this file and no other is ever started."""

_NAME = re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")
_RANGE = re.compile(r"[0-9A-Za-z^~<>=|.*+ -]*")
"""Versions, without the addresses, folders and aliases that npm takes in the same place."""
_COMMA_OR_STRING = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
_ADDRESS = re.compile(r'https?://[^\s"]+')
_DAY_S = 86_400
_MOST_SAID = 2_000


@dataclass(frozen=True, slots=True)
class Bun:
    """How bun is called here."""

    program: Path
    cache: Path

    def resolve(self, min_age_days: int) -> list[str]:
        """Return the words that make a lock of the `package.json` in the folder it is started in."""
        age = ["--minimum-release-age", str(min_age_days * _DAY_S)] if min_age_days else []
        return [str(self.program), "install", "--lockfile-only", *self._common(), *age]

    def install(self) -> list[str]:
        """Return the words that fill `node_modules` with what the lock in that folder says, by hash."""
        return [str(self.program), "install", "--frozen-lockfile", "--backend", "hardlink", *self._common()]

    def _common(self) -> list[str]:
        return ["--ignore-scripts", "--no-progress", "--no-summary", "--cache-dir", str(self.cache)]


def unsafe(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Return those requirements that are more than a name and a range of versions."""
    return [each for each in requirements if not _is_safe(*_split(each))]


def _is_safe(name: str, versions: str) -> bool:
    return bool(_NAME.fullmatch(name) and _RANGE.fullmatch(versions))


def _split(requirement: Requirement) -> tuple[str, str]:
    name, _, versions = requirement.text[1:].partition("@")
    return requirement.text[:1] + name, versions or "*"


def manifest(requirements: Sequence[Requirement], pins: Sequence[Pin]) -> str:
    """Return what is wanted as a `package.json`, whose versions a project's lock decides where it has one."""
    versions: dict[str, set[str]] = {}
    for pin in pins:
        if _is_safe(pin.name, pin.version):
            versions.setdefault(pin.name, set()).add(pin.version)
    # A lock may hold two versions of one package; which goes where is then left to the resolver.
    only = {name: next(iter(found)) for name, found in versions.items() if len(found) == 1}
    wanted = dict(_split(each) for each in requirements)
    direct = {name: only.get(name, wanted[name]) for name in wanted}
    indirect = {name: version for name, version in only.items() if name not in wanted}
    return json.dumps({"dependencies": direct, "overrides": indirect})


def manifest_of(lock: Lock) -> str:
    """Return the `package.json` that a lock belongs to."""
    said = read(lock.text)
    return json.dumps(
        {"dependencies": said["workspaces"][""]["dependencies"], "overrides": said.get("overrides", {})}
    )


def read_lock(text: str, pins: Sequence[Pin]) -> Lock:
    """Return the lock that a `bun.lock` is; `Unreadable` if it asks for anything but what a registry has."""
    promised = {(pin.name, pin.version): set(pin.hashes) for pin in pins if pin.hashes}
    try:
        packages = {_package(entry) for entry in read(text)["packages"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"the resolver's lock cannot be read: {error}") from error
    for each in packages:
        hashes = promised.get((each.name, each.version))
        if hashes and not hashes & set(each.hashes):
            raise Unreadable(
                f"{each.name}@{each.version} is not what the project's lock promises. Lock the project anew, "
                "or find out who changed the package"
            )
    ordered = tuple(sorted(packages, key=lambda each: (each.name, each.version)))
    return Lock("javascript", ordered, text, "bun.lock")


def needed_by(lock: Lock) -> dict[str, tuple[str, ...]]:
    """Return for each package which others of the lock name it as a dependency."""
    who: dict[str, set[str]] = {}
    for entry in read(lock.text)["packages"].values():
        name, _, _ = entry[0].rpartition("@")
        for wanted in entry[2].get("dependencies", {}):
            who.setdefault(wanted, set()).add(name)
    return {name: tuple(sorted(them)) for name, them in who.items()}


def portable(text: str) -> str:
    """Return a `bun.lock` without a word of where its packages came from."""
    return _ADDRESS.sub("", text)


def _package(entry: list[Any]) -> Package:
    name, _, version = entry[0].rpartition("@")
    if len(entry) != 4 or not str(entry[3]).startswith("sha512-"):
        raise Unreadable(f"{entry[0]} does not come from the registry by hash")
    return Package(name, version, (str(entry[3]),))


def read(text: str) -> Any:
    """Return what a `bun.lock` says: JSON, but with commas before its brackets."""
    return json.loads(_COMMA_OR_STRING.sub(lambda found: found[1] or "", text))


def readable(stderr: str) -> str:
    """Return what bun complained of as one paragraph, without the places on the network it spoke to."""
    lines = [line.removeprefix("error: ") for line in stderr.splitlines() if line.startswith("error:")]
    said = " ".join(lines) or stderr
    return re.sub(r"\s+", " ", _ADDRESS.sub("the registry", said)).strip()[:_MOST_SAID]


def is_unreachable(said: str) -> bool:
    """Say whether a complaint is about the way to the registry."""
    return bool(re.search(r"Connection|Timeout|DNS|getaddrinfo|FailedToOpenSocket|certificate|- 5\d\d", said))
