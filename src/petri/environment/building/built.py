"""Wheels that were built here, each once: by what was built, with what, and for which interpreter.

    built/KEY/      one wheel under its own name, and `wheel.json`, which says what it is

One appears by a rename. They can be built again, so they go when there is too much, the longest unused first.
"""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from petri.environment.building.sources import Metadata, Source
from petri.environment.building.wheels import Wheel


@dataclass(frozen=True, slots=True)
class Kept:
    """A wheel that is there."""

    key: str
    folder: Path
    wheel: Wheel

    @property
    def path(self) -> Path:
        """The file itself."""
        return self.folder / self.wheel.filename


def key_of(source: Source, environment: str, platform: str) -> str:
    """Return what the wheel of a source is called: the same source, built with the same, is built once."""
    return blake3(f"petri wheel 1\n{source.digest}\n{environment}\n{platform}\n".encode()).hexdigest()


class BuiltWheels:
    """All of them, under one root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def find(self, key: str) -> Kept | None:
        """Return a wheel that is there, and note that it was of use."""
        folder = self._root / key
        try:
            said = json.loads((folder / "wheel.json").read_text())
            kept = Kept(key, folder, Wheel(said["filename"], said["digest"], _metadata(said["metadata"])))
            os.utime(folder / "wheel.json")
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return kept if kept.path.is_file() else None

    def has(self, key: str) -> bool:
        """Say whether a wheel is there."""
        return (self._root / key / "wheel.json").is_file()

    def put(self, key: str, staged: Path, wheel: Wheel) -> Kept:
        """Have the folder `staged`, with that wheel in it, under `key`."""
        (staged / "wheel.json").write_text(json.dumps(asdict(wheel)))
        for each in (staged / wheel.filename, staged / "wheel.json", staged):
            sync(each)
        folder = self._root / key
        shutil.rmtree(folder, ignore_errors=True)  # one that cannot be read
        staged.rename(folder)
        return Kept(key, folder, wheel)

    def sizes(self) -> list[tuple[Path, int]]:
        """Return what each takes of the disk, the one longest unused first. Takes long."""
        found = []
        for folder in self._root.iterdir():
            with suppress(OSError):
                size = sum(each.stat().st_size for each in folder.iterdir())
                found.append(((folder / "wheel.json").stat().st_mtime, folder, size))
        return [(folder, size) for _, folder, size in sorted(found)]


def _metadata(said: dict[str, Any]) -> Metadata:
    lists = {name: tuple(said[name]) for name in ("requires", "extras")}
    return Metadata(**{**said, **lists})


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
