"""Reading, looking and listing in a workspace that hostile code has prepared."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from petri.errors import Conflict, Invalid, NotFound, PetriError, Unavailable
from petri.workspace import (
    Bounds,
    Entry,
    Errand,
    Workspaces,
    kernel,
    listing,
    walk,
)
from petri.workspace.beneath import trusted

SANDBOX = "sb-one"
LONG_NAME = "d" * 40


@pytest.fixture(params=["openat2", "by parts"], autouse=True)
def resolver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every promise holds on kernels without openat2 too, except that links are then not followed."""
    if request.param == "by parts":
        monkeypatch.setattr(kernel, "has_openat2", lambda: False)
    return str(request.param)


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    made = Workspaces(tmp_path / "root", Bounds(max_upload_bytes=1 << 20, max_files=100))
    made.create(SANDBOX, None)
    return made


@pytest.fixture
def folder(workspaces: Workspaces) -> Path:
    return workspaces.folder(SANDBOX)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    outside = tmp_path / "secret"
    outside.write_text("canary")
    return outside


def read(workspaces: Workspaces, path: str) -> bytes:
    with workspaces.open(SANDBOX, path) as file:
        return file.read(0, file.size)


def test_a_file_is_read_with_its_size_digest_mode_and_time(workspaces: Workspaces, folder: Path) -> None:
    (folder / "tool.sh").write_bytes(b"echo hi")
    (folder / "tool.sh").chmod(0o750)

    with workspaces.open(SANDBOX, "tool.sh") as file:
        assert (file.size, file.mode) == (7, 0o750)
        assert file.version.digest == blake3(b"echo hi").hexdigest()
        assert file.modified_at == (folder / "tool.sh").stat().st_mtime
        assert file.read(5, 100) == b"hi"
        assert file.read(100, 1) == b""


def test_an_open_file_is_the_one_that_was_opened(workspaces: Workspaces, folder: Path) -> None:
    (folder / "a").write_text("first")
    with workspaces.open(SANDBOX, "a") as file:
        (folder / "b").write_text("second")
        (folder / "b").rename(folder / "a")

        assert file.read(0, 10) == b"first"


def test_a_link_that_stays_inside_is_followed(workspaces: Workspaces, folder: Path, resolver: str) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "a").write_text("here")
    (folder / "real" / "up").symlink_to("../real")
    (folder / "alias").symlink_to("real/up/a")

    if resolver == "openat2":
        assert read(workspaces, "alias") == b"here"
        assert read(workspaces, "real/up/a") == b"here"
        assert workspaces.resolve_file(SANDBOX, "./alias") == "alias"
        assert workspaces.resolve_folder(SANDBOX, "real/up/") == "real/up"
        assert [entry.path for entry in listed(workspaces, "real/up")] == ["real/up/a", "real/up/up"]
    else:
        for path in ("alias", "real/up/a"):
            with pytest.raises(Invalid):
                read(workspaces, path)


@pytest.mark.parametrize(
    "target", ["{outside}/secret", "../../secret", "loop", "/proc/self/root{outside}/secret"]
)
def test_a_link_that_leaves_or_circles_is_refused(
    workspaces: Workspaces, folder: Path, secret: Path, target: str
) -> None:
    (folder / "loop").symlink_to(target.format(outside=secret.parent))

    for ask in (workspaces.open, workspaces.resolve_file, workspaces.resolve_folder):
        with pytest.raises(Invalid, match="link"):
            ask(SANDBOX, "loop")


def test_a_folder_link_that_leaves_is_refused_for_everything(
    workspaces: Workspaces, folder: Path, secret: Path
) -> None:
    (folder / "out").symlink_to(secret.parent)

    with pytest.raises(Invalid):
        read(workspaces, "out/secret")
    with pytest.raises(Invalid):
        workspaces.entry(SANDBOX, "out/secret")
    with pytest.raises(Invalid):
        workspaces.list(SANDBOX, "out", recursive=True, limit=10)
    with pytest.raises(Invalid):
        workspaces.archive(SANDBOX, "out", "tar")
    with pytest.raises(Invalid):
        workspaces.delete(SANDBOX, "out/secret", if_match=None)
    assert secret.read_text() == "canary"


