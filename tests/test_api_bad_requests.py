"""Queries, methods and forms that make no sense: refused, with what would be right."""

from collections.abc import Iterator

import httpx
import pytest

from tests.calls import create, files_url, refused, run, say
from tests.conftest import Server

pytestmark = pytest.mark.usefixtures("harmless")

FORM = {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[str]:
    """One for all: nothing that is refused changes it."""
    with server.client() as http:
        yield create(http)


# ------------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize(
    "query",
    [
        *(
            "limit=0",
            "limit=-1",
            "limit=201",
            "limit=x",
            "limit=1e3",
            "limit=",
            f"limit={'9' * 5000}",
            "limit=%ff",
        ),
        *(
            "cursor=x",
            "cursor=",
            "cursor=%00",
            "cursor=%ff",
            "cursor=MQ==",
            "cursor=" + "a" * 300,
            "cursor=%F0",
        ),
    ],
)
def test_a_page_nobody_could_turn_to_is_refused(http: httpx.Client, sandbox: str, query: str) -> None:
    for path in ("/v1/sandboxes", f"/v1/sandboxes/{sandbox}/runs", f"/v1/sandboxes/{sandbox}/events"):
        assert refused(http.get(f"{path}?{query}"), 422)["field"] == query.partition("=")[0]


def test_a_cursor_of_another_list_is_refused(http: httpx.Client, sandbox: str) -> None:
    create(http)
    cursor = http.get("/v1/sandboxes", params={"limit": 1}).json()["next_cursor"]

    refused(http.get(f"/v1/sandboxes/{sandbox}/runs", params={"cursor": cursor}), 422)


@pytest.mark.parametrize("query", ["state=x", "state=", "state=READY", "state=%00"])
def test_a_state_there_is_not_is_refused(http: httpx.Client, query: str) -> None:
    assert "ready" in refused(http.get(f"/v1/sandboxes?{query}"), 422)["detail"]


@pytest.mark.parametrize(
    "query", ["metadata.=x", "metadata.a=%ff", "metadata.%00=%00", "metadata.a=" + "x" * 9000]
)
def test_an_odd_filter_finds_nothing(http: httpx.Client, query: str) -> None:
    assert http.get(f"/v1/sandboxes?{query}").json()["sandboxes"] == []


@pytest.mark.parametrize("query", ["recursive=x", "path=" + "a" * 5000])
def test_a_listing_nobody_can_have_is_refused(http: httpx.Client, sandbox: str, query: str) -> None:
    refused(http.get(f"/v1/sandboxes/{sandbox}/files?{query}"), 422)


@pytest.mark.parametrize(
    ("path", "status"),
    [("..", 400), ("/etc", 400), ("%00", 400), ("a/../..", 400), ("no", 404), ("%ff", 404)],
)
def test_a_folder_that_is_none_is_refused(http: httpx.Client, sandbox: str, path: str, status: int) -> None:
    refused(http.get(f"/v1/sandboxes/{sandbox}/files?path={path}"), status)


# -------------------------------------------------------------------------------------- other methods


