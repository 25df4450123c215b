"""Archives that are small to send and would be dear to unpack: refused by name, early, with nothing left."""

import io
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from petri.errors import Invalid, PetriError, TooLarge, Unavailable
from petri.workspace import Bounds, Workspaces
from petri.workspace.members import _ANY_BYTES

pytestmark = pytest.mark.long

SANDBOX = "sb-one"
MAX_FILES = 2_000


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    made = Workspaces(tmp_path / "root", Bounds(max_upload_bytes=8 << 30, max_files=MAX_FILES))
    made.create(SANDBOX, None)
    return made


def unpack(workspaces: Workspaces, archive: bytes, name: str) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        staged = intake.file(name)
        staged.write(archive)
        staged.close()
        intake.extract(staged, name)
        intake.commit()


def refused(workspaces: Workspaces, archive: bytes, name: str) -> PetriError:
    """Return how `archive` is refused; whatever it is, nothing of it may be left."""
    with pytest.raises(PetriError) as caught:
        unpack(workspaces, archive, name)
    assert left(workspaces) == []
    return caught.value


def left(workspaces: Workspaces) -> list[Path]:
    root = workspaces.folder(SANDBOX).parent
    return [path for place in root.iterdir() for path in place.iterdir()]


def header(name: str, **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def extension(kind: bytes, body: bytes) -> bytes:
    return header("x", type=kind, size=len(body)) + body.ljust(-len(body) % 512 + len(body), b"\0")


def repeated(block: bytes, times: int) -> bytes:
    """Return a `.tar.zst` of `block` so many times: a few kilobytes, however many those are."""
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join(
        [*(packer.compress(block) for _ in range(times)), packer.compress(bytes(1024)), packer.flush()]
    )


# --------------------------------------------------------------------------------------- many, not large


@pytest.mark.parametrize(
    "block",
    [
        extension(tarfile.XHDTYPE, b"12 key=abcd\n"),
        extension(tarfile.GNUTYPE_LONGNAME, b"name\0"),
        extension(tarfile.GNUTYPE_LONGLINK, b"name\0"),
        extension(tarfile.XGLTYPE, b"12 key=abcd\n"),
        header("./", type=tarfile.DIRTYPE),
    ],
    ids=["pax", "long name", "long link", "global", "the folder itself"],
)
def test_headers_that_make_no_file_are_counted_too(workspaces: Workspaces, block: bytes) -> None:
    error = refused(workspaces, repeated(block, 5 * MAX_FILES), "x.tar.zst")

    assert isinstance(error, TooLarge)
    assert f"more than {4 * MAX_FILES + 16} headers" in error.message


def test_as_many_files_as_may_be_are_unpacked_with_a_long_name_each(workspaces: Workspaces) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(MAX_FILES - 1):
            archive.addfile(tarfile.TarInfo(f"{number}-" + "n" * 150))

    unpack(workspaces, sink.getvalue(), "x.tar")

    assert len(list(workspaces.folder(SANDBOX).iterdir())) == MAX_FILES - 1


def zip_of(rows: bytes, *, count: int, start: bytes = b"") -> bytes:
    """Return a zip whose table of contents is `rows`, and which says that they are `count`."""
    start = start or struct.pack("<4sHHHHHLLLHH", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"a"
    return start + rows + struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, count, count, len(rows), len(start), 0)


def row(name: bytes, *, packed: int = 0, size: int = 0, offset: int = 0, extra: bytes = b"") -> bytes:
    fields = (20, 3 << 8 | 20, 0, 0, 0, 0, 0, packed, size, len(name), len(extra), 0, 0, 0, 0, offset)
    return struct.pack("<4sHHHHHHLLLHHHHHLL", b"PK\1\2", *fields) + name + extra


def test_the_rows_of_a_zip_are_counted_before_they_are_read(workspaces: Workspaces) -> None:
    """Each would become an object of half a kilobyte, and what the end says of their number is a lie."""
    archive = zip_of(row(b"./") * 10 * MAX_FILES, count=1)
    tracemalloc.start()

    error = refused(workspaces, archive, "x.zip")

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(error, TooLarge)
    assert f"more than {MAX_FILES} files" in error.message
    assert peak < 3 * len(archive)


# --------------------------------------------------------------------------------------- large, not many


def tar_bomb() -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    zeros = (packer.compress(bytes(1 << 20)) for _ in range(2 * (_ANY_BYTES >> 20)))
    return b"".join([packer.compress(header("bomb", size=4 << 30)), *zeros])


def padding_bomb() -> bytes:
    packer = zlib.compressobj(wbits=31)
    zeros = (packer.compress(bytes(1 << 20)) for _ in range(2 * (_ANY_BYTES >> 20)))
    return b"".join([packer.compress(header("bomb") + bytes(1024)), *zeros, packer.flush()])


def zip_bomb() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(2 * _ANY_BYTES))
    return sink.getvalue()


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (tar_bomb, "x.tar.zst", "'bomb'"),
        (zip_bomb, "x.zip", "'bomb'"),
        (padding_bomb, "x.tgz", "the archive"),
    ],
)
def test_an_archive_that_unpacks_to_hundreds_of_times_its_size_is_a_bomb(
    workspaces: Workspaces, make: Callable[[], bytes], name: str, says: str
) -> None:
    error = refused(workspaces, make(), name)

    assert isinstance(error, TooLarge)
    assert "200 times" in error.message
    assert says in error.message


