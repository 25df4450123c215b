"""What is opened lies beneath the folder, whether it is one step away or several, and whatever it is."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.workspace.beneath import FILE, FOLDER, LOOK, open_beneath


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "outside").write_text("outside")
    inside = tmp_path / "top"
    (inside / "d").mkdir(parents=True)
    (inside / "file").write_text("inside")
    (inside / "in").symlink_to("file")
    (inside / "in-folder").symlink_to("d")
    (inside / "out").symlink_to("../outside")
    (inside / "out-by-root").symlink_to(tmp_path / "outside")
    os.mkfifo(inside / "fifo")
    fd = os.open(inside, FOLDER)
    yield fd
    os.close(fd)


def content(top: int, path: str) -> bytes:
    with open(open_beneath(top, path, FILE), "rb") as file:  # noqa: PTH123 - by descriptor
        return file.read()


def refused(top: int, path: str, flags: int, *, follow: bool = True) -> int | None:
    with pytest.raises(OSError) as refusal:
        os.close(open_beneath(top, path, flags, follow=follow))
    return refusal.value.errno


@pytest.mark.parametrize("path", ["file", "in", "d/../file"])
def test_a_file_is_opened_and_so_is_what_a_link_inside_leads_to(top: int, path: str) -> None:
    assert content(top, path) == b"inside"


@pytest.mark.parametrize("flags", [FILE, LOOK])
@pytest.mark.parametrize("path", ["out", "out-by-root", "..", "d/../../outside", "in-folder/../../outside"])
def test_nothing_outside_is_opened(top: int, path: str, flags: int) -> None:
    assert refused(top, path, flags) == errno.EXDEV


@pytest.mark.parametrize("flags", [FILE, LOOK, FOLDER])
@pytest.mark.parametrize("path", ["in", "out", "in-folder", "in-folder/."])
def test_no_link_is_passed_where_none_is_to_be(top: int, path: str, flags: int) -> None:
    assert refused(top, path, flags, follow=False) == errno.ELOOP


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("path", ["in", "out"])
def test_a_link_itself_can_be_looked_at(top: int, path: str, follow: object) -> None:
    fd = open_beneath(top, path, LOOK | os.O_NOFOLLOW, follow=bool(follow))
    there = os.readlink("", dir_fd=fd)
    os.close(fd)

    assert there in ("file", "../outside")


def test_to_look_at_a_link_is_to_look_at_what_it_leads_to(top: int) -> None:
    fd, file = open_beneath(top, "in", LOOK), open_beneath(top, "file", LOOK)
    seen = os.fstat(fd), os.fstat(file)
    os.close(fd)
    os.close(file)

    assert os.path.samestat(*seen)


def test_who_opens_a_fifo_does_not_wait_for_anybody(top: int) -> None:
    os.close(open_beneath(top, "fifo", FILE))


@pytest.mark.parametrize(
    ("path", "flags", "number"),
    [
        ("nothing", FILE, errno.ENOENT),
        ("file", FOLDER, errno.ENOTDIR),
        ("file/x", FILE, errno.ENOTDIR),
        ("x" * 256, FILE, errno.ENAMETOOLONG),
    ],
)
def test_what_cannot_be_opened_is_refused_as_the_kernel_does(
    top: int, path: str, flags: int, number: int
) -> None:
    assert refused(top, path, flags) == number