@pytest.mark.long
def test_another_method_is_refused_with_those_there_are(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command="true")
    allowed = {
        "/v1/sandboxes": {"GET", "POST"},
        f"/v1/sandboxes/{sandbox}": {"GET", "PATCH", "DELETE"},
        f"/v1/sandboxes/{sandbox}/exec": {"POST"},
        f"/v1/sandboxes/{sandbox}/runs": {"GET"},
        f"/v1/sandboxes/{sandbox}/events": {"GET"},
        f"/v1/sandboxes/{sandbox}/files": {"GET", "POST"},
        files_url(sandbox, "a"): {"GET", "HEAD", "PUT", "DELETE"},
        "/v1/exec": {"POST"},
        f"/v1/runs/{told['run_id']}": {"GET"},
        f"/v1/runs/{told['run_id']}/events": {"GET"},
        f"/v1/runs/{told['run_id']}/cancel": {"POST"},
        f"/v1/runs/{told['run_id']}/stdout": {"GET"},
        "/v1/languages": {"GET"},
        "/v1/metrics": {"GET"},
        "/metrics": {"GET"},
        "/health": {"GET"},
    }
    for path, methods in allowed.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - methods:
            answer = http.request(method, path)
            refused(answer, 405)
            looked_at = {"HEAD"} if "GET" in methods else set()
            assert set(answer.headers["allow"].split(", ")) == methods | looked_at, path


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/sandboxes", "/v1/sandboxes/", "/v1/runs", "/../etc/passwd", "/%00"]
)
def test_an_address_there_is_not_is_not_found(server: Server, path: str) -> None:
    heard = say(server, f"GET {path} HTTP/1.1\nHost: localhost\n")

    assert heard.startswith((b"HTTP/1.1 404", b"HTTP/1.1 307")), heard
    assert b"root:" not in heard


# -------------------------------------------------------------------------------------------- multipart

PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n'
MANY = b"".join(b"H%d: v\r\n" % number for number in range(99))
FORMS: dict[str, bytes] = {
    "nothing": b"",
    "no parts": b"--b--\r\n",
    "no end": PART,
    "cut in the head": PART[:40],
    "cut boundary": PART + b"--",
    "another boundary": PART.replace(b"--b", b"--c") + b"--c--\r\n",
    "wrong name": PART.replace(b'"file"', b'"data"') + b"--b--\r\n",
    "surrogate name": PART.replace(b'"file"', b'"\xed\xa0\x80"') + b"--b--\r\n",
    "no name": PART.replace(b'name="file"; ', b"") + b"--b--\r\n",
    "no filename": PART.replace(b'; filename="a"', b"") + b"--b--\r\n",
    "no disposition": b"--b\r\n\r\nx\r\n--b--\r\n",
    "long header": PART.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"y" * 100_000 + b"\r\n\r\n") + b"--b--\r\n",
    "many headers": PART.replace(b"\r\n\r\n", b"\r\n" + MANY + b"\r\n") + b"--b--\r\n",
    "bad header": PART.replace(b"\r\n\r\n", b"\r\n: :\0\r\n\r\n") + b"--b--\r\n",
    "json": b'{"file": "x"}',
    "after a good one": PART + PART.replace(b'"file"', b'"data"') + b"--b--\r\n",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_malformed_form_is_refused_and_nothing_of_it_is_written(
    http: httpx.Client, sandbox: str, form: bytes
) -> None:
    refused(http.post(f"/v1/sandboxes/{sandbox}/files", content=form, headers=FORM), 400, 413, 422)

    assert http.get(f"/v1/sandboxes/{sandbox}/files").json()["entries"] == []


@pytest.mark.parametrize(
    "kind",
    [
        *("", "application/json", "multipart/form-data", "multipart/mixed; boundary=b", "x" * 9000),
        *("multipart/form-data; boundary=", "multipart/form-data; boundary=" + "b" * 5000),
        'multipart/form-data; boundary="',
    ],
    ids=lambda kind: kind[:40],
)
def test_a_body_that_is_no_form_is_refused(http: httpx.Client, sandbox: str, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = http.post(f"/v1/sandboxes/{sandbox}/files", content=PART + b"--b--\r\n", headers=headers)

    assert "multipart" in refused(answer, 400)["detail"]


@pytest.mark.long
def test_more_files_than_allowed_are_too_many(http: httpx.Client, sandbox: str) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="%d"\r\n\r\n\r\n'
    bad = b'--b\r\nContent-Disposition: form-data; name="nope"\r\n\r\n\r\n'
    form = b"".join(part % number for number in range(500)) + bad * 20_000 + b"--b--\r\n"

    refused(http.post(f"/v1/sandboxes/{sandbox}/files", content=form, headers=FORM), 422)

    assert http.get(f"/v1/sandboxes/{sandbox}/files").json()["entries"] == []
