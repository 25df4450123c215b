"""Long work on files, over HTTP: not done unasked, so much at a time, and given up when its client leaves."""

import io
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from blake3 import blake3

from tests.calls import create, eventually, files_url, put, refused, scraps, sh, workspaces
from tests.conftest import Server

pytestmark = pytest.mark.long

GIB = 1 << 30
NO_DIGEST = f'"{"0" * 64}"'


def head(http: httpx.Client, sandbox: str, path: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.head(files_url(sandbox, path), headers=named)


def at_rest(http: httpx.Client, sandbox: str, path: str) -> str:
    """Return the ETag of a file once its last change is old enough to be told from the next."""
    eventually(lambda: not head(http, sandbox, path).headers["etag"].startswith("W/"))
    etag: str = head(http, sandbox, path).headers["etag"]
    return etag


def make_terabyte(path: Path) -> None:
    """Make a file that no run may make, all of it one hole."""
    with path.open("wb") as file:
        file.truncate(1 << 40)
    path.chmod(0o666)


def test_a_sparse_terabyte_has_a_version_though_nobody_hashes_it(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    make_terabyte(workspaces(server) / sandbox / "big")
    etag = at_rest(http, sandbox, "big")

    assert len(etag) < 64
    shown = head(http, sandbox, "big")
    assert (shown.status_code, shown.headers["content-length"]) == (200, str(1 << 40))
    assert head(http, sandbox, "big", If_None_Match=etag).status_code == 304
    part = {"Range": "bytes=5-9", "If-Range": etag}
    assert http.get(files_url(sandbox, "big"), headers=part).content == bytes(5)

    sh(http, sandbox, "printf x | dd of=big conv=notrunc status=none")
    assert head(http, sandbox, "big", If_None_Match=etag).status_code == 200
    refused(http.put(files_url(sandbox, "big"), content=b"", headers={"If-Match": etag}), 412)
    new = at_rest(http, sandbox, "big")
    assert http.put(files_url(sandbox, "big"), content=b"x", headers={"If-Match": new}).status_code == 201


def test_a_weak_version_binds_no_write(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "truncate -s 2G big")
    weak = f"W/{at_rest(http, sandbox, 'big')}"

    refused(http.put(files_url(sandbox, "big"), content=b"", headers={"If-Match": weak}), 412)
    assert head(http, sandbox, "big", If_None_Match=weak).status_code == 304


def test_who_names_a_large_file_by_its_digest_has_it_hashed(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, f"truncate -s {GIB + 1} big")
    zeros = blake3()
    for _ in range(GIB >> 20):
        zeros.update(bytes(1 << 20))
    digest = f'"{zeros.update(bytes(1)).hexdigest()}"'
    stamp = at_rest(http, sandbox, "big")

    assert head(http, sandbox, "big", If_Match=NO_DIGEST).status_code == 412
    assert head(http, sandbox, "big", If_None_Match=digest).status_code == 304
    assert head(http, sandbox, "big").headers["etag"] == digest, "it is known now"
    assert head(http, sandbox, "big", If_Match=stamp).status_code == 200, "and so is its other name"
    assert http.delete(files_url(sandbox, "big"), headers={"If-Match": digest}).status_code == 204


@pytest.mark.slow
def test_hashing_ends_when_those_who_asked_for_it_hang_up(server: Server, http: httpx.Client) -> None:
    """Each would hash for half a minute, two at a time; who comes after them would wait for minutes."""
    greedy = create(http)
    sh(http, greedy, "truncate -s 60G big; truncate -s 20M small")
    address = httpx.URL(server.url)
    for _ in range(12):
        with socket.create_connection((str(address.host), address.port or 0)) as line:
            line.sendall(
                f"HEAD {files_url(greedy, 'big')} HTTP/1.1\r\nHost: localhost\r\n"
                f"If-Match: {NO_DIGEST}\r\n\r\n".encode()
            )

    with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as impatient:
        assert head(impatient, greedy, "small").status_code == 200
    http.delete(f"/v1/sandboxes/{greedy}")


def test_a_third_archive_at_one_time_is_told_to_come_back(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "noise", os.urandom(32 << 20))
    ask = {"params": {"archive": "tar"}}
    with (
        http.stream("GET", files_url(sandbox), params=ask["params"]) as one,
        http.stream("GET", files_url(sandbox), params=ask["params"]) as two,
    ):
        assert (one.status_code, two.status_code) == (200, 200)
        third = http.get(files_url(sandbox), params=ask["params"])
        assert refused(third, 429)["code"] == "busy"
        assert third.headers["retry-after"] == "1"

    eventually(lambda: http.get(files_url(sandbox), params=ask["params"]).status_code == 200)


def test_an_archive_of_holes_is_refused_by_name(server: Server, http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "mkdir d")
    make_terabyte(workspaces(server) / sandbox / "d" / "big")

    problem = refused(http.get(files_url(sandbox), params={"archive": "tar.zst"}), 413)

    assert "'d/big'" in problem["detail"]


def test_unpacking_ends_when_its_client_hangs_up(new_server: Callable[..., Server]) -> None:
    """Every byte was sent, so only going away keeps the files from appearing."""
    server = new_server()
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=1) as archive:
        for number in range(20_000):
            archive.addfile(tarfile.TarInfo(f"f{number}"))
    part = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.tgz"\r\n\r\n'
        + held.getvalue()
        + b"\r\n--b--\r\n"
    )
    with server.client() as http:
        sandbox = create(http)
        address = httpx.URL(server.url)
        with socket.create_connection((str(address.host), address.port or 0)) as line:
            line.sendall(
                f"POST /v1/sandboxes/{sandbox}/files?extract=true HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\n"
                f"Content-Length: {len(part)}\r\n\r\n".encode()
                + part
            )
            eventually(lambda: staged(server) > 10)

        eventually(lambda: scraps(server) == [], within_s=30)

        assert list((workspaces(server) / sandbox).iterdir()) == []
        assert "ERROR" not in server.log()


def staged(server: Server) -> int:
    """Return how many files have been unpacked so far, of uploads that are not whole yet."""
    return sum(len(os.listdir(stage)) for stage in Path(workspaces(server), ".staging").iterdir())  # noqa: PTH208
