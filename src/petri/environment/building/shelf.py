"""Environments on disk: one folder each, by address, that is never changed once it is there.

    environments/
    ├── shelf/ADDRESS/      an environment: `record.json`, and the folder that cells see
    ├── staging/            environments on their way; thrown away at start
    ├── records/ADDRESS     what each ever was: kept when the folder goes, so that it can be made again
    ├── asked/KEY           what was wanted → what it came to; see `tidying` for how long both are kept
    ├── built/KEY/          wheels that were made here, of source distributions
    ├── tools/              installers that did not come with the server
    ├── cache/              the installer's own; shares its files with the shelf, and goes first
    └── trash/

An environment appears by one rename, so a half-built one is never found. It names the boot it was built in,
and in that one outlives its server, however that ended. One that is complete has the mark `whole`, which
names the digest of all of it, too. After a power cut a disk may have kept less than it was given, so from
then on only whole ones count, and each once its digest was found right: a second, once. Syncing each would
cost everybody that.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from petri.environment.building.built import BuiltWheels, sync
from petri.environment.building.bun import portable
from petri.environment.building.exporting import portable_files
from petri.environment.building.locks import Built, Lock, Package, portable_requirements

_PASSABLE = 0o711
_NOTE_S = 60.0
"""A use is written down once a minute at most."""
_WHOLE = "whole"
_BUILT_IN = "boot"


@dataclass(frozen=True, slots=True)
class Record:
    """What an environment is, for good."""

    address: str
    lock: Lock
    platform: str
    built_at: float
    needed_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    size: int = 0
    files: int = 0

    @property
    def portable_lock(self) -> str:
        """Its packages as a file that rebuilds it elsewhere, without a word of where they came from."""
        if self.lock.ecosystem == "javascript":
            return portable(self.lock.text)
        return portable_requirements(self.lock.packages)

    @property
    def portable_files(self) -> Mapping[str, str]:
        """The same as files, each called as its installer wants it."""
        if self.lock.ecosystem == "javascript":
            return portable_files(self.lock)
        return {"requirements.txt": self.portable_lock}


@dataclass(slots=True, eq=False)
class Environment:
    """An environment on the shelf. Whoever uses it says so, and it stays for as long."""

    record: Record
    folder: Path
    used_at: float
    users: int = 0
    noted_at: float = 0.0

    @property
    def address(self) -> str:
        """What it is called."""
        return self.record.address


class Shelf:
    """Every environment under one root. Used from the event loop; what takes long is marked so."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "shelf"
        """Below it lies whatever an engine is asked to mount."""
        self.cache = root / "cache"
        self.tools = root / "tools"
        self._root = root
        self._here: dict[str, Environment] = {}
        self._doubtful: dict[str, Environment] = {}
        """Those of an earlier boot, until somebody has looked at all of it."""
        self.incomplete: list[Environment] = []
        """Those that an earlier life of the server built, and was killed before it had completed."""
        for name in ("", "staging", "records", "asked", "trash", "cache", "tools"):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.built = BuiltWheels(root / "built")
        self.folder.mkdir(exist_ok=True)
        for folder in (root, self.folder):  # cells go through both, and list neither
            folder.chmod(_PASSABLE)
        self._open()

    def find(self, address: str | None) -> Environment | None:
        """Return an environment that is there."""
        return self._here.get(address) if address else None

    def all(self) -> list[Environment]:
        """Return every environment, the one longest unused first."""
        return sorted([*self._here.values(), *self._doubtful.values()], key=lambda each: each.used_at)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Hold a new folder to build in, on the same disk as the shelf; whatever is left in it goes."""
        folder = self._root / "staging" / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def put(self, staged: Path, record: Record) -> Environment:
        """Have what was built at `staged` on the shelf; the one that is there already, if one is."""
        if (found := self.find(record.address)) is not None:
            return found
        folder = self.folder / record.address
        staged.chmod(0o755)
        (staged / _BUILT_IN).write_text(_boot())
        self.throw(folder)  # a leftover that nobody trusts
        staged.rename(folder)
        made = self._here[record.address] = Environment(record, folder, time.time())
        return made

    def mark_whole(self, environment: Environment) -> None:
        """Trust an environment beyond this life of the server: nothing of it changes any more. Takes long."""
        mark = {"boot": _boot(), "digest": _digest(environment.folder)}
        (environment.folder / _WHOLE).write_text(json.dumps(mark))

    def examine(self, address: str) -> Environment | None:
        """Return an environment from before the machine was started, if it is what it was. Takes long."""
        environment = self._doubtful.pop(address, None)
        if environment is None:
            return None
        mark = _mark(environment.folder)
        if mark is None or mark["digest"] != _digest(environment.folder):
            self.throw(environment.folder)
            return None
        self.mark_whole(environment)
        self._here[address] = environment
        return environment

    def use(self, environment: Environment) -> None:
        """Keep an environment until it is given back."""
        environment.users += 1
        self._note(environment)

    def give_back(self, environment: Environment) -> None:
        """Use an environment no longer."""
        environment.users -= 1
        self._note(environment)

    def drop(self, environment: Environment) -> None:
        """Have an environment no more. Takes long."""
        for known in (self._here, self._doubtful):
            if known.get(environment.address) is environment:
                del known[environment.address]
        self.throw(environment.folder)

    def throw(self, folder: Path) -> None:
        """Have a folder gone at once, then its space back. Takes long."""
        thrown = self._root / "trash" / secrets.token_hex(16)
        with suppress(FileNotFoundError):
            folder.rename(thrown)
            shutil.rmtree(thrown, ignore_errors=True)

    def empty_cache(self) -> None:
        """Throw away what the installer keeps. Nothing may be under way. Takes long."""
        self.throw(self.cache)
        self.cache.mkdir(mode=0o700, exist_ok=True)

    def note_record(self, record: Record) -> None:
        """Write down what an environment is to be. Nobody has run in it, so nothing is lost with this."""
        _write(self._root / "records" / record.address, json.dumps(_plain(record)))

    def keep_record(self, record: Record) -> None:
        """Write down what an environment is, durably: whoever ran in it can have it again."""
        path = self._root / "records" / record.address
        _write(path, json.dumps(_plain(record)))
        for each in (path, path.parent):
            sync(each)

    def record(self, address: str) -> Record | None:
        """Return what an environment is or was."""
        if not address.isalnum():
            return None
        return _read_record(self._root / "records" / address)

    def keep_answer(self, key: str, answer: dict[str, Any]) -> None:
        """Write down what came of something that was wanted; were it lost, it would be asked for again."""
        _write(self._root / "asked" / key, json.dumps(answer))

    def answer(self, key: str) -> dict[str, Any] | None:
        """Return what came of something that was wanted."""
        with suppress(OSError, ValueError):
            found = json.loads((self._root / "asked" / key).read_text())
            return found if isinstance(found, dict) else None
        return None

    def forget_answers(self, older_s: float, most: int) -> int:
        """Forget answers that are too old, or too many; return how many there were. Takes long."""
        found = _by_age(self._root / "asked")
        old = [path for at, path in found if time.time() - at > older_s]
        gone = {*old, *(path for _, path in found[: max(0, len(found) - most)])}
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def spare_records(self, older_s: float) -> list[str]:
        """Return the addresses that are neither on disk, nor an answer, nor new. Takes long."""
        answers = [self.answer(path.name) for _, path in _by_age(self._root / "asked")]
        needed = {answer.get("address") for answer in answers if answer is not None}
        needed |= {each.address for each in self.all()}
        found = _by_age(self._root / "records")
        return [path.name for at, path in found if time.time() - at > older_s and path.name not in needed]

    def forget_record(self, address: str, older_s: float) -> None:
        """Forget what an environment was, unless somebody wanted it just now."""
        path = self._root / "records" / address
        with suppress(FileNotFoundError):
            if self.find(address) is None and time.time() - path.stat().st_mtime > older_s:
                path.unlink()

    def _open(self) -> None:
        for name in ("staging", "trash"):
            for left in (self._root / name).iterdir():
                shutil.rmtree(left, ignore_errors=True)
        for folder in self.folder.iterdir():
            if folder.name.startswith("."):
                continue  # what cells see beside environments: see `windows`
            record, mark = _read_record(folder / "record.json"), _mark(folder)
            is_of_this_boot = _built_in(folder) == _boot()
            if record is None or record.address != folder.name or not (mark or is_of_this_boot):
                self.throw(folder)
                continue
            found = Environment(record, folder, (folder / "record.json").stat().st_mtime)
            if mark is None:
                self.incomplete.append(found)
            known = self._here if mark is None or mark["boot"] == _boot() else self._doubtful
            known[record.address] = found

    def _note(self, environment: Environment) -> None:
        environment.used_at = time.time()
        if environment.used_at - environment.noted_at > _NOTE_S:
            environment.noted_at = environment.used_at
            with suppress(OSError):
                os.utime(environment.folder / "record.json")


def write_record(folder: Path, record: Record) -> None:
    """Have an environment say what it is."""
    (folder / "record.json").write_text(json.dumps(_plain(record)))


def _plain(record: Record) -> dict[str, Any]:
    return asdict(record)


def _read_record(path: Path) -> Record | None:
    try:
        kept = json.loads(path.read_text())
        lock = kept.pop("lock")
        packages = tuple(_read_package(each) for each in lock["packages"])
        needed_by = {name: tuple(who) for name, who in kept.pop("needed_by").items()}
        return Record(**kept, lock=Lock(**{**lock, "packages": packages}), needed_by=needed_by)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a record that cannot be read is of no use, whoever spoilt it


def _read_package(kept: dict[str, Any]) -> Package:
    built = Built(**kept["built"]) if kept.get("built") else None
    return Package(kept["name"], kept["version"], tuple(kept["hashes"]), built)


def _mark(folder: Path) -> dict[str, str] | None:
    try:
        mark = json.loads((folder / _WHOLE).read_text())
        return {"boot": str(mark["boot"]), "digest": str(mark["digest"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _built_in(folder: Path) -> str | None:
    try:
        return (folder / _BUILT_IN).read_text()
    except (OSError, ValueError):
        return None


def _boot() -> str:
    """Return what this start of the machine is called: the page cache is as old as that."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _digest(folder: Path) -> str:
    """Return the digest of every name and every byte in `folder`, but for the mark's own."""
    digest = blake3()
    for path in sorted(folder.rglob("*")):
        if path == folder / _WHOLE:
            continue
        digest.update(os.fsencode(path.relative_to(folder)) + b"\0")
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()) + b"\0")
        elif path.is_file():
            digest.update(path.stat().st_size.to_bytes(8, "little"))
            digest.update_mmap(path)
    return digest.hexdigest()


def _by_age(folder: Path) -> list[tuple[float, Path]]:
    """Return the files of a folder, the oldest first, and when each was written."""
    found = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path))
    return sorted(found)


def _write(path: Path, text: str) -> None:
    """Have `text` at `path`, or what was there before."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_text(text)
    new.rename(path)
