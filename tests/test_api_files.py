"""Files over HTTP: in, out, conditions, ranges, folders and archives."""

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


# ------------------------------------------------------------------------- one file: versions and ranges


def test_a_put_is_answered_with_the_version_it_made(http: httpx.Client, sandbox: str) -> None:
    answer = http.put(files_url(sandbox, "pkg/a b.txt"), content=b"abc")

    digest = blake3(b"abc").hexdigest()
    assert (answer.status_code, answer.headers["etag"]) == (201, f'"{digest}"')
    assert answer.json() == {"path": "pkg/a b.txt", "size": 3, "digest": digest}
    got = get(http, sandbox, "pkg/a b.txt")
    assert (got.headers["etag"], got.content) == (f'"{digest}"', b"abc")


def test_who_has_the_version_is_told_so_and_sent_nothing(http: httpx.Client, sandbox: str) -> None:
    etag = f'"{put(http, sandbox, "a", "abc")["digest"]}"'

    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        answer = get(http, sandbox, "a", If_None_Match=known)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert get(http, sandbox, "a", If_None_Match='"other"').status_code == 200
    assert get(http, sandbox, "a", If_Match=etag).status_code == 200
    refused(get(http, sandbox, "a", If_Match='"other"'), 412)


def test_a_write_can_be_bound_to_a_version(http: httpx.Client, sandbox: str) -> None:
    etag = f'"{put(http, sandbox, "a", "one")["digest"]}"'

    def write(**headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return http.put(files_url(sandbox, "a"), content=b"two", headers=named)

    refused(write(If_Match='"other"'), 412)
    refused(write(If_None_Match="*"), 412)
    refused(write(If_None_Match=etag), 412)
    assert get(http, sandbox, "a").content == b"one"
    assert write(If_Match=etag).status_code == 201
    assert get(http, sandbox, "a").content == b"two"
    refused(write(If_Match=etag), 412)
    new = http.put(files_url(sandbox, "new"), content=b"x", headers={"If-None-Match": "*"})
    assert new.status_code == 201
    refused(http.put(files_url(sandbox, "newer"), content=b"x", headers={"If-Match": "*"}), 412)


def test_of_writers_bound_to_one_version_one_wins(http: httpx.Client, sandbox: str) -> None:
    etag = f'"{put(http, sandbox, "a", "start")["digest"]}"'

    def write(number: int) -> int:
        headers = {"If-Match": etag}
        return http.put(files_url(sandbox, "a"), content=str(number), headers=headers).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(write, range(8))) == [201] + [412] * 7


@pytest.mark.parametrize(
    ("wanted", "content", "told"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-4", b"4", "bytes 4-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
        (f"bytes=0-{'9' * 19}", b"0123456789", "bytes 0-9/10"),
    ],
)
def test_a_range_is_sent_as_asked(
    http: httpx.Client, sandbox: str, wanted: str, content: bytes, told: str
) -> None:
    put(http, sandbox, "a", "0123456789")

    answer = get(http, sandbox, "a", Range=wanted)

    assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, content, told)
    assert answer.headers["content-length"] == str(len(content))


@pytest.mark.parametrize("wanted", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_a_range_behind_the_end_is_refused(http: httpx.Client, sandbox: str, wanted: str) -> None:
    put(http, sandbox, "a", "0123456789")

    answer = get(http, sandbox, "a", Range=wanted)
    refused(answer, 416)
    assert answer.headers["content-range"] == "bytes */10"


@pytest.mark.parametrize(
    "wanted",
    ["bytes=3-1", "bytes=-", "lines=1-2", "bytes=0-1,4-5", "bytes=a-b", f"bytes={'9' * 5000}-", "x" * 50],
)
def test_a_range_that_is_none_is_ignored(http: httpx.Client, sandbox: str, wanted: str) -> None:
    put(http, sandbox, "a", "0123456789")

    answer = get(http, sandbox, "a", Range=wanted)

    assert (answer.status_code, answer.content) == (200, b"0123456789")


def test_a_range_of_a_version_that_is_gone_becomes_the_whole_new_one(
    http: httpx.Client, sandbox: str
) -> None:
    etag = f'"{put(http, sandbox, "a", "0123456789")["digest"]}"'
    assert get(http, sandbox, "a", Range="bytes=5-", If_Range=etag).content == b"56789"

    put(http, sandbox, "a", "abcdefghij")

    answer = get(http, sandbox, "a", Range="bytes=5-", If_Range=etag)
    assert (answer.status_code, answer.content) == (200, b"abcdefghij")


def test_head_says_what_get_would_bring(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "a", "0123456789")
    url = files_url(sandbox, "a")

    told, brought = http.head(url), http.get(url)

    for name in ("etag", "content-length", "content-type", "accept-ranges", "content-disposition"):
        assert told.headers[name] == brought.headers[name]
    assert told.content == b""
    for odd in ("bytes=-3", "bytes=99-"):
        whole = http.head(url, headers={"Range": odd})
        assert (whole.status_code, whole.headers["content-length"]) == (200, "10"), "ranges are for GET"
    assert http.head(files_url(sandbox, "no")).status_code == 404


def test_deleting_takes_files_links_and_whole_folders(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "mkdir -p d/e; touch d/e/f a; ln -s a link; ln -s /etc out; mkfifo fifo; chmod 0 d/e")
    for path in ("link", "out", "fifo", "d", "a"):
        assert http.delete(files_url(sandbox, path)).status_code == 204, path

    assert paths(http, sandbox) == []
    refused(http.delete(files_url(sandbox, "a")), 404)
    refused(http.delete(files_url(sandbox)), 400)


def test_a_delete_can_be_bound_to_a_version(http: httpx.Client, sandbox: str) -> None:
    etag = f'"{put(http, sandbox, "a", "one")["digest"]}"'
    url = files_url(sandbox, "a")

    refused(http.delete(url, headers={"If-Match": '"other"'}), 412)
    assert http.delete(url, headers={"If-Match": etag}).status_code == 204
