"""Diff and blame over HTTP: what lies between two trees, and who wrote what."""

import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.calls import at_work, create, files_url, put, refused, run, sh

NO_TREE = "00" * 32


def diff(http: httpx.Client, sandbox: str, **between: str) -> dict[str, Any]:
    answer = http.get(f"/v1/sandboxes/{sandbox}/diff", params=between)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def patch_of(told: dict[str, Any]) -> bytes:
    return "".join(file["patch"] for file in told["files"]).encode()


def fetched(http: httpx.Client, sandbox: str, into: Path) -> Path:
    """Return a folder with the files of a sandbox."""
    archive = http.get(files_url(sandbox), params={"archive": "tar"}).content
    into.mkdir()
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)
    return into


def seen(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes(), bool(path.stat().st_mode & 0o100)
    return found


# ------------------------------------------------------------------------------------------------- diff


@pytest.mark.long
def test_a_patch_makes_the_one_workspace_of_the_other(http: httpx.Client, tmp_path: Path) -> None:
    sandbox = create(http)
    put(http, sandbox, "edited.txt", "".join(f"line {number}\n" for number in range(100)))
    put(http, sandbox, 'odd "name".txt', "no newline at the end")
    put(http, sandbox, "gone/away.txt", "gone\n")
    put(http, sandbox, "a-folder/file", "x\n")
    sh(http, sandbox, "ln -s edited.txt link; ln -s nowhere other; printf tool > tool")
    before = fetched(http, sandbox, tmp_path / "before")

    told = run(
        http,
        sandbox,
        command="sed -i 's/^line 5.$/changed/; 90d' edited.txt; printf x >> 'odd \"name\".txt'; rm -r gone; "
        "rm -r a-folder; echo now > a-folder; rm link; mkdir link; echo deep > link/deep; chmod +x tool; "
        "rm other; echo file > other; touch empty; printf 'ä\\r\\n' > new",
    )
    found = diff(http, sandbox)

    assert (found["from_tree"], found["to_tree"]) == (told["tree_before"], told["tree_after"])
    assert found["left_out"] == 0
    apply = ["git", "apply", "--whitespace=nowarn", "-"]
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    subprocess.run(apply, input=patch_of(found), cwd=before, check=True, env=env)
    assert seen(before) == seen(fetched(http, sandbox, tmp_path / "after"))


def test_each_file_says_what_happened_to_it(http: httpx.Client) -> None:
    sandbox = create(http)
    put(http, sandbox, "text", "one\ntwo\n")
    put(http, sandbox, "bytes", b"\0" * 10)
    sh(http, sandbox, "echo 2 > text; printf '\\0\\0' > bytes; mkdir empty; ln -s x link; seq 400000 > long")

    files = {file["path"]: file for file in diff(http, sandbox)["files"]}

    text = files["text"]
    assert (text["change"], text["kind"], text["added_lines"], text["removed_lines"]) == (
        *("modified", "file"),
        *(1, 2),
    )
    assert (files["bytes"]["patch"], files["bytes"]["old_size"], files["bytes"]["new_size"]) == ("", 10, 2)
    assert files["bytes"]["remark"] == "not text: 10 bytes before, 2 bytes now"
    assert (files["empty"]["kind"], files["empty"]["remark"] is not None) == ("folder", True)
    assert (files["link"]["kind"], files["link"]["change"]) == ("link", "added")
    assert (files["long"]["patch"], files["long"]["new_size"] > 1 << 20) == ("", True)


def test_any_two_moments_can_be_compared(http: httpx.Client) -> None:
    sandbox, other = create(http), create(http)
    put(http, sandbox, "f", "0\n")
    runs = [run(http, sandbox, command=f"echo {number} > f") for number in (1, 2, 3)]
    put(http, other, "f", "other\n")

    def between(old: str, new: str) -> list[str]:
        lines = patch_of(diff(http, sandbox, **{"from": old, "to": new})).decode().splitlines()
        return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]

    first, second, third = (each["run_id"] for each in runs)
    assert between(f"{first}:before", third) == ["-0", "+3"]
    assert between(first, second) == ["-1", "+2"]
    assert between(second, f"{second}:before") == ["-2", "+1"]
    assert between(runs[0]["tree_after"], "now") == ["-1", "+3"]
    assert between("now", other) == ["-3", "+other"]
    assert between("now", "now") == []
    put(http, sandbox, "f", "4\n")
    assert between(third, "now") == ["-3", "+4"]


@pytest.mark.long
def test_what_a_run_made_can_be_compared_whatever_came_right_after_it(http: httpx.Client) -> None:
    for number in range(5):
        sandbox = create(http)
        told = run(http, sandbox, command="echo made > f")
        if number % 2:
            put(http, sandbox, "f", "uploaded\n")
        else:
            http.delete(files_url(sandbox, "f"))

        found = diff(http, sandbox, **{"from": f"{told['run_id']}:before", "to": told["run_id"]})
        assert "+made" in found["files"][0]["patch"]


