"""Folders as archives: readable by ordinary tools, whatever happens in the folder meanwhile."""

import io
import os
import stat
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from petri.errors import Conflict, Invalid, NotFound, TooLarge
from petri.workspace import ArchiveKind, Bounds, Workspaces, zipping
from petri.workspace.packing import Packed

SANDBOX = "sb-one"
TARS: list[ArchiveKind] = ["tar", "tar.gz", "tar.zst"]
KINDS: list[ArchiveKind] = [*TARS, "zip"]


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    made = Workspaces(tmp_path / "root", Bounds(max_upload_bytes=1 << 24, max_files=100))
    made.create(SANDBOX, None)
    return made


@pytest.fixture
def folder(workspaces: Workspaces) -> Path:
    top = workspaces.folder(SANDBOX)
    (top / "pkg/empty").mkdir(parents=True)
    (top / "pkg/main.py").write_bytes(b"print(1)\n" * 1000)
    (top / "pkg/run").write_bytes(os.urandom(300_000))
    (top / "pkg/run").chmod(0o755)
    os.utime(top / "pkg/run", (1_000_000_000, 1_000_000_000))
    (top / "pkg/again").symlink_to("main.py")
    (top / "pkg/out").symlink_to("/etc/passwd")
    os.mkfifo(top / "pkg/fifo")
    (top / "pkg/größe").touch()
    return top


def packed(workspaces: Workspaces, kind: ArchiveKind, path: str = "") -> bytes:
    return b"".join(workspaces.archive(SANDBOX, path, kind))


def opened(archive: bytes, kind: ArchiveKind) -> tarfile.TarFile:
    if kind == "tar.zst":
        archive = zstandard.ZstdDecompressor().stream_reader(archive).read()
    return tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz" if kind == "tar.gz" else "r:")


@pytest.mark.parametrize("kind", TARS)
def test_a_tar_holds_files_folders_links_exec_bits_and_times(
    workspaces: Workspaces, folder: Path, kind: ArchiveKind
) -> None:
    archive = opened(packed(workspaces, kind, "pkg"), kind)
    members = {member.name: member for member in archive}

    assert sorted(members) == ["again", "empty", "größe", "main.py", "out", "run"]
    assert members["empty"].isdir()
    assert (members["again"].issym(), members["again"].linkname) == (True, "main.py")
    assert members["out"].linkname == "/etc/passwd"
    assert (members["run"].mode, members["run"].mtime) == (0o755, 1_000_000_000)
    content = archive.extractfile("run")
    assert content is not None
    assert content.read() == (folder / "pkg/run").read_bytes()


def test_a_zip_holds_files_folders_links_exec_bits_and_times(workspaces: Workspaces, folder: Path) -> None:
    archive = zipfile.ZipFile(io.BytesIO(packed(workspaces, "zip", "pkg")))

    assert archive.testzip() is None
    assert sorted(archive.namelist()) == ["again", "empty/", "größe", "main.py", "out", "run"]
    assert archive.read("run") == (folder / "pkg/run").read_bytes()
    assert archive.read("again") == b"main.py"
    assert stat.S_ISLNK(archive.getinfo("again").external_attr >> 16)
    assert archive.getinfo("run").external_attr >> 16 == stat.S_IFREG | 0o755
    assert archive.getinfo("run").date_time == (2001, 9, 9, 1, 46, 40)
    assert archive.getinfo("main.py").compress_size < 500


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_archived_can_be_sent_back(workspaces: Workspaces, folder: Path, kind: ArchiveKind) -> None:
    (folder / "pkg/out").unlink()
    archive = packed(workspaces, kind)
    workspaces.create("sb-two", None)
    with workspaces.receive("sb-two", None) as intake:
        staged = intake.file(f"x.{kind}")
        staged.write(archive)
        intake.extract(staged, f"x.{kind}")
        intake.commit()

    copy = workspaces.folder("sb-two")
    assert (copy / "pkg/run").read_bytes() == (folder / "pkg/run").read_bytes()
    assert (copy / "pkg/run").stat().st_mode == (folder / "pkg/run").stat().st_mode
    assert (copy / "pkg/empty").is_dir()
    assert (copy / "pkg/again").readlink() == Path("main.py")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 100_000, 900_000])
def test_a_file_that_changes_size_while_it_is_read_does_not_corrupt_the_archive(
    workspaces: Workspaces, kind: ArchiveKind, size: int
) -> None:
    top = workspaces.folder(SANDBOX)
    content = os.urandom(600_000)
    (top / "a").write_bytes(content)
    (top / "z").write_bytes(b"follows")
    pieces = workspaces.archive(SANDBOX, "", kind)
    first = next(pieces)
    os.truncate(top / "a", size)  # its header is out by now

    archive = first + b"".join(pieces)

    if kind == "zip":
        zipped = zipfile.ZipFile(io.BytesIO(archive))
        assert zipped.testzip() is None
        found, after = zipped.read("a"), zipped.read("z")
    else:
        tar = opened(archive, kind)
        found, after = (tar.extractfile(name).read() for name in ("a", "z"))  # type: ignore[union-attr]
    assert after == b"follows"
    assert len(found) == len(content)
    assert found[: min(size, 200_000)] == content[: min(size, 200_000)]
    # Filled up with zeros, and nothing else.
    assert content.startswith(found.rstrip(b"\0"))


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_any_bytes_do_not_break_an_archive(workspaces: Workspaces, kind: ArchiveKind) -> None:
    top = workspaces.folder(SANDBOX)
    (top / os.fsdecode(b"caf\xe9\n")).write_text("odd")
    (top / ("n" * 255)).mkdir()
    (top / ("n" * 255) / ("m" * 255)).write_text("long")
    (top / "link").symlink_to(os.fsdecode(b"\xff"))
    archive = packed(workspaces, kind)

    if kind == "zip":
        zipped = zipfile.ZipFile(io.BytesIO(archive))
        assert zipped.testzip() is None
        assert zipped.read("caf\ufffd\n") == b"odd"
        assert zipped.read("n" * 255 + "/" + "m" * 255) == b"long"
    else:
        names = {os.fsencode(member.name): member for member in opened(archive, kind)}
        assert b"caf\xe9\n" in names
        assert b"n" * 255 + b"/" + b"m" * 255 in names
        assert os.fsencode(names[b"link"].linkname) == b"\xff"


