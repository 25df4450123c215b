"""The OpenAPI document against the server: thousands of requests, and no answer it does not name."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.calls import client_of, create, scraps, sh
from tests.conftest import Server

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
KEY = "whoever-tries-everything-0123"
UNFAIR = {
    "positive_data_acceptance": "no schema can say which files, languages and engines there are",
    "use_after_free": "the history of a deleted sandbox stays, by design",
}


REFUSALS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 414, 415, 422, 428, 429, "5xx"]
"""
"""How a request may be refused that the document does not allow: by default, and for an address too long."""


@pytest.mark.slow
def test_the_server_answers_as_its_document_says(new_server: Callable[..., Server], tmp_path: Path) -> None:
    server = new_server(PETRI_API_KEY=KEY)  # of its own accord it would make the first key, and be locked out
    (tmp_path / "schemathesis.toml").write_text(REFUSALS)
    argv = [
        *(str(SCHEMATHESIS), "run", f"{server.url}/openapi.json", "--max-examples", "40", "--seed", "1"),
        *("--exclude-checks", ",".join(UNFAIR), "--request-timeout", "30", "--no-shrink"),
        *("--header", f"Authorization: Bearer {KEY}"),
    ]

    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=240, check=False)

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert "ERROR" not in server.log()
    assert scraps(server) == []
    with client_of(server, KEY) as http:
        unbound = dict.fromkeys(("sandboxes", "runs", "disk_bytes"), 0)
        assert http.patch("/v1/tenants/default", json=unbound).status_code == 200
        assert sh(http, create(http), "echo works") == "works\n"


def test_every_route_says_what_it_may_answer(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()

    for path, methods in document["paths"].items():
        for method, described in methods.items():
            answers = described["responses"]
            assert {"4XX", "5XX", "422"} <= set(answers), f"{method} {path}"
            for status in ("4XX", "5XX", "422"):
                assert list(answers[status]["content"]) == ["application/problem+json"]
            assert any(status.startswith("2") for status in answers)
            assert described["description"], f"{method} {path} has no sentence"
    assert "HTTPValidationError" not in json.dumps(document), "FastAPI's own shape of an error is not ours"
