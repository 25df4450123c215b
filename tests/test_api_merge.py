"""Merging through HTTP: what either side changed, conflicts by name, and whose side wins."""

from typing import Any

import httpx
import pytest

from tests.calls import at_work, create, files_url, put, refused, run, sh
from tests.test_api_compare import NO_TREE, blame, diff, merge, passages


def three(http: httpx.Client, ours: str, theirs: str) -> tuple[str, str, str]:
    """Return two sandboxes that come from one tree by a script each, and that tree."""
    mine, other = create(http), create(http)
    for sandbox in (mine, other):
        for name in ("a", "b", "c/d", "e"):
            put(http, sandbox, name, f"{name}\n")
    base = run(http, mine, command=ours)["tree_before"]
    assert run(http, other, command=theirs)["tree_before"] == base
    return mine, other, base


def test_what_either_side_changed_is_there(http: httpx.Client) -> None:
    mine, other, base = three(
        http,
        "echo mine > a; rm e; echo n > new",
        "echo theirs > b; rm -r c; mkdir z; echo z > z/z; chmod +x a",
    )

    answer = merge(http, mine, **{"from": other, "base": base})

    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["changes"] == {
        "added": ["z/z"],
        "modified": ["a", "b"],
        "deleted": ["c/d"],
        "left_out": 0,
    }
    assert told["conflicts"] == []
    assert sh(http, mine, "cat a b new z/z; ls; test -x a") == "mine\ntheirs\nn\nz\na\nb\nnew\nz\n"
    assert run(http, mine, command="true")["tree_before"] == told["tree"]
    assert sh(http, other, "ls") == "a\nb\ne\nz\n"
    told = blame(http, mine, "b")
    assert (told["by"], told["sandbox_id"], passages(told)) == ("run", other, ["files.merge"])


@pytest.mark.long
def test_a_conflict_is_named_and_nothing_is_done(http: httpx.Client) -> None:
    mine, other, base = three(http, "echo mine > a; echo m > b", "echo theirs > a; echo t > e")
    before = sh(http, mine, "cat a b e")

    problem = refused(merge(http, mine, **{"from": other, "base": base}), 409)

    assert problem["code"] == "paths_conflict"
    assert [each["path"] for each in problem["conflicts"]] == ["a"]
    assert sh(http, mine, "cat a b e") == before


@pytest.mark.long
@pytest.mark.parametrize(("prefer", "expected"), [("ours", "mine\nm\nt\n"), ("theirs", "theirs\nm\nt\n")])
def test_whose_side_wins_may_be_said(http: httpx.Client, prefer: str, expected: str) -> None:
    mine, other, base = three(http, "echo mine > a; echo m > b", "echo theirs > a; echo t > e")

    told = merge(http, mine, **{"from": other, "base": base, "prefer": prefer}).json()

    assert [each["path"] for each in told["conflicts"]] == ["a"]
    assert sh(http, mine, "cat a b e") == expected


@pytest.mark.long
@pytest.mark.parametrize("prefer", ["ours", "theirs"])
def test_a_folder_one_side_deleted_and_the_other_filled(http: httpx.Client, prefer: str) -> None:
    mine, other, base = three(http, "rm -r c", "echo more > c/more; echo x > c/d")

    told = merge(http, mine, **{"from": other, "base": base, "prefer": prefer})

    assert told.status_code == 200, told.text
    there = sh(http, mine, "find c 2>/dev/null | sort; true")
    assert there == ("" if prefer == "ours" else "c\nc/d\nc/more\n")


@pytest.mark.long
def test_a_fork_s_changes_come_back_without_a_base(http: httpx.Client) -> None:
    parent = create(http)
    for name in "abc":
        put(http, parent, name, f"{name}\n")
    forks = http.post(f"/v1/sandboxes/{parent}/fork", json={"n": 2}).json()["sandboxes"]
    one, other = (fork["id"] for fork in forks)
    sh(http, one, "echo one > a")
    sh(http, other, "echo other > b; rm c")
    put(http, parent, "d", "d\n")

    assert merge(http, parent, **{"from": one}).status_code == 200
    assert merge(http, parent, **{"from": other}).status_code == 200
    assert sh(http, parent, "cat a b d; ls") == "one\nother\nd\na\nb\nd\n"
    assert merge(http, one, **{"from": parent}).status_code == 200
    assert sh(http, one, "cat a b d; ls") == "one\nother\nd\na\nb\nd\n"