@pytest.mark.parametrize("kind", KINDS)
def test_times_no_archive_can_hold_do_not_break_it(workspaces: Workspaces, kind: ArchiveKind) -> None:
    for name, seconds in (("old", -1_000_000), ("new", 5_000_000_000)):
        (workspaces.folder(SANDBOX) / name).write_text(name)
        os.utime(workspaces.folder(SANDBOX) / name, (seconds, seconds))
    archive = packed(workspaces, kind)

    if kind == "zip":
        assert zipfile.ZipFile(io.BytesIO(archive)).testzip() is None
    else:
        assert {member.mtime for member in opened(archive, kind)} == {-1_000_000, 5_000_000_000}


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_workspace_is_an_empty_archive(workspaces: Workspaces, kind: ArchiveKind) -> None:
    archive = packed(workspaces, kind)

    if kind == "zip":
        assert zipfile.ZipFile(io.BytesIO(archive)).namelist() == []
    else:
        assert opened(archive, kind).getnames() == []


def test_what_cannot_be_archived_is_refused_before_the_first_byte(
    workspaces: Workspaces, folder: Path
) -> None:
    with pytest.raises(NotFound):
        workspaces.archive(SANDBOX, "none", "tar")
    with pytest.raises(Conflict, match="not a folder"):
        workspaces.archive(SANDBOX, "pkg/main.py", "tar")
    with pytest.raises(Invalid):
        workspaces.archive(SANDBOX, "..", "tar")
    unknown: Any = "rar"
    with pytest.raises(Invalid, match=r"one of tar, tar\.gz, tar\.zst, zip"):
        workspaces.archive(SANDBOX, "", unknown)


def test_a_tree_deeper_than_any_path_is_archived_as_far_as_paths_go(workspaces: Workspaces) -> None:
    fd = os.open(workspaces.folder(SANDBOX), os.O_PATH)
    for _ in range(300):
        os.mkdir("d" * 40, dir_fd=fd)
        inner = os.open("d" * 40, os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)

    names = opened(packed(workspaces, "tar"), "tar").getnames()
    workspaces.remove(SANDBOX)

    assert len(names) in (99, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_more_holes_than_may_be_sent_as_zeros_are_refused_by_name(
    workspaces: Workspaces, kind: ArchiveKind
) -> None:
    for name in ("one", "two"):
        (workspaces.folder(SANDBOX) / "d").mkdir(exist_ok=True)
        make_sparse(workspaces.folder(SANDBOX) / "d" / name, 10 << 20)

    with pytest.raises(TooLarge, match=r"'d/(one|two)' has holes of 10485760 bytes"):
        workspaces.archive(SANDBOX, "", kind)

    (workspaces.folder(SANDBOX) / "d/one").unlink()
    assert packed(workspaces, kind) != b""


def test_a_file_that_gets_holes_while_it_is_archived_is_left_out(workspaces: Workspaces) -> None:
    top = workspaces.folder(SANDBOX)
    (top / "a").write_bytes(os.urandom(1 << 20))
    (top / "b").touch()
    (top / "c").write_text("follows")
    pieces = workspaces.archive(SANDBOX, "", "tar")
    first = next(pieces)

    make_sparse(top / "b", 64 << 20)

    assert opened(first + b"".join(pieces), "tar").getnames() == ["a", "c"]


def make_sparse(path: Path, size: int) -> None:
    path.touch()
    os.truncate(path, size)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_terabyte_comes_in_small_pieces_and_each_of_them_soon(
    tmp_path: Path, kind: ArchiveKind
) -> None:
    workspaces = Workspaces(tmp_path / "root", Bounds(max_upload_bytes=1 << 41, max_files=100))
    workspaces.create(SANDBOX, None)
    make_sparse(workspaces.folder(SANDBOX) / "huge", 1 << 40)
    pieces = workspaces.archive(SANDBOX, "", kind)
    begun = time.monotonic()

    assert all(0 < len(next(pieces)) < 1 << 20 for _ in range(2))
    assert time.monotonic() - begun < 5


def test_a_zip_of_more_than_four_gigabytes_says_so_in_64_bits() -> None:
    """The body is left out: the headers are what differs, and four gigabytes take a minute."""
    seen = os.stat_result((stat.S_IFREG | 0o644, 0, 0, 0, 0, 0, 5 << 30, 0, 0, 0))
    record = zipping._Record(Packed("big", seen), 6 << 30)
    record._size, record._packed = 5 << 30, 5 << 30
    row = record.row()

    sink = io.BytesIO(row + zipping._end(1, len(row), 0))
    [info] = zipfile.ZipFile(sink).infolist()

    assert (info.file_size, info.compress_size, info.header_offset) == (5 << 30, 5 << 30, 6 << 30)
    assert record._head()[18:26] == b"\xff" * 8
