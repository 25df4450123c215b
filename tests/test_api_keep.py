"""`keep`: what a run did to the files is told, and stays, or the files are as before."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from petri.model import Outcome, Usage
from tests.calls import ask, at_work, create, eventually, files_url, put, refused, run, sh
from tests.conftest import Server

_SMALL = {"limits": {"disk_bytes": 8 << 20}}
MESS = "echo more >> kept; rm gone; mkdir -p new/deep; echo n > new/deep/file; ln -s kept link; chmod +x tool"


def files_of(http: httpx.Client, sandbox: str) -> dict[str, str]:
    """Return what is in a sandbox: every path, with its mode and content."""
    listed = http.get(f"/v1/sandboxes/{sandbox}/files", params={"recursive": True}).json()["entries"]
    return {
        entry["path"]: entry["mode"][-3]
        + (http.get(files_url(sandbox, entry["path"])).text if entry["kind"] == "file" else "")
        for entry in listed
    }


def is_there(http: httpx.Client, sandbox: str, folder: str) -> bool:
    return http.get(f"/v1/sandboxes/{sandbox}/files", params={"path": folder}).status_code == 200


def prepared(http: httpx.Client, **wish: object) -> str:
    sandbox = create(http, **wish)
    for name in ("kept", "gone", "tool"):
        put(http, sandbox, name, name)
    return sandbox


def test_a_dry_run_tells_what_it_did_and_leaves_the_files_as_they_were(http: httpx.Client) -> None:
    sandbox = prepared(http)
    before = files_of(http, sandbox)

    told = run(http, sandbox, command=MESS, keep="never")

    assert told["exit_code"] == 0
    assert (told["keep"], told["kept"]) == ("never", False)
    assert told["changes"] == {
        "added": ["link", "new", "new/deep", "new/deep/file"],
        "modified": ["kept", "tool"],
        "deleted": ["gone"],
        "left_out": 0,
    }
    assert told["tree_after"] != told["tree_before"]
    assert files_of(http, sandbox) == before
    assert http.get(f"/v1/sandboxes/{sandbox}").json()["tree"] == told["tree_before"]
    again = run(http, sandbox, command="true")
    assert again["tree_before"] == told["tree_before"]
    kept = http.get(f"/v1/runs/{told['run_id']}").json()
    assert (kept["keep"], kept["kept"], kept["tree_after"]) == ("never", False, told["tree_after"])


def test_what_succeeds_is_kept_on_success(http: httpx.Client) -> None:
    sandbox = prepared(http)

    told = run(http, sandbox, command=MESS, keep="on_success")

    assert (told["kept"], told["exit_code"]) == (True, 0)
    assert http.get(f"/v1/sandboxes/{sandbox}").json()["tree"] == told["tree_after"]
    assert sh(http, sandbox, "cat new/deep/file; ls") == "n\nkept\nlink\nnew\ntool\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "how"),
    [
        (f"{MESS}; exit 3", {}),
        (f"{MESS}; kill -9 $$", {}),
        pytest.param(f"{MESS}; sleep 60", {"timeout_s": 1}, marks=pytest.mark.long),
        pytest.param(
            f"{MESS}; python3 -c 'x = bytearray(400 << 20)'",
            {"limits": {"memory_bytes": 64 << 20}},
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups"),
        ),
        (f"{MESS}; for i in 1 2 3; do head -c 6000000 /dev/zero | tr '\\0' x > $i; done; sleep 60", _SMALL),
        ("/no/such/program", {}),
    ],
)
def test_what_does_not_succeed_is_not_kept(http: httpx.Client, command: str, how: dict[str, object]) -> None:
    sandbox = prepared(http)
    before = files_of(http, sandbox)

    told = run(http, sandbox, command=command, keep="on_success", **how)

    assert told["kept"] is False
    assert told["exit_code"] != 0
    assert files_of(http, sandbox) == before


@pytest.mark.parametrize("cut_short", ["timed_out", "oom_killed", "cancelled", "disk_full"])
def test_an_exit_code_of_zero_is_no_success_by_itself(cut_short: str) -> None:
    ended = Outcome(1.0, Usage(1.0, 1), exit_code=0)

    assert ended.is_success
    assert not replace(ended, **{cut_short: True}).is_success  # type: ignore[arg-type]
    assert not replace(ended, exit_code=1).is_success
    assert not replace(ended, exit_code=None, signal=9).is_success


def test_a_cancelled_run_is_not_kept(http: httpx.Client) -> None:
    sandbox = prepared(http)
    before = files_of(http, sandbox)
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(ask(http, sandbox, command=f"{MESS}; sleep 60", keep="on_success"))
    )
    asking.start()
    eventually(lambda: is_there(http, sandbox, "new/deep"))
    http.post(f"/v1/runs/{_running(http, sandbox)[0]}/cancel")
    asking.join()

    assert (answers[0].json()["cancelled"], answers[0].json()["kept"]) == (True, False)
    assert files_of(http, sandbox) == before


def _running(http: httpx.Client, sandbox: str) -> list[str]:
    found = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]
    return [each["run_id"] for each in found if each["state"] == "running"]


@pytest.mark.long
def test_what_comes_in_meanwhile_is_refused_and_nothing_acknowledged_is_lost(http: httpx.Client) -> None:
    sandbox = prepared(http)

    with at_work(http, sandbox, keep="never"):
        problem = refused(http.put(files_url(sandbox, "mine"), content=b"mine"), 409)
        assert "keep" in problem["detail"]
        refused(http.delete(files_url(sandbox, "kept")), 409)

    put(http, sandbox, "mine", "mine")
    assert sorted(files_of(http, sandbox)) == ["gone", "kept", "mine", "tool"]


@pytest.mark.long
def test_uploads_and_dry_runs_at_once_lose_nothing(http: httpx.Client) -> None:
    sandbox = create(http)
    told: list[str] = []
    stop = threading.Event()

    def upload(writer: int) -> None:
        number = 0
        while not stop.is_set():
            name = f"w{writer}-{number}"
            if http.put(files_url(sandbox, name), content=name.encode()).status_code == 201:
                told.append(name)
            number += 1

    writers = [threading.Thread(target=upload, args=(writer,)) for writer in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(8):
        run(http, sandbox, command="ls > listing; rm -f w0-*", keep="never")
    stop.set()
    for writer in writers:
        writer.join()

    there = files_of(http, sandbox)
    assert [name for name in told if name not in there] == []
    assert "listing" not in there


def test_the_next_run_waits_until_the_files_are_as_before(http: httpx.Client) -> None:
    sandbox = prepared(http)
    answers: list[str] = []
    first = threading.Thread(
        target=lambda: ask(http, sandbox, command="rm kept; sleep 0.5; rm gone", keep="never")
    )
    first.start()
    eventually(lambda: bool(_running(http, sandbox)))
    second = threading.Thread(target=lambda: answers.append(run(http, sandbox, command="ls")["stdout"]))
    second.start()
    first.join()
    second.join()

    assert answers == ["gone\nkept\ntool\n"]


@pytest.mark.long
def test_a_dry_run_in_line_behind_another_sees_what_that_kept(http: httpx.Client) -> None:
    sandbox = prepared(http)
    first = threading.Thread(target=lambda: ask(http, sandbox, command="sleep 0.5; echo 1 > kept"))
    first.start()
    eventually(lambda: bool(_running(http, sandbox)))

    told = run(http, sandbox, command="cat kept; echo 2 > kept", keep="never")
    first.join()

    assert told["stdout"] == "1\n"
    assert sh(http, sandbox, "cat kept") == "1\n"


@pytest.mark.long
def test_hostile_leftovers_do_not_keep_the_files_from_going_back(http: httpx.Client) -> None:
    sandbox = prepared(http)
    before = files_of(http, sandbox)

    told = run(
        http,
        sandbox,
        command="rm kept; mkfifo kept; mkdir -p d/e; echo x > d/e/f; chmod 0 d/e d; rm gone; mkdir gone",
        keep="never",
    )

    assert told["exit_code"] == 0, told
    assert files_of(http, sandbox) == before
    assert sh(http, sandbox, "cat kept gone") == "keptgone"


@pytest.mark.parametrize("keep", ["never", "on_success"])
def test_what_is_gone_anyway_may_say_so(http: httpx.Client, keep: str) -> None:
    once = http.post("/v1/exec", json={"command": "echo x > y; cat y", "keep": keep})
    ephemeral = create(http, lifetime="ephemeral")
    told = run(http, ephemeral, command="echo x > y", keep=keep)

    assert once.status_code == 200
    assert (once.json()["stdout"], once.json()["kept"]) == ("x\n", False)
    assert told["kept"] is False
    eventually(lambda: http.get(f"/v1/sandboxes/{ephemeral}").json()["state"] == "deleted")


@pytest.mark.long
@pytest.mark.parametrize("wish", [{"keep": "never"}, {"keep": "on_success"}, {"missing": "repeat"}])
def test_what_could_not_be_put_back_is_not_tried(http: httpx.Client, wish: dict[str, str]) -> None:
    """Two hundred names of one file take the disk once; put back, they would take it two hundred times."""
    sandbox = create(http, **_SMALL)
    names = "truncate -s 6M file; for i in $(seq 200); do ln file name-$i; done"
    assert run(http, sandbox, command=names)["exit_code"] == 0

    problem = refused(ask(http, sandbox, command="rm name-*", **wish), 507)

    assert "several names" in problem["detail"]
    assert problem["field"] == "limits.disk_bytes"
    assert sh(http, sandbox, "ls name-* | wc -l").strip() == "200"


@pytest.mark.parametrize("keep", ["sometimes", "", None, True, 1, ["never"], "on-success"])
def test_another_word_is_refused(http: httpx.Client, sandbox: str, keep: object) -> None:
    assert refused(ask(http, sandbox, command="true", keep=keep), 422)["field"] == "keep"


def test_a_dry_run_that_does_nothing_costs_nothing(http: httpx.Client) -> None:
    sandbox = prepared(http)
    told = run(http, sandbox, command="cat kept", keep="never")
    events = http.get(f"/v1/sandboxes/{sandbox}/events", params={"limit": 200}).json()["events"]

    assert told["tree_before"] == told["tree_after"]
    assert "files.settled" not in [event["kind"] for event in events]


@pytest.mark.long
def test_undo_passes_over_what_was_not_kept(http: httpx.Client) -> None:
    sandbox = prepared(http)
    run(http, sandbox, command="echo 1 > kept")
    run(http, sandbox, command="echo 2 > kept", keep="never")

    assert http.post(f"/v1/sandboxes/{sandbox}/undo").status_code == 200
    assert sh(http, sandbox, "cat kept") == "kept"


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.0, 0.3, 1.0])
def test_kill_in_the_middle_ends_in_the_tree_before(
    new_server: Callable[..., Server], pause_s: float
) -> None:
    server = new_server()
    with server.client() as http:
        sandbox = prepared(http)
        before = files_of(http, sandbox)
        asking = threading.Thread(target=_ask_and_be_cut_off, args=(http, sandbox))
        asking.start()
        eventually(lambda: is_there(http, sandbox, "new/deep"))
        time.sleep(pause_s)  # in the middle of the run, of its end, or of the going back
        server.stop(signal.SIGKILL)
        asking.join()
    server.start()
    with server.client() as http:
        assert files_of(http, sandbox) == before
        eventually(lambda: http.get(f"/v1/sandboxes/{sandbox}").json()["tree"] is not None)
        (told,) = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]
        assert told["kept"] is False
        assert run(http, sandbox, command="true")["tree_before"] == told["tree_before"]


def _ask_and_be_cut_off(http: httpx.Client, sandbox: str) -> None:
    many = "i=0; while [ $i -lt 400 ]; do echo $i > f$i; i=$((i+1)); done"
    with pytest.raises(httpx.TransportError):
        ask(http, sandbox, command=f"{MESS}; {many}; sleep 0.8", keep="never")
        raise httpx.ReadError("it ended before the server was killed")
