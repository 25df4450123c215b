"""Archives from strangers: unpacked whole and inside, or refused by name with nothing written."""

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from petri.errors import Invalid, PetriError
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
