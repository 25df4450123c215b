"""Counting a folder that hostile code made, or is making."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from petri import tally as program
from petri.engine.confine import WORKSPACE
from petri.tally import Tally, tally

pytestmark = pytest.mark.long

ANY = 1 << 60


def by_program(folder: Path, within: Path | str = "/nowhere", most: tuple[int, int] = (ANY, ANY)) -> Tally:
    """Count as a large workspace is counted; cells are those that see the folder `within` themselves."""
    asked = {"folder": str(folder), "within": str(within), "most_bytes": most[0], "most_inodes": most[1]}
    argv = [sys.executable, "-I", "-S", program.__file__, json.dumps(asked)]
    return Tally(**json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout))


def in_here(folder: Path, most: tuple[int, int] = (ANY, ANY)) -> Tally:
    return tally(str(folder), *most)


both = pytest.mark.parametrize("count", [in_here, by_program])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "workspace"
    made.mkdir()
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)  # Python's own way ends at a thousand levels


def blocks(*paths: Path) -> int:
    return sum(path.lstat().st_blocks for path in paths) * 512


@both
def test_an_empty_folder_is_itself(folder: Path, count: Callable[[Path], Tally]) -> None:
    assert count(folder) == Tally(blocks(folder), 1)


@both
def test_every_name_counts_and_every_block_once(folder: Path, count: Callable[[Path], Tally]) -> None:
    (folder / "a").write_bytes(bytes(100_000))
    (folder / "b").hardlink_to(folder / "a")
    (folder / "c").symlink_to("/etc")
    (folder / "d").mkdir()
    (folder / "d" / "holes").touch()
    os.truncate(folder / "d" / "holes", 1 << 40)
    os.mkfifo(folder / "d" / "fifo")

    counted = count(folder)

    assert counted.inodes == 7
    assert counted.disk_bytes == blocks(folder, folder / "a", folder / "c", folder / "d")
    assert counted.whole


@both
def test_counting_ends_when_there_is_more_than_was_asked_about(
    folder: Path, count: Callable[..., Tally]
) -> None:
    for number in range(200):
        (folder / str(number)).write_bytes(bytes(4096))

    names, size = count(folder, most=(ANY, 50)), count(folder, most=(100_000, ANY))

    assert (names.whole, names.inodes) == (False, 51)
    assert not size.whole
    assert 100_000 < size.disk_bytes < 120_000


def nest(folder: Path, levels: int) -> None:
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=inner)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(os.open("at-the-bottom", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
    os.close(inner)


def test_a_tree_deeper_than_any_path_is_counted_to_its_bottom(folder: Path) -> None:
    nest(folder, 5000)

    assert by_program(folder).inodes == 5002
    assert by_program(folder).whole


def test_the_server_itself_does_not_go_deep(folder: Path) -> None:
    nest(folder, 100)

    assert not in_here(folder).whole


def test_a_tree_deeper_than_we_have_descriptors_is_more_than_can_be_counted(folder: Path) -> None:
    nest(folder, 300)
    limited = f'ulimit -n 200; exec {sys.executable} -I -S {program.__file__} "$1"'
    asked = {"folder": str(folder), "within": "/nowhere", "most_bytes": ANY, "most_inodes": ANY}

    said = subprocess.run(["sh", "-c", limited, "sh", json.dumps(asked)], capture_output=True, check=True)

    assert not Tally(**json.loads(said.stdout)).whole


def test_a_folder_closed_to_its_owner_is_counted(folder: Path) -> None:
    (folder / "closed").mkdir()
    (folder / "closed" / "big").write_bytes(bytes(100_000))
    (folder / "closed").chmod(0)
    try:
        assert by_program(folder).disk_bytes > 100_000
    finally:
        (folder / "closed").chmod(0o700)


@contextmanager
def cell(folder: Path, source: str) -> Iterator[None]:
    """Have `source` run over a folder as cells see it, and hold what it holds until we have looked."""
    walls = [
        *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc"),
        *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--dev", "/dev"),
        *("--bind", str(folder), WORKSPACE, "--chdir", WORKSPACE),
    ]
    whole = textwrap.dedent(source) + "\nprint('ready', flush=True)\ninput()\n"
    argv = [*walls, "/usr/bin/python3", "-c", whole]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=nothing) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.kill()


HELD_OPEN = """
    import os
    held = open("gone", "wb", buffering=0)
    held.write(bytes(1_000_000))
    again = os.dup(held.fileno())
    os.unlink("gone")
