"""uv, as words to start it with and as words it says. Pure.

It resolves and installs for the interpreter that cells use, from wheels alone: nothing is ever built by it,
so no line of a package runs on this host.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from petri.environment.building.progress import Progress
from petri.environment.needs.nouns import Pin, Wanted

_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*+[ \t]*+(\[[A-Za-z0-9._, \t-]*+\])?[ \t]*+"
    r"(\(?[<>=!~][<>=!~0-9A-Za-z.*+, \t_-]*+\)?)?[ \t]*+(;[\w \t.'\"<>=!~()+-]*+)?"
)
"""PEP 508 without addresses: what an installer is told may not send it anywhere, nor be an option of its."""
_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_DOWNLOADING = re.compile(r"^Downloading (\S+) \(([0-9.]+)([KMG]iB)\)")
_DOWNLOADED = re.compile(r"^ ?Downloaded (\S+)")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ADDRESS = re.compile(r"`?(?:https?|file)://[^\s`]+`?")
_PATH = re.compile(r"(?<![\w.])/[^\s`,;)]+")
_CAUSE = re.compile(r":?\n\s*cause: ")
_UNREACHABLE = re.compile(
    r"error sending request|failed to fetch|request failed|could not connect|connection (?:refused|reset)"
    r"|dns error|timed out|tls|5\d\d (?:internal|bad|service|gateway)",
    re.IGNORECASE,
)
_NO_WHEEL = re.compile(
    r"Wheels are required for `([a-z0-9][a-z0-9-]*)` because building from source is disabled"
)
_TOO_YOUNG = re.compile(
    r"hint: `(\S+)` was filtered by `exclude-newer` to only include packages uploaded before (\S{10})T\S+"
    r"(?: The [^.]*? v(\S+?),(?: was)? published at (\S{10})T\S+)?(?: Consider using `exclude-newer[^.]*\.)?"
)
_YANKED = re.compile(
    r"^warning: `([A-Za-z0-9._-]+)==(\S+)` is yanked(?: \(reason: \"(.{0,500}?)\"\))?", re.MULTILINE
)
_NO_COMPLAINT = (
    "warning:",
    "Downloading",
    " Downl",
    "Using CPython",
    "Using Python",
    "Resolved ",
    "Prepared ",
)
_MOST_SAID = 2_000


@dataclass(frozen=True, slots=True)
class Uv:
    """How uv is called here."""

    program: str
    python: str
    """The interpreter that cells use; what is installed must suit it."""
    cache: Path
    index_url: str | None = None
    """Instead of the index that uv would ask by itself."""

    @property
    def env(self) -> Mapping[str, str]:
        """What it is told by its environment: everybody on this host can read its words."""
        return {"UV_DEFAULT_INDEX": self.index_url} if self.index_url else {}

    def resolve(
        self, source: Path, constraints: Path, lock: Path, newest: str | None, sources: Iterable[str] = ()
    ) -> list[str]:
        """Return the words that turn `source` into `lock`, with nothing in it that is newer than `newest`.

        Of `sources` it takes source distributions, and builds none: see `sources.config_text`.
        """
        return [
            *(self.program, "pip", "compile", "--format", "pylock.toml", "--no-header"),
            *self._common(),
            *(("--exclude-newer", newest) if newest else ()),
            *(word for name in sorted(sources) for word in ("--no-binary", name)),
            *("--constraints", str(constraints), "--output-file", str(lock), str(source)),
        ]

    @property
    def acquaint(self) -> list[str]:
        """The words that have it remember what the interpreter is; it would ask the first time it is used."""
        return [
            *(self.program, "python", "find", "--no-python-downloads", "--no-project"),
            *("--cache-dir", str(self.cache), self.python),
        ]

    def install(self, lock: Path, prefix: Path, links: Path | None = None) -> list[str]:
        """Return the words that install `lock` into `prefix`, by hash.

        An operator's `uv.toml` can have uv not compare hashes, but not where it is told to require them.
        It is not shown the interpreter in there, which it would start to ask what it is. `links` is a folder
        of wheels that no index has.
        """
        return [
            *(self.program, "pip", "sync", "--preview-features", "pylock", "--link-mode", "hardlink"),
            *self._common(),
            *("--prefix", str(prefix)),
            *(("--find-links", str(links)) if links is not None else ()),
            *("--require-hashes", str(lock)),
        ]

    def _common(self) -> list[str]:
        return [
            *("--only-binary", ":all:", "--no-python-downloads", "--color", "never"),
            *("--cache-dir", str(self.cache), "--python", self.python),
        ]


def unsafe(texts: Iterable[str]) -> list[str]:
    """Return those requirements that are more than a name, versions and a marker."""
    return [text for text in texts if not _REQUIREMENT.fullmatch(text)]


def source_text(wanted: Wanted) -> str:
    """Return what is wanted, as uv reads it."""
    return "".join(f"{each.text}\n" for each in sorted(wanted.requirements, key=lambda each: each.text))


def constraints_text(pins: Sequence[Pin]) -> str:
    """Return what a project's lock pins: no other version of these will do."""
    lines = []
    for pin in pins:
        if _PIN.fullmatch(pin.name) and _PIN.fullmatch(pin.version):
            text = f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "")
            if not unsafe([text]):
                lines.append(f"{text}\n")
    return "".join(lines)


def progress_of(line: str) -> Progress | None:
    """Return what a line on uv's stderr says of packages that are on their way."""
    if found := _DOWNLOADING.match(line):
        return Progress("downloading", (found[1],), int(float(found[2]) * _UNITS[found[3]]))
    if found := _DOWNLOADED.match(line):
        return Progress("downloaded", (found[1],))
    return None


def readable(stderr: str) -> str:
    """Return what uv complained of as one paragraph, without places on the network or on this host."""
    lines = [line for line in stderr.splitlines() if not line.startswith(_NO_COMPLAINT)]
    said = _ADDRESS.sub("the index", _CAUSE.sub(": ", "\n".join(lines)))
    said = re.sub(r"\s+", " ", _PATH.sub("…", said)).strip().removeprefix("error: ")
    return _TOO_YOUNG.sub(_too_young, said)[:_MOST_SAID]


def _too_young(hint: re.Match[str]) -> str:
    """Return what whoever asked can do; uv knows only what whoever started it could."""
    name, newest, version, published = hint.groups()
    when = f" {version} is too young: it was published on {published}" if version else " is too young"
    return (
        f"{name}{when}, and nothing is installed here that was not published before {newest} "
        "(PETRI_EXCLUDE_NEWER_DAYS); ask for an older version, or for another package"
    )


def yanked(stderr: str) -> list[tuple[str, str, str]]:
    """Return what uv chose, because nothing else was asked for, though it was taken back; and why it was."""
    return [(found[1], found[2], found[3] or "") for found in _YANKED.finditer(stderr)]


def without_wheel(said: str) -> str | None:
    """Return the package that a complaint says there are only source distributions of."""
    found = _NO_WHEEL.search(said)
    return found[1] if found else None


def is_unreachable(said: str) -> bool:
    """Say whether a complaint is about the way to the index, so that another time may do better."""
    return bool(_UNREACHABLE.search(said))


def blamed(said: str, names: Iterable[str]) -> list[str]:
    """Return those of `names` that a complaint is about."""
    return [
        name for name in names if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", said, re.IGNORECASE)
    ]
