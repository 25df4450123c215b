"""JavaScript packages through HTTP, from the registry that this host's npm is set up for.

They fail within a minute, and say so, where no registry can be reached.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from petri.cli.environments import _write as write_export
from petri.engine.tools import Tool, run_tool
from petri.environment.building import JavaScriptPackages
from petri.settings import for_installers
from tests.conftest import PETRI, Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node", path="/usr/bin") is None, reason="this host has no node"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has installed nothing yet."""
    server = Server(tmp_path_factory.mktemp("javascript")).start()
    yield server
    assert server.stop() == 0, server.log()


def once(http: httpx.Client, filename: str, **files: str) -> dict[str, Any]:
    named = {name.replace("__", "."): text for name, text in files.items()}
    answer = http.post("/v1/exec", json={"files": named, "filename": filename}, timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert "out of reach" not in str(found["not_installed"]), found["not_installed"]
    return found


@pytest.mark.parametrize(
    ("filename", "text"),
    [
        ("main.mjs", "import debug from 'debug'; console.log(typeof debug)"),
        ("main.cjs", "console.log(typeof require('debug'))"),
        ("main.js", "console.log(typeof require('debug'))"),
        ("main.mjs", "const { default: debug } = await import('debug'); console.log(typeof debug)"),
    ],
)
def test_what_is_imported_or_required_is_there(http: httpx.Client, filename: str, text: str) -> None:
    answer = once(http, filename, **{filename.replace(".", "__"): text})

    assert answer["stdout"] == "function\n", answer
    assert {each.rpartition("@")[0] for each in answer["installed"]} == {"debug", "ms"}


def test_a_manifest_decides_the_version(http: httpx.Client) -> None:
    manifest = '{"dependencies": {"is-number": "6.0.0"}}'
    text = "console.log(require('is-number/package.json').version)"

    answer = once(http, "main.cjs", main__cjs=text, package__json=manifest)

    assert answer["stdout"] == "6.0.0\n", answer
    assert answer["installed"] == ["is-number@6.0.0"]


def test_what_the_registry_has_not_is_said_and_the_run_starts(http: httpx.Client) -> None:
    manifest = '{"dependencies": {"is-number": "99.0.0"}}'

    answer = once(http, "main.cjs", main__cjs="console.log('started')", package__json=manifest)

    assert answer["stdout"] == "started\n"
    assert [each["name"] for each in answer["not_installed"]] == ["is-number"]
    assert "99.0.0" in answer["not_installed"][0]["why"]


@pytest.mark.parametrize(
    "versions", ["file:/etc", "git+ssh://127.0.0.1/x", "http://127.0.0.1/x.tgz", "npm:x@1"]
)
def test_a_manifest_cannot_send_the_installer_elsewhere(http: httpx.Client, versions: str) -> None:
    manifest = json.dumps({"dependencies": {"is-number": versions}})

    answer = once(http, "main.cjs", main__cjs="console.log('started')", package__json=manifest)

    assert answer["stdout"] == "started\n"
    assert answer["installed"] == []


def test_the_environment_has_a_lock_and_reasons(http: httpx.Client) -> None:
    sandbox = http.post("/v1/sandboxes", json={}).json()["id"]
    http.put(f"/v1/sandboxes/{sandbox}/files/main.cjs", content="require('debug')")
    http.post(f"/v1/sandboxes/{sandbox}/exec", json={"filename": "main.cjs"}, timeout=120)

    shown = http.get(f"/v1/sandboxes/{sandbox}/environment").json()

    needs = {each["name"]: each["needed_by"] for each in shown["packages"]}
    assert needs["ms"] == ["debug"]
    assert needs["debug"][0].startswith("main.cjs:1")
    assert "sha512-" in shown["lock"]
    assert "http" not in shown["lock"]


SHOWS = "node -e \"console.log(require('is-number/package.json').version)\""


@pytest.mark.parametrize(
    "typed", ["npm install is-number@6.0.0", "npm i -D is-number@6", "yarn add is-number@6"]
)
def test_what_is_typed_is_there_for_what_comes_next(http: httpx.Client, typed: str) -> None:
    sandbox = http.post("/v1/sandboxes", json={}).json()["id"]
    http.put(f"/v1/sandboxes/{sandbox}/files/package.json", content='{"name": "x"}')

    ask = {"command": f"{typed} && {SHOWS}"}
    first = http.post(f"/v1/sandboxes/{sandbox}/exec", json=ask, timeout=120).json()
    later = http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": SHOWS}).json()

    assert first["stdout"].endswith("6.0.0\n"), first
    assert first["installed"] == ["is-number@6.0.0"]
    assert later["stdout"] == "6.0.0\n"
    manifest = http.get(f"/v1/sandboxes/{sandbox}/files/package.json").json()
    assert manifest == {"name": "x", "dependencies": {"is-number": typed.rpartition("@")[2]}}


def test_a_module_that_node_misses_is_there_the_second_time(http: httpx.Client) -> None:
    ask = {"code": "console.log(typeof require('deb' + 'ug'))", "language": "javascript", "missing": "repeat"}

    answer = http.post("/v1/exec", json=ask, timeout=120).json()

    assert (answer["stdout"], answer["repeated"]) == ("function\n", True), answer


# -------------------------------------------------------------------------------------- a stranger's scripts


class Registry:
    """A registry on loopback with one package, which has a script for when it is installed."""

    def __init__(self, ran: Path) -> None:
        self.packed = _packed(
            {"name": "sharp", "version": "1.0.0", "scripts": {"postinstall": f"touch {ran}"}}
        )
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_file = self.path.endswith(".tgz")
                body = registry.packed if is_file else registry.page()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def page(self) -> bytes:
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(self.packed).digest()).decode()
        version = {
            "name": "sharp",
            "version": "1.0.0",
            "hasInstallScript": True,
            "scripts": {"postinstall": "see inside"},
            "dist": {"tarball": f"{self.url}sharp/-/sharp-1.0.0.tgz", "integrity": integrity},
        }
        told = {"name": "sharp", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        return json.dumps({**told, "time": {"1.0.0": "2020-01-01T00:00:00.000Z"}}).encode()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _packed(manifest: dict[str, Any]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (("package.json", json.dumps(manifest)), ("index.js", "")):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


async def test_no_script_of_a_package_runs_even_if_somebody_trusts_it(tmp_path: Path) -> None:
    ran, folder = tmp_path / "ran", tmp_path / "project"
    folder.mkdir()
    registry = Registry(ran)
    program = await JavaScriptPackages(tmp_path, tmp_path, for_installers(), lambda: True, 7)._bun()
    trusting = {"dependencies": {"sharp": "1.0.0"}, "trustedDependencies": ["sharp"]}
    (folder / "package.json").write_text(json.dumps(trusting))
    env = {**for_installers(), "NPM_CONFIG_REGISTRY": registry.url}

    words = (program.resolve(7), program.install())
    done = [await run_tool(Tool(argv, folder, env, 60)) for argv in words]
    registry.stop()

    assert [each.status for each in done] == [0, 0], done
    assert (folder / "node_modules/sharp/package.json").exists()
    assert not ran.exists()
    assert all("--ignore-scripts" in argv for argv in words)  # here bun runs none without it, either


@pytest.mark.skipif(shutil.which("npm", path="/usr/bin") is None, reason="this host has no npm")
def test_an_exported_lock_rebuilds_the_same_packages_by_npm_and_by_bun(
    http: httpx.Client, server: Server, tmp_path: Path
) -> None:
    wants = {"express": "4.18.2", "@sindresorhus/is": "4.6.0", "chalk": "4.1.2", "ms": "2.1.3"}
    sandbox = http.post("/v1/sandboxes", json={"name": "elsewhere"}).json()["id"]
    http.put(f"/v1/sandboxes/{sandbox}/files/package.json", content=json.dumps({"dependencies": wants}))
    http.put(f"/v1/sandboxes/{sandbox}/files/main.cjs", content="require('express')")
    ran = http.post(f"/v1/sandboxes/{sandbox}/exec", json={"filename": "main.cjs"}, timeout=120).json()
    assert (ran["exit_code"], ran["not_installed"]) == (0, []), ran
    (bun,) = (server.home / "petri/environments/tools").glob("bun-*")
    install = {
        "npm": ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", f"--cache={tmp_path}/cache"],
        "bun": [str(bun), "install", "--frozen-lockfile", "--ignore-scripts"],
    }

    for name, words in install.items():
        there = tmp_path / name
        export = [str(PETRI), "env", "export", "elsewhere", "--to", str(there)]
        subprocess.run(export, env={**os.environ, "PETRI_URL": server.url}, check=True)
        subprocess.run(words, cwd=there, env=for_installers(), check=True, capture_output=True)

        assert _versions(there / "node_modules") == sorted(ran["installed"])


def _versions(folder: Path) -> list[str]:
    """Return what is installed in a folder, as in `ms@2.1.3`, each once."""
    found = set()
    for manifest in folder.rglob("package.json"):
        inside = manifest.parent.relative_to(folder).as_posix().rpartition("node_modules/")[2]
        said = json.loads(manifest.read_text())
        if said.get("name") == inside and "version" in said:
            found.add(f"{inside}@{said['version']}")
    return sorted(found)


def test_an_export_does_not_write_where_a_link_leads_to_nothing(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "bun.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(click.UsageError, match="is not written over"):
        write_export(there, {"package.json": "{}", "bun.lock": "{}"})

    assert [path.name for path in there.iterdir()] == ["bun.lock"]
    assert not (tmp_path / "elsewhere").exists()


def test_an_export_writes_over_nothing(http: httpx.Client, server: Server, tmp_path: Path) -> None:
    sandbox = http.post("/v1/sandboxes", json={}).json()["id"]
    ask = {"code": "require('ms')", "language": "javascript"}
    assert http.post(f"/v1/sandboxes/{sandbox}/exec", json=ask, timeout=120).json()["installed"]
    (tmp_path / "package.json").write_text("mine")

    words = [str(PETRI), "env", "export", sandbox, "--to", str(tmp_path)]
    env = {**os.environ, "PETRI_URL": server.url}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    assert done.returncode != 0 and "is not written over" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["package.json"]
