"""A workspace's share of the disk: held while code runs, while files come in, and told in every answer."""

import io
import tarfile
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from petri.errors import StorageFull
from petri.workspace import Bounds, Workspaces
from tests.calls import create, eventually, files_url, following, put, refused, replay, run, sh, workspaces
from tests.conftest import Server

pytestmark = pytest.mark.long

SHARE_BYTES, SHARE_FILES = 16 << 20, 600
LIMITS = {"disk_bytes": SHARE_BYTES, "inodes": SHARE_FILES}


@pytest.fixture
def small(http: httpx.Client) -> Iterator[str]:
    """A sandbox with little disk."""
    sandbox = create(http, limits=LIMITS)
    yield sandbox
    http.delete(f"/v1/sandboxes/{sandbox}")


def python(http: httpx.Client, sandbox: str, source: str, **how: Any) -> dict[str, Any]:
    return run(http, sandbox, code=textwrap.dedent(source), language="python", **how)


def usage(http: httpx.Client, sandbox: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/v1/sandboxes/{sandbox}").json()["usage"]
    return found


def ended_for_its_disk(told: dict[str, Any]) -> bool:
    """Say whether an answer says that its run was ended because the disk was full, and nothing else."""
    assert (told["timed_out"], told["oom_killed"], told["cancelled"]) == (False, False, False), told
    facts = (told["state"], told["exit_code"], told["signal"], told["disk_full"])
    return facts == ("done", None, 9, True)


FLOODS = {
    "one file after the other": """
        n = 0
        while True:
            n += 1
            with open(f"f{n}", "wb") as file:
                file.write(bytes(1 << 20))
    """,
    "empty files": """
        n = 0
        while True:
            n += 1
            open(f"f{n}", "w").close()
    """,
    "folders in folders": """
        import os
        while True:
            os.mkdir("d")
            os.chdir("d")
    """,
    "links": """
        import os
        n = 0
        while True:
            n += 1
            os.symlink("x" * 4000, f"l{n}")
    """,
    "many who write a little each": """
        import os, time
        for n in range(40):
            if os.fork() == 0:
                m = 0
                while True:
                    m += 1
                    with open(f"f{n % 10}-{m % 40}", "ab") as file:
                        file.write(bytes(1 << 14))
        time.sleep(60)
    """,
    "folders that are closed to everybody": """
        import os
        os.mkdir("closed")
        os.chdir("closed")
        os.chmod("../closed", 0o300)
        n = 0
        while True:
            n += 1
            with open(f"f{n}", "wb") as file:
                file.write(bytes(1 << 20))
    """,
    "files that are deleted and still open": """
        import os
        held = []
        while True:
            held.append(open("f", "wb", buffering=0))
            held[-1].write(bytes(1 << 20))
            os.unlink("f")
    """,
    "a file that is deleted and mapped": """
        import ctypes, os, time
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        for n in range(64):
            fd = os.open("f", os.O_CREAT | os.O_RDWR)
            os.write(fd, bytes(1 << 20))
            assert libc.mmap(None, ctypes.c_size_t(1 << 20), 1, 1, fd, ctypes.c_long(0)) > 0
            os.unlink("f")
            os.close(fd)
        time.sleep(60)
    """,
    "files that are deleted and under way in a socket": """
        import array, os, socket, time
        ends = []
        for n in range(64):
            here, there = socket.socketpair()
            fd = os.open("f", os.O_CREAT | os.O_RDWR)
            os.write(fd, bytes(1 << 20))
            here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
            os.unlink("f")
            os.close(fd)
            ends.append((here, there))
        time.sleep(60)
    """,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_run_that_fills_the_disk_is_ended_and_says_so(http: httpx.Client, small: str, flood: str) -> None:
    told = python(http, small, FLOODS[flood], timeout_s=50)

    assert ended_for_its_disk(told), told
    assert "limits." in told["remark"]
    assert told["duration_ms"] < 40_000
    on_record = http.get(f"/v1/runs/{told['run_id']}").json()
    assert {name: on_record[name] for name in ("disk_full", "remark", "signal", "state")} == {
        name: told[name] for name in ("disk_full", "remark", "signal", "state")
    }


def test_the_fact_is_in_the_stream_s_last_event_too(http: httpx.Client, small: str) -> None:
    with following(http, small, code=textwrap.dedent(FLOODS["empty files"]), language="python") as events:
        last = list(events)[-1]

    assert last.kind == "done"
    assert ended_for_its_disk(last.data)
    assert replay(http, last.data["run_id"])[-1].data == last.data


def test_a_run_that_is_quicker_than_any_look_says_so_too(http: httpx.Client, small: str) -> None:
    told = run(http, small, command="for name in a b c; do head -c 15m /dev/zero > $name; done")

    assert told["disk_full"]
    assert (told["exit_code"], told["signal"]) in ((0, None), (None, 9))
    assert str(SHARE_BYTES) in told["remark"]


def test_a_run_within_its_share_is_left_alone(http: httpx.Client, small: str) -> None:
    told = python(
        http,
        small,
        """
        import os, time
        for n in range(50):  # a hundred megabytes in all, ten at a time
            with open("again", "wb") as file:
                file.write(bytes(10 << 20))
            time.sleep(0.01)
        os.truncate("again", 0)
        with open("holes", "wb") as file:
            file.truncate(15 << 20)
        for n in range(300):
            os.link("holes", f"link{n}")
        """,
    )

    assert (told["exit_code"], told["disk_full"], told["remark"]) == (0, False, None), told
    used = usage(http, small)
    assert used["disk_bytes"] < 1 << 20
    assert used["inodes"] == 303  # the workspace itself is one


def test_what_a_workspace_takes_is_what_du_says(server: Server, http: httpx.Client, small: str) -> None:
    sh(http, small, "mkdir -p a/b; head -c 3m /dev/zero > a/b/c; ln a/b/c d; ln -s nowhere e; mkfifo f")

    used = usage(http, small)
    folder = workspaces(server) / small
    found = [folder, *folder.rglob("*")]
    blocks = {path.lstat().st_ino: path.lstat().st_blocks for path in found}
    assert used["disk_bytes"] == sum(blocks.values()) * 512
    assert used["inodes"] == len(found)


def test_over_its_share_a_workspace_can_still_be_tidied_up_by_a_run(http: httpx.Client, small: str) -> None:
    assert ended_for_its_disk(python(http, small, FLOODS["one file after the other"]))
    assert usage(http, small)["disk_bytes"] > SHARE_BYTES

    looked = run(http, small, command="ls | wc -l; sleep 0.3; echo a little > log")
    assert (looked["exit_code"], looked["disk_full"]) == (0, False)
    again = python(http, small, FLOODS["one file after the other"])
    assert ended_for_its_disk(again)
    tidied = run(http, small, command="rm f*")
    assert (tidied["exit_code"], tidied["disk_full"]) == (0, False)
    assert usage(http, small)["disk_bytes"] < SHARE_BYTES
    assert sh(http, small, "echo fine > fine; cat fine") == "fine\n"


def test_far_over_its_share_nothing_is_run_until_files_are_deleted(
    server: Server, http: httpx.Client, small: str
) -> None:
    """Runs that are over before anybody looks could otherwise add up."""
    folder = workspaces(server) / small
    (folder / "d").mkdir()
    for number in range(SHARE_FILES + 20_001):
        (folder / "d" / str(number)).touch()

    def ask() -> httpx.Response:
        return http.post(f"/v1/sandboxes/{small}/exec", json={"command": "true"})

    # What others delete on this disk at the same time may hide what was just made, but only once.
    eventually(lambda: ask().status_code == 507, within_s=60)
    problem = refused(ask(), 507)

    assert (problem["code"], problem["field"]) == ("storage_full", "limits.inodes")
    assert http.delete(files_url(small, "d")).status_code == 204
    assert sh(http, small, "echo fine") == "fine\n"


def test_a_run_may_be_given_less_than_its_sandbox_but_not_more(http: httpx.Client, small: str) -> None:
    script = "head -c 3m /dev/zero > a; sleep 0.2; head -c 3m /dev/zero > b; sleep 20"
    told = run(http, small, command=script, limits={"disk_bytes": 4 << 20})

    assert ended_for_its_disk(told)
    assert str(4 << 20) in told["remark"]
    assert http.get(f"/v1/runs/{told['run_id']}").json()["limits"]["disk_bytes"] == 4 << 20
    more = {"command": "true", "limits": {"disk_bytes": SHARE_BYTES + 1}}
    problem = refused(http.post(f"/v1/sandboxes/{small}/exec", json=more), 422)
    assert problem["field"] == "limits.disk_bytes"
    assert str(SHARE_BYTES) in problem["detail"]


def test_a_neighbour_does_not_notice(http: httpx.Client, small: str, sandbox: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(python, http, small, FLOODS["one file after the other"])
        while not flooding.done():
            assert sh(http, sandbox, "echo fine > fine; cat fine") == "fine\n"

    assert ended_for_its_disk(flooding.result())


# --------------------------------------------------------------------------------------------- uploads


def test_an_upload_that_fits_beside_what_is_there_is_taken(http: httpx.Client, small: str) -> None:
    put(http, small, "a", bytes(7 << 20))
    put(http, small, "b", bytes(7 << 20))

    problem = refused(http.put(files_url(small, "c"), content=bytes(7 << 20)), 507)

    assert (problem["code"], problem["field"]) == ("storage_full", "limits.disk_bytes")
    for fact in (SHARE_BYTES, 7 << 20, "would fit"):
        assert str(fact) in problem["detail"]
    assert sh(http, small, "ls") == "a\nb\n"
    put(http, small, "b", bytes(8 << 20))  # in the place of another
    put(http, small, "c", bytes(1 << 19))


def test_what_makes_a_full_workspace_smaller_is_welcome(http: httpx.Client, small: str) -> None:
    assert ended_for_its_disk(python(http, small, FLOODS["one file after the other"]))

    put(http, small, "f1", b"small")
    refused(http.put(files_url(small, "new"), content=b"small"), 507)


def test_an_upload_larger_than_the_whole_share_leaves_nothing(
    http: httpx.Client, small: str, harmless: None
) -> None:
    problem = refused(http.put(files_url(small, "big"), content=bytes(20 << 20)), 507)

    assert problem["field"] == "limits.disk_bytes"
    assert sh(http, small, "ls") == ""


def test_it_is_cut_off_while_it_comes(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "root", Bounds(1 << 30, 100))
    workspaces.create("sb-one", None)

    with workspaces.receive("sb-one", None, disk_bytes=SHARE_BYTES) as intake:
        staged = intake.file("big")
        staged.write(bytes(SHARE_BYTES))
        with pytest.raises(StorageFull):
            staged.write(b"x")


def archive(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("field", "members"),
    [
        ("limits.disk_bytes", {"big": bytes(17 << 20)}),
        ("limits.disk_bytes", {f"part{n}": bytes(1 << 20) for n in range(17)}),
        ("limits.inodes", {f"d/{n}": b"" for n in range(SHARE_FILES)}),
    ],
)
def test_an_archive_that_unpacks_to_too_much_leaves_nothing(
    http: httpx.Client, small: str, harmless: None, field: str, members: dict[str, bytes]
) -> None:
    url = f"/v1/sandboxes/{small}/files"
    sent = http.post(url, params={"extract": "true"}, files={"file": ("a.tar.gz", archive(members))})

    assert refused(sent, 507)["field"] == field
    assert sh(http, small, "ls -A") == ""


def test_files_of_a_single_call_must_fit_too(http: httpx.Client) -> None:
    body = {"files": {"a": "x" * (2 << 20)}, "filename": "a", "limits": {"disk_bytes": 1 << 20}}

    assert refused(http.post("/v1/exec", json=body), 507)["field"] == "limits.disk_bytes"


def test_uploads_at_the_same_time_do_not_fit_only_one_by_one(http: httpx.Client, small: str) -> None:
    def send(number: int) -> int:
        return http.put(files_url(small, f"f{number}"), content=bytes(3 << 20)).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(12)))

    assert sorted(set(answers)) == [201, 507]
    assert usage(http, small)["disk_bytes"] <= SHARE_BYTES


# ----------------------------------------------------------------------------------------- the reserve


@pytest.fixture
def short(new_server: Callable[..., Server]) -> Server:
    """A server on a disk of which more is to be kept free than there is."""
    return new_server(PETRI_DISK_RESERVE_BYTES=str(1 << 60))


def test_on_a_disk_that_is_short_uploads_are_refused_and_deleting_works(short: Server) -> None:
    with short.client() as http:
        sandbox = create(http)
        sh(http, sandbox, "echo x > x")
        problem = refused(http.put(files_url(sandbox, "a"), content=b"a"), 507)

        assert "PETRI_DISK_RESERVE_BYTES" in problem["detail"]
        assert http.get(files_url(sandbox, "x")).content == b"x\n"
        assert http.delete(files_url(sandbox, "x")).status_code == 204
        assert http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204


def test_on_a_disk_that_is_short_runs_that_write_are_ended_and_others_are_not(short: Server) -> None:
    with short.client() as http, ThreadPoolExecutor(1) as pool:
        idle, busy = create(http), create(http)
        waiting = pool.submit(run, http, idle, command="sleep 4; echo fine")
        told = python(http, busy, FLOODS["one file after the other"])

        assert ended_for_its_disk(told)
        assert "PETRI_DISK_RESERVE_BYTES" in told["remark"]
        assert waiting.result()["stdout"] == "fine\n"