def test_a_sandbox_in_which_nothing_ran_has_no_difference(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "f", "f")

    assert diff(http, sandbox)["files"] == []


def test_what_a_dry_run_did_can_be_compared_afterwards(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "f", "kept\n")
    told = run(http, sandbox, command="echo thrown away > f", keep="never")

    found = diff(http, sandbox, **{"from": "now", "to": told["run_id"]})

    assert "+thrown away" in found["files"][0]["patch"]


@pytest.mark.long
def test_while_something_runs_now_is_the_tree_before(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "f", "whole\n")
    tree = run(http, sandbox, command="true")["tree_after"]

    with at_work(http, sandbox, "echo half > f"):
        assert diff(http, sandbox, **{"from": tree})["to_tree"] == tree


@pytest.mark.long
def test_only_what_differs_is_looked_at_in_a_large_tree(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "for d in $(seq 20); do mkdir $d; (cd $d; seq 200 | xargs touch); done; echo a > 7/x")
    told = run(http, sandbox, command="echo b > 7/x")

    found = diff(http, sandbox)

    assert [file["path"] for file in found["files"]] == ["7/x"]
    assert found["from_tree"] == told["tree_before"]


@pytest.mark.long
def test_very_many_changes_are_counted_and_the_first_told(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="seq 10050 | xargs touch", timeout_s=60)

    found = diff(http, sandbox)

    assert len(found["files"]) == 10_000
    assert found["left_out"] == 50


@pytest.mark.long
def test_too_much_text_is_left_out_and_said(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="for i in 1 2 3 4 5 6 7; do seq 120000 > $i; done")

    found = diff(http, sandbox)

    shown = [file for file in found["files"] if file["patch"]]
    assert 4 <= len(shown) < 7
    assert {file["remark"] for file in found["files"] if not file["patch"]} == {
        "left out: there is too much to show"
    }


@pytest.mark.parametrize("side", ["from", "to"])
@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("run-aaaaaaaaaaaaaaaaaaaa", 404),
        ("sb-aaaaaaaaaaaaaaaaaaaa", 404),
        (NO_TREE, 404),
        ("yesterday", 422),
        ("run-short", 422),
        ("../../etc/passwd", 422),
        ("AB" * 32, 422),
        ("\u0000", 422),
        ("run-aaaaaaaaaaaaaaaaaaaa:middle", 422),
        ("x" * 101, 422),
    ],
)
def test_a_moment_that_cannot_be_is_refused(
    http: httpx.Client, sandbox: str, side: str, said: str, status: int
) -> None:
    problem = refused(http.get(f"/v1/sandboxes/{sandbox}/diff", params={side: said}), status)

    assert status == 404 or problem["field"] == side


# ------------------------------------------------------------------------------------------------ blame


def blame(http: httpx.Client, sandbox: str, path: str) -> dict[str, Any]:
    answer = http.get(f"/v1/sandboxes/{sandbox}/blame", params={"path": path})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_a_file_is_blamed_on_the_run_that_wrote_it_last(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "uploaded", "u")
    first = run(http, sandbox, command="echo 1 > out; echo o > other", created_by="ann", agent="claude")
    second = run(http, sandbox, command="echo 2 > out")
    run(http, sandbox, command="cat out")

    told = blame(http, sandbox, "out")
    assert (told["by"], told["run_id"], told["said"]) == ("run", second["run_id"], "echo 2 > out")
    assert told["digest"] == http.get(files_url(sandbox, "out")).headers["etag"].strip('"')
    other = blame(http, sandbox, "other")
    assert (other["run_id"], other["created_by"], other["agent"]) == (first["run_id"], "ann", "claude")
    uploaded = blame(http, sandbox, "uploaded")
    assert (uploaded["by"], uploaded["run_id"], uploaded["passed_over"]) == ("files.written", None, 0)
    assert uploaded["at"] is not None


def test_an_upload_takes_the_blame_from_a_run(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="echo 1 > out")
    put(http, sandbox, "out", "2")
    run(http, sandbox, command="echo unrelated > else")

    assert blame(http, sandbox, "out")["by"] == "files.written"


def test_a_dry_run_is_blamed_for_nothing(http: httpx.Client, sandbox: str) -> None:
    first = run(http, sandbox, command="echo 1 > out")
    run(http, sandbox, command="echo 2 > out", keep="never")

    told = blame(http, sandbox, "out")

    assert (told["run_id"], told["passed_over"]) == (first["run_id"], 0)


@pytest.mark.long
def test_where_a_list_was_cut_the_trees_tell(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "zzz", "upload")
    many = run(http, sandbox, command="seq 1500 | xargs touch; echo run > zzz")
    assert many["changes"]["left_out"] > 0
    run(http, sandbox, command="seq 2000 3500 | xargs touch")

    told = blame(http, sandbox, "zzz")

    assert (told["run_id"], told["passed_over"]) == (many["run_id"], 0)


