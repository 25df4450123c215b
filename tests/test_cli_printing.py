"""What people and programs read; and what a name from a sandbox may not do to a terminal."""

import io
import json
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from petri.cli.live import exit_code
from petri.cli.printing import age, plain, print_fields, print_json, print_table, span_s
from petri.cli.unpacking import unpack
from petri.errors import Invalid
from petri.wire import ExecAnswer
from tests.test_sdk_following import ANSWER


def test_nothing_a_terminal_obeys_gets_through() -> None:
    assert plain("\x1b[2Jevil\r\n\x07\u202e\udcff\x9b") == r"\x1b[2Jevil\r\n\x07\u202e\udcff\x9b"
    assert plain("Grüße, 世界") == "Grüße, 世界"


def test_tables_align_and_escape(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("ID", "NAME"), [("sb-a", None), ("sb-long", "\x1b]0;title\x07"), ("x", "y" * 100)])

    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["ID       NAME", "sb-a     -", r"sb-long  \x1b]0;title\x07"]
    assert lines[3].endswith("y…") and len(lines[3]) < 80


def test_an_empty_table_is_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("ID", "NAME"), [])

    assert capsys.readouterr().out == "ID  NAME\n"


def test_fields_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("id", "sb-a"), ("name", None), ("limits", "1 cpu")])

    assert capsys.readouterr().out == "id      sb-a\nlimits  1 cpu\n"


def test_json_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "\x1b[2J\nü"})

    line = capsys.readouterr().out
    assert line.count("\n") == 1 and line.isascii() and "\x1b" not in line
    assert json.loads(line) == {"name": "\x1b[2J\nü"}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (200, "3 min"),
        (7200, "2 h"),
        (86_400, "1 day"),
        (2e5, "2 days"),
    ],
)
def test_a_stretch_of_time_is_said_in_its_largest_unit(seconds: float, said: str) -> None:
    assert span_s(seconds) == said


def test_age_is_counted_from_now() -> None:
    assert age("2026-01-01T00:00:00Z", datetime(2026, 1, 1, 0, 3, tzinfo=UTC)) == "3 min"
    assert age(None) == "-"


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ({"exit_code": 0}, 0),
        ({"exit_code": 7}, 7),
        ({"exit_code": None, "signal": 11}, 139),
        ({"exit_code": None, "signal": 9, "timed_out": True}, 124),
        ({"exit_code": None, "signal": 9, "cancelled": True}, 130),
        ({"exit_code": None, "signal": 9, "oom_killed": True}, 137),
        ({"exit_code": None, "state": "interrupted"}, 125),
    ],
)
def test_a_run_s_ending_is_ours(ending: dict[str, object], code: int) -> None:
    assert exit_code(ExecAnswer.model_validate({**ANSWER, **ending})) == code


# ------------------------------------------------------------------------------------------- unpacking


def member(
    name: str, kind: bytes = tarfile.REGTYPE, *, mode: int = 0o644, target: str = ""
) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.mode, found.linkname = kind, mode, target
    found.size = 5 if kind == tarfile.REGTYPE else 0
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "into").mkdir()
    yield tmp_path
    assert (tmp_path / "precious").read_text() == "mine"


def archive_of(home: Path, *members: tarfile.TarInfo) -> Path:
    path = home / "archive"
    with zstandard.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(b"bytes") if each.isreg() else None)
    return path


def test_files_folders_and_the_right_to_run_are_kept(home: Path) -> None:
    archive = archive_of(home, member("pkg", tarfile.DIRTYPE), member("pkg/run", mode=0o755), member("a/b/c"))

    assert unpack(archive, home / "into") == []
    assert (home / "into" / "a" / "b" / "c").read_bytes() == b"bytes"
    assert (home / "into" / "pkg" / "run").stat().st_mode & 0o111
    assert not (home / "into" / "a" / "b" / "c").stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["../precious", "/etc/passwd", "a/../../precious", ".."])
def test_a_name_outside_is_refused(home: Path, name: str) -> None:
    with pytest.raises(Invalid, match="outside"):
        unpack(archive_of(home, member(name)), home / "into")


def test_links_pipes_and_devices_stay_in_the_sandbox(home: Path) -> None:
    archive = archive_of(
        home,
        member("out", tarfile.SYMTYPE, target="../precious"),
        member("hard", tarfile.LNKTYPE, target="../precious"),
        member("pipe", tarfile.FIFOTYPE),
        member("disk", tarfile.BLKTYPE),
        member("up", tarfile.SYMTYPE, target=".."),
        member("up/precious"),
    )

    assert unpack(archive, home / "into") == ["out", "hard", "pipe", "disk", "up"]
    assert not any(path.is_symlink() for path in (home / "into").rglob("*"))


def test_a_link_that_is_here_already_is_replaced_not_followed(home: Path) -> None:
    (home / "into" / "out").symlink_to(home / "precious")

    unpack(archive_of(home, member("out")), home / "into")

    assert (home / "into" / "out").read_bytes() == b"bytes"
