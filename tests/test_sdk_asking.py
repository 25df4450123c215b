"""How a call is spelt, and when it may be made again."""

from io import BytesIO

import httpx
import pytest

from petri.errors import InvalidField
from petri.sdk.asking import Ask, as_json, file_path, pause_after_failure, pause_after_refusal, segment
from petri.sdk.bodies import OneFile

GET = Ask("GET", "/")
POST = Ask("POST", "/")
REFUSED = httpx.ConnectError("refused")


def refusal(status: int, retry_after: str | None = "0") -> httpx.Response:
    return httpx.Response(status, headers={} if retry_after is None else {"Retry-After": retry_after})


@pytest.mark.parametrize(
    ("path", "spelt"),
    [
        ("pkg/main.py", "pkg/main.py"),
        ("..", "%2E%2E"),
        ("a/../b", "a/%2E%2E/b"),
        ("./a", "%2E/a"),
        ("a b?#%", "a%20b%3F%23%25"),
        ("\udcff", "%FF"),
        ("nul\0", "nul%00"),
        ("ü", "%C3%BC"),
    ],
)
def test_a_path_reaches_the_server_as_it_was_written(path: str, spelt: str) -> None:
    assert file_path(path) == spelt
    assert httpx.URL(f"http://host/files/{file_path(path)}").raw_path.decode() == f"/files/{spelt}"


def test_a_name_cannot_become_another_call() -> None:
    assert segment("../runs") == "..%2Fruns"
    with pytest.raises(InvalidField):
        segment("")


def test_a_full_server_is_asked_again_whatever_the_call() -> None:
    for ask in (GET, POST):
        pause_s = pause_after_refusal(refusal(429), ask, 0)
        assert pause_s is not None and 0 < pause_s < 1


def test_retry_after_is_honoured() -> None:
    pause_s = pause_after_refusal(refusal(429, "7"), POST, 0)

    assert pause_s is not None and 7 <= pause_s < 10


def test_only_what_can_be_done_twice_is_asked_again_after_503() -> None:
    assert pause_after_refusal(refusal(503), GET, 0) is not None
    assert pause_after_refusal(refusal(503), POST, 0) is None


@pytest.mark.parametrize(
    "response", [refusal(429, None), refusal(429, "3600"), refusal(429, "soon"), refusal(409)]
)
def test_other_refusals_are_final(response: httpx.Response) -> None:
    assert pause_after_refusal(response, GET, 0) is None


def test_a_refused_connection_started_nothing() -> None:
    assert pause_after_failure(REFUSED, POST, 0) is not None
    assert pause_after_failure(httpx.ReadError("reset"), POST, 0) is None


def test_a_stream_that_can_be_read_only_once_is_sent_only_once() -> None:
    ask = Ask("PUT", "/", body=OneFile(BytesIO(b"once")))

    assert pause_after_failure(REFUSED, ask, 0) is None
    assert pause_after_refusal(refusal(429), ask, 0) is None


def test_json_holds_what_is_not_utf_8() -> None:
    assert as_json({"args": ("\udcff",)}) == b'{"args": ["\\udcff"]}'