@pytest.mark.long
def test_a_snapshot_can_be_compared_and_merged(http: httpx.Client) -> None:
    sandbox = create(http)
    put(http, sandbox, "a", "old\n")
    base = run(http, sandbox, command="echo new > a")["run_id"]
    taken = http.post(f"/v1/sandboxes/{sandbox}/snapshots", json={"name": "compared"}).json()
    for snapshot in (taken["id"], "compared"):
        other = create(http)
        put(http, other, "a", "old\n")
        put(http, other, "b", "b\n")

        assert diff(http, sandbox, **{"from": snapshot})["files"] == []
        assert merge(http, other, **{"from": snapshot, "base": f"{base}:before"}).status_code == 200
        assert sh(http, other, "cat a b") == "new\nb\n"
    http.delete(f"/v1/snapshots/{taken['id']}")


@pytest.mark.long
def test_a_tree_can_be_merged_by_its_address(http: httpx.Client) -> None:
    mine, other, base = three(http, "echo mine > a", "echo theirs > b")
    tree = run(http, other, command="true")["tree_after"]
    http.delete(f"/v1/sandboxes/{other}")

    assert merge(http, mine, **{"from": tree, "base": base}).status_code == 200
    assert sh(http, mine, "cat a b") == "mine\ntheirs\n"


@pytest.mark.long
def test_merging_what_is_there_already_changes_nothing(http: httpx.Client) -> None:
    mine, other, base = three(http, "echo same > a", "echo same > a")
    before = run(http, mine, command="true")["tree_after"]

    told = merge(http, mine, **{"from": other, "base": base}).json()

    assert (told["tree"], told["changes"]["modified"]) == (before, [])


@pytest.mark.long
def test_what_was_merged_before_is_the_base_the_next_time(http: httpx.Client) -> None:
    mine, other, base = three(http, "echo mine > a", "echo one > b")
    merge(http, mine, **{"from": other, "base": base})
    sh(http, other, "echo two > b")

    assert merge(http, mine, **{"from": other}).status_code == 200
    assert sh(http, mine, "cat a b") == "mine\ntwo\n"


@pytest.mark.long
def test_nothing_is_merged_into_what_runs_and_uploads_wait_for_no_half(http: httpx.Client) -> None:
    mine, other, base = three(http, "true", "echo theirs > b")

    with at_work(http, mine):
        refused(merge(http, mine, **{"from": other, "base": base}), 409)

    assert merge(http, mine, **{"from": other, "base": base}).status_code == 200


@pytest.mark.long
def test_what_would_not_fit_is_refused_and_nothing_is_done(http: httpx.Client) -> None:
    mine, other, base = three(http, "true", "head -c 3000000 /dev/urandom > big")
    http.patch(f"/v1/sandboxes/{mine}", json={"limits": {"disk_bytes": 2**20}})

    refused(merge(http, mine, **{"from": other, "base": base}), 507)
    assert http.get(files_url(mine, "big")).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "from"),
        ({"from": "somewhere"}, 422, "from"),
        ({"from": NO_TREE}, 404, None),
        ({"from": "sb-aaaaaaaaaaaaaaaaaaaa"}, 404, None),
        ({"from": "now", "base": "elsewhere"}, 422, "base"),
        ({"from": "now"}, 422, "base"),
        ({"from": "now", "base": "now", "prefer": "mine"}, 422, "prefer"),
        ({"from": "now", "onto": "x"}, 422, "onto"),
        ({"from": 7}, 422, "from"),
    ],
)
def test_a_merge_that_cannot_be_is_refused(
    http: httpx.Client, sandbox: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    problem = refused(merge(http, sandbox, **body), status)

    assert problem.get("field") == field
