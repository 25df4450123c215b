"""Environments on the wire: which packages a sandbox's runs have, and who needs each."""

from petri.wire.runs import NotInstalled
from petri.wire.values import Answer


class PackageAnswer(Answer):
    """One installed package."""

    name: str
    version: str
    needed_by: list[str]
    """Lines of the project's files, as in `main.py:3 import numpy`, and names of other packages."""
    built_from: str | None = None
    """Hash of the source distribution, where the package has no wheel and was built in a cell."""


class EnvironmentAnswer(Answer):
    """The packages a run had, or would have again."""

    sandbox_id: str
    run_id: str | None
    """The run this is about: the last one that wanted packages, or the one that was asked for."""
    environment: str | None
    """Address of the packages; the same packages have the same address everywhere. Null for none."""
    source: str
    """Who had the first word: `pep723`, `lock`, `manifest`, `imports`, or `none`."""
    why: str
    """The decision as one sentence."""
    packages: list[PackageAnswer]
    not_installed: list[NotInstalled]
    lock: str
    """A file with versions and hashes that rebuilds it elsewhere: `pip install --require-hashes -r`."""
    files: dict[str, str]
    """The same as files of the names that installers look for: `requirements.txt` for `pip` and `uv`;
    `package.json`, `package-lock.json` and `bun.lock` for `npm ci` and `bun install --frozen-lockfile`."""
    size_bytes: int
    built_at: str | None
    age_s: float | None
    """Since it was built."""
    used_at: str | None
    """When it was last used by anybody; null once it is not on disk any more, and made again when needed."""
