"""A source distribution becomes a wheel. Runs in a cell: unpacking it may be a trick, building it is code.

    look          say what it says of itself; nothing of it is run
    build         have its own backend make a wheel of it, or say what else the backend needs for that
    build again   with that

It lies at `/workspace/sdist`. What is said is left in files beside it, of names that are known before. Which
backend, the server says: not every Python that cells have can read TOML.
"""

import importlib
import json
import os
import re
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

_AT = "/workspace"
_SDIST, _SOURCE, _OUT = f"{_AT}/sdist", f"{_AT}/source", f"{_AT}/out"
_SAYS, _NEEDS, _WHEEL = f"{_AT}/says.json", f"{_AT}/needs.json", f"{_AT}/wheel"
_MOST_TEXT = 1 << 20


def main(verb: str, system: str = "", *hidden: str) -> None:
    """Do what is asked, by the build system that is named in JSON.

    `hidden` are folders of packages that are the host's, and none of a build's.
    """
    os.chdir(_unpacked())
    if verb == "look":
        _write(_SAYS, {"pyproject": _text("pyproject.toml"), "metadata": _text("PKG-INFO")})
        return
    sys.path[:] = [each for each in sys.path if each and each not in hidden]
    _build(json.loads(system), may_ask=verb == "build")


def _unpacked() -> str:
    """Unpack it; return the one folder that it is."""
    if zipfile.is_zipfile(_SDIST):
        with zipfile.ZipFile(_SDIST) as archive:
            archive.extractall(_SOURCE)
    else:
        with tarfile.open(_SDIST) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(_SOURCE)
    found = list(Path(_SOURCE).iterdir())
    if len(found) != 1:
        sys.exit(f"a source distribution holds one folder, and this one holds {len(found)}")
    return str(found[0])


def _build(system: dict[str, Any], *, may_ask: bool) -> None:
    sys.path[:0] = [str(Path(each).resolve()) for each in system["backend-path"]]
    module, _, attribute = system["build-backend"].partition(":")
    backend: Any = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        backend = getattr(backend, part)
    if may_ask and hasattr(backend, "get_requires_for_build_wheel"):
        needs = [each for each in backend.get_requires_for_build_wheel({}) if not _is_here(each)]
        if needs:
            _write(_NEEDS, needs)
            return
    Path(_OUT).mkdir()
    (Path(_OUT) / backend.build_wheel(_OUT, {}, None)).replace(_WHEEL)


def _is_here(requirement: str) -> bool:
    try:
        metadata.distribution(re.split(r"[^\w.-]", requirement.strip())[0])
    except metadata.PackageNotFoundError:
        return False
    return True


def _text(name: str) -> str | None:
    try:
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_TEXT)
    except FileNotFoundError:
        return None


def _write(path: str, said: object) -> None:
    Path(path).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
