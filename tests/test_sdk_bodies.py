"""Files on their way out: which, under which names, and in which bytes."""

import os
from email import message_from_bytes
from io import BytesIO
from pathlib import Path

import pytest

from petri.errors import Invalid
from petri.sdk.bodies import Multipart, OneFile, as_text_or_base64, parts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pkg" / "deep").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "deep" / "mod.py").write_text("x = 1\n")
    return tmp_path / "pkg"


def names(*sources: object, **options: object) -> list[str]:
    return [part.path for part in parts(sources, **options)]  # type: ignore[arg-type]


def test_a_folder_goes_under_its_name(folder: Path) -> None:
    assert names(folder) == ["pkg/__init__.py", "pkg/deep/mod.py"]


def test_a_slash_at_the_end_leaves_the_name_out(folder: Path) -> None:
    assert names(f"{folder}/", into="lib/") == ["lib/__init__.py", "lib/deep/mod.py"]


def test_this_folder_has_no_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "deep")

    assert names(".") == ["mod.py"]
    assert names("..") == ["__init__.py", "deep/mod.py"]


def test_files_folders_and_bytes_go_together(folder: Path) -> None:
    found = parts([folder / "deep" / "mod.py", {"data/in.csv": b"1,2", "note": "ü"}], "top")

    assert [(part.path, part.size) for part in found] == [
        ("top/mod.py", 6),
        ("top/data/in.csv", 3),
        ("top/note", 2),
    ]


def test_what_would_never_end_is_left_out(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "circle").symlink_to(folder)
    (folder / "nowhere").symlink_to("missing")

    assert names(folder, skip=["deep"]) == ["pkg/__init__.py"]


def test_a_pipe_by_name_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")

    with pytest.raises(Invalid, match="not a regular file"):
        names(folder / "pipe")


def test_nothing_is_not_an_upload(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="nothing to upload"):
        names(tmp_path)


def test_the_body_is_what_its_length_says_and_any_parser_reads_it(folder: Path) -> None:
    body = Multipart(parts([folder, {'odd "name\\.txt': b"\0\r\n--\xff"}]))

    content = b"".join(body.chunks())
    message = message_from_bytes(f"Content-Type: {body.headers['Content-Type']}\r\n\r\n".encode() + content)
    received = [
        (part.get_filename(), part.get_payload(decode=True)) for part in message.walk() if part.get_filename()
    ]

    assert len(content) == int(body.headers["Content-Length"])
    assert [name for name, _ in received] == ["pkg/__init__.py", "pkg/deep/mod.py", 'odd "name\\.txt']
    assert received[2][1] == b"\0\r\n--\xff"
    assert b"".join(body.chunks()) == content  # and once more, for a retry


def test_progress_ends_at_the_total(folder: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    body = Multipart(parts([folder]), lambda done, total: seen.append((done, total)))

    total = sum(len(chunk) for chunk in body.chunks())

    assert seen[-1] == (total, total)


def test_a_file_that_grows_meanwhile_is_sent_as_long_as_announced(folder: Path) -> None:
    body = Multipart(parts([folder]))
    with (folder / "deep" / "mod.py").open("a") as file:
        file.write("more\n")

    assert len(b"".join(body.chunks())) == int(body.headers["Content-Length"])


def test_a_file_that_shrinks_meanwhile_is_an_error(folder: Path) -> None:
    body = Multipart(parts([folder]))
    (folder / "deep" / "mod.py").write_text("")

    with pytest.raises(Invalid, match="became shorter"):
        list(body.chunks())


def test_a_line_break_in_a_name_is_refused() -> None:
    with pytest.raises(Invalid, match="line break"):
        Multipart(parts([{"a\r\nX: y": b""}]))


def test_one_file_from_every_kind_of_content(folder: Path) -> None:
    for content in (b"x = 1\n", "x = 1\n", folder / "deep" / "mod.py", BytesIO(b"x = 1\n")):
        assert b"".join(OneFile(content).chunks()) == b"x = 1\n"


def test_what_is_not_text_travels_as_base64(folder: Path) -> None:
    packed = as_text_or_base64({"a": b"\xff", "b": b"ok", "c": "ok", "d": folder / "deep" / "mod.py"})

    assert packed == {"a": {"base64": "/w=="}, "b": "ok", "c": "ok", "d": "x = 1\n"}
