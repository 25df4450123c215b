"""Files over HTTP: in and out, one or many, folders and archives."""

import io
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import httpx
import pytest
import zstandard
from blake3 import blake3

from tests.calls import files_url, put, refused, scraps, sh
from tests.conftest import Server

ZSTD = zstandard.ZstdCompressor()


def upload(
    http: httpx.Client, sandbox: str, *parts: tuple[str, bytes], extract: bool = False
) -> httpx.Response:
    files = [("file", part) for part in parts]
    return http.post(
        f"/v1/sandboxes/{sandbox}/files", files=files, params={"extract": "true"} if extract else {}
    )


def get(http: httpx.Client, sandbox: str, path: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.get(files_url(sandbox, path), headers=named)


def paths(http: httpx.Client, sandbox: str) -> list[str]:
    listing = http.get(f"/v1/sandboxes/{sandbox}/files", params={"recursive": "true"}).json()
    return [entry["path"] for entry in listing["entries"]]


def tar(*members: tuple[str, bytes], mode: Literal["w", "w:gz"] = "w") -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return held.getvalue()


def zipped(*members: tuple[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return held.getvalue()


# -------------------------------------------------------------------------------------------- uploads


def test_one_file_is_answered_with_its_size_and_digest(http: httpx.Client, sandbox: str) -> None:
    answer = upload(http, sandbox, ("main.py", b"print(1)"))

    assert answer.status_code == 201
    digest = blake3(b"print(1)").hexdigest()
    assert answer.json() == {
        "files": [{"path": "main.py", "size": 8, "digest": digest}],
        "filename": "main.py",
    }
    assert get(http, sandbox, "main.py").content == b"print(1)"


def test_many_files_and_folders_come_in_one_request(http: httpx.Client, sandbox: str) -> None:
    answer = upload(
        http, sandbox, ("a.txt", b"a"), ("pkg/sub/mod.py", b"b"), ("./pkg//x", b""), ("ü/🦊", b"c")
    )

    assert [file["path"] for file in answer.json()["files"]] == ["a.txt", "pkg/sub/mod.py", "pkg/x", "ü/🦊"]
    assert answer.json().get("filename") is None
    assert paths(http, sandbox) == ["a.txt", "pkg", "pkg/sub", "pkg/sub/mod.py", "pkg/x", "ü", "ü/🦊"]


def test_uploading_again_replaces(http: httpx.Client, sandbox: str) -> None:
    upload(http, sandbox, ("a.txt", b"a long first version"))
    upload(http, sandbox, ("a.txt", b"short"))

    assert get(http, sandbox, "a.txt").content == b"short"


def test_one_bad_name_and_nothing_of_the_upload_is_there(
    server: Server, http: httpx.Client, sandbox: str
) -> None:
    refused(upload(http, sandbox, ("good", b"x"), ("../bad", b"y")), 400)
    refused(upload(http, sandbox, ("good", b"x"), ("good/bad", b"y")), 400)

    assert paths(http, sandbox) == []
    assert scraps(server) == []


def test_uploaded_files_belong_to_the_sandbox(http: httpx.Client, sandbox: str) -> None:
    upload(http, sandbox, ("pkg/a.txt", b"a"))

    assert (
        sh(http, sandbox, "echo b >> pkg/a.txt; chmod 600 pkg/a.txt; touch pkg/new; cat pkg/a.txt") == "ab\n"
    )


@pytest.mark.long
def test_concurrent_overwrites_are_never_torn(http: httpx.Client, sandbox: str) -> None:
    versions = [bytes([number]) * 300_000 for number in range(8)]
    put(http, sandbox, "file", versions[0])

    def write(version: bytes) -> int:
        return http.put(files_url(sandbox, "file"), content=version).status_code

    def read(_: bytes) -> bytes:
        return get(http, sandbox, "file").content

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write, version) for version in versions]
        reading = [pool.submit(read, version) for version in versions * 3]
        assert {each.result() for each in writing} == {201}
        assert all(each.result() in versions for each in reading)


# ------------------------------------------------------------------------------------------- archives

MEMBERS = (("a.txt", b"a"), ("pkg/mod.py", b"b" * 5000), ("ü", b""))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.zip", zipped(*MEMBERS)),
        ("x.tar", tar(*MEMBERS)),
        ("x.tar.gz", tar(*MEMBERS, mode="w:gz")),
        ("x.tgz", tar(*MEMBERS, mode="w:gz")),
        ("x.tar.zst", ZSTD.compress(tar(*MEMBERS))),
    ],
)
def test_archives_are_unpacked(
    server: Server, http: httpx.Client, sandbox: str, name: str, content: bytes
) -> None:
    answer = upload(http, sandbox, (name, content), extract=True)

    assert answer.status_code == 201, answer.text
    assert {file["path"]: file["size"] for file in answer.json()["files"]} == {
        path: len(body) for path, body in MEMBERS
    }
    assert paths(http, sandbox) == ["a.txt", "pkg", "pkg/mod.py", "ü"]
    assert get(http, sandbox, "pkg/mod.py").content == b"b" * 5000
    assert scraps(server) == []