"""
HELD_MAPPED = """
    import ctypes, os
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    fd = os.open("gone", os.O_CREAT | os.O_RDWR)
    os.write(fd, bytes(1_000_000))
    assert libc.mmap(None, ctypes.c_size_t(1_000_000), 1, 1, fd, ctypes.c_long(0)) > 0
    os.unlink("gone")
    os.close(fd)
"""
UNDER_WAY = """
    import array, os, socket
    here, there = socket.socketpair()
    fd = os.open("gone", os.O_CREAT | os.O_RDWR)
    os.write(fd, bytes(1_000_000))
    here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.unlink("gone")
    os.close(fd)
"""
HELD_BY_A_THREAD = """
    import ctypes, os, threading, time
    CLONE = 0x00010000 | 0x00000800 | 0x00000100  # a thread, but with descriptors of its own
    libc = ctypes.CDLL(None)
    stack = ctypes.create_string_buffer(1 << 20)
    pausing = ctypes.cast(libc.pause, ctypes.c_void_p)
    fd = os.open("gone", os.O_CREAT | os.O_RDWR)
    os.write(fd, bytes(1_000_000))
    assert libc.clone(pausing, ctypes.byref(stack, (1 << 20) - 64), CLONE, None) > 0
    os.unlink("gone")
    os.close(fd)
"""


@pytest.mark.parametrize("source", [HELD_OPEN, HELD_BY_A_THREAD])
def test_a_file_that_is_deleted_but_open_counts_once(folder: Path, source: str) -> None:
    with cell(folder, source):
        seen, unseen = by_program(folder, WORKSPACE), by_program(folder)

    assert 1_000_000 <= seen.disk_bytes - unseen.disk_bytes < 1_100_000
    assert (seen.inodes, unseen.inodes) == (2, 1)
    assert not seen.hidden


def test_a_file_that_is_deleted_but_mapped_is_counted_or_said_to_be_hidden(folder: Path) -> None:
    with cell(folder, HELD_MAPPED):
        seen = by_program(folder, WORKSPACE)

    if os.geteuid() == 0:
        assert (seen.disk_bytes > 1_000_000, seen.hidden) == (True, False)
    else:
        assert seen.hidden


def test_files_under_way_in_a_socket_are_said_to_be_hidden(folder: Path) -> None:
    with cell(folder, UNDER_WAY):
        assert by_program(folder, WORKSPACE).hidden
    assert not by_program(folder, WORKSPACE).hidden


def test_other_people_s_deleted_files_are_not_ours(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with cell(folder, HELD_OPEN):
        assert by_program(tmp_path / "other", WORKSPACE) == by_program(tmp_path / "other")


def test_a_file_moved_while_it_is_counted_is_counted_once(folder: Path) -> None:
    """A count of many folders takes a while; here it is held up in the middle, as a restless tree does it."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    (folder / "a" / "file").write_bytes(bytes(100_000))
    seen = program._Count(folder.stat().st_dev, ANY, ANY)
    first = os.open(folder / "a", os.O_RDONLY)
    second = os.open(folder / "b", os.O_RDONLY)

    program._names_of_folders(first, seen)
    (folder / "a" / "file").rename(folder / "b" / "file")
    program._names_of_folders(second, seen)

    assert seen.disk_bytes == blocks(folder / "b" / "file")
    os.close(first)
    os.close(second)