def test_a_small_archive_of_zeros_is_no_bomb(workspaces: Workspaces) -> None:
    archive = repeated(header("zeros", size=1 << 20) + bytes(1 << 20), 1)

    unpack(workspaces, archive, "x.tar.zst")

    assert (workspaces.folder(SANDBOX) / "zeros").stat().st_size == 1 << 20


def test_an_archive_inside_an_archive_is_a_file(workspaces: Workspaces) -> None:
    inner = tar_bomb()
    archive = repeated(
        header("inner.tar.zst", size=len(inner)) + inner.ljust(-len(inner) % 512 + len(inner), b"\0"), 1
    )

    unpack(workspaces, archive, "x.tar.zst")

    assert (workspaces.folder(SANDBOX) / "inner.tar.zst").read_bytes() == inner


# -------------------------------------------------------------------------------------------------- lies


def stored(name: bytes, content: bytes) -> bytes:
    fields = (20, 0, 0, 0, 0, zlib.crc32(content), len(content), len(content), len(name), 0)
    return struct.pack("<4sHHHHHLLLHH", b"PK\3\4", *fields) + name + content


def test_members_of_a_zip_that_share_bytes_are_refused(workspaces: Workspaces) -> None:
    """Two rows for one content, and a content that quotes the next member: how small zips hold petabytes."""
    one = stored(b"a", b"content")
    twice = zip_of(row(b"a", packed=7, size=7) + row(b"b", packed=7, size=7), count=2, start=one)
    quoting = stored(b"q", one)
    rows = row(b"q", packed=len(one), size=len(one)) + row(b"a", packed=7, size=7, offset=31)
    behind = zip_of(row(b"a", packed=7000, size=7000), count=1, start=one)

    for archive, named in ((twice, "'a'"), (zip_of(rows, count=2, start=quoting), "'q'"), (behind, "'a'")):
        error = refused(workspaces, archive, "x.zip")
        assert isinstance(error, Invalid)
        assert "overlaps" in error.message
        assert named in error.message


def test_a_zip_that_lies_in_64_bits_is_refused(workspaces: Workspaces) -> None:
    one = stored(b"a", b"content")
    huge = struct.pack("<HHQQ", 1, 16, 1 << 60, 1 << 60)
    sizes = zip_of(row(b"a", packed=0xFFFFFFFF, size=0xFFFFFFFF, extra=huge), count=1, start=one)
    table = row(b"a", packed=7, size=7)
    end = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1 << 40, 1 << 40, 1 << 50, len(one))
    where = struct.pack("<4sLQL", b"PK\6\7", 0, len(one) + len(table), 1)
    last = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)

    for archive in (sizes, one + table + end + where + last):
        assert isinstance(refused(workspaces, archive, "x.zip"), Invalid | TooLarge)


def test_names_that_differ_only_in_case_or_spelling_are_different_files(workspaces: Workspaces) -> None:
    names = ["a", "A", "\u00e9", "e\u0301", "\ufb01", "fi"]
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))

    unpack(workspaces, sink.getvalue(), "x.tar")

    assert {path.name for path in workspaces.folder(SANDBOX).iterdir()} == set(names)


# ------------------------------------------------------------------------------------- nobody waits for it


def test_unpacking_is_given_up_when_it_is_called_off(workspaces: Workspaces) -> None:
    for archive, name in ((repeated(header("a"), 3), "x.tar.zst"), (zip_of(row(b"a"), count=1), "x.zip")):
        with workspaces.receive(SANDBOX, None) as intake:
            staged = intake.file(name)
            staged.write(archive)
            intake.call_off()
            with pytest.raises(Unavailable, match="given up"):
                intake.extract(staged, name)
            with pytest.raises(Invalid, match="none of it was written"):
                intake.commit()
        assert left(workspaces) == []


def test_unpacking_is_given_up_when_the_server_ends(workspaces: Workspaces) -> None:
    workspaces.stop()

    with pytest.raises(Unavailable, match="stopping"):
        unpack(workspaces, repeated(header("a"), 3), "x.tar.zst")

    root = workspaces.folder(SANDBOX).parent
    assert {path.parent.name for path in left(workspaces)} == {".trash"}, "which the next start empties"
    assert Workspaces(root, Bounds(1, 1)).empty_trash(within_s=60)
    assert left(workspaces) == []


def test_a_large_member_is_given_up_in_the_middle(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called off by the first byte it writes: the rest of the member is not unpacked."""
    with workspaces.receive(SANDBOX, None) as intake:
        staged = intake.file("x.tar")
        staged.write(header("big", size=8 << 20) + bytes(8 << 20) + bytes(1024))
        written = 0

        def write(_: object, data: bytes) -> None:
            nonlocal written
            written += len(data)
            intake.call_off()

        monkeypatch.setattr(type(staged), "write", write)
        with pytest.raises(Unavailable):
            intake.extract(staged, "x.tar")
    assert 0 < written < 1 << 20
