"""Whatever becomes of a sandbox while a cell stands in it, its next run is what it is where none stood."""

import io
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.calls import create, eventually, files_url, put, run, sh
from tests.conftest import Server

pytestmark = pytest.mark.long

PROBE = textwrap.dedent("""
    import os, resource, site, sys, time
    print(sys.argv, sys.path, __file__, os.getcwd(), site.ENABLE_USER_SITE)
    for folder, _, names in sorted(os.walk("/workspace")):
        for name in sorted(names):
            path = os.path.join(folder, name)
            with open(path, errors="replace") as file:
                is_told = not name.endswith(("pyc", "main.py"))
                print(oct(os.lstat(path).st_mode), path, is_told and file.read())
    print([(name, os.listdir(name)) for name in ("/tmp", "/dev/shm")])
    print(list(os.environ.items()), os.path.isdir("/peers") and os.listdir("/peers"))
    print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_FSIZE)[0] < 2**62)
    tmp = os.statvfs("/tmp")
    print(tmp.f_blocks * tmp.f_frsize, sys.stdin.read())
    forked = []
    try:
        while len(forked) < 20 and (child := os.fork()):
            forked.append(child)
        if len(forked) < 20:
            time.sleep(60)
    except BlockingIOError:
        pass
    print(len(forked))
    for child in forked:
        os.kill(child, 9)
    bytearray(100 << 20)
    print("had its memory")
""")
ANSWERED = ("exit_code", "signal", "timed_out", "oom_killed", "disk_full", "stdout", "stderr", "kept")
MAIN: dict[str, Any] = {"filename": "main.py"}


@dataclass
class Box:
    """A sandbox, and what is done to it while a cell stands in it, or while none does."""

    http: httpx.Client
    id: str
    snapshot: str = ""
    body: dict[str, Any] | None = None
    """How the probe is run; None for as ever."""

    def post(self, what: str, **body: Any) -> Any:
        done = self.http.post(f"/v1/sandboxes/{self.id}/{what}", json=body)
        assert done.status_code < 300, done.text
        return done.json()

    def patch(self, **changes: Any) -> None:
        done = self.http.patch(f"/v1/sandboxes/{self.id}", json=changes)
        assert done.status_code == 200, done.text

    def link(self, name: str, target: str) -> None:
        """Have a link uploaded: no run may come between."""
        packed, header = io.BytesIO(), tarfile.TarInfo(name)
        header.type, header.linkname = tarfile.SYMTYPE, target
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.addfile(header)
        sent = self.http.post(
            f"/v1/sandboxes/{self.id}/files?extract=true", files={"file": ("link.tar", packed.getvalue())}
        )
        assert sent.status_code == 201, sent.text

    def probe(self) -> dict[str, Any]:
        told = run(self.http, self.id, **{**MAIN, **(self.body or {})})
        return {name: told[name] for name in ANSWERED}


def a_file_is_replaced(box: Box) -> None:
    put(box.http, box.id, "note", "a newer one")


def its_program_is_replaced(box: Box) -> None:
    put(box.http, box.id, "main.py", "print('a newer one', __file__)")


def its_program_is_deleted_and_uploaded(box: Box) -> None:
    box.http.delete(files_url(box.id, "main.py"))
    put(box.http, box.id, "main.py", "print('another', __file__)\n1/0")


def another_program_is_uploaded(box: Box) -> None:
    put(box.http, box.id, "d/new.py", PROBE)
    box.body = {"filename": "d/new.py", "args": ["x", ""]}


def files_are_uploaded_over_its_folder(box: Box) -> None:
    box.http.delete(files_url(box.id, "d"))
    put(box.http, box.id, "d/new.py", "x = 1")


def its_program_becomes_a_link(box: Box) -> None:
    put(box.http, box.id, "v2/real.py", PROBE)
    box.http.delete(files_url(box.id, "main.py"))
    box.link("main.py", "v2/real.py")


def its_folder_becomes_a_link(box: Box) -> None:
    put(box.http, box.id, "e/new.py", PROBE)
    box.http.delete(files_url(box.id, "d"))
    box.link("d", "e")
    box.body = {"filename": "d/new.py"}


def all_that_a_start_could_read_appears(box: Box) -> None:
    """In the folder of the script, which is none of the places that a start looks at."""
    for name in ("pyvenv.cfg", "python311._pth", "python3._pth"):
        put(box.http, box.id, name, "home = /workspace")
    for name in ("sitecustomize", "usercustomize", "site", "os", "zipimport", "encodings/__init__"):
        put(box.http, box.id, f"{name}.py", "print('read')")
    put(box.http, box.id, "read.pth", "import os; print('read')")


def packages_of_its_user_appear(box: Box) -> None:
    put(box.http, box.id, ".local/lib/python3.11/site-packages/usercustomize.py", "print('customized')")


def it_is_restored(box: Box) -> None:
    box.post("restore", snapshot=box.snapshot)


def its_last_run_is_undone(box: Box) -> None:
    box.post("undo")


def it_is_forked(box: Box) -> None:
    [child] = box.post("fork")["sandboxes"]
    put(box.http, child["id"], "note", "of the child")
    box.http.delete(f"/v1/sandboxes/{child['id']}")


def its_fork_is_run(box: Box) -> None:
    [child] = box.post("fork")["sandboxes"]
    put(box.http, box.id, "note", "of the parent")
    box.id = child["id"]


def it_has_less_memory(box: Box) -> None:
    box.patch(limits={"memory_bytes": 64 << 20})


