"""The program that fetches source distributions: by hash, wherever an index sends it, but not anywhere."""

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from petri.environment.building import fetch
from petri.environment.building.fetch import kind_of

CONTENT = b"a source distribution"
PUBLIC = "http://1.1.1.1/simple"


class Files:
    """Serves `/file`, and redirects by what `hops` says; remembers who asked for what."""

    def __init__(self) -> None:
        self.hops: dict[str, str] = {}
        self.asked: list[tuple[str, str | None]] = []
        files = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                files.asked.append((self.path, self.headers["Authorization"]))
                self.send_response(302 if self.path in files.hops else 200)
                self.send_header("Location", files.hops.get(self.path, ""))
                self.end_headers()
                if self.path not in files.hops:
                    self.wfile.write(CONTENT)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def at(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def files() -> Iterator[Files]:
    served = Files()
    yield served
    served.stop()


def fetched(folder: Path, url: str, index: str = "", content: bytes = CONTENT) -> int:
    """Run it, and return how it ended; there is a file if, and only if, it ended well."""
    argv = [
        sys.executable,
        "-I",
        fetch.__file__,
        str(folder / "it"),
        hashlib.sha256(content).hexdigest(),
        "99",
    ]
    done = subprocess.run(argv, input=f"{url}\n{index}".encode(), capture_output=True, check=False)
    assert list(folder.iterdir()) == ([folder / "it"] if done.returncode == 0 else [])
    assert url.encode() not in done.stderr
    return done.returncode


def test_a_file_is_fetched_by_its_hash_and_no_other_is_left(tmp_path: Path, files: Files) -> None:
    assert fetched(tmp_path, files.at("/file"), content=b"another") == fetch.OTHER_FILE
    assert fetched(tmp_path, files.at("/file")) == 0
    assert (tmp_path / "it").read_bytes() == CONTENT


@pytest.mark.parametrize(("hops", "ended"), [(5, 0), (6, fetch.ELSEWHERE)])
def test_five_redirects_are_followed_and_no_more(tmp_path: Path, files: Files, hops: int, ended: int) -> None:
    files.hops = {f"/{number}": f"/{number + 1}" for number in range(hops)}

    assert fetched(tmp_path, files.at("/0"), files.at("/simple")) == ended


def test_redirects_that_go_in_a_circle_end(tmp_path: Path, files: Files) -> None:
    files.hops = {"/a": "/b", "/b": "/a"}

    assert fetched(tmp_path, files.at("/a"), files.at("/simple")) == fetch.ELSEWHERE
    assert len(files.asked) <= 12


@pytest.mark.parametrize(
    "to",
    [
        "http://10.0.0.1/x",
        "http://192.168.1.1/x",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/x",
        "http://[fc00::1]/x",
        "http://[::ffff:10.0.0.1]/x",
        "http://0xa000001/x",
        "http://167772161/x",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "gopher://127.0.0.1/x",
    ],
)
def test_an_index_on_this_host_sends_nobody_into_the_network_behind_it(
    tmp_path: Path, files: Files, to: str
) -> None:
    files.hops = {"/file": to}

    assert fetched(tmp_path, files.at("/file"), files.at("/simple")) == fetch.ELSEWHERE


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1"])
def test_an_index_elsewhere_sends_nobody_to_this_host(tmp_path: Path, files: Files, host: str) -> None:
    assert fetched(tmp_path, files.at("/file", host), PUBLIC) == fetch.ELSEWHERE
    assert files.asked == []


def test_who_came_encrypted_is_not_sent_on_in_the_clear(tmp_path: Path, files: Files) -> None:
    assert fetched(tmp_path, files.at("/file"), "https://127.0.0.1/simple") == fetch.ELSEWHERE
    assert files.asked == []


def test_a_password_is_told_to_its_host_and_not_to_the_one_it_sends_to(tmp_path: Path, files: Files) -> None:
    other = Files()
    files.hops = {"/file": other.at("/file")}
    try:
        ended = fetched(tmp_path, f"http://me:word@127.0.0.1:{files.port}/file", files.at("/simple"))
    finally:
        other.stop()

    assert ended == 0
    assert files.asked == [("/file", "Basic bWU6d29yZA==")]
    assert other.asked == [("/file", None)]


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("1.1.1.1", "public"),
        ("2606:4700:4700::1111", "public"),
        ("127.0.0.1", "this host"),
        ("::1", "this host"),
        ("0.0.0.0", "this host"),
        ("169.254.169.254", "this link"),
        ("fe80::1%eth0", "this link"),
        ("10.1.2.3", "this network"),
        ("172.16.0.1", "this network"),
        ("100.64.0.1", "this network"),
        ("fc00::1", "this network"),
        ("224.0.0.1", "this network"),
        ("::ffff:192.168.0.1", "this network"),
        ("::ffff:127.0.0.1", "this host"),
        ("64:ff9b::7f00:1", "this host"),
        ("2002:7f00:1::", "this host"),
    ],
)
def test_what_an_address_leads_to(address: str, kind: str) -> None:
    assert kind_of(address) == kind
