"""One file through HTTP: its version, parts of it, and writes bound to a version."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from blake3 import blake3

from tests.calls import files_url, put, refused, sh
from tests.test_api_files import get, paths


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
