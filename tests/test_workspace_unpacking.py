"""Archives from strangers: unpacked whole and inside, or refused by name with nothing written."""

import gzip
import io
import os
import random
import stat
import struct
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from petri.errors import Invalid, PetriError, TooLarge
from petri.workspace import Bounds, Workspaces, Written

SANDBOX = "sb-one"
MAX_BYTES, MAX_FILES = 1 << 20, 50


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    made = Workspaces(tmp_path / "root", Bounds(MAX_BYTES, MAX_FILES))
    made.create(SANDBOX, None)
    return made


@pytest.fixture
def folder(workspaces: Workspaces) -> Path:
    return workspaces.folder(SANDBOX)


def unpack(workspaces: Workspaces, archive: bytes, name: str, into: str = "") -> list[Written]:
    with workspaces.receive(SANDBOX, None) as intake:
        staged = intake.file(name)
        staged.write(archive)
        staged.close()
        intake.extract(staged, name, into)
        return intake.commit()


def refused(workspaces: Workspaces, archive: bytes, name: str = "x.tar") -> PetriError:
    """Return how `archive` is refused; whatever it is, nothing of it may be left."""
    with pytest.raises(PetriError) as caught:
        unpack(workspaces, archive, name)
    root = workspaces.folder(SANDBOX).parent
    assert {path.name for path in root.iterdir()} == {SANDBOX, ".indexes", ".staging", ".trash"}
    assert [path for place in root.iterdir() for path in place.iterdir()] == []
    assert {path.name for path in root.parent.iterdir()} == {"root"}
    return caught.value


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def tar(*members: tarfile.TarInfo | tuple[str, bytes], **options: object) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", **options) as archive:  # type: ignore[call-overload]
        for info in members:
            if isinstance(info, tuple):
                archive.addfile(member(info[0], size=len(info[1])), io.BytesIO(info[1]))
            else:
                archive.addfile(info, io.BytesIO(bytes(info.size)) if info.isreg() else None)
    return sink.getvalue()


