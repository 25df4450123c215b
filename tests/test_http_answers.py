"""What answers carry, and what they answer to: HEAD, /docs, /openapi.json, and what is not built yet."""

import base64
import hashlib
import json
import re
import shutil
import socket
import struct
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.calls import create, files_url, put, refused, run
from tests.conftest import Server
from tests.lines import HOST, dial

pytestmark = pytest.mark.usefixtures("harmless")

MARKUP = {"x.html": b"<script>alert(1)</script>", "x.svg": b"<svg onload='alert(1)'/>", "x.js": b"alert(1)"}


def directives(policy: str) -> dict[str, str]:
    """Return a Content-Security-Policy as a dictionary."""
    return {name: value for name, _, value in (each.strip().partition(" ") for each in policy.split(";"))}


# ------------------------------------------------------------------------------------------- in one piece


def test_a_short_answer_comes_in_one_piece(server: Server) -> None:
    with dial(server) as line:
        heard = line.say(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n").hear()
        info = line.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)

    assert heard.status == 200
    (pieces,) = struct.unpack_from("I", info, 152)  # tcpi_data_segs_in
    assert pieces == 1


# ------------------------------------------------------------------------------------------------ HEAD


def test_head_answers_as_get_does_without_the_body(server: Server, http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "pkg/main.py", "print(1)")
    told = run(http, sandbox, command="echo hello")
    paths = [
        *("/health", "/docs", "/openapi.json", "/metrics", "/v1/metrics", "/v1/languages", "/v1/sandboxes"),
        *(f"/v1/sandboxes/{sandbox}", f"/v1/sandboxes/{sandbox}/runs", f"/v1/sandboxes/{sandbox}/events"),
        *(f"/v1/sandboxes/{sandbox}/files", files_url(sandbox, "pkg/main.py"), f"/v1/runs/{told['run_id']}"),
        *(f"/v1/sandboxes/{sandbox}/files/?archive=tar", f"/v1/sandboxes/{sandbox}/files/pkg?archive=zip"),
        *(f"/v1/runs/{told['run_id']}/stdout", f"/v1/runs/{told['run_id']}/events"),
        *("/no/such", "/v1/sandboxes/sb-none", files_url(sandbox, "nope")),
    ]
    moving = {"date", "content-length"}  # uptimes and times of use go on between the two
    framing = {"transfer-encoding"}  # of a body that is not there
    for path in paths:
        with dial(server) as line:
            line.say(f"HEAD {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n")
            head = line.hear("HEAD")
            get = line.say(f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n").hear()
        assert head.status == get.status, path
        assert head.headers.keys() == get.headers.keys() - framing, path
        for name in head.headers.keys() - moving:
            assert head.headers[name] == get.headers[name], path


def test_head_is_refused_where_get_is(http: httpx.Client, sandbox: str) -> None:
    answer = http.head(f"/v1/sandboxes/{sandbox}/exec")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert http.put("/health").headers["allow"] == "GET, HEAD"


def test_head_of_a_run_that_goes_on_does_not_wait_for_its_end(server: Server, http: httpx.Client) -> None:
    sandbox = create(http)
    body = b'{"command": "sleep 60"}'
    head = f"POST /v1/sandboxes/{sandbox}/exec HTTP/1.1\r\nAccept: text/event-stream\r\n".encode()
    with dial(server) as line:
        line.say(head + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        line.socket.recv(1)  # it has begun
        run_id = http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"][0]["run_id"]

        assert http.head(f"/v1/runs/{run_id}/events", timeout=10).status_code == 200

        assert http.get(f"/v1/runs/{run_id}").json()["state"] == "running"
        http.post(f"/v1/runs/{run_id}/cancel")


# ------------------------------------------------------------------------------------- never a page


@pytest.mark.parametrize("name", MARKUP)
def test_what_a_sandbox_wrote_is_never_shown_as_a_page_of_ours(
    http: httpx.Client, sandbox: str, name: str
) -> None:
    put(http, sandbox, f"pkg/{name}", MARKUP[name])
    told = run(http, sandbox, command=f"cat pkg/{name}")
    whole = http.get(files_url(sandbox, f"pkg/{name}"))
    answers = [
        whole,
        http.head(files_url(sandbox, f"pkg/{name}")),
        http.get(files_url(sandbox, f"pkg/{name}"), headers={"Range": "bytes=0-3"}),
        http.get(files_url(sandbox, "pkg") + "?archive=tar"),
        http.get(files_url(sandbox, "pkg") + "?archive=zip"),
        http.get(f"/v1/runs/{told['run_id']}/stdout"),
    ]

    assert whole.content == MARKUP[name]
    for answer in answers:
        kind = answer.headers["content-type"]
        assert kind in ("application/octet-stream", "application/x-tar", "application/zip")
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name", ['a"b', "a;b", "a\\b", "a\nb", "a\r\nX: y", "é", "🦊", b"\xff", "a%20b", "a'b", " "]
)
def test_any_name_of_a_file_is_a_name_in_its_download(
    http: httpx.Client, sandbox: str, name: str | bytes
) -> None:
    raw = name if isinstance(name, bytes) else name.encode()
    run(http, sandbox, code=f"open(bytes.fromhex('{raw.hex()}'), 'w').close()")

    said = http.get(files_url(sandbox, name)).headers["content-disposition"]

    found = re.fullmatch(r"attachment; filename\*=UTF-8''([A-Za-z0-9%._~-]+)", said)
    assert found is not None, said
    assert bytes.fromhex(re.sub(r"[^%]|%(..)", lambda m: m[1] or f"{ord(m[0]):02x}", found[1])) == raw


# ---------------------------------------------------------------------------------- describing itself


def test_the_page_may_load_nothing_but_itself(http: httpx.Client) -> None:
    page = http.get("/docs")
    policy = directives(page.headers["content-security-policy"])

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("connect-src") == "'self'"
    assert {policy.pop(name) for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    for tag in ("script", "style"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert policy.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert policy == {}
    assert "://" not in page.text, "no address of anybody else's"
    assert not re.search(r"\son\w+=|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page.text)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_page_shows_every_call(http: httpx.Client, tmp_path: Path) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", http.get("/docs").text, re.DOTALL)
    document = http.get("/openapi.json").json()
    (tmp_path / "page.js").write_text(SMALL_BROWSER % json.dumps(document) + script)

    done = subprocess.run(
        ["node", tmp_path / "page.js"], capture_output=True, text=True, timeout=60, check=True
    )

    shown = done.stdout
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in shown
    assert "could not be made" not in shown


SMALL_BROWSER = """
class Node {
  constructor() { Object.assign(this, { inside: [], textContent: "", value: "", className: "" }); }
  setAttribute(name, value) { this[name] = value; }
  append(...more) { this.inside.push(...more); }
}
const nodes = {};
globalThis.document = {
  createElement: () => new Node(),
  getElementById: (id) => (nodes[id] ??= new Node()),
};
globalThis.fetch = async () => ({ ok: true, status: 200, json: async () => (%s) });
const text = (node) => (typeof node === "string" ? node : node.textContent + node.inside.map(text).join(" "));
setTimeout(() => console.log(text(nodes.about), text(nodes.calls)), 100);
"""


def test_the_document_says_how_a_key_is_shown(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    schemes = document["components"]["securitySchemes"]

    assert {(each["type"], each.get("scheme"), each.get("name")) for each in schemes.values()} == {
        ("http", "bearer", None),
        ("apiKey", None, "X-API-Key"),
    }
    for path, methods in document["paths"].items():
        for described in methods.values():
            ways = described.get("security", document.get("security", []))
            named = {name for way in ways for name in way}
            assert named == (set() if path == "/health" else set(schemes)), path


# ---------------------------------------------------------------------------------- what is not built


def test_what_is_not_built_yet_says_so(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, command="true")
    for path in (
        f"/v1/sandboxes/{sandbox}/pause",
        f"/v1/sandboxes/{sandbox}/resume",
        f"/v1/runs/{told['run_id']}/stdin",
    ):
        problem = refused(http.post(path, content=b"whatever"), 422)
        assert "not built yet" in problem["detail"]
        assert problem["field"] == path.rpartition("/")[2]
        refused(http.get(path), 405)
    for path in ("/v1/sandboxes/sb-none/pause", "/v1/sandboxes/sb-none/resume", "/v1/runs/run-none/stdin"):
        refused(http.post(path), 404)


def test_null_takes_limits_back_to_the_default(http: httpx.Client) -> None:
    defaults = http.get(f"/v1/sandboxes/{create(http)}").json()["limits"]
    sandbox = create(http, limits={"cpus": 0.5, "processes": 7, "timeout_s": 3})

    def patched(limits: object) -> dict[str, object]:
        answer = http.patch(f"/v1/sandboxes/{sandbox}", json={"limits": limits})
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()["limits"]
        return found

    assert patched({"cpus": None}) == {**defaults, "processes": 7, "timeout_s": 3}
    assert patched({}) == {**defaults, "processes": 7, "timeout_s": 3}
    assert patched(None) == defaults
