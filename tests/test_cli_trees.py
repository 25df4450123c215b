"""`petri diff`, `blame`, `merge` and `exec --dry-run`, as people and scripts use them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from petri import Client
from petri.errors import PathsConflict
from tests.test_cli import Petri, box, client, environment, ok, petri

pytestmark = pytest.mark.long

__all__ = ["box", "client", "environment", "petri"]


def test_a_dry_run_shows_a_patch_and_leaves_the_files(petri: Petri, client: Client, box: str) -> None:
    client.write(box, "f", "old\n")

    done = petri("exec", box, "--dry-run", "--", "sh", "-c", "echo said; echo new > f; exit 3")

    assert done.returncode == 3
    assert done.stdout.decode() == ("said\ndiff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n")
    assert done.stderr == b"petri: the files are as they were before\n"
    assert client.read(box, "f") == b"old\n"


def test_what_succeeds_is_kept_and_said(petri: Petri, client: Client, box: str) -> None:
    done = petri("exec", box, "--keep", "on-success", "--", "touch", "f")

    assert b"new file mode 100644" in done.stdout
    assert done.stderr == b"petri: what it did to the files was kept\n"
    assert client.read(box, "f") == b""
    assert json.loads(ok(petri("exec", box, "--keep", "never", "--json", "--", "rm", "f")))["kept"] is False
    assert petri("exec", box, "--keep", "always", "--dry-run", "--", "true").returncode == 2
    assert petri("exec", box, "--keep", "maybe", "--", "true").returncode == 2


def test_what_diff_prints_is_what_git_applies(petri: Petri, client: Client, box: str, tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "f").write_text("1\n2\n3")
    client.upload(box, f"{before}/")
    run_id = client.exec(box, command="echo 4 >> f; mkdir d; echo new > d/g").run_id
    client.write(box, "later", "later\n")

    patch = ok(petri("diff", box, f"{run_id}:before", run_id))
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    subprocess.run(["git", "apply", "-"], input=patch, cwd=before, check=True, env=env)

    assert (before / "f").read_text() == "1\n2\n34\n"
    assert (before / "d/g").read_text() == "new\n"
    assert b"later" in ok(petri("diff", box))
    assert b"later" not in patch


def test_diff_in_numbers_and_for_programs(petri: Petri, client: Client, box: str) -> None:
    client.write(box, "text", "a\nb\n")
    client.exec(box, command="echo c > text; head -c 2000 /dev/zero > zeros")

    stat = ok(petri("diff", box, "--stat")).decode().splitlines()
    told = json.loads(ok(petri("diff", box, "--json")))

    assert stat == [" text  | 3 +--", " zeros | added, 2.0 KiB", " 2 changed, 1 line added, 2 removed"]
    assert [file["path"] for file in told["files"]] == ["text", "zeros"]
    complaint = petri("diff", box).stderr
    assert complaint == b"petri: added zeros: not text: nothing before, 2000 bytes now\n"


def test_a_terminal_sees_no_escapes_that_a_file_holds(
    petri: Petri, client: Client, box: str, environment: dict[str, str]
) -> None:
    client.write(box, "f", "plain\n")
    client.exec(box, command="printf '\\033]0;owned\\007\\033[2Jred\\n' > f")
    shown = subprocess.run(
        ["script", "-qec", f"{petri_path()} diff {box}", "/dev/null"],
        env=environment,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout

    assert b"\x1b]0;" not in shown
    assert b"\x1b[2J" not in shown
    assert b"\\x1b]0;owned" in shown
    assert b"\x1b[31m-plain" in shown


def petri_path() -> str:
    from tests.conftest import PETRI

    return str(PETRI)


def test_blame_names_the_run_either_way_it_is_asked(petri: Petri, client: Client, box: str) -> None:
    run_id = client.exec(box, command="echo x > out", agent="claude").run_id

    for words in ((box, "out"), (f"{box}:out",)):
        said = ok(petri("blame", *words)).decode()
        assert run_id in said
        assert "claude" in said
        assert "echo x > out" in said
    assert json.loads(ok(petri("blame", box, "out", "--json")))["run_id"] == run_id
    assert petri("blame", box).returncode == 2
    missing = petri("blame", box, "nowhere")
    assert (missing.returncode, missing.stderr) == (125, b"petri: there is no 'nowhere' in the workspace\n")


def test_merge_brings_a_fork_back_and_names_conflicts(petri: Petri, client: Client, box: str) -> None:
    client.write(box, "a", "a\n")
    client.write(box, "b", "b\n")
    (fork,) = client.fork(box)
    client.write(fork.id, "a", "fork\n")
    client.write(fork.id, "new", "new\n")

    assert ok(petri("merge", box, fork.id)) == b"A new\nM a\n"
    client.write(box, "b", "mine\n")
    client.write(fork.id, "b", "theirs\n")
    refused = petri("merge", box, fork.id)
    assert refused.returncode == 1
    assert json.loads(petri("merge", box, fork.id, "--json").stdout)["conflicts"][0]["path"] == "b"
    assert refused.stderr.startswith(b"petri: b: ours changed the file, theirs changed the file\n")
    with pytest.raises(PathsConflict):
        client.merge(box, fork.id)
    told = json.loads(ok(petri("merge", box, fork.id, "--prefer", "theirs", "--json")))
    assert told["conflicts"][0]["path"] == "b"
    assert client.read(box, "b") == b"theirs\n"
    client.delete(fork.id)


def test_a_peer_is_made_by_its_name(petri: Petri, client: Client, box: str) -> None:
    client.write(box, "notes", "n\n")
    made = ok(petri("create", "--peer", f"writer={box}")).decode().strip()
    try:
        assert client.exec(made, command="cat /peers/writer/notes").stdout == "n\n"
        assert f"/peers/writer={box}" in ok(petri("show", made)).decode()
        tree = client.exec(box, command="echo later > notes").tree_before
        client.update(made, peers=[{"sandbox": box, "at": "/peers/then", "tree": tree or ""}])
        assert client.exec(made, command="cat /peers/then/notes").stdout == "n\n"
    finally:
        client.delete(made)


def test_a_peer_may_be_a_tree_or_a_snapshot_for_good(petri: Petri, client: Client, box: str) -> None:
    client.write(box, "notes", "n\n")
    taken = client.snapshot(box)
    client.exec(box, command="echo later > notes")
    for moment in (taken.tree, taken.id):
        made = ok(petri("create", "--peer", f"writer={box}@{moment}")).decode().strip()
        assert client.exec(made, command="cat /peers/writer/notes").stdout == "n\n"
        client.delete(made)
    client.delete_snapshot(taken.id)