def test_names_that_are_no_text_can_be_blamed(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command=["python3", "-c", "open(b'\\xff\\xfe odd', 'w').write('x')"])

    answer = http.get(f"/v1/sandboxes/{sandbox}/blame?path=%FF%FE%20odd")

    assert answer.json()["run_id"] == told["run_id"]


def passages(told: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in told["through"]]


@pytest.mark.long
def test_what_an_undo_brought_back_is_blamed_on_the_run_that_wrote_it(
    http: httpx.Client, sandbox: str
) -> None:
    put(http, sandbox, "uploaded", "u")
    first = run(http, sandbox, command="echo 1 > out")
    run(http, sandbox, command="echo 2 > out; echo 2 > uploaded")
    third = run(http, sandbox, command="echo 3 > out; echo 3 > other")
    for _ in range(2):
        assert http.post(f"/v1/sandboxes/{sandbox}/undo").status_code == 200

    told = blame(http, sandbox, "out")
    assert (told["by"], told["run_id"], passages(told)) == ("run", first["run_id"], ["files.undo"])
    uploaded = blame(http, sandbox, "uploaded")
    assert (uploaded["by"], passages(uploaded)) == ("files.written", ["files.undo"])

    back = http.post(f"/v1/sandboxes/{sandbox}/restore", json={"run": third["run_id"], "side": "after"})
    assert back.status_code == 200, back.text
    told = blame(http, sandbox, "out")
    assert (told["run_id"], passages(told)) == (third["run_id"], ["files.restore"])


@pytest.mark.long
def test_what_a_fork_began_with_is_blamed_on_the_run_that_wrote_it(http: httpx.Client, sandbox: str) -> None:
    wrote = run(http, sandbox, command="echo 1 > out; echo 1 > own")
    [child] = http.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["sandboxes"]
    run(http, sandbox, command="echo later > out")
    own = run(http, child["id"], command="echo 2 > own")
    [grandchild] = http.post(f"/v1/sandboxes/{child['id']}/fork", json={}).json()["sandboxes"]

    told = blame(http, grandchild["id"], "out")
    assert (told["run_id"], told["sandbox_id"]) == (wrote["run_id"], sandbox)
    assert passages(told) == ["fork", "fork"]
    assert [each["sandbox_id"] for each in told["through"]] == [grandchild["id"], child["id"]]
    assert blame(http, grandchild["id"], "own")["run_id"] == own["run_id"]
    run(http, grandchild["id"], command="echo 3 > own")
    assert passages(blame(http, grandchild["id"], "own")) == []


@pytest.mark.long
def test_what_came_from_a_snapshot_is_blamed_on_the_run_that_wrote_it(
    http: httpx.Client, sandbox: str
) -> None:
    wrote = run(http, sandbox, command="echo 1 > out")
    taken = http.post(f"/v1/sandboxes/{sandbox}/snapshots").json()["id"]
    run(http, sandbox, command="echo 2 > out")
    begun = create(http, from_snapshot=taken)
    other = create(http)
    run(http, other, command="echo other > out")
    assert http.post(f"/v1/sandboxes/{other}/restore", json={"snapshot": taken}).status_code == 200

    told = blame(http, begun, "out")
    assert (told["run_id"], told["sandbox_id"]) == (wrote["run_id"], sandbox)
    assert passages(told) == ["from_snapshot"]
    told = blame(http, other, "out")
    assert (told["run_id"], passages(told)) == (wrote["run_id"], ["files.restore"])

    http.delete(f"/v1/snapshots/{taken}")
    told = blame(http, begun, "out")
    assert (told["by"], told["from_snapshot"]) == (None, taken)


@pytest.mark.long
def test_what_a_merge_brought_is_blamed_on_the_run_that_wrote_it(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="echo 1 > out; echo 1 > own")
    [child] = http.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["sandboxes"]
    wrote = run(http, child["id"], command="echo 2 > out")
    mine = run(http, sandbox, command="echo 2 > own")
    assert merge(http, sandbox, **{"from": child["id"]}).status_code == 200
    http.delete(f"/v1/sandboxes/{child['id']}")

    told = blame(http, sandbox, "out")

    assert (told["run_id"], told["sandbox_id"]) == (wrote["run_id"], child["id"])
    assert passages(told) == ["files.merge"]
    assert blame(http, sandbox, "own")["run_id"] == mine["run_id"]


@pytest.mark.parametrize(
    ("path", "status"), [("nowhere", 404), ("folder", 409), ("", 422), ("../x", 404), ("a/../folder/f", 404)]
)
def test_what_is_no_file_cannot_be_blamed(http: httpx.Client, sandbox: str, path: str, status: int) -> None:
    put(http, sandbox, "folder/f", "f")

    refused(http.get(f"/v1/sandboxes/{sandbox}/blame", params={"path": path}), status)


def merge(http: httpx.Client, sandbox: str, **body: Any) -> httpx.Response:
    return http.post(f"/v1/sandboxes/{sandbox}/merge", json=body)