def it_has_less_disk(box: Box) -> None:
    put(box.http, box.id, "main.py", "import resource; print(resource.getrlimit(1)[0] <= 2 << 20)")
    box.patch(limits={"disk_bytes": 2 << 20})


def it_has_fewer_processes(box: Box) -> None:
    box.patch(limits={"processes": 9})


def it_has_fewer_files_open(box: Box) -> None:
    box.patch(limits={"open_files": 77})


def it_has_less_of_tmp(box: Box) -> None:
    box.patch(limits={"tmp_bytes": 1 << 20})


def it_has_another_time_limit(box: Box) -> None:
    put(box.http, box.id, "main.py", "import time; time.sleep(60)")
    box.patch(limits={"timeout_s": 0.5})


def it_is_to_say_less(box: Box) -> None:
    put(box.http, box.id, "main.py", "print('x' * 5000)")
    box.patch(limits={"output_bytes": 1024})


def it_has_other_variables(box: Box) -> None:
    box.body = {"env": {"MINE": "yes", "HOME": "/tmp"}}


def it_has_variables_of_python(box: Box) -> None:
    box.body = {"env": {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"}}


def the_run_has_limits_of_its_own(box: Box) -> None:
    box.body = {
        "limits": {"memory_bytes": 80 << 20, "processes": 12, "open_files": 64, "disk_bytes": 2 << 20}
    }


def the_run_has_a_time_limit_of_its_own(box: Box) -> None:
    put(box.http, box.id, "main.py", "import time; time.sleep(60)")
    box.body = {"timeout_s": 0.5}


def the_run_is_in_another_folder(box: Box) -> None:
    box.body = {"cwd": "d", "stdin": "said"}


def the_run_is_for_nothing(box: Box) -> None:
    put(box.http, box.id, "main.py", "import os; os.remove('note'); print(os.listdir())")
    box.body = {"keep": "never"}


def a_run_was_for_nothing(box: Box) -> None:
    run(box.http, box.id, command="rm -r note d; echo x > y", keep="never")


def a_run_of_another_kind_was_between(box: Box) -> None:
    run(box.http, box.id, code="open('note', 'w').write('by code')", language="python")
    run(box.http, box.id, command="echo more >> note; touch /tmp/left /dev/shm/left")


def it_shut_its_own_folders(box: Box) -> None:
    sh(box.http, box.id, "chmod 000 d; chmod 500 .")


def it_sees_another(box: Box) -> None:
    other = create(box.http)
    put(box.http, other, "note", "of a peer")
    box.patch(peers=[{"sandbox": other, "at": "/peers/other"}])
    put(box.http, box.id, "main.py", "print(open('/peers/other/note').read())")


CHANGES = [
    *(a_file_is_replaced, its_program_is_replaced, its_program_is_deleted_and_uploaded),
    *(another_program_is_uploaded, files_are_uploaded_over_its_folder, its_program_becomes_a_link),
    *(its_folder_becomes_a_link, all_that_a_start_could_read_appears, packages_of_its_user_appear),
    *(it_is_restored, its_last_run_is_undone, it_is_forked, its_fork_is_run),
    *(it_has_less_memory, it_has_less_disk, it_has_fewer_processes, it_has_fewer_files_open),
    *(it_has_less_of_tmp, it_has_another_time_limit, it_is_to_say_less),
    *(it_has_other_variables, it_has_variables_of_python, the_run_has_limits_of_its_own),
    *(the_run_has_a_time_limit_of_its_own, the_run_is_in_another_folder, the_run_is_for_nothing),
    *(a_run_was_for_nothing, a_run_of_another_kind_was_between, it_shut_its_own_folders, it_sees_another),
]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of a server that has cells stand, and of one that has none."""
    plain = {"PETRI_DEPENDENCIES": "off"}
    host = Server(tmp_path_factory.mktemp("host"), plain).start()
    cold = Server(tmp_path_factory.mktemp("cold"), {**plain, "PETRI_PARKED_BYTES": "0"}).start()
    with host.client() as http, cold.client() as cold_http:
        yield http, cold_http
    for server in (host, cold):
        assert "ERROR" not in server.log(), server.log()
        assert server.stop() == 0, server.log()


def settled(http: httpx.Client, *, stands: bool) -> Box:
    """Return a sandbox with some files and a run behind it, and a cell in it where cells stand."""
    box = Box(http, create(http))
    for path, content in {"main.py": PROBE, "note": "first", "d/old.py": "x = 0"}.items():
        put(http, box.id, path, content)
    box.snapshot = box.post("snapshots")["id"]
    run(http, box.id, filename="main.py")
    run(http, box.id, code="open('note', 'w').write('second')", language="python")
    before = parked(http)
    run(http, box.id, filename="main.py")
    if stands:
        eventually(lambda: parked(http) > 0, within_s=60)
        time.sleep(0.1)  # and its interpreter has started
    else:
        assert before == parked(http) == 0
    return box


def parked(http: httpx.Client) -> int:
    [line] = [
        each for each in http.get("/metrics").text.splitlines() if each.startswith("petri_parked_cells ")
    ]
    return int(float(line.rpartition(" ")[2]))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_next_run_is_as_if_none_had_stood(
    ways: tuple[httpx.Client, httpx.Client], change: Callable[[Box], None]
) -> None:
    answers = []
    for http in ways:
        box = settled(http, stands=http is ways[0])
        change(box)
        answers.append([box.probe(), box.probe()])  # the second in a cell made after the change
        http.delete(f"/v1/sandboxes/{box.id}")

    stood, cold = answers
    assert stood == cold
