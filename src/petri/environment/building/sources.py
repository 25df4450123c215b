"""Source distributions: where one is, and what it says of itself. Pure.

What a package needs must be known before a set of packages can be chosen. Of a wheel, and of a source
distribution whose metadata is said to be final (PEP 643), that is read. Of any other only its build can tell.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from urllib.parse import urlsplit, urlunsplit

from petri.environment.building import uv
from petri.environment.building.failures import NotInstalled
from petri.environment.building.prefix import normal
from petri.environment.needs.manifests import parsing

_EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PYTHON = re.compile(r"[<>=!~0-9A-Za-z.*+, \t-]{1,200}")
_STATIC_SINCE = (2, 2)
_MOST_REQUIRES = 400


@dataclass(frozen=True, slots=True)
class Source:
    """One source distribution on the index."""

    name: str
    version: str
    url: str
    """Where it is; whoever has a name for its host adds that when it is fetched."""
    digest: str
    """Its SHA-256."""

    @property
    def key(self) -> tuple[str, str]:
        """What it is a version of."""
        return self.name, self.version

    def is_of(self, metadata: "Metadata") -> bool:
        """Say whether it is this that somebody's metadata is about."""
        return normal(metadata.name) == self.name and _same_version(metadata.version, self.version)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What resolving takes to know of a package."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    python: str | None = None

    @property
    def needs(self) -> frozenset[str]:
        """What it requires, however that is written."""
        return frozenset(re.sub(r"[\s()]", "", each).replace('"', "'").lower() for each in self.requires)


@dataclass(frozen=True, slots=True)
class BuildSystem:
    """How a source distribution is built; the defaults are for those who say nothing (PEP 517)."""

    requires: tuple[str, ...] = ("setuptools>=40.8.0", "wheel")
    backend: str = "setuptools.build_meta:__legacy__"
    path: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What the cell is told of it."""
        return json.dumps({"build-backend": self.backend, "backend-path": self.path})


@dataclass(frozen=True, slots=True)
class Says:
    """What a source distribution says of itself."""

    system: BuildSystem
    metadata: Metadata
    is_final: bool
    """Whether its build says the same of what it needs, whatever it is built with."""


def read_says(text: bytes) -> Says:
    """Return what `petri.cell.building` said when it looked; ValueError if that is not to be understood."""
    try:
        said = json.loads(text)
        head = HeaderParser().parsestr(str(said["metadata"] or ""))
        return Says(_build_system(said["pyproject"]), _metadata(head), _is_final(head))
    except (RecursionError, KeyError, TypeError) as error:
        raise ValueError("it does not say what it is") from error


def _build_system(pyproject: str | None) -> BuildSystem:
    said = parsing.table(parsing.toml(pyproject), "build-system")
    if not isinstance(said.get("requires"), list):
        return BuildSystem()
    requires, path = (tuple(parsing.strings(said.get(name))) for name in ("requires", "backend-path"))
    if len(requires) > _MOST_REQUIRES:
        raise ValueError("building it takes too many packages")
    return BuildSystem(requires, parsing.string(said.get("build-backend")) or BuildSystem().backend, path)


def read_metadata(text: bytes) -> Metadata:
    """Return what the `METADATA` of a wheel says."""
    return _metadata(HeaderParser().parsestr(text.decode(errors="replace")))


def _metadata(head: Message) -> Metadata:
    python = str(head["Requires-Python"] or "")
    return Metadata(
        name=str(head["Name"] or ""),
        version=str(head["Version"] or ""),
        requires=tuple(" ".join(str(each).split()) for each in head.get_all("Requires-Dist") or ()),
        extras=tuple(
            str(each) for each in head.get_all("Provides-Extra") or () if _EXTRA.fullmatch(str(each))
        ),
        python=python if _PYTHON.fullmatch(python) else None,
    )


def _is_final(head: Message) -> bool:
    version = re.fullmatch(r"(\d+)\.(\d+)", str(head["Metadata-Version"] or ""))
    dynamic = {str(each).strip().lower() for each in head.get_all("Dynamic") or ()}
    is_since = version is not None and (int(version[1]), int(version[2])) >= _STATIC_SINCE
    return is_since and not dynamic & {"requires-dist", "provides-extra", "requires-python", "version"}


def config_text(names: Iterable[str], known: Iterable[Metadata]) -> str:
    """Return what has uv take our word for what source distributions need, so that it builds none to ask.

    Of a version that nobody has looked at it is said that it needs nothing, until it is chosen.
    """
    tables = [_table(Metadata(name, "")) for name in sorted(names)]
    tables += [_table(each) for each in sorted(known, key=lambda each: (each.name, each.version))]
    return "\n".join(tables)


def _table(metadata: Metadata) -> str:
    if bad := uv.unsafe(metadata.requires):
        raise NotInstalled(f"{metadata.name} needs {bad[0]!r}, which is not from the package index")
    lines: dict[str, object] = {"name": metadata.name, "version": metadata.version}
    lines |= {"requires-dist": metadata.requires, "provides-extra": metadata.extras}
    lines["requires-python"] = metadata.python
    # Strings and lists of them are written alike in JSON and TOML.
    text = "".join(
        f"{name} = {json.dumps(value)}\n" for name, value in lines.items() if value not in ("", None)
    )
    return f"[[dependency-metadata]]\n{text}"


def with_credentials(url: str, indexes: Iterable[str]) -> str:
    """Return `url` with the name and password that an index was given with: same host, and same way there.

    A plain link on the host of an encrypted index would carry the password for everybody to read.
    """
    parts = urlsplit(url)
    for index in map(urlsplit, indexes):
        who, at, host = index.netloc.rpartition("@")
        if at and not parts.username and (index.scheme, host) == (parts.scheme, parts.netloc):
            return urlunsplit(parts._replace(netloc=f"{who}@{host}"))
    return url


def without_credentials(url: str) -> str:
    """Return `url` without whoever asks there."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def named_indexes(url: str | None, env: Mapping[str, str]) -> list[str]:
    """Return the indexes that an operator has named, as far as it is not left to uv's own files."""
    said = [url or "", *(env.get(name, "") for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"))]
    return [each for each in said if each]


def _same_version(one: str, other: str) -> bool:
    return _plain(one) == _plain(other)


def _plain(version: str) -> str:
    public, plus, local = version.strip().lower().removeprefix("v").replace("_", "-").partition("+")
    numbers = public.replace("-", ".").split(".")
    while len(numbers) > 1 and numbers[-1] and not numbers[-1].strip("0"):
        numbers.pop()
    return ".".join(numbers) + plus + local
