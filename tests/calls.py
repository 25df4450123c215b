"""What the HTTP tests say again and again: run this, put that, this must be a problem."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from tests.conftest import Server

OURS = ("/root", "/tmp/", "/home/", "site-packages", "Traceback", "petri/api", "sqlalchemy")
"""What an answer must never show: where we are on the host and what we are made of."""


def create(http: httpx.Client, **body: Any) -> str:
    """Return the id of a new sandbox."""
    made = http.post("/v1/sandboxes", json=body)
    assert made.status_code == 201, made.text
    found: str = made.json()["id"]
    return found


def files_url(sandbox: str, path: str | bytes = "") -> str:
    """Return the address of a file, every odd byte of its name percent-encoded."""
    return f"/v1/sandboxes/{sandbox}/files/{quote(path)}"


def put(http: httpx.Client, sandbox: str, path: str, content: str | bytes) -> dict[str, Any]:
    """Write one file."""
    done = http.put(files_url(sandbox, path), content=content)
    assert done.status_code == 201, done.text
    answer: dict[str, Any] = done.json()
    return answer


def ask(http: httpx.Client, sandbox: str, **body: Any) -> httpx.Response:
    """Ask for a run."""
    return http.post(f"/v1/sandboxes/{sandbox}/exec", json=body)


def run(http: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    """Run something that Petri must be able to run, and return the answer."""
    answer = ask(http, sandbox, **body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def sh(http: httpx.Client, sandbox: str, script: str) -> str:
    """Run a shell script that must succeed, and return what it printed."""
    told = run(http, sandbox, command=script)
    assert told["exit_code"] == 0, told
    printed: str = told["stdout"]
    return printed


@contextmanager
def at_work(http: httpx.Client, sandbox: str, script: str = "true", **body: Any) -> Iterator[None]:
    """Have a run that has done `script` and works on, however long the block takes; then it is cancelled."""
    asking = threading.Thread(
        target=lambda: ask(http, sandbox, command=f"{script}; mkdir begun; sleep 600", timeout_s=600, **body)
    )
    asking.start()
    try:
        begun = {"path": "begun"}
        eventually(lambda: http.get(f"/v1/sandboxes/{sandbox}/files", params=begun).status_code == 200)
        yield
    finally:
        for each in http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]:
            if each["state"] == "running":
                http.post(f"/v1/runs/{each['run_id']}/cancel")
        asking.join()


def refused(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    """Return the problem that `response` must be, after checking that it is a proper one."""
    assert response.status_code in statuses, f"{response.status_code} {response.text[:500]}"
    assert response.headers["content-type"] == "application/problem+json", response.headers
    found: dict[str, Any] = response.json()
    for name in ("type", "title", "detail", "code"):
        assert isinstance(found[name], str), found
        assert found[name], found
    assert found["status"] == response.status_code
    assert len(response.content) < 4096, "a problem is a sentence, not a book"
    for secret in OURS:
        assert secret not in response.text, response.text
    return found


@dataclass(frozen=True)
class Said:
    """One server-sent event."""

    id: int
    kind: str
    data: dict[str, Any]


def events(response: httpx.Response) -> Iterator[Said]:
    """Yield the events of a stream as they come."""
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line and "event" in fields:
            yield Said(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}


def text(said: list[Said], stream: str = "stdout") -> str:
    """Return everything of one stream."""
    return "".join(each.data["text"] for each in said if each.kind == stream)


@contextmanager
def following(http: httpx.Client, sandbox: str, **body: Any) -> Iterator[Iterator[Said]]:
    """Run something and watch it."""
    accept = {"Accept": "text/event-stream"}
    with http.stream("POST", f"/v1/sandboxes/{sandbox}/exec", json=body, headers=accept) as response:
        yield events(response)


def replay(http: httpx.Client, run_id: str, **how: Any) -> list[Said]:
    """Return a run's events to their end."""
    with http.stream("GET", f"/v1/runs/{run_id}/events", **how) as response:
        return list(events(response))


@contextmanager
def line(server: Server, timeout_s: float = 10) -> Iterator[socket.socket]:
    """Hold a bare connection, to say what no HTTP library would."""
    where = urlsplit(server.url)
    assert where.hostname is not None
    with socket.create_connection((where.hostname, where.port or 80), timeout_s) as connection:
        yield connection


def say(server: Server, head: str, body: bytes = b"") -> bytes:
    """Send one request, byte for byte, and return everything that comes back."""
    with line(server) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"Connection: close\r\n\r\n" + body)
        heard = bytearray()
        while piece := connection.recv(65536):
            heard += piece
    return bytes(heard)


def eventually(holds: Callable[[], bool], within_s: float = 10) -> None:
    """Wait until something holds; fail if it never does."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def workspaces(server: Server) -> Path:
    """Return where the server keeps workspaces."""
    return server.home / "petri" / "workspaces"


def scraps(server: Server) -> list[str]:
    """Return what is left of uploads and deletions that should be over."""
    root = workspaces(server)
    return [entry.name for name in (".staging", ".trash") for entry in (root / name).iterdir()]


def descriptors(server: Server) -> int:
    """Return how many files the server holds open."""
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def client_of(server: Server, key: str | None) -> httpx.Client:
    """Return a client that shows `key`."""
    client = server.client()
    if key is not None:
        client.headers["Authorization"] = f"Bearer {key}"
    return client


def make_key(admin: httpx.Client, name: str, **fields: Any) -> dict[str, Any]:
    """Return a new key, with its text."""
    made = admin.post("/v1/keys", json={"name": name, **fields})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found
