"""Each run is a step from one tree to the next, and the record says which."""

import re

import httpx
import pytest

from tests.calls import create, put, run


def test_a_run_that_only_reads_ends_with_the_tree_it_began_with(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "a", "a")

    told = run(http, sandbox, command="cat a")

    assert re.fullmatch("[0-9a-f]{64}", told["tree_before"])
    assert told["tree_before"] == told["tree_after"]
    assert told["changes"] == {"added": [], "modified": [], "deleted": [], "left_out": 0}


def test_what_a_run_did_to_the_files_is_in_its_answer_and_on_record(http: httpx.Client, sandbox: str) -> None:
    for name in ("kept", "changed", "gone", "d/deep"):
        put(http, sandbox, name, name)
    before = http.get(f"/v1/sandboxes/{sandbox}").json()["tree"]

    told = run(
        http,
        sandbox,
        command="echo x >> changed; rm gone; rm -r d; mkdir new; ln -s kept new/link; touch out",
    )

    assert told["tree_before"] == before != told["tree_after"]
    assert told["changes"] == {
        "added": ["new", "new/link", "out"],
        "modified": ["changed"],
        "deleted": ["d", "d/deep", "gone"],
        "left_out": 0,
    }
    kept = http.get(f"/v1/runs/{told['run_id']}").json()
    assert {name: kept[name] for name in ("tree_before", "tree_after", "changes")} == {
        name: told[name] for name in ("tree_before", "tree_after", "changes")
    }
    assert http.get(f"/v1/sandboxes/{sandbox}").json()["tree"] == told["tree_after"]


def test_the_same_files_are_the_same_tree_wherever_they_are(http: httpx.Client) -> None:
    trees = set()
    for order in (("a", "b/c"), ("b/c", "a")):
        sandbox = create(http)
        for name in order:
            put(http, sandbox, name, name)
        trees.add(http.get(f"/v1/sandboxes/{sandbox}").json()["tree"])

    assert len(trees) == 1


def test_undoing_a_change_gives_the_tree_there_was(http: httpx.Client, sandbox: str) -> None:
    first = run(http, sandbox, command="echo 1 > n")["tree_after"]
    second = run(http, sandbox, command="echo 2 > n")["tree_after"]
    third = run(http, sandbox, command="echo 1 > n")["tree_after"]

    assert first == third != second


@pytest.mark.long
def test_a_run_that_was_cut_short_still_tells_what_it_wrote(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command="echo half > out; sleep 60", timeout_s=1)

    assert told["timed_out"]
    assert told["changes"]["added"] == ["out"]


@pytest.mark.long
def test_many_changes_are_counted_and_the_first_named(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command="mkdir m; cd m; for i in $(seq 1500); do : > $i; done")

    assert len(told["changes"]["added"]) == 1000
    assert told["changes"]["left_out"] == 501


@pytest.mark.long
def test_a_large_tree_is_watched_and_its_runs_told_alike(http: httpx.Client, sandbox: str) -> None:
    run(http, sandbox, command="mkdir m; cd m; for i in $(seq 600); do : > $i; done")
    run(http, sandbox, command="true")

    told = run(
        http, sandbox, command="echo x > m/77; mv m/78 other; rm m/79; ln m/80 second; echo y >> second"
    )

    assert told["changes"] == {
        "added": ["other", "second"],
        "modified": ["m/77", "m/80"],
        "deleted": ["m/78", "m/79"],
        "left_out": 0,
    }


def test_a_name_that_is_no_text_is_told_as_far_as_it_is(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command="touch \"$(printf 'b\\377')\"")

    assert told["changes"]["added"] == ["b\ufffd"]