def test_an_archive_in_a_folder_is_unpacked_there(http: httpx.Client, sandbox: str) -> None:
    upload(http, sandbox, ("sub/x.zip", zipped(("a", b"1"))), extract=True)

    assert paths(http, sandbox) == ["sub", "sub/a"]


def test_without_extract_an_archive_is_a_file(http: httpx.Client, sandbox: str) -> None:
    upload(http, sandbox, ("x.zip", zipped(("a", b"1"))))

    assert paths(http, sandbox) == ["x.zip"]


def linked(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        archive.addfile(info)
        below = tarfile.TarInfo(f"{name}/x")
        below.size = 1
        archive.addfile(below, io.BytesIO(b"x"))
    return held.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tar", tar(("good", b"x"), ("../bad", b"y"))),
        ("x.tar", tar(("good", b"x"), ("/bad", b"y"))),
        ("x.zip", zipped(("good", b"x"), ("../../bad", b"y"))),
        ("x.zip", zipped(("good", b"x"), ("a\\..\\..\\bad", b"y"))),
        ("x.zip", zipped(("good", b"x"), ("C:\\bad", b"y"))),
        ("x.tar", linked("out", "/tmp")),
        ("x.tar", linked("out", "../..")),
        ("x.tar", linked("out", "/etc/passwd", tarfile.LNKTYPE)),
        ("x.tar", linked("device", "", tarfile.CHRTYPE)),
        ("x.tar", linked("fifo", "", tarfile.FIFOTYPE)),
        ("x.zip", zipped(("good", b"x"))[:-10]),
        ("x.tar.gz", tar(("good", b"x" * 9999), mode="w:gz")[:-10]),
        ("x.tar.zst", ZSTD.compress(tar(("good", b"x")))[:-3]),
        ("x.zip", b"not an archive"),
        ("x.zip", b""),
        ("main.py", b"print(1)"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(len(value)),  # archives hold the time of day
)
def test_a_bad_archive_is_refused_wholly(
    server: Server, http: httpx.Client, sandbox: str, name: str, content: bytes
) -> None:
    refused(upload(http, sandbox, ("first", b"x"), (name, content), extract=True), 400, 422)

    assert paths(http, sandbox) == []
    assert scraps(server) == []


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.zst", "zip"])
def test_a_folder_is_downloaded_as_an_archive(http: httpx.Client, sandbox: str, kind: str) -> None:
    upload(http, sandbox, ("top/a.txt", b"a"), ("top/sub/b", b"b" * 100_000), ("other", b"c"))
    sh(http, sandbox, "chmod +x top/a.txt; mkdir top/empty; mkfifo top/fifo; ln -s /etc/passwd top/out")

    answer = http.get(files_url(sandbox, "top"), params={"archive": kind})

    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''top.{kind}"
    content = answer.content
    if kind == "zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            found = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    else:
        if kind == "tar.zst":
            content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            opened = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            found = {name: file.read() for name, file in opened.items() if file is not None}
    found.pop("out", None)
    assert found == {"a.txt": b"a", "sub/b": b"b" * 100_000}


@pytest.mark.parametrize("address", ["files/", "files", "files?path="])
def test_the_whole_workspace_is_downloaded_as_an_archive(
    http: httpx.Client, sandbox: str, address: str
) -> None:
    put(http, sandbox, "a", "1")

    url = httpx.URL(f"/v1/sandboxes/{sandbox}/{address}").copy_merge_params({"archive": "tar"})
    answer = http.get(url)

    assert answer.headers["content-disposition"].endswith(f"{sandbox}.tar")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert [name for name in archive.getnames() if name != "."] == ["a"]


def test_a_part_of_another_name_is_told_by_it(http: httpx.Client, sandbox: str) -> None:
    answer = http.post(f"/v1/sandboxes/{sandbox}/files", files={"other": ("a", b"x")})

    assert refused(answer, 422)["detail"] == "a part is named 'other'; every part must be named `file`"


@pytest.mark.parametrize(
    ("path", "kind", "status"), [("a", "tar", 409), ("no", "tar", 404), ("a", "rar", 422)]
)
def test_what_cannot_be_archived_is_refused(
    http: httpx.Client, sandbox: str, path: str, kind: str, status: int
) -> None:
    put(http, sandbox, "a", "1")

    refused(http.get(files_url(sandbox, path), params={"archive": kind}), status)
