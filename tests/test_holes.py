"""Holes are hashed as the zeros they are, and nobody reads them."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3

from petri.holes import windows
from petri.store import Store
from petri.trees import File
from petri.workspace.digests import Digests
from petri.workspace.errand import Errand
from petri.workspace.index import Index
from petri.workspace.indexes import WHOLE

KIB, MIB = 1 << 10, 1 << 20


def bytes_read() -> int:
    """Return what this thread has had read from files so far."""
    said = Path(f"/proc/self/task/{threading.get_native_id()}/io").read_text()
    return int(said.split("rchar: ")[1].split()[0])


def write(path: Path, size: int, *data: tuple[int, bytes]) -> bytes:
    """Make a file of holes with `data` here and there, and return its content."""
    content = bytearray(size)
    with path.open("wb") as out:
        out.truncate(size)
        for at, piece in data:
            os.pwrite(out.fileno(), piece, at)
            content[at : at + len(piece)] = piece
    return bytes(content)


LAYOUTS: dict[str, tuple[int, tuple[tuple[int, bytes], ...]]] = {
    "nothing": (0, ()),
    "little": (5, ((0, b"hello"),)),
    "a hole": (3 * MIB + 7, ()),
    "data first": (3 * MIB, ((0, b"x"),)),
    "data last": (3 * MIB + 1, ((3 * MIB, b"x"),)),
    "data in the middle of a window": (4 * MIB, ((2 * MIB + 300 * KIB, b"y" * 10 * KIB),)),
    "data across two windows": (4 * MIB, ((2 * MIB - 3, b"across"),)),
    "many small holes": (2 * MIB, tuple((at, b"z" * 4096) for at in range(0, 2 * MIB, 8192))),
    "no hole": (2 * MIB + 5, ((0, os.urandom(2 * MIB + 5)),)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_reads_as_it_is_whatever_its_holes(tmp_path: Path, layout: str) -> None:
    size, data = LAYOUTS[layout]
    content = write(tmp_path / "file", size, *data)

    with (tmp_path / "file").open("rb") as file:
        for most in (64 * KIB, MIB):
            found = list(windows(file.fileno(), size, most))
            assert b"".join(found) == content
            assert all(len(window) == most for window in found[:-1])


def test_a_file_that_is_shorter_than_was_said_ends_early(tmp_path: Path) -> None:
    write(tmp_path / "file", 3 * MIB, (0, b"x"))

    with (tmp_path / "file").open("rb") as file:
        reading = windows(file.fileno(), 10 * MIB, MIB)
        assert len(next(reading)) == MIB
        os.truncate(tmp_path / "file", 2 * MIB)
        assert sum(map(len, reading)) == MIB


def _by_look(path: Path) -> bytes:
    top = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        index = Index()
        index.look(top, None, WHOLE)
    finally:
        os.close(top)
    entry = index.entry(os.fsencode(path.name))
    assert isinstance(entry, File)
    return entry.digest


def _by_etag(path: Path) -> bytes:
    with path.open("rb") as file:
        return bytes.fromhex(Digests().of(file.fileno(), Errand(threading.Event())))


def _by_keeping(path: Path) -> bytes:
    store = Store(path.parent.parent / "store")
    try:
        with path.open("rb") as file, store.write("acme") as writing:
            return writing.put_file(file.fileno(), path.stat().st_size)
    finally:
        store.close()


@pytest.mark.long
@pytest.mark.parametrize("hashed", [_by_look, _by_etag, _by_keeping])
def test_what_is_hashed_of_a_hole_is_not_read(tmp_path: Path, hashed: Callable[[Path], bytes]) -> None:
    (tmp_path / "workspace").mkdir()
    path = tmp_path / "workspace" / "sparse"
    content = write(path, 64 * MIB, (20 * MIB, b"data"))

    before = bytes_read()
    assert hashed(path) == blake3(content).digest()
    assert bytes_read() - before < 4 * MIB
