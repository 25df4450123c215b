"""Archives made to do harm: bombs, endless headers, cuts and damage."""

import gzip
import os
import random
import struct
import tarfile
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from petri.errors import Invalid, PetriError, TooLarge
from petri.workspace import Bounds, Workspaces
from tests.test_workspace_unpacking import (
    KINDS,
    MAX_BYTES,
    MAX_FILES,
    SANDBOX,
    folder,
    member,
    refused,
    tar,
    unpack,
    workspaces,
    zipped,
)

__all__ = ["folder", "workspaces"]


def zstd_bomb() -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    head = member("a", size=10 << 30).tobuf()
    return b"".join([compressor.compress(head), *(compressor.compress(bytes(1 << 20)) for _ in range(200))])


def deep_bomb() -> bytes:
    return tar(*(member(f"{number}/" + "d/" * 30 + "f") for number in range(10)))


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "bytes, tar": (lambda: tar(*((str(n), bytes(200_000)) for n in range(6)))[: MAX_BYTES - 5000], "x.tar"),
    "bytes, gzip": (lambda: gzip.compress(tar(member("a", size=30 << 20))), "x.tgz"),
    "bytes, zstd": (zstd_bomb, "x.tar.zst"),
    "bytes, zip": (lambda: zipped(("a", bytes(30 << 20))), "x.zip"),
    "bytes, many members": (lambda: zipped(*((str(n), bytes(MAX_BYTES // 4)) for n in range(5))), "x.zip"),
    "files, tar": (lambda: gzip.compress(tar(*(member(str(n)) for n in range(MAX_FILES + 1)))), "x.tgz"),
    "files, zip": (lambda: zipped(*((str(n), b"") for n in range(MAX_FILES + 1))), "x.zip"),
    "folders": (deep_bomb, "x.tar"),
    "padding": (lambda: gzip.compress(tar() + bytes(30 << 20)), "x.tgz"),
    "contents of a zip": (lambda: zipped(*((f"{n:0>250}", b"") for n in range(1500))), "x.zip"),
}


@pytest.mark.long
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_too_large_and_costs_little(workspaces: Workspaces, bomb: str) -> None:
    make, name = BOMBS[bomb]
    archive = make()
    assert len(archive) <= MAX_BYTES
    tracemalloc.start()
    begun = time.process_time()  # what it costs us, not what others do meanwhile

    error = refused(workspaces, archive, name)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(error, TooLarge | Invalid if bomb == "bytes, tar" else TooLarge), error
    assert time.process_time() - begun < 3
    assert peak < 20 << 20


def peak_of(action: Callable[[], object]) -> int:
    """Return how much memory `action` held at one time."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def generous(tmp_path: Path) -> Workspaces:
    made = Workspaces(tmp_path / "root", Bounds(max_upload_bytes=1 << 30, max_files=MAX_FILES))
    made.create(SANDBOX, None)
    return made


@pytest.mark.long
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_header_of_gigabytes_is_not_read_into_memory(generous: Workspaces, kind: bytes) -> None:
    head = member("x", type=kind, size=5 << 30).tobuf(tarfile.GNU_FORMAT)
    archive = zlib.compress(head + bytes(30 << 20), wbits=31)

    assert peak_of(lambda: refused(generous, archive, "x.tgz")) < 20 << 20


@pytest.mark.long
def test_what_extension_headers_say_besides_names_is_not_kept(generous: Workspaces) -> None:
    extensions = b""
    for number in range(16):
        body = b"".join(b"1012 %05d=%s\n" % (number * 1000 + n, b"v" * 1000) for n in range(1000))
        extensions += (
            member("x", type=tarfile.XHDTYPE, size=len(body)).tobuf() + body + bytes(-len(body) % 512)
        )
    archive = gzip.compress(extensions + tar(("a", b"1")), 1)

    assert peak_of(lambda: unpack(generous, archive, "x.tgz")) < 10 << 20


def test_the_table_of_contents_of_a_zip_is_not_believed_to_be_short(generous: Workspaces) -> None:
    start = b"PK\3\4"
    table = struct.pack("<4s42x", b"PK\1\2") * 40_000
    end = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 1, 1, len(table), len(start), 0)

    assert peak_of(lambda: refused(generous, start + table + end, "x.zip")) < 4 << 20


def test_thousands_of_extension_headers_neither_recurse_nor_pile_up(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "root", Bounds(MAX_BYTES, max_files=1000))
    workspaces.create(SANDBOX, None)
    record = b"12 key=abcd\n"
    extension = member("x", type=tarfile.XHDTYPE, size=len(record)).tobuf() + record.ljust(512, b"\0")

    unpack(workspaces, gzip.compress(extension * 2000 + tar(("a", b"1"))), "x.tgz")

    assert (workspaces.folder(SANDBOX) / "a").read_text() == "1"


def test_negative_sizes_do_not_send_the_reader_back(workspaces: Workspaces) -> None:
    header = bytearray(member("a").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 12
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    record = b"11 size=-5\n"
    extension = member("x", type=tarfile.XHDTYPE, size=len(record)).tobuf() + record.ljust(512, b"\0")

    assert isinstance(refused(workspaces, bytes(header) + bytes(1024)), Invalid)
    assert isinstance(refused(workspaces, extension + tar(("a", b"1"))), Invalid)


def test_many_empty_gzip_parts_do_not_hold_the_reader(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.workspace.unpacking._MAX_GZIP_PARTS", 1000)

    assert "gzip parts" in refused(workspaces, gzip.compress(b"") * 1001, "x.tgz").message


@pytest.mark.parametrize("name", KINDS)
def test_an_archive_cut_anywhere_is_refused(workspaces: Workspaces, name: str) -> None:
    whole = KINDS[name]()
    end = len(whole.rstrip(b"\0")) - 1
    for length in sorted({1, 10, end, *(end * part // 12 for part in range(1, 12))}):
        assert isinstance(refused(workspaces, whole[:length], name), Invalid), length


@pytest.mark.long
@pytest.mark.parametrize("name", ["x.tar", "x.tgz", "x.tar.zst", "x.zip"])
def test_a_damaged_archive_is_unpacked_or_refused_and_nothing_else(tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    workspaces = Workspaces(tmp_path / "root", Bounds(MAX_BYTES, MAX_FILES))
    whole = KINDS[name]()
    for _ in range(60):
        workspaces.create(SANDBOX, None)
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            unpack(workspaces, bytes(damaged), name)
        except PetriError:
            assert list(workspaces.folder(SANDBOX).iterdir()) == []
        workspaces.remove(SANDBOX)
    assert os.listdir(tmp_path) == ["root"]  # noqa: PTH208 - the names are wanted


def test_after_a_refused_archive_nothing_of_the_upload_is_committed(
    workspaces: Workspaces, folder: Path
) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("fine").write(b"1")
        staged = intake.file("x.tar")
        staged.write(tar(("a", b"1"), ("../b", b"2")))
        with pytest.raises(Invalid):
            intake.extract(staged, "x.tar")
        with pytest.raises(Invalid, match="none of it was written"):
            intake.commit()

    assert list(folder.iterdir()) == []