def zipped(*members: tuple[zipfile.ZipInfo | str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for info, content in members:
            archive.writestr(info, content)
    return sink.getvalue()


def zip_member(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def sample_tar() -> bytes:
    return tar(
        member("./", type=tarfile.DIRTYPE),
        member("pkg/", type=tarfile.DIRTYPE),
        member("pkg/empty", type=tarfile.DIRTYPE),
        ("pkg/main.py", b"print(1)"),
        member("pkg/run", mode=0o4755),
        member("pkg/again", type=tarfile.SYMTYPE, linkname="../pkg/main.py"),
        member("pkg/twin", type=tarfile.LNKTYPE, linkname="pkg/main.py"),
        ("a" * 120 + "/" + "ü" * 90, b"long name"),
    )


def sample_zip() -> bytes:
    return zipped(
        ("pkg/", b""),
        ("pkg/empty/", b""),
        ("pkg/main.py", b"print(1)"),
        (zip_member("pkg/run", stat.S_IFREG | 0o4755), b""),
        (zip_member("pkg/again", stat.S_IFLNK | 0o777), b"../pkg/main.py"),
        ("pkg/twin", b"print(1)"),
        ("a" * 120 + "/" + "ü" * 90, b"long name"),
    )


KINDS: dict[str, Callable[[], bytes]] = {
    "x.tar": sample_tar,
    "x.tar.gz": lambda: gzip.compress(sample_tar()),
    "x.tgz": lambda: gzip.compress(sample_tar()[:1000]) + gzip.compress(sample_tar()[1000:]) + bytes(100),
    "x.tar.zst": lambda: zstandard.compress(sample_tar()),
    "x.zip": sample_zip,
    "misnamed.bin": sample_zip,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_unpacked_with_exec_bits_links_and_empty_folders(
    workspaces: Workspaces, folder: Path, name: str
) -> None:
    written = unpack(workspaces, KINDS[name](), name, into="deep/in")

    top = folder / "deep/in"
    assert (top / "pkg/main.py").read_text() == "print(1)"
    assert stat.S_IMODE((top / "pkg/run").stat().st_mode) == 0o755
    assert (top / "pkg/empty").is_dir()
    assert (top / "pkg/again").readlink() == Path("../pkg/main.py")
    assert (top / "pkg/twin").read_text() == "print(1)"
    assert (top / ("a" * 120) / ("ü" * 90)).read_text() == "long name"
    assert {file.path for file in written} >= {"deep/in/pkg/main.py", "deep/in/pkg/twin"}
    assert not list(folder.rglob(name))


@pytest.mark.parametrize("version", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar_is_read(workspaces: Workspaces, folder: Path, version: int) -> None:
    path = "d" * 90 + "/" + "e" * 90
    unpack(workspaces, tar((path, b"x"), ("short", b"y"), format=version), "x.tar")

    assert (folder / path).read_text() == "x"
    assert (folder / "short").read_text() == "y"


def test_of_a_name_twice_in_an_archive_the_last_counts(workspaces: Workspaces, folder: Path) -> None:
    unpack(workspaces, tar(("a", b"1"), ("./a", b"2")), "x.tar")

    assert (folder / "a").read_text() == "2"


def test_an_archive_counts_by_what_is_in_it_and_not_twice(workspaces: Workspaces, folder: Path) -> None:
    unpack(workspaces, tar(("a", bytes(MAX_BYTES - 20_000))), "x.tar")

    assert (folder / "a").stat().st_size == MAX_BYTES - 20_000


def test_what_is_no_archive_is_told_what_would_be_one(workspaces: Workspaces) -> None:
    for content, name in ((b"hello", "x.txt"), (b"", "x"), (b"BZh91AY&SY", "x.tar.bz2"), (b"", "x.zip")):
        error = refused(workspaces, content, name)
        assert isinstance(error, Invalid)
        assert ".zip, .tar, .tar.gz, .tgz or .tar.zst" in error.message


BAD_NAMES = [
    "../x",
    "/abs",
    "a/../../x",
    "C:\\x",
    "c:/x",
    "\\x",
    "..\\x",
    "a\nb",
    "\x1b[2J",
    "x" * 256,
    "d/" * 2100,
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_member_with_a_bad_name_is_refused_by_name(workspaces: Workspaces, name: str) -> None:
    for archive, kind in (
        (tar(("fine", b"1"), (name, b"2")), "x.tar"),
        (tar(("fine", b"1"), member(name + "/", type=tarfile.DIRTYPE)), "x.tar"),
        (tar(("fine", b"1"), member(name, type=tarfile.SYMTYPE, linkname="fine")), "x.tar"),
        (zipped(("fine", b"1"), (name, b"2")), "x.zip"),
    ):
        error = refused(workspaces, archive, kind)
        assert isinstance(error, Invalid)
        assert repr(name)[1:20].rstrip("'") in error.message


def test_a_name_with_a_nul_is_refused_and_not_cut(workspaces: Workspaces) -> None:
    archive = zipped(("aXb", b"1")).replace(b"aXb", b"a\0b")
    long_name = tar(("n" * 200, b"1"), format=tarfile.PAX_FORMAT).replace(b"nnn\n", b"n\0n\n")

    assert "NUL" in refused(workspaces, archive, "x.zip").message
    assert "NUL" in refused(workspaces, long_name).message


@pytest.mark.parametrize(
    "bad",
    [
        [member("l", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
        [member("l", type=tarfile.SYMTYPE, linkname="../x")],
        [member("d/l", type=tarfile.SYMTYPE, linkname="../../x")],
        [member("l", type=tarfile.SYMTYPE, linkname="")],
        [member("l", type=tarfile.SYMTYPE, linkname="fine"), member("l/x")],
        [member("l", type=tarfile.SYMTYPE, linkname="."), member("l/l", type=tarfile.SYMTYPE, linkname="..")],
        [member("l", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [member("l", type=tarfile.LNKTYPE, linkname="not in here")],
        [member("l", type=tarfile.LNKTYPE, linkname="../x")],
        [member("s", type=tarfile.SYMTYPE, linkname="fine"), member("l", type=tarfile.LNKTYPE, linkname="s")],
        [member("l", type=tarfile.FIFOTYPE)],
        [member("l", type=tarfile.CHRTYPE, devmajor=1, devminor=8)],
        [member("l", type=tarfile.BLKTYPE)],
        [member("l", type=tarfile.GNUTYPE_SPARSE)],
        [member("l", type=b"Z")],
        [member(".")],
        [member("f"), member("f/below")],
    ],
)
def test_links_out_devices_and_contradictions_are_refused(
    workspaces: Workspaces, bad: list[tarfile.TarInfo]
) -> None:
    assert isinstance(refused(workspaces, tar(("fine", b"1"), *bad)), Invalid)


@pytest.mark.parametrize(
    ("mode", "content"),
    [
        (stat.S_IFLNK, b"/etc/passwd"),
        (stat.S_IFLNK, b"../x"),
        (stat.S_IFLNK, b"x" * 5000),
        (stat.S_IFIFO, b""),
        (stat.S_IFCHR, b""),
        (stat.S_IFSOCK, b""),
    ],
)
def test_links_out_and_devices_in_a_zip_are_refused(
    workspaces: Workspaces, mode: int, content: bytes
) -> None:
    assert isinstance(refused(workspaces, zipped((zip_member("l", mode | 0o777), content)), "x.zip"), Invalid)


def test_an_existing_link_out_does_not_lead_members_out(
    workspaces: Workspaces, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "d").symlink_to(outside)

    with pytest.raises(Invalid):
        unpack(workspaces, tar(("a", b"1"), ("d/x", b"2")), "x.tar")

    assert list(outside.iterdir()) == []
    assert [path.name for path in folder.iterdir()] == ["d"]


def test_encrypted_and_oddly_compressed_zips_are_refused(workspaces: Workspaces) -> None:
    plain = zipped(("a", b"secret"))
    # Bit 0 of the flags, in the local header and in the table of contents.
    encrypted = bytearray(plain)
    encrypted[6] |= 1
    encrypted[plain.index(b"PK\x01\x02") + 8] |= 1

    assert "encrypted" in refused(workspaces, bytes(encrypted), "x.zip").message
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        assert "deflated" in refused(workspaces, zipped(("a", b"1"), method=method), "x.zip").message


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
