"""Files against code that plants traps, names nobody would choose, and lines that break half way."""

import base64
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.calls import (
    create,
    descriptors,
    eventually,
    files_url,
    line,
    put,
    refused,
    say,
    scraps,
    sh,
    workspaces,
)
from tests.conftest import Server


def listing(http: httpx.Client, sandbox: str, **params: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = http.get(f"/v1/sandboxes/{sandbox}/files", params=params).json()["entries"]
    return found


# ------------------------------------------------------------------------------------- what code planted

TRAPS = {
    "ln -s /etc/passwd trap": 400,
    "ln -s ../../../../../../etc/passwd trap": 400,
    "ln -s . a; ln -s a/../../.. trap": 400,
    "ln -s trap trap": 400,
    "ln -s b trap; ln -s trap b": 400,
    "ln -s /proc/self/environ trap": 400,
    "ln -s /proc/self/root/etc/passwd trap": 400,
    "ln -s missing trap": 404,
    "mkfifo trap": 409,
    "ln -s fifo trap; mkfifo fifo": 409,
    "mkdir trap": 409,
    "touch trap; chmod 000 trap": 200 if os.geteuid() == 0 else 409,
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"trap\")'": 409,
}


@pytest.mark.parametrize(("plant", "status"), TRAPS.items())
def test_a_planted_trap_is_neither_followed_nor_waited_for(
    http: httpx.Client, sandbox: str, plant: str, status: int
) -> None:
    sh(http, sandbox, plant)

    begun = time.monotonic()
    answer = http.get(files_url(sandbox, "trap"))
    if status == 200:
        assert (answer.status_code, answer.content) == (200, b"")
    else:
        refused(answer, status)
    assert http.head(files_url(sandbox, "trap")).status_code == status
    assert http.delete(files_url(sandbox, "trap")).status_code == 204, "the link goes, not what it points to"
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("target", ["/tmp", "../../..", "/proc/self/root/tmp"])
def test_nothing_is_written_listed_or_deleted_through_a_link_out(
    http: httpx.Client, sandbox: str, target: str
) -> None:
    sh(http, sandbox, f"ln -s {target} out")

    refused(http.put(files_url(sandbox, "out/planted"), content=b"x"), 400)
    refused(http.post(f"/v1/sandboxes/{sandbox}/files", files={"file": ("out/planted", b"x")}), 400)
    refused(http.delete(files_url(sandbox, "out/planted")), 400)
    refused(http.get(files_url(sandbox, "out/planted")), 400)
    refused(http.get(f"/v1/sandboxes/{sandbox}/files", params={"path": "out"}), 400)
    refused(http.get(files_url(sandbox, "out"), params={"archive": "tar"}), 400)


def test_a_link_inside_the_workspace_works(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "mkdir -p real/deep; echo hi > real/file; ln -s real/file f; ln -s real d")
    sh(http, sandbox, "ln -s ../file real/deep/up")

    for path in ("f", "d/file", "real/deep/up"):
        assert http.get(files_url(sandbox, path)).content == b"hi\n"
    entries = {entry["path"]: entry for entry in listing(http, sandbox, recursive="true")}
    assert (entries["f"]["kind"], entries["f"]["target"]) == ("link", "real/file")
    assert "d/file" not in entries, "a listing does not walk through links"
    assert [entry["path"] for entry in listing(http, sandbox, path="real")] == ["real/deep", "real/file"]


def test_writing_over_a_planted_link_replaces_the_link(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "echo old > real; ln -s real inside; ln -s /etc/hostname outside; mkfifo fifo")

    for path in ("inside", "outside", "fifo"):
        put(http, sandbox, path, "new")
        assert http.get(files_url(sandbox, path)).content == b"new"
    assert http.get(files_url(sandbox, "real")).content == b"old\n"


@pytest.mark.long
def test_a_file_swapped_by_running_code_is_never_the_host_s(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "real", "mine")
    swap = (
        "import os, time\nend = time.time() + 1\n"
        "while time.time() < end:\n"
        " os.symlink('/etc/passwd', 'a'); os.rename('a', 'swapped')\n"
        " os.link('real', 'b'); os.rename('b', 'swapped')\n"
    )
    swapping = threading.Thread(
        target=lambda: http.post(f"/v1/sandboxes/{sandbox}/exec", json={"code": swap}), daemon=True
    )
    swapping.start()
    seen = set()
    while swapping.is_alive():
        answer = http.get(files_url(sandbox, "swapped"))
        seen.add(answer.status_code)
        assert answer.status_code in (200, 400, 404, 409), answer.text
        assert answer.status_code != 200 or answer.content == b"mine"
    assert 200 in seen


def test_a_page_written_by_code_is_saved_and_never_shown(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "page.html", "<script>alert(1)</script>")

    answer = http.get(files_url(sandbox, "page.html"))

    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


# --------------------------------------------------------------------------------------------- odd names

ODD = [
    *(
        b"a b",
        "ünï 🦊".encode(),
        b"new\nline",
        b"tab\t\x1b[2J",
        b"\xff\xfe",
        b"quote\"'`$",
        b"100%25",
        b"?#&=+",
    ),
    *(b"\\", b"a\r\nX-Evil: 1", b"-rf", b"x" * 255, b".hidden", b"..."),
]


@pytest.mark.parametrize("name", ODD)
def test_any_name_code_makes_can_be_listed_fetched_and_deleted(
    http: httpx.Client, sandbox: str, name: bytes
) -> None:
    made = f"import os; os.mkdir({name!r}); open(os.path.join({name!r}, b'in'), 'w').write('hi')"
    told = http.post(f"/v1/sandboxes/{sandbox}/exec", json={"code": made}).json()
    assert told["exit_code"] == 0, told

    (entry,) = listing(http, sandbox)
    exact = base64.b64decode(entry["path_base64"]) if entry.get("path_base64") else entry["path"].encode()
    assert exact == name
    quoted = files_url("", name).rpartition("/")[2]
    inside = http.get(f"/v1/sandboxes/{sandbox}/files?path={quoted}").json()["entries"]
    assert len(inside) == 1
    got = http.get(files_url(sandbox, name + b"/in"))
    assert got.content == b"hi", got.text
    assert "x-evil" not in got.headers
    archive = http.get(files_url(sandbox, name), params={"archive": "tar"})
    assert archive.status_code == 200
    assert http.delete(files_url(sandbox, name)).status_code == 204
    assert listing(http, sandbox) == []


BAD = [
    *("a\0b", "a\nb", "\x1b[2J", "a\x7f", "x" * 256, "ü" * 128, "y/" * 2100),
    *("../x", "a/../../x", "/x", "..", ".", "", "/"),
]


@pytest.mark.parametrize("name", BAD, ids=lambda name: repr(name)[:20])
def test_a_bad_name_is_refused_however_it_comes(
    server: Server, http: httpx.Client, sandbox: str, name: str
) -> None:
    refused(_posted(server, sandbox, name.encode()), 400)
    raw = say(
        server,
        f"PUT {files_url(sandbox, name)} HTTP/1.1\nHost: localhost\nContent-Length: 1\n",
        b"x",
    )
    assert re.match(rb"HTTP/1.1 40[0457] ", raw), raw[:200]
    assert b"application/problem+json" in raw

    assert listing(http, sandbox) == []
    assert scraps(server) == []


def _posted(server: Server, sandbox: str, name: bytes) -> httpx.Response:
    """Upload under a name as it is, which no library would put into a header."""
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name + b'"\r\n\r\nx\r\n--b--\r\n'
    )
    with server.client() as http:
        return http.post(
            f"/v1/sandboxes/{sandbox}/files",
            content=body,
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )


