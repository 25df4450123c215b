"""The manifest that speaks for a Python program: of the nearest folder with one, the first by rank."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from petri.environment.needs.bounds import MOST_REQUIREMENTS
from petri.environment.needs.manifests import conda, locks, poetry, requirements
from petri.environment.needs.manifests.declared import Declaration, Declared
from petri.environment.needs.manifests.parsing import string, strings, table, toml
from petri.environment.needs.nouns import Lock, Pin
from petri.environment.needs.project import Project, join, upwards

_TEST_GROUPS = ("test", "tests", "testing", "dev")
_REQUIREMENTS = ("requirements.txt", "requirements/base.txt", "requirements/requirements.txt")
_TEST_REQUIREMENTS = (
    "requirements-dev.txt",
    "requirements-test.txt",
    "dev-requirements.txt",
    "test-requirements.txt",
)


def find(project: Project, folder: str, *, for_tests: bool) -> Declared | None:
    """Return what is declared for a program in `folder`, there or further up; None where nothing is."""
    for each in upwards(folder):
        if project.is_folder(each) and (found := _here(project, each, for_tests=for_tests)):
            return found
    return None


def _here(project: Project, folder: str, *, for_tests: bool) -> Declared | None:
    manifest = _manifest(project, folder, for_tests=for_tests)
    lock = _lock(project, folder)
    if lock is None:
        return manifest
    found = manifest or Declared("manifest", lock.path)
    name = lock.path.rpartition("/")[2]
    if name in locks.FLAT:
        found = replace(found, declarations=[_pinned(pin, lock.path) for pin in lock.pins])
    elif manifest is None and name == "uv.lock":
        asked = list(locks.roots(toml(lock.text)))
        found = replace(found, declarations=[Declaration(each, lock.path) for each in asked])
    return replace(found, source="lock", path=lock.path, lock=lock)


def _pinned(pin: Pin, path: str) -> Declaration:
    marker = f"; {pin.marker}" if pin.marker else ""
    return Declaration(f"{pin.name}=={pin.version}{marker}", path)


def _lock(project: Project, folder: str) -> Lock | None:
    for name, read in locks.LOCKS.items():
        path = join(folder, name)
        text = project.text(path)
        if text is not None and (pins := tuple(read(text))):
            return Lock(path, text, pins)
    return None


def _manifest(project: Project, folder: str, *, for_tests: bool) -> Declared | None:
    return (
        _pyproject(project, folder, for_tests=for_tests)
        or _requirements(project, folder, for_tests=for_tests)
        or _pipfile(project, folder, for_tests=for_tests)
        or _conda(project, folder)
        or _setup_cfg(project, folder)
    )


def _pyproject(project: Project, folder: str, *, for_tests: bool) -> Declared | None:
    path = join(folder, "pyproject.toml")
    said = toml(project.text(path))
    listed = table(said, "project").get("dependencies")
    by_poetry = table(said, "tool", "poetry", "dependencies")
    if not isinstance(listed, list) and not by_poetry:
        return None
    asked = [*strings(listed), *_poetry(by_poetry), *(_for_tests(said) if for_tests else ())]
    python = string(table(said, "project").get("requires-python")) or _poetry_python(by_poetry)
    return Declared("manifest", path, _declarations(asked, path), python=python)


def _declarations(asked: Iterable[str], path: str) -> list[Declaration]:
    return [Declaration(each, path) for each in list(asked)[:MOST_REQUIREMENTS]]


def _poetry(entries: dict[str, Any]) -> Iterator[str]:
    for name, said in entries.items():
        is_optional = isinstance(said, dict) and said.get("optional") is True
        if name != "python" and not is_optional and (text := poetry.requirement(name, said)):
            yield text


def _poetry_python(entries: dict[str, Any]) -> str | None:
    said = string(entries.get("python"))
    return poetry.versions(said) or None if said is not None else None


def _for_tests(said: dict[str, Any]) -> Iterator[str]:
    """Yield what tests want besides: the groups and extras that are called so."""
    for name in _TEST_GROUPS:
        yield from strings(table(said, "dependency-groups").get(name))
        yield from strings(table(said, "project", "optional-dependencies").get(name))
        yield from _poetry(table(said, "tool", "poetry", "group", name, "dependencies"))
    yield from _poetry(table(said, "tool", "poetry", "dev-dependencies"))
    yield from strings(table(said, "tool", "uv").get("dev-dependencies"))


def _requirements(project: Project, folder: str, *, for_tests: bool) -> Declared | None:
    names = (*_REQUIREMENTS, *_TEST_REQUIREMENTS) if for_tests else _REQUIREMENTS
    found = [
        (join(folder, name), lines)
        for name in names
        if (lines := requirements.read(project, join(folder, name)))
    ]
    if not found:
        return None
    path, first = found[0]
    every = [each for _, lines in found for each in lines.declarations]
    if len(found) == 1 and first.is_lock:
        lock = Lock(path, project.text(path) or "", tuple(first.pins))
        return Declared("lock", path, every, lock)
    return Declared("manifest", path, every)


def _pipfile(project: Project, folder: str, *, for_tests: bool) -> Declared | None:
    path = join(folder, "Pipfile")
    said = toml(project.text(path))
    if not table(said, "packages"):
        return None
    asked = [*_poetry(table(said, "packages")), *(_poetry(table(said, "dev-packages")) if for_tests else ())]
    version = string(table(said, "requires").get("python_version"))
    return Declared(
        "manifest", path, _declarations(asked, path), python=f"=={version}.*" if version else None
    )


def _conda(project: Project, folder: str) -> Declared | None:
    for name in ("environment.yml", "environment.yaml"):
        path = join(folder, name)
        if (text := project.text(path)) is not None and (asked := conda.requirements(text)):
            return Declared("manifest", path, _declarations(asked, path))
    return None


def _setup_cfg(project: Project, folder: str) -> Declared | None:
    path = join(folder, "setup.cfg")
    asked: list[str] = []
    key = ""
    for line in (project.text(path) or "").splitlines():
        if not line[:1].isspace():
            key, _, line = line.partition("=")
        if key.strip() == "install_requires" and line.strip() and not line.strip().startswith("#"):
            asked.append(line.strip())
    return Declared("manifest", path, _declarations(asked, path)) if asked else None
