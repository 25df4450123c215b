"""Bad input, at every endpoint: the right refusal, nothing half-written, and the server goes on."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from petri import wire
from petri.wire.values import Request
from tests.calls import ask, create, refused, say
from tests.conftest import Server

pytestmark = pytest.mark.usefixtures("harmless")

NOBODY = "sb-aaaaaaaaaaaaaaaaaaaa"
NO_RUN = "run-aaaaaaaaaaaaaaaaaaaa"
SURROGATE = "\ud800"

OF_SANDBOX = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/exec"),
    ("GET", "/runs"),
    ("GET", "/events"),
    ("GET", "/files"),
    ("POST", "/files"),
    ("GET", "/files/a"),
    ("GET", "/files/a?archive=tar"),
    ("HEAD", "/files/a"),
    ("PUT", "/files/a"),
    ("DELETE", "/files/a"),
]
OF_RUN = [("GET", ""), ("GET", "/events"), ("GET", "/stdout"), ("GET", "/stderr"), ("POST", "/cancel")]
BODIES = {"PATCH": {"idle_s": 5}, "/exec": {"command": "true"}}


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[str]:
    """One for all: nothing that is refused changes it."""
    with server.client() as http:
        yield create(http)


def call(http: httpx.Client, method: str, base: str, rest: str) -> httpx.Response:
    if (method, rest) == ("POST", "/files"):
        return http.post(base + rest, files={"file": ("a", b"x")})
    body = BODIES.get(method) or BODIES.get(rest)
    return http.request(method, base + rest, json=body)


def gone(answer: httpx.Response, *statuses: int) -> None:
    if answer.request.method == "HEAD":
        assert answer.status_code in statuses
    else:
        refused(answer, *statuses)


# ------------------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize(("method", "rest"), OF_SANDBOX)
def test_an_unknown_sandbox_is_not_found(http: httpx.Client, method: str, rest: str) -> None:
    gone(call(http, method, f"/v1/sandboxes/{NOBODY}", rest), 404)


@pytest.mark.parametrize(("method", "rest"), OF_SANDBOX)
def test_a_deleted_sandbox_shows_its_history_and_takes_nothing_new(
    http: httpx.Client, method: str, rest: str
) -> None:
    sandbox = create(http)
    http.delete(f"/v1/sandboxes/{sandbox}")

    answer = call(http, method, f"/v1/sandboxes/{sandbox}", rest)

    if rest in ("/runs", "/events") or (method, rest) in (("GET", ""), ("DELETE", "")):
        assert answer.status_code in (200, 204)
    else:
        gone(answer, 409)


@pytest.mark.parametrize(("method", "rest"), OF_RUN)
def test_an_unknown_run_is_not_found(http: httpx.Client, method: str, rest: str) -> None:
    gone(call(http, method, f"/v1/runs/{NO_RUN}", rest), 404)


ODD_IDS = [
    *("..", ".", "%2e%2e", "%2F", "..%2f..%2fetc", ".staging", "languages", "ü", "🦊", "a" * 5000, "%00"),
    *("%ff", "a%0Ab", "sb-", "SB-AAAAAAAAAAAAAAAAAAAA", "%ED%A0%80", "';--", "sb-aaaaaaaaaaaaaaaaaaaa%0A"),
]


@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: str(odd)[:12])
def test_an_odd_id_is_not_found(server: Server, odd: str) -> None:
    for method, base, places in (("/v1/sandboxes", "sandboxes", OF_SANDBOX), ("/v1/runs", "runs", OF_RUN)):
        for verb, rest in places:
            head = f"{verb} /v1/{base}/{quote(odd, safe='%')}{rest} HTTP/1.1\nHost: localhost\n"
            heard = say(server, head + "Content-Length: 0\n")
            status, _, told = heard.partition(b"\r\n")
            assert int(status.split()[1]) in (400, 404, 405, 422), (method, verb, rest, heard)
            assert b"application/problem+json" in told


# ------------------------------------------------------------------------------------------ JSON bodies

ENDPOINTS = [
    "POST /v1/sandboxes",
    "PATCH /v1/sandboxes/{id}",
    "POST /v1/sandboxes/{id}/exec",
    "POST /v1/exec",
]
NOT_JSON: dict[str, bytes] = {
    "half": b'{"language": "pyt',
    "words": b"language=python&name=x",
    "bad utf-8": b'{"name": "\xff\xfe"}',
    "utf-16": '{"name": "x"}'.encode("utf-16-be")[1:],
    "nul": b"\0",
    "two": b"{}{}",
    "comma": b'{"a": 1,}',
    "huge int": b'{"ttl_s": ' + b"9" * 5000 + b"}",
    "deep list": b"[" * 200_000,
    "deep object": b'{"a":' * 200_000,
    "deep inside": b'{"metadata": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
}
WRONG_SHAPE: dict[str, bytes] = {
    "list": b"[]",
    "string": b'"python"',
    "number": b"5",
    "null": b"null",
    "nan": b"NaN",
    "extra": b'{"no_such_field": 1}',
    "surrogate key": b'{"\\ud800": 1}',
    "long key": b'{"' + b"k" * 100_000 + b'": 1}',
    "odd key": b'{"a\\u0000\\r\\nb": 1}',
}


def send(http: httpx.Client, endpoint: str, sandbox: str, body: bytes) -> httpx.Response:
    method, path = endpoint.split()
    return http.request(method, path.format(id=sandbox), content=body)


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_is_not_json_is_refused(http: httpx.Client, sandbox: str, endpoint: str, body: bytes) -> None:
    refused(send(http, endpoint, sandbox, body), 400, 422)


@pytest.mark.parametrize("body", WRONG_SHAPE.values(), ids=WRONG_SHAPE)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_json_of_another_shape_is_refused(
    http: httpx.Client, sandbox: str, endpoint: str, body: bytes
) -> None:
    refused(send(http, endpoint, sandbox, body), 422)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_body_that_is_no_object_is_told_what_it_should_be(
    http: httpx.Client, sandbox: str, endpoint: str
) -> None:
    assert "must be a JSON object" in refused(send(http, endpoint, sandbox, b"[]"), 422)["detail"]


def test_an_empty_body_is_an_empty_object(http: httpx.Client, sandbox: str) -> None:
    assert http.post("/v1/sandboxes").status_code == 201
    assert http.patch(f"/v1/sandboxes/{sandbox}").status_code == 200
    assert "exactly one" in refused(http.post(f"/v1/sandboxes/{sandbox}/exec"), 422)["detail"]
    assert "exactly one" in refused(http.post("/v1/exec"), 422)["detail"]


@pytest.mark.long
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_enormous_body_is_too_large(
    http: httpx.Client, sandbox: str, endpoint: str, *, chunked: bool
) -> None:
    method, path = endpoint.split()
    body = b'{"code": "' + b"x" * (33 * 2**20) + b'"}'

    answer = http.request(method, path.format(id=sandbox), content=iter([body]) if chunked else body)

    assert "PETRI_MAX_BODY_BYTES" in refused(answer, 413)["detail"]


CROWDED = {
    "files": b'{"code": "1", "files": {' + b",".join(b'"%x": 1' % name for name in range(40_000)) + b"}}",
    "fields": b"{" + b",".join(b'"%x": 1' % name for name in range(40_000)) + b"}",
    "nothings": b'{"code": [' + b"0," * 40_000 + b"0]}",
    "behind a quote": b'{"code": "\\"", "env": [' + b"0," * 40_000 + b"0]}",
}


@pytest.mark.parametrize("body", CROWDED.values(), ids=CROWDED)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_body_of_very_many_values_is_too_large(
    http: httpx.Client, sandbox: str, endpoint: str, body: bytes
) -> None:
    assert "30000 values" in refused(send(http, endpoint, sandbox, body), 413)["detail"]


def test_commas_inside_of_a_string_are_no_values(http: httpx.Client) -> None:
    said = {"command": "wc -c", "stdin": ',"\\,' * 40_000}

    answer = http.post("/v1/exec", json=said)

    assert answer.json()["stdout"].strip() == "160000", answer.text


def test_json_in_utf_16_is_refused_since_its_commas_could_hide(http: httpx.Client, sandbox: str) -> None:
    body = '{"command": "true"}'.encode("utf-16")

    assert "UTF-8" in refused(send(http, EXEC, sandbox, body), 400)["detail"]


UNREAD = {
    "nested too deeply": b'{"code": ' + b"[" * 100_000,
    "no UTF-8 at byte 10": b'{"code": "\xff"}',
    "too many digits": b'{"timeout_s": ' + b"9" * 10_000 + b"}",
    "Unterminated string at byte 1": b'{"code',
}


@pytest.mark.parametrize(("why", "body"), UNREAD.items(), ids=UNREAD)
def test_json_that_cannot_be_read_is_told_why(
    http: httpx.Client, sandbox: str, why: str, body: bytes
) -> None:
    assert why in refused(send(http, EXEC, sandbox, body), 400)["detail"]


@pytest.mark.parametrize(
    ("field", "value"), [("files.a", {"files": {"a": 1}}), ("command", {"command": [1]})]
)
def test_a_field_is_named_as_the_caller_named_it(http: httpx.Client, field: str, value: Any) -> None:
    problem = refused(http.post("/v1/exec", json=value), 422)

    assert problem["field"].startswith(field)
    assert "function" not in json.dumps(problem)


CREATE = "POST /v1/sandboxes"
PATCH = "PATCH /v1/sandboxes/{id}"
EXEC = "POST /v1/sandboxes/{id}/exec"


def each(endpoint: str, field: str, *values: Any) -> list[tuple[str, str, Any]]:
    return [(endpoint, field, value) for value in values]


WRONG_FIELDS: list[tuple[str, str, Any]] = [
    *each(CREATE, "language", 5, None, [], "", "x" * 300, "py\nthon", SURROGATE),
    *each(CREATE, "name", 5, "", "a b", "-a", "a/b", "..", "ü", "a\n", "x" * 64, SURROGATE),
    *each(CREATE, "engine", 5, "", "docker", "x\0", SURROGATE),
    *each(CREATE, "lifetime", 5, None, "forever", "", SURROGATE),
    *each(CREATE, "ttl_s", 0, -1, "5", True, 1e300, float("nan"), float("inf"), 10**40, []),
    *each(CREATE, "idle_s", 0, -0.5, "x", False, -float("inf")),
    *each(CREATE, "limits", 5, None, [], "x"),
    *each(CREATE, "limits.cpus", 0, -1, "1", 1e9, float("nan"), True),
    *each(CREATE, "limits.memory_bytes", 0, -1, 1, 2**60, 10**40, 1.5, "512M"),
    *each(CREATE, "limits.processes", 0, -1, 10**9, 1.5, "many"),
    *each(CREATE, "limits.timeout_s", 0, -1, 1e12, 86_401, "1h"),
    *each(CREATE, "limits.open_files", 0, 31, 2**40, 1.5, "many"),
    *each(CREATE, "limits.disk_bytes", 0, 1, -1, 2**59, 2**70, 1.5, "1G"),
    *each(CREATE, "limits.inodes", 0, 1, -1, 2**59, 1.5, "many"),
    *each(CREATE, "limits.tmp_bytes", 0, 1, -1, 2**49, 1.5, "1G"),
    *each(CREATE, "limits.output_bytes", 0, 1, -1, 2**49, 1.5, "1G"),
    *each(CREATE, "network", 5, None, "none"),
    *each(CREATE, "network.mode", "allow", "open", "", 5, None),
    *each(CREATE, "network.allow", ["example.com"], "x", 5),
    *each(CREATE, "env", 5, [], "A=B", None, {"A": 1}, {"1A": "x"}, {"A B": ""}, {"": ""}),
    *each(CREATE, "env", {"A": "x\0"}, {"A": "x" * 140_000}, {"A": SURROGATE}),
    *each(CREATE, "env", {SURROGATE: "x"}, {f"A{n}": "" for n in range(600)}),
    *each(CREATE, "metadata", 5, [], None, {"a": 1}, {"": "x"}, {"a\n": "x"}, {"a": None}),
    *each(CREATE, "metadata", {"a": "x" * 5000}, {"a": SURROGATE}, {SURROGATE: "x"}),
    *each(CREATE, "metadata", {str(n): "" for n in range(65)}, {"a": {"b": "c"}}),
    *each(
        CREATE, "metadata", {str(n): "x" * 4096 for n in range(20)}, {str(n): "ü" * 4096 for n in range(9)}
    ),
    *each(CREATE, "env", {f"A{n}": "x" * 100_000 for n in range(3)}),
    *each(PATCH, "metadata", {str(n): "x" * 4096 for n in range(20)}),
    *each(CREATE, "created_by", 5, "", "a\r\nb", "x" * 300, SURROGATE),
    *each(CREATE, "agent", 5, "", "a\r\nb", "x" * 300, SURROGATE),
    *((CREATE, name, "x") for name in ("image", "from_snapshot")),
    *each(PATCH, "name", 5, "", "a b", SURROGATE),
    *each(PATCH, "ttl_s", 0, -1, "x", float("nan")),
    *each(PATCH, "metadata", 5, {"a": 1}, {"a": SURROGATE}),
    *each(PATCH, "limits.memory_bytes", 1, 2**60, "x"),
    *((PATCH, name, "x") for name in ("language", "engine", "lifetime", "env", "state", "id")),
    *each(EXEC, "filename", 5, [], "a\0b", "x" * 140_000, SURROGATE),
    *each(EXEC, "command", 5, [], {}, [5], ["a\0"], "a\0b", "x" * 140_000, SURROGATE),
    *each(EXEC, "command", [SURROGATE], ["x"] * 10_001, [["a"]], True),
    *each(EXEC, "code", 5, [], "a\0b", "x" * 140_000, SURROGATE),
    *each(EXEC, "language", 5, "", "cobol", SURROGATE),
    *each(EXEC, "args", "x", 5, None, [5], ["a\0"], [SURROGATE], ["x"] * 10_001),
    *each(EXEC, "stdin", 5, [], SURROGATE),
    *each(EXEC, "env", 5, {"A": 1}, {"A=B": ""}, {"A": "\0"}, {"A": SURROGATE}),
    *each(EXEC, "cwd", 5, "no", "a\0", SURROGATE),
    *each(EXEC, "timeout_s", 0, -1, "5", 1e300, 86_401, float("nan"), float("inf")),
    *each(EXEC, "timeout", 0, -1, "5", True),
    *each(EXEC, "limits", 5, None, [], "x"),
    *each(EXEC, "limits.memory_bytes", 1, 2**40, "x"),
    *each(EXEC, "limits.timeout_s", 5),
    *each(EXEC, "engine", 5, "docker", SURROGATE),
    *each(EXEC, "network.mode", "open", "allow"),
    *each(EXEC, "keep", "sometimes", 5, None),
    *each(EXEC, "detach", True, "yes", 1),
    *each(EXEC, "created_by", 5, "", "\x1b[2J", SURROGATE),
    *each(EXEC, "agent", 5, "", "\x1b[2J", SURROGATE),
]


@pytest.mark.parametrize(("endpoint", "field", "value"), WRONG_FIELDS, ids=lambda value: repr(value)[:30])
def test_a_field_that_cannot_be_is_refused_by_name(
    http: httpx.Client, sandbox: str, endpoint: str, field: str, value: Any
) -> None:
    outer, _, inner = field.partition(".")
    body: dict[str, Any] = {outer: {inner: value} if inner else value}
    if endpoint == EXEC and outer not in ("command", "filename", "code"):
        body |= {"code": "1"} if outer == "language" else {"command": "true"}

    problem = refused(send(http, endpoint, sandbox, json.dumps(body).encode()), 422)

    assert problem["field"].startswith(field), problem
    assert len(http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]) == 0


MEANT = [
    (CREATE, "name", "-a", "1 to 63 letters, digits"),
    (CREATE, "name", SURROGATE, "half a surrogate pair"),
    (CREATE, "peers", [{"sandbox": NOBODY, "at": "/etc"}], "such as `/peers/writer`"),
    (EXEC, "filename", SURROGATE, "half a surrogate pair"),
    (EXEC, "command", [SURROGATE], "half a surrogate pair"),
    (EXEC, "command", ["a\0"], "contains a NUL character"),
    (EXEC, "command", [], "at least 1 item, not 0"),
    (EXEC, "args", "x", "must be a list, such as []"),
    (EXEC, "env", [], "must be a JSON object, such as {}"),
    (CREATE, "network", {"allow": ["example.com"]}, "this release gives no network"),
    (CREATE, "name", "sb-" + "a" * 20, "spelt like an id"),
    (CREATE, "name", "snap-" + "a" * 20, "spelt like an id"),
]


def test_a_parameter_is_named_even_if_it_is_called_path(http: httpx.Client, sandbox: str) -> None:
    problem = refused(http.get(f"/v1/sandboxes/{sandbox}/files", params={"path": "a" * 5000}), 422)

    assert (problem["field"], problem["detail"]) == (
        "path",
        "path: String should have at most 4096 characters",
    )


@pytest.mark.parametrize("field", ["filename", "cwd"])
@pytest.mark.parametrize("path", ["../x", "/etc", "a/../../b"])
def test_a_path_that_makes_no_sense_names_its_field(
    http: httpx.Client, sandbox: str, field: str, path: str
) -> None:
    body = {"command": "true"} if field == "cwd" else {}

    assert refused(ask(http, sandbox, **body, **{field: path}), 400)["field"] == field


@pytest.mark.parametrize(("endpoint", "field", "value", "meant"), MEANT, ids=lambda part: repr(part)[:20])
def test_what_would_be_right_is_said_in_words(
    http: httpx.Client, sandbox: str, endpoint: str, field: str, value: Any, meant: str
) -> None:
    problem = refused(send(http, endpoint, sandbox, json.dumps({field: value}).encode()), 422)

    assert meant in problem["detail"]


def test_every_pattern_has_its_meaning_in_words() -> None:
    patterns: set[str] = set()
    requests = [
        model for model in vars(wire).values() if isinstance(model, type) and issubclass(model, Request)
    ]
    for model in requests:
        json.loads(
            json.dumps(model.model_json_schema()),
            object_hook=lambda found: patterns.update([found["pattern"]] if "pattern" in found else []),
        )

    assert len(patterns) > 3
    assert patterns - set(wire.MEANT) == set()


def test_a_misspelt_field_is_told_which_was_meant(http: httpx.Client) -> None:
    answer = http.post("/v1/sandboxes", json={"langauge": "python"})

    assert (answer.status_code, answer.json()["field"]) == (422, "langauge")
    assert "did you mean `language`?" in answer.json()["detail"]


def test_a_field_that_belongs_elsewhere_is_not_offered_in_its_own_place(
    http: httpx.Client, sandbox: str
) -> None:
    answer = ask(http, sandbox, command="true", peers=[])

    assert refused(answer, 422)["detail"] == "there is no field 'peers' here"