def test_a_name_that_is_not_utf_8_is_refused_in_uploads(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    refused(_posted(server, sandbox, b"a\xff"), 400)
    refused(http.put(f"/v1/sandboxes/{sandbox}/files/a%FF", content=b"x"), 400)
    refused(http.put(f"/v1/sandboxes/{sandbox}/files/a%ED%A0%80", content=b"x"), 400)
    assert listing(http, sandbox) == []


def test_the_longest_names_and_paths_there_are_work(http: httpx.Client, sandbox: str) -> None:
    for path in ("x" * 255, "ü" * 127, "/".join(["y" * 254] * 15)):
        put(http, sandbox, path, "hi")
        assert http.get(files_url(sandbox, path)).content == b"hi"


# ---------------------------------------------------------------------------------------- broken lines


@pytest.fixture
def quiet(server: Server) -> Iterator[None]:
    """Fail if the server calls anything its own fault meanwhile."""
    before = len(server.log())
    yield
    said = server.log()[before:]
    assert "ERROR" not in said, said


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("form", [False, True])
def test_an_upload_that_breaks_off_leaves_nothing(
    server: Server, http: httpx.Client, sandbox: str, quiet: None, *, form: bool, chunked: bool
) -> None:
    put(http, sandbox, "file", "old")
    method, path = ("POST", f"/v1/sandboxes/{sandbox}/files") if form else ("PUT", files_url(sandbox, "file"))
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n\r\n' if form else b""
    piece = part + b"x" * 3_000_000
    length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 9000000"
    kind = "Content-Type: multipart/form-data; boundary=b"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n{kind}\r\n\r\n"
    sent = f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if chunked else piece

    with line(server) as connection:
        connection.sendall(head.encode() + sent)
        eventually(lambda: scraps(server) != [])
    eventually(lambda: scraps(server) == [])

    assert http.get(files_url(sandbox, "file")).content == b"old"


def test_a_form_without_its_end_is_refused(server: Server, http: httpx.Client, sandbox: str) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nhalf'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}

    problem = refused(http.post(f"/v1/sandboxes/{sandbox}/files", content=body, headers=headers), 400)

    assert "nothing was written" in problem["detail"]
    assert listing(http, sandbox) == []
    assert scraps(server) == []


@pytest.mark.parametrize("length", ["0", "3", "-1", "x", "9" * 30])
def test_a_lying_content_length_harms_nobody_else(
    server: Server, http: httpx.Client, sandbox: str, length: str
) -> None:
    head = f"PUT {files_url(sandbox, 'f')} HTTP/1.1\nHost: localhost\nContent-Length: {length}\n"

    heard = say(server, head, b"0123456789")

    assert b" 500 " not in heard
    assert http.get("/health").status_code == 200
    if length in ("0", "3"):
        assert http.get(files_url(sandbox, "f")).content == b"0123456789"[: int(length)]
    else:
        assert listing(http, sandbox) == []
    assert scraps(server) == []


def test_clients_that_leave_before_the_first_byte_cost_no_descriptor(
    new_server: Callable[..., Server],
) -> None:
    server = new_server(PETRI_PARKED_BYTES="0")  # a cell that comes to stand has descriptors of its own
    with server.client() as http:
        sandbox = create(http)
        put(http, sandbox, "large", b"x" * 5_000_000)
        sh(http, sandbox, "mkdir folder; cp large folder/a; cp large folder/b")
    requests = [files_url(sandbox, "large"), files_url(sandbox, "folder") + "?archive=tar"]
    before = descriptors(server)

    for number in range(60):
        with line(server) as connection:
            # Reset, not closed: nothing we send is still wanted.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            head = f"GET {requests[number % 2]} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(head.encode())
            time.sleep(0.001 * (number % 10))

    eventually(lambda: descriptors(server) <= before + 3)


# -------------------------------------------------------------------------------------------- very much


@pytest.mark.slow
def test_ten_thousand_files_come_in_one_request(server: Server, http: httpx.Client, sandbox: str) -> None:
    files = [("file", (f"d{number % 50}/{number}", b"%d" % number)) for number in range(10_000)]

    answer = http.post(f"/v1/sandboxes/{sandbox}/files", files=files)

    assert answer.status_code == 201, answer.text
    assert len(answer.json()["files"]) == 10_000
    assert sh(http, sandbox, "find . -type f | wc -l") == "10000\n"
    assert http.get(files_url(sandbox, "d7/1057")).content == b"1057"
    shown = http.get(f"/v1/sandboxes/{sandbox}/files", params={"recursive": "true"}).json()
    assert (len(shown["entries"]), shown["truncated"]) == (10_000, True)
    assert scraps(server) == []


def _resident_bytes(server: Server) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.slow
def test_a_large_file_does_not_grow_the_server(server: Server, http: httpx.Client, sandbox: str) -> None:
    size, piece = 300 * 2**20, b"\xa5" * 2**20
    put(http, sandbox, "warm", piece * 8)
    before = _resident_bytes(server)

    def body() -> Iterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    answer = http.put(files_url(sandbox, "large"), content=body())
    assert (answer.status_code, answer.json()["size"]) == (201, size)
    uploaded = _resident_bytes(server)
    with http.stream("GET", files_url(sandbox, "large")) as response:
        assert sum(len(chunk) for chunk in response.iter_bytes(2**20)) == size

    assert uploaded - before < 32 * 2**20
    assert _resident_bytes(server) - before < 32 * 2**20
    assert (workspaces(server) / sandbox / "large").stat().st_size == size
