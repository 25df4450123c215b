"""The code in the sandbox swaps a folder for a link that leaves, thousands of times a second."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from petri.errors import PetriError
from petri.workspace import ArchiveKind, Bounds, Workspaces, kernel, packing
from petri.workspace.walk import walk

SANDBOX = "sb-one"
RACE_S = 1.0
MOST_S = 60.0
"""On a busy machine it takes longer until each attempt has met both fortunes."""
CANARY = b"canary from outside"


@pytest.fixture(params=["openat2", "by parts"], autouse=True)
def resolver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by parts":
        monkeypatch.setattr(kernel, "has_openat2", lambda: False)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the host that looks just like the one in the workspace."""
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    for name in ("read", "doomed", "sub/read"):
        (folder / name).write_bytes(CANARY)
    return folder


@pytest.fixture
def workspaces(tmp_path: Path, outside: Path) -> Workspaces:
    made = Workspaces(tmp_path / "root", Bounds(max_upload_bytes=1 << 20, max_files=100))
    made.create(SANDBOX, None)
    folder = made.folder(SANDBOX)
    (folder / "real/sub").mkdir(parents=True)
    for name in ("read", "sub/read"):
        (folder / "real" / name).write_bytes(b"inside")
    (folder / "swapped").symlink_to(outside)
    (folder / "file").write_bytes(b"inside")
    (folder / "link").symlink_to(outside / "read")
    return made


@contextmanager
def swapping(folder: Path) -> Iterator[list[int]]:
    """Exchange folder and link, and file and link, without pause; yields how often that was done."""
    top = os.open(folder, os.O_PATH)
    stop = threading.Event()
    swaps = [0]

    def swap() -> None:
        while not stop.is_set():
            kernel.rename(top, "real", top, "swapped", kernel.RENAME_EXCHANGE)
            kernel.rename(top, "file", top, "link", kernel.RENAME_EXCHANGE)
            swaps[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield swaps
    finally:
        stop.set()
        thread.join()
        os.close(top)


def _has_seen_all(tried: dict[str, list[int]]) -> bool:
    return bool(tried) and all(
        succeeded and (refused or name == "archive all") for name, (succeeded, refused) in tried.items()
    )


@pytest.mark.long
def test_no_race_reads_or_writes_outside(workspaces: Workspaces, outside: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]}
    tried: dict[str, list[int]] = {}

    def attempt(name: str, action: Callable[[], bytes]) -> None:
        succeeded_refused = tried.setdefault(name, [0, 0])
        try:
            assert CANARY not in action()
            succeeded_refused[0] += 1
        except PetriError:
            succeeded_refused[1] += 1

    with swapping(workspaces.folder(SANDBOX)) as swaps:
        begun = time.monotonic()
        while time.monotonic() < begun + (RACE_S if _has_seen_all(tried) else MOST_S):
            for path in ("swapped", "real"):
                attempt("read", partial(read, workspaces, f"{path}/sub/read"))
                attempt("write", partial(write, workspaces, [f"{path}/doomed"]))
                attempt("write many", partial(write, workspaces, [f"{path}/new/{name}" for name in "abc"]))
                attempt("delete", partial(delete, workspaces, f"{path}/doomed"))
                attempt("delete folder", partial(delete, workspaces, f"{path}/new"))
                attempt("list", partial(names, workspaces, path))
                attempt("archive", partial(archive, workspaces, path, "tar"))
            attempt("read file", partial(read, workspaces, "file"))
            attempt("archive all", partial(archive, workspaces, "", "tar"))
            attempt("archive all", partial(archive, workspaces, "", "zip"))

    after = {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]}
    assert after == before
    assert {path.read_bytes() for path in outside.rglob("*") if path.is_file()} == {CANARY}
    # A race in which one side never moved would prove nothing.
    assert swaps[0] > 100
    assert all(refused for name, (_, refused) in tried.items() if name != "archive all"), tried
    assert all(succeeded for succeeded, _ in tried.values()), tried


def read(workspaces: Workspaces, path: str) -> bytes:
    with workspaces.open(SANDBOX, path) as file:
        return file.read(0, file.size)


def write(workspaces: Workspaces, paths: list[str], content: bytes = b"inside") -> bytes:
    with workspaces.receive(SANDBOX, None) as intake:
        for path in paths:
            intake.file(path).write(content)
        intake.commit()
    return b""


def delete(workspaces: Workspaces, path: str) -> bytes:
    workspaces.delete(SANDBOX, path, if_match=None)
    return b""


def archive(workspaces: Workspaces, path: str, kind: ArchiveKind) -> bytes:
    return b"".join(workspaces.archive(SANDBOX, path, kind))


def names(workspaces: Workspaces, path: str) -> bytes:
    entries = workspaces.list(SANDBOX, path, recursive=True, limit=1000).entries
    # What is outside has the same names but another size.
    return CANARY if any(entry.size == len(CANARY) for entry in entries) else b""


def test_a_file_swapped_for_a_link_is_not_archived(workspaces: Workspaces, outside: Path) -> None:
    folder = workspaces.folder(SANDBOX)
    top = os.open(folder, os.O_PATH)
    with closing(walk(top, recursive=False)) as everything:
        found = next(found for found in everything if found.name == "file")
        (folder / "file").unlink()
        (folder / "file").symlink_to(outside / "read")

        assert list(packing._file(found)) == []
    os.close(top)


def test_a_folder_swapped_for_a_link_is_not_walked_into(workspaces: Workspaces) -> None:
    folder = workspaces.folder(SANDBOX)
    (folder / "other/deep").mkdir(parents=True)
    top = os.open(folder, os.O_PATH)
    paths = []
    with closing(walk(top, recursive=True)) as everything:
        for found in everything:
            paths.append(found.path)
            if found.path == "real":
                (folder / "real").rename(folder / "moved")
                (folder / "real").symlink_to("other")
    os.close(top)

    assert "other/deep" in paths
    assert "real/deep" not in paths


@pytest.mark.long
def test_uploads_to_one_path_from_many_threads_are_each_whole(workspaces: Workspaces) -> None:
    contents = [bytes([65 + number]) * 50_000 for number in range(4)]
    write(workspaces, ["shared/a"], contents[0])
    failures: list[BaseException] = []

    def keep_writing(content: bytes) -> None:
        try:
            for _ in range(10):
                write(workspaces, ["shared/a", "shared/b"], content)
        except BaseException as error:  # noqa: BLE001 - shown to the test below
            failures.append(error)

    writers = [threading.Thread(target=keep_writing, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert read(workspaces, "shared/a") in contents  # never a mixture, and never absent
    for writer in writers:
        writer.join()

    assert failures == []
    shared = workspaces.folder(SANDBOX) / "shared"
    assert (shared / "a").read_bytes() == (shared / "b").read_bytes()


def test_of_many_writers_that_saw_the_same_version_one_wins(workspaces: Workspaces) -> None:
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("counter").write(b"0")
        [seen] = intake.commit()
    won: list[int] = []
    start = threading.Barrier(8)

    def compete(number: int) -> None:
        with workspaces.receive(SANDBOX, None) as intake:
            intake.file("counter").write(b"%d" % number)
            start.wait()
            try:
                intake.commit(if_match=seen.digest)
            except PetriError:
                return
            won.append(number)

    competitors = [threading.Thread(target=compete, args=(number,)) for number in range(1, 9)]
    for competitor in competitors:
        competitor.start()
    for competitor in competitors:
        competitor.join()

    assert len(won) == 1
    assert (workspaces.folder(SANDBOX) / "counter").read_bytes() == b"%d" % won[0]