def test_what_is_not_a_regular_file_never_holds_the_reader(workspaces: Workspaces, folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        # A socket's path has 108 bytes at most, and pytest's folders are longer.
        here = os.open(folder, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    begun = time.monotonic()

    for path in ("fifo", "socket"):
        with pytest.raises(Conflict, match="regular file"):
            workspaces.open(SANDBOX, path)
        with pytest.raises(Conflict, match="regular file"):
            workspaces.resolve_file(SANDBOX, path)
        assert workspaces.entry(SANDBOX, path).kind == "other"
    assert time.monotonic() - begun < 1


def test_a_folder_is_not_read_but_the_answer_says_how_to_get_it(workspaces: Workspaces, folder: Path) -> None:
    (folder / "pkg").mkdir()

    with pytest.raises(Conflict, match=r"'pkg' is a folder; download it with \?archive=tar.zst or list it"):
        workspaces.open(SANDBOX, "pkg")
    with pytest.raises(Conflict):
        workspaces.resolve_file(SANDBOX, "pkg")
    assert workspaces.resolve_folder(SANDBOX, "") == ""


def test_what_is_not_there_is_not_found(workspaces: Workspaces, folder: Path) -> None:
    (folder / "file").touch()

    for path in ("nothing", "nothing/below", "file/below"):
        for ask in (workspaces.open, workspaces.entry, workspaces.resolve_file, workspaces.resolve_folder):
            with pytest.raises(NotFound):
                ask(SANDBOX, path)
    for sandbox in ("sb-none", "../sb-one", ".trash", "", "sb-one/", "SB"):
        with pytest.raises(NotFound):
            workspaces.open(sandbox, "file")


def test_no_message_tells_where_the_workspaces_are(
    workspaces: Workspaces, folder: Path, tmp_path: Path
) -> None:
    (folder / "out").symlink_to(tmp_path)
    (folder / "closed").mkdir(mode=0)

    for path in ("out", "out/x", "none", "/abs", "a\0", "closed/x", "x" * 300):
        with pytest.raises(PetriError) as refused:
            workspaces.open(SANDBOX, path)
        assert str(tmp_path) not in refused.value.message
        assert str(tmp_path) not in refused.value.detail
    (folder / "closed").chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads whatever the mode says")
def test_a_file_closed_by_its_mode_is_a_conflict(workspaces: Workspaces, folder: Path) -> None:
    (folder / "closed").touch(mode=0)

    with pytest.raises(Conflict, match="permissions"):
        workspaces.open(SANDBOX, "closed")


def test_names_that_are_not_utf8_are_listed_and_read(workspaces: Workspaces, folder: Path) -> None:
    with (folder / os.fsdecode(b"caf\xe9\n")).open("w") as file:
        file.write("odd")

    [entry] = listed(workspaces, "")
    assert os.fsencode(entry.path) == b"caf\xe9\n"
    assert read(workspaces, entry.path) == b"odd"


def test_an_entry_tells_what_is_there_without_following(workspaces: Workspaces, folder: Path) -> None:
    (folder / "d").mkdir(mode=0o750)
    (folder / "f").write_text("12345")
    (folder / "l").symlink_to("/etc/passwd")

    kinds = {entry.path: (entry.kind, entry.target) for entry in listed(workspaces, "")}
    assert kinds == {"d": ("folder", None), "f": ("file", None), "l": ("link", "/etc/passwd")}
    assert workspaces.entry(SANDBOX, "f").size == 5
    assert workspaces.entry(SANDBOX, "d").mode == 0o750
    assert workspaces.entry(SANDBOX, "l").target == "/etc/passwd"
    assert workspaces.entry(SANDBOX, "").kind == "folder"


def test_a_recursive_listing_is_sorted_and_enters_no_link(
    workspaces: Workspaces, folder: Path, secret: Path
) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "deep").touch()
    (folder / "a-b").touch()
    (folder / "again").symlink_to("a")
    (folder / "out").symlink_to(secret.parent)

    paths = [entry.path for entry in listed(workspaces, "")]
    assert paths == ["a", "a-b", "a/b", "a/b/deep", "again", "out"]
    assert paths == sorted(paths)
    flat = workspaces.list(SANDBOX, "./a/", recursive=False, limit=10)
    assert (flat.path, [entry.path for entry in flat.entries]) == ("a", ["a/b"])


def test_a_listing_stops_at_its_limit_and_says_so(workspaces: Workspaces, folder: Path) -> None:
    for number in range(5):
        (folder / str(number)).touch()

    cut = workspaces.list(SANDBOX, "", recursive=False, limit=3)
    whole = workspaces.list(SANDBOX, "", recursive=False, limit=5)

    assert ([entry.path for entry in cut.entries], cut.truncated) == (["0", "1", "2"], True)
    assert (len(whole.entries), whole.truncated) == (5, False)


def test_a_folder_larger_than_a_batch_is_listed_whole_and_in_order(
    workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.workspace.walk._BATCH", 7)
    for number in range(50):
        (folder / f"{number:02}").touch()

    assert [entry.path for entry in listed(workspaces, "")] == [f"{number:02}" for number in range(50)]


def test_a_listing_of_endless_depth_ends_and_says_there_is_more(workspaces: Workspaces, deep: int) -> None:
    begun = time.monotonic()
    listing = workspaces.list(SANDBOX, "", recursive=True, limit=100_000)

    assert listing.truncated
    assert len(listing.entries) == 4096 // (len(LONG_NAME) + 1) < deep
    assert all(len(entry.path) < 4096 for entry in listing.entries)
    assert time.monotonic() - begun < 5


@pytest.fixture
def deep(workspaces: Workspaces, folder: Path) -> Iterator[int]:
    levels = 300
    dig(folder, levels)
    yield levels
    workspaces.remove(SANDBOX)  # pytest's own rmtree would recurse


def dig(folder: Path, levels: int) -> None:
    """Make a chain of folders deeper than any path can name."""
    fd = os.open(folder, os.O_PATH)
    for _ in range(levels):
        os.mkdir(LONG_NAME, dir_fd=fd)
        inner = os.open(LONG_NAME, os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


def test_a_listing_is_bounded_by_the_length_of_its_paths_too(
    workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_NAMES_BYTES", 1000)
    for number in range(20):
        (folder / f"{number:0>200}").touch()

    listed = workspaces.list(SANDBOX, "", recursive=False, limit=1000)

    assert (len(listed.entries), listed.truncated) == (6, True)


def test_listing_is_given_up_when_nobody_waits_for_it(workspaces: Workspaces, folder: Path) -> None:
    (folder / "a").touch()
    errand = workspaces.errand()
    errand.call_off()

    with pytest.raises(Unavailable):
        workspaces.list(SANDBOX, "", recursive=True, limit=10, errand=errand)
    with pytest.raises(Unavailable):
        workspaces.archive(SANDBOX, "", "tar", errand)


@pytest.mark.parametrize("in_order", [True, False])
def test_more_folders_than_are_remembered_at_once_are_walked_all_the_same(
    workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch, *, in_order: bool
) -> None:
    expected = set()
    for outer in range(10):
        for inner in range(7):
            (folder / f"{outer}/{inner}").mkdir(parents=True)
            (folder / f"{outer}/{inner}/file").touch()
            expected |= {f"{outer}", f"{outer}/{inner}", f"{outer}/{inner}/file"}
    monkeypatch.setattr(walk, "_BATCH", 3)

    with trusted(folder) as top:
        found = [each.path for each in walk.walk(top, recursive=True, in_order=in_order)]

    assert set(found) == expected
    assert len(found) == len(expected)


def test_reading_leaves_no_descriptor_open(workspaces: Workspaces, folder: Path) -> None:
    (folder / "a").touch()
    os.mkfifo(folder / "fifo")
    before = len(list(Path("/proc/self/fd").iterdir()))

    for path in ("a", "fifo", "none", "a/b", ""):
        for ask in (workspaces.entry, workspaces.resolve_file, workspaces.resolve_folder, workspaces.open):
            try:
                answer = ask(SANDBOX, path)
            except PetriError:
                continue
            if hasattr(answer, "close"):
                answer.close()
    next(workspaces.archive(SANDBOX, "", "tar"))
    workspaces.archive(SANDBOX, "", "zip")

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def listed(workspaces: Workspaces, path: str) -> tuple[Entry, ...]:
    return workspaces.list(SANDBOX, path, recursive=True, limit=1000).entries


def errand() -> Errand:
    return Errand(threading.Event())
