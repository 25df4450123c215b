"""Environments. Part `detect`: what a run wants, found out again after nothing or one file has changed."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from blake3 import blake3

from benchmarks.bench import Row, p50
from petri.environment import Ask, File, Kind, wanted
from petri.environment.needs.names import tables

FILES = 2_000
FOLDERS = 40
ROUNDS = 15
_ASK = Ask(File("main.py"), "python")


class _Folder:
    """A project on disk, its digests known beforehand as the workspace's index knows them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.digests = {
            path.relative_to(root).as_posix(): blake3(path.read_bytes()).digest()
            for path in root.rglob("*")
            if path.is_file()
        }
        self._folders: dict[str, list[str]] = {}
        for path in root.rglob("*"):
            inner = path.relative_to(root).as_posix()
            self._folders.setdefault(inner.rpartition("/")[0], []).append(path.name)

    def read(self, path: str, most_bytes: int) -> bytes | None:
        content = (self._root / path).read_bytes() if path in self.digests else None
        return content if content is not None and len(content) <= most_bytes else None

    def kind(self, path: str) -> Kind | None:
        if path in self.digests:
            return "file"
        return "folder" if path in self._folders else None

    def names(self, folder: str) -> list[str]:
        return self._folders.get(folder, [])

    def digest(self, path: str) -> bytes | None:
        return self.digests.get(path)


def measure() -> list[Row]:
    """Return the medians for a program that leads to all 2,000 files of its project."""
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch:
        for path, text in _project():
            target = Path(scratch) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        reader = _Folder(Path(scratch))
        unpacked = _timed(lambda: (tables.imports(), tables.pypi_ranks(), tables.without_wheel()))
        first = _timed(lambda: wanted(reader, _ASK))
        again = p50([_timed(lambda: wanted(reader, _ASK)) for _ in range(ROUNDS)])
        edited = p50([_after_an_edit(reader, Path(scratch), each) for each in range(ROUNDS)])
        found = wanted(reader, _ASK)
    assert {each.name for each in found.requirements} == {"numpy", "requests", "pyyaml", "pillow"}
    return [
        Row("the tables of names, unpacked once", f"{unpacked:.0f} ms"),
        Row(f"{FILES} files never seen before", f"{first:.0f} ms"),
        Row(f"{FILES} files, none changed", f"{again:.1f} ms", "30 ms at most"),
        Row(f"{FILES} files, one changed", f"{edited:.1f} ms"),
    ]


def _project() -> Iterator[tuple[str, str]]:
    """Yield files of which every one is reached, each with a dozen imports and some code."""
    each = FILES // FOLDERS
    yield "main.py", "".join(f"import pkg{n}\n" for n in range(FOLDERS)) + "import numpy\n"
    for folder in range(FOLDERS):
        yield f"pkg{folder}/__init__.py", "".join(f"from . import m{n}\n" for n in range(each - 1))
        for n in range(each - 1):
            yield f"pkg{folder}/m{n}.py", _module(folder, n)


def _module(folder: int, n: int) -> str:
    foreign = ("requests", "yaml", "numpy as np", "PIL.Image")[n % 4]
    head = f"import os, sys, json, re\nfrom pathlib import Path\nfrom typing import Any\nimport {foreign}\n"
    own = f"from . import m{(n + 1) % 49}\nfrom pkg{(folder + 1) % FOLDERS}.m{n} import f{n}\n"
    body = (
        f"def f{n}(a: Any) -> Any:\n    '''Say.'''\n    return [str(a), os.sep, 'x']  # {folder}\n\n\n" * 12
    )
    return head + own + body


def _after_an_edit(reader: _Folder, root: Path, number: int) -> float:
    path = f"pkg{number}/m{number}.py"
    changed = (root / path).read_text() + f"# {number}\n"
    (root / path).write_text(changed)
    reader.digests[path] = blake3(changed.encode()).digest()
    return _timed(lambda: wanted(reader, _ASK))


def _timed(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return (perf_counter() - started) * 1000
