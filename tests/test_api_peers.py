"""Peers: one sandbox's runs read another's files, as one whole tree, and can do nothing else with them."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.calls import ask, create, eventually, files_url, put, refused, run, sh
from tests.conftest import Server

pytestmark = pytest.mark.long


def pair(http: httpx.Client, **peer: object) -> tuple[str, str]:
    """Return a writer with a file, and a reviewer that sees it."""
    writer = create(http)
    put(http, writer, "notes.txt", "first\n")
    return writer, create(http, peers=[{"sandbox": writer, "at": "/peers/writer", **peer}])


def test_a_run_reads_its_peer_s_files_as_they_are_now(http: httpx.Client) -> None:
    writer, reviewer = pair(http)

    assert sh(http, reviewer, "cat /peers/writer/notes.txt") == "first\n"
    put(http, writer, "notes.txt", "second\n")
    sh(http, writer, "mkdir d; echo deep > d/new; chmod +x d/new")
    assert sh(http, reviewer, "cat /peers/writer/notes.txt /peers/writer/d/new") == "second\ndeep\n"
    assert sh(http, reviewer, "test -x /peers/writer/d/new; pwd; ls") == "/workspace\n"


def test_what_a_run_saw_is_on_record(http: httpx.Client) -> None:
    writer, reviewer = pair(http)

    first = run(http, reviewer, command="true")
    tree = http.get(f"/v1/sandboxes/{writer}").json()["tree"]
    put(http, writer, "notes.txt", "second\n")
    second = run(http, reviewer, command="true")

    assert first["peers"] == [{"sandbox": writer, "at": "/peers/writer", "tree": tree}]
    assert second["peers"][0]["tree"] not in (tree, None)
    assert http.get(f"/v1/runs/{first['run_id']}").json()["peers"] == first["peers"]


def test_a_frozen_tree_stays_as_it_was_even_when_the_peer_is_gone(http: httpx.Client) -> None:
    writer = create(http)
    put(http, writer, "notes.txt", "first\n")
    tree = run(http, writer, command="true")["tree_before"]
    reviewer = create(http, peers=[{"sandbox": writer, "at": "/peers/writer", "tree": tree}])
    put(http, writer, "notes.txt", "second\n")

    assert sh(http, reviewer, "cat /peers/writer/notes.txt") == "first\n"
    http.delete(f"/v1/sandboxes/{writer}")
    assert sh(http, reviewer, "cat /peers/writer/notes.txt") == "first\n"


def test_a_snapshot_can_be_a_peer_s_moment(http: httpx.Client) -> None:
    writer = create(http)
    put(http, writer, "notes.txt", "first\n")
    snapshot = http.post(f"/v1/sandboxes/{writer}/snapshots", json={}).json()
    body = {"sandbox": writer, "at": "/peers/writer", "snapshot": snapshot["id"]}
    reviewer = create(http, peers=[body])
    put(http, writer, "notes.txt", "second\n")
    http.delete(f"/v1/snapshots/{snapshot['id']}")

    shown = http.get(f"/v1/sandboxes/{reviewer}").json()["peers"]
    assert shown == [{**body, "tree": snapshot["tree"]}]
    assert sh(http, reviewer, "cat /peers/writer/notes.txt") == "first\n"


def test_a_fork_has_the_peers_of_what_it_was_forked_from(http: httpx.Client) -> None:
    _, reviewer = pair(http)

    (fork,) = http.post(f"/v1/sandboxes/{reviewer}/fork", json={}).json()["sandboxes"]

    assert sh(http, fork["id"], "cat /peers/writer/notes.txt") == "first\n"


def test_a_peer_that_is_gone_is_said_and_nothing_is_run(http: httpx.Client) -> None:
    writer, reviewer = pair(http)
    http.delete(f"/v1/sandboxes/{writer}")

    problem = refused(ask(http, reviewer, command="echo ran > ran"), 409)

    assert writer in problem["detail"]
    assert "PATCH" in problem["detail"]
    assert http.get(files_url(reviewer, "ran")).status_code == 404
    patched = http.patch(f"/v1/sandboxes/{reviewer}", json={"peers": []})
    assert patched.json()["peers"] == []
    assert sh(http, reviewer, "ls /peers 2>/dev/null; echo ran") == "ran\n"


def test_while_the_peer_s_own_run_writes_the_tree_before_it_is_seen(http: httpx.Client) -> None:
    writer, reviewer = pair(http)
    before = run(http, writer, command="true")["tree_after"]
    writing = threading.Thread(
        target=lambda: ask(
            http, writer, command="echo half > notes.txt; mkdir x; sleep 3; echo whole > notes.txt"
        )
    )
    writing.start()
    eventually(lambda: http.get(f"/v1/sandboxes/{writer}/files", params={"path": "x"}).status_code == 200)

    told = run(http, reviewer, command="cat /peers/writer/notes.txt")
    writing.join()

    assert told["stdout"] == "first\n"
    assert told["peers"][0]["tree"] == before
    assert sh(http, reviewer, "cat /peers/writer/notes.txt") == "whole\n"


def test_a_run_sees_one_tree_to_its_end(http: httpx.Client) -> None:
    writer, reviewer = pair(http)
    answers: list[str] = []
    script = "cat /peers/writer/notes.txt; mkdir x; sleep 2; cat /peers/writer/notes.txt"
    looking = threading.Thread(target=lambda: answers.append(run(http, reviewer, command=script)["stdout"]))
    looking.start()
    eventually(lambda: http.get(f"/v1/sandboxes/{reviewer}/files", params={"path": "x"}).status_code == 200)
    put(http, writer, "notes.txt", "second\n")
    other = create(http, peers=[{"sandbox": writer, "at": "/peers/writer"}])
    assert sh(http, other, "cat /peers/writer/notes.txt") == "second\n"
    looking.join()

    assert answers == ["first\nfirst\n"]


@pytest.mark.parametrize(
    "attack",
    [
        "echo x > /peers/writer/notes.txt",
        "echo x > /peers/writer/new",
        "rm /peers/writer/notes.txt",
        "chmod 777 /peers/writer/notes.txt",
        "mv /peers/writer/notes.txt /peers/writer/other",
        "mkdir /peers/mine",
        "ln /peers/writer/notes.txt /workspace/mine && echo x > /workspace/mine",
        "mount -o remount,rw /peers/writer",
        "umount /peers/writer",
        "touch /peers/writer/notes.txt",
    ],
)
def test_nothing_can_be_written_there(http: httpx.Client, attack: str) -> None:
    writer, reviewer = pair(http)

    told = run(http, reviewer, command=f"{attack} && echo done")

    assert "done" not in told["stdout"]
    assert sh(http, writer, "cat notes.txt; ls") == "first\nnotes.txt\n"
    assert sh(http, reviewer, "cat /peers/writer/notes.txt") == "first\n"


def test_hostile_files_lead_nowhere(http: httpx.Client) -> None:
    writer, reviewer = pair(http)
    sh(
        http,
        writer,
        "ln -s /etc/passwd passwd; ln -s ../../../../../../.. up; mkfifo pipe; ln -s loop loop; "
        "ln -s /proc/self/environ environ; mkdir -p a/b; ln -s .. a/b/back",
    )

    seen = sh(http, reviewer, "cd /peers/writer; ls; head -c 8 passwd; ls up/workspace | wc -l; ls a/b/back")

    assert "pipe" not in seen
    assert "petri:x:" in seen  # the reader's own made /etc, not the host's
    assert seen.endswith("0\nb\n")


def test_a_peer_with_very_many_files_is_seen_whole(http: httpx.Client) -> None:
    writer, reviewer = pair(http)
    sh(http, writer, "for d in 0 1 2 3 4 5 6 7 8 9; do mkdir $d; (cd $d; seq 300 | xargs touch); done")

    assert sh(http, reviewer, "find /peers/writer -type f | wc -l") == "3001\n"
    put(http, writer, "one-more", "x")
    begun = time.monotonic()
    assert sh(http, reviewer, "find /peers/writer -type f | wc -l") == "3002\n"
    assert time.monotonic() - begun < 10


def test_a_peer_s_peers_are_not_seen(http: httpx.Client) -> None:
    writer, reviewer = pair(http)
    third = create(http, peers=[{"sandbox": reviewer, "at": "/peers/reviewer"}])

    assert sh(http, third, "ls /peers /peers/reviewer") == "/peers:\nreviewer\n\n/peers/reviewer:\n"
    assert writer != third


def test_two_may_see_each_other_and_run_at_once(http: httpx.Client) -> None:
    one, other = create(http), create(http)
    put(http, one, "name", "one\n")
    put(http, other, "name", "other\n")
    for mine, theirs in ((one, other), (other, one)):
        body = {"peers": [{"sandbox": theirs, "at": "/peers/them", "follow": True}]}
        assert http.patch(f"/v1/sandboxes/{mine}", json=body).status_code == 200
    answers: dict[str, str] = {}

    def look(sandbox: str) -> None:
        answers[sandbox] = run(http, sandbox, command="cat /peers/them/name; sleep 0.5")["stdout"]

    looking = [threading.Thread(target=look, args=(each,)) for each in (one, other)]
    for thread in looking:
        thread.start()
    for thread in looking:
        thread.join()

    assert answers == {one: "other\n", other: "one\n"}


def test_a_dry_run_sees_its_peers_too(http: httpx.Client) -> None:
    _, reviewer = pair(http)

    told = run(http, reviewer, command="cp /peers/writer/notes.txt .", keep="never")

    assert told["changes"]["added"] == ["notes.txt"]
    assert told["kept"] is False


def test_a_sandbox_is_no_peer_of_its_own(http: httpx.Client, sandbox: str) -> None:
    body = {"peers": [{"sandbox": sandbox, "at": "/peers/me"}]}

    problem = refused(http.patch(f"/v1/sandboxes/{sandbox}", json=body), 422)

    assert problem["field"] == "peers.0.sandbox"


@pytest.mark.parametrize(
    "at",
    [
        "",
        "/",
        "peers/x",
        "/peers",
        "/peers/",
        "/peers/x/",
        "/peers//x",
        "/peers/../x",
        "/peers/./x",
        "/peers/.x",
        "/peers/a b",
        "/peers/x\n",
        "/peers/é",
        "/workspace/x",
        "/etc",
        "/peersx/y",
        "/peers/" + "x" * 64,
        "/peers/a/b/c/d/e",
        "/peers/-rf",
        7,
        None,
    ],
)
def test_a_place_that_cannot_be_is_refused(http: httpx.Client, sandbox: str, at: object) -> None:
    problem = refused(http.post("/v1/sandboxes", json={"peers": [{"sandbox": sandbox, "at": at}]}), 422)

    assert problem["field"] == "peers.0.at"


@pytest.mark.parametrize(
    ("peer", "field"),
    [
        ({"sandbox": "sb-aaaaaaaaaaaaaaaaaaaa"}, "peers.0.sandbox"),
        ({"sandbox": "../../etc"}, "peers.0.sandbox"),
        ({"sandbox": ""}, "peers.0.sandbox"),
        ({"tree": "00" * 32}, "peers.0.tree"),
        ({"tree": "xyz"}, "peers.0.tree"),
        ({"tree": "AB" * 32}, "peers.0.tree"),
        ({"snapshot": "snap-aaaaaaaaaaaaaaaaaaaa"}, "peers.0.snapshot"),
        ({"tree": "00" * 32, "follow": True}, "peers.0"),
        ({"follow": False}, "peers.0.follow"),
        ({"write": True}, "peers.0.write"),
    ],
)
def test_a_peer_that_cannot_be_is_refused(
    http: httpx.Client, sandbox: str, peer: dict[str, object], field: str
) -> None:
    body = {"peers": [{"sandbox": sandbox, "at": "/peers/x", **peer}]}

    assert refused(http.post("/v1/sandboxes", json=body), 422)["field"] == field


@pytest.mark.parametrize(
    "places", [("/peers/x", "/peers/x"), ("/peers/x", "/peers/x/y"), ("/peers/a/b", "/peers/z", "/peers/a")]
)
def test_places_that_hide_each_other_are_refused(
    http: httpx.Client, sandbox: str, places: tuple[str, ...]
) -> None:
    body = {"peers": [{"sandbox": sandbox, "at": at} for at in places]}

    assert "hides" in refused(http.post("/v1/sandboxes", json=body), 422)["detail"]


def test_sixteen_peers_may_be_and_no_more(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "f", "f")
    peers = [{"sandbox": sandbox, "at": f"/peers/p{number}"} for number in range(17)]

    refused(http.post("/v1/sandboxes", json={"peers": peers}), 422)
    reviewer = create(http, peers=peers[:16])
    assert sh(http, reviewer, "cat /peers/*/f | wc -c") == "16\n"


@pytest.mark.slow
def test_checkouts_are_gone_after_a_crash_and_made_again(new_server: Callable[..., Server]) -> None:
    server = new_server()
    trees = Path(server.home) / "petri" / "checkouts" / "trees"
    with server.client() as http:
        _, reviewer = pair(http)
        sh(http, reviewer, "true")
        left = set(trees.iterdir())
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as http:
        assert left
        assert not left & set(trees.iterdir())
        assert sh(http, reviewer, "cat /peers/writer/notes.txt") == "first\n"
