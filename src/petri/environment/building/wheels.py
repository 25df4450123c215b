"""A wheel that came out of a cell: taken only if it is one, and of the package that it was to be.

Whoever made it is a stranger. It is read here as data, within bounds, and nothing of it is a name: what it is
called on this host is made from what is known of it otherwise.
"""

import base64
import copy
import csv
import hashlib
import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from petri.environment.building.sources import Metadata, Source, read_metadata

LARGEST = 256 << 20
_LARGEST_UNPACKED = 2 << 30
_MOST_FILES = 50_000
_MOST_DIRECTORY = 16 << 20
_MOST_TEXT = 4 << 20
_PIECE = 1 << 20
_END, _END_BYTES, _END_64, _END_64_BYTES = b"PK\x05\x06", 22, b"PK\x06\x07", 20
_TAG = re.compile(r"[a-z0-9_.]{1,100}-[a-z0-9_.]{1,100}-[a-z0-9_.]{1,100}")
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that `zipfile` unpacks piece by piece. Of others, a megabyte may come to all our memory at once."""
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


class NotAWheel(Exception):
    """Says why."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """What a wheel is."""

    filename: str
    digest: str
    """Its SHA-256."""
    metadata: Metadata


def checked(path: Path, source: Source) -> Wheel:
    """Return what the wheel at `path` is; `NotAWheel` if it is none, or not of `source`. Takes long."""
    _refuse_large_directory(path)
    try:
        with zipfile.ZipFile(path) as archive:
            info = _info(archive)
            metadata = read_metadata(_text(archive, f"{info}/METADATA"))
            if not source.is_of(metadata):
                raise NotAWheel(f"it is of {metadata.name[:100]!r} {metadata.version[:100]!r}")
            tag = _tag(_text(archive, f"{info}/WHEEL").decode(errors="replace"))
            _refuse_unrecorded(archive, info)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError) as error:
        raise NotAWheel(f"it cannot be read ({error})") from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Wheel(f"{source.name.replace('-', '_')}-{source.version}-{tag}.whl", digest, metadata)


def _refuse_large_directory(path: Path) -> None:
    """Raise for an archive whose list of files alone would fill our memory.

    Archives that do not end in their end, which readers find in different places, are none of ours.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END_64_BYTES - _END_BYTES))
        tail = file.read()
    end = tail[-_END_BYTES:]
    if not end.startswith(_END) or not end.endswith(b"\0\0"):
        raise NotAWheel("it is no archive")
    if int.from_bytes(end[12:16], "little") > _MOST_DIRECTORY or tail.startswith(_END_64):
        raise NotAWheel("it holds too many files")


def _info(archive: zipfile.ZipFile) -> str:
    """Return the one folder of its metadata, if all its files lie inside and are not too many."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(names) > _MOST_FILES or len(set(names)) != len(names):
        raise NotAWheel("it holds too many files, or one twice")
    if sum(entry.file_size for entry in entries) > _LARGEST_UNPACKED:
        raise NotAWheel("it unpacks to too much")
    if any(entry.compress_type not in _PACKINGS for entry in entries):
        raise NotAWheel("it is packed as no wheel is")
    if any(name.startswith("/") or "\\" in name or ".." in name.split("/") for name in names):
        raise NotAWheel("it has files that are for elsewhere")
    found = {name.split("/")[0] for name in names if re.match(r"[^/]+\.dist-info/", name)}
    if len(found) != 1:
        raise NotAWheel("it does not say which package it is")
    return found.pop()


def _text(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with archive.open(name) as file:
            text = file.read(_MOST_TEXT + 1)
    except KeyError:
        raise NotAWheel(f"it has no {name.rpartition('/')[2]}") from None
    if len(text) > _MOST_TEXT:
        raise NotAWheel(f"its {name.rpartition('/')[2]} is too long")
    return text


def _tag(text: str) -> str:
    """Return what it runs on, as a file name has it: `cp311-cp311-linux_x86_64`, `py2.py3-none-any`."""
    said = dict.fromkeys(re.findall(r"^Tag: *(\S+) *$", text, re.MULTILINE))
    parts = [each.split("-") for each in said if _TAG.fullmatch(each)]
    if (
        not parts
        or len(parts) != len(said)
        or not re.search(r"^Wheel-Version: *1\.\d+ *$", text, re.MULTILINE)
    ):
        raise NotAWheel("it does not say what it runs on")
    return "-".join(".".join(dict.fromkeys(column)) for column in zip(*parts, strict=True))[:200]


def _refuse_unrecorded(archive: zipfile.ZipFile, info: str) -> None:
    """Raise unless `RECORD` has every file, and every file is what it has."""
    rows = csv.reader(io.StringIO(_text(archive, f"{info}/RECORD").decode(errors="replace")))
    promised = {row[0]: row[1] for row in rows if len(row) == 3}
    ours = {f"{info}/{name}" for name in ("RECORD", *_SIGNATURES)}
    there = {entry.filename for entry in archive.infolist() if not entry.is_dir()}
    if there - ours != promised.keys() - ours:
        raise NotAWheel("its RECORD does not list what is in it")
    for name in sorted(there):
        digest = _digest(archive, name)
        if name not in ours and promised[name] != f"sha256={digest}":
            raise NotAWheel(f"{name[:200]!r} in it is not what its RECORD says")


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    """Return the digest of a file as RECORD has it; `NotAWheel` if it unpacks to more than it says."""
    entry = copy.copy(archive.getinfo(name))
    said, entry.file_size = entry.file_size, entry.file_size + 1  # `zipfile` reads no further than that
    seen, size = hashlib.sha256(), 0
    with archive.open(entry) as file:
        while piece := file.read(_PIECE):
            seen.update(piece)
            size += len(piece)
    if size != said:
        raise NotAWheel(f"{name[:200]!r} in it unpacks to more than it says")
    return base64.urlsafe_b64encode(seen.digest()).decode().rstrip("=")
