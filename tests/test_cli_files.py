"""The command line and files: cp there and back, and what cannot be copied."""

import json
import os
from pathlib import Path

import pytest

from petri import Client
from petri.errors import NotFound
from tests.conftest import Server
from tests.test_cli import Petri, box, client, environment, ok, petri

__all__ = ["box", "client", "environment", "petri"]


pytestmark = pytest.mark.long


@pytest.mark.slow
def test_files_go_there_and_back(petri: Petri, client: Client, box: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)")
    (tmp_path / "pkg" / "deep").mkdir(parents=True)
    (tmp_path / "pkg" / "deep" / "mod.py").write_text("x = 1")

    ok(petri("cp", "main.py", "pkg", f"{box}:"))
    ok(petri("cp", "main.py", f"{box}:other/name.py"))
    ok(petri("cp", "-r", "pkg", f"{box}:lib"))
    ok(petri("cp", "pkg/", f"{box}:into/"))
    ok(petri("cp", "-", f"{box}:data/in.txt", stdin=b"\0stdin"))

    files = {e.path for e in client.list_files(box, recursive=True).entries if e.kind == "file"}
    assert files == {
        "main.py",
        "pkg/deep/mod.py",
        "other/name.py",
        "lib/deep/mod.py",
        "into/deep/mod.py",
        "data/in.txt",
    }
    assert ok(petri("cp", f"{box}:data/in.txt", "-")) == b"\0stdin"
    (tmp_path / "here").mkdir()
    ok(petri("cp", f"{box}:main.py", "here"))
    ok(petri("cp", f"{box}:pkg", "here"))
    ok(petri("cp", f"{box}:pkg", "renamed"))
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")} == {
        "main.py",
        "pkg/deep/mod.py",
        "here/main.py",
        "here/pkg/deep/mod.py",
        "renamed/deep/mod.py",
    }
    written = json.loads(ok(petri("cp", "--json", "main.py", f"{box}:")))
    assert written["files"][0]["path"] == "main.py"


def test_a_whole_workspace_comes_without_its_links(
    petri: Petri, client: Client, box: str, tmp_path: Path
) -> None:
    client.exec(
        box,
        command="mkdir -p a/empty; echo x > a/run; chmod +x a/run; ln -s /etc/passwd a/evil; ln -s . loop",
    )

    result = petri("cp", f"{box}:", "copy")

    assert ok(result) == b"" and b"left out 2 links" in result.stderr
    assert os.access(tmp_path / "copy" / "a" / "run", os.X_OK)
    assert (tmp_path / "copy" / "a" / "empty").is_dir()
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.is_symlink()]


@pytest.mark.slow
def test_what_cannot_be_copied_is_a_sentence(petri: Petri, box: str, tmp_path: Path) -> None:
    for arguments in (
        ("cp", f"{box}:missing", "."),
        ("cp", f"{box}:../x", "."),
        ("cp", "missing", f"{box}:"),
    ):
        result = petri(*arguments)
        assert result.returncode == 125
        assert result.stderr.startswith(b"petri: ") and result.stderr.count(b"\n") == 1, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_asks_the_server(petri: Petri, server: Server) -> None:
    result = petri("doctor")

    assert result.returncode in (0, 1)
    assert result.stdout.startswith(f"the server at {server.url}:\n".encode())
    assert b"  on   " in result.stdout


def test_a_sandbox_that_has_ended_has_no_name(petri: Petri, client: Client) -> None:
    client.delete(client.create(name="cli-gone").id)

    assert petri("show", "cli-gone").returncode == 125
    with pytest.raises(NotFound):
        client.sandbox("cli-gone")


def test_a_run_that_fills_its_disk_is_told_of_in_words(petri: Petri) -> None:
    box = ok(petri("create", "--disk", "16m", "--files", "600", "--tmp", "8m", "--open-files", "64")).decode()
    flood = "n=0; while :; do n=$((n+1)); : > f$n; done"

    ended = petri("exec", box.strip(), "--", "bash", "-c", flood)
    shown = ok(petri("show", box.strip())).decode()
    other = ok(petri("create", "--disk", "16m")).decode().strip()  # one that does not hold too much already
    huge = petri("exec", other, "--", "truncate", "--size", "1T", "f1")

    assert ended.returncode == 137
    assert b"petri: the run has filled its disk: the workspace holds more than it may" in ended.stderr
    assert " of 16.0 MiB and 600 files" in shown
    assert "64 open files, 8.0 MiB of /tmp" in shown
    assert huge.returncode == 1
    assert b"File too large" in huge.stderr  # the program's own words: it is told, not killed
    ok(petri("rm", box.strip(), other))


@pytest.mark.slow
def test_files_go_back_and_come_back(petri: Petri, client: Client, box: str) -> None:
    taken = ok(petri("snapshot", box, "--name", "cli-fine")).decode().strip()
    ok(petri("exec", box, "--", "sh", "-c", "echo 1 > n"))
    told = ok(petri("undo", box)).decode()
    assert client.list_files(box).entries == []
    ok(petri("restore", box, told.split()[-1]))
    assert client.read(box, "n") == b"1\n"
    run_id = next(iter(client.runs(box))).run_id
    ok(petri("restore", box, run_id))
    assert client.list_files(box).entries == []
    ok(petri("restore", box, run_id, "--after"))
    assert client.read(box, "n") == b"1\n"

    children = ok(petri("fork", box, "-n", "2")).decode().split()
    assert [client.read(child, "n") for child in children] == [b"1\n"] * 2
    fresh = ok(petri("create", "--from-snapshot", "cli-fine")).decode().strip()
    assert client.list_files(fresh).entries == []
    assert taken in ok(petri("snapshots", box)).decode()
    ok(petri("restore", box, "cli-fine"))
    assert client.list_files(box).entries == []
    assert petri("restore", box, "cli-fine", "--after").returncode == 2
    ok(petri("rm", taken, fresh, *children))
    assert json.loads(ok(petri("snapshots", "--json"))) == []
