"""A JavaScript project's own packages through HTTP: found by name, as after `npm install`.

Those with packages of others take them from the registry that this host's npm is set up for.
"""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node", path="/usr/bin") is None, reason="this host has no node"),
]
Files = dict[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has installed nothing yet."""
    server = Server(tmp_path_factory.mktemp("members")).start()
    yield server
    assert server.stop() == 0, server.log()


def workspace(lib: str = "exports.said = 'lib'", **declared: str) -> Files:
    """Return a workspace of two packages, of which one is to use the other; `declared` is what that wants."""
    return {
        "package.json": json.dumps({"name": "root", "workspaces": ["packages/*"]}),
        "packages/lib/package.json": json.dumps(
            {"name": "@me/lib", "version": "1.0.0", "dependencies": declared}
        ),
        "packages/lib/index.js": lib,
        "packages/app/package.json": '{"name": "app", "dependencies": {"@me/lib": "^1.0.0"}}',
    }


def put(http: httpx.Client, files: Files) -> str:
    sandbox: str = http.post("/v1/sandboxes", json={}).json()["id"]
    for path, text in files.items():
        assert http.put(f"/v1/sandboxes/{sandbox}/files/{path}", content=text).status_code < 300
    return sandbox


def run(http: httpx.Client, sandbox: str, **ask: Any) -> dict[str, Any]:
    answer = http.post(f"/v1/sandboxes/{sandbox}/exec", json=ask, timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert "out of reach" not in str(found["not_installed"]), found["not_installed"]
    return found


CJS = "console.log(require('@me/lib').said)"
ESM = "import { said } from '@me/lib'; console.log(said)"


@pytest.mark.parametrize(
    "ask",
    [
        {"filename": "packages/app/main.cjs"},
        {"filename": "packages/app/main.mjs"},
        {"filename": "packages/app/main.mjs", "cwd": "packages/lib"},
        {"command": "node packages/app/main.cjs"},
        {"command": "cd packages/app && node main.mjs"},
        {"code": CJS, "language": "javascript"},
        {"filename": "packages/app/main.mjs", "dependencies": "manifest-only"},
    ],
)
def test_a_member_is_found_by_its_name(http: httpx.Client, ask: dict[str, str]) -> None:
    sandbox = put(http, {**workspace(), "packages/app/main.cjs": CJS, "packages/app/main.mjs": ESM})

    answer = run(http, sandbox, **ask)

    assert (answer["stdout"], answer["installed"], answer["not_installed"]) == ("lib\n", [], []), answer


def test_it_is_the_files_as_they_are_and_nothing_is_written(http: httpx.Client) -> None:
    sandbox = put(http, {**workspace(), "packages/app/main.cjs": CJS})
    before = run(http, sandbox, filename="packages/app/main.cjs")

    http.put(f"/v1/sandboxes/{sandbox}/files/packages/lib/index.js", content="exports.said = 'edited'")
    edited = run(http, sandbox, filename="packages/app/main.cjs")
    manifest = '{"name": "@me/other"}'
    http.put(f"/v1/sandboxes/{sandbox}/files/packages/lib/package.json", content=manifest)
    renamed = run(http, sandbox, filename="packages/app/main.cjs")
    shown = run(http, sandbox, command="find . -name node_modules; node -p 'require(\"@me/other\").said'")

    assert (before["stdout"], edited["stdout"]) == ("lib\n", "edited\n")
    assert "Cannot find module '@me/lib'" in renamed["stderr"]
    assert shown["stdout"] == "edited\n"


@pytest.mark.skipif(shutil.which("npm", path="/usr/bin") is None, reason="this host has no npm")
def test_a_script_of_a_member_finds_the_others(http: httpx.Client) -> None:
    files = {**workspace(), "packages/app/main.mjs": ESM}
    files["packages/app/package.json"] = manifest = '{"name": "app", "scripts": {"start": "node main.mjs"}}'
    sandbox = put(http, files)

    answer = run(http, sandbox, command="npm run --silent start -w app")

    assert (answer["stdout"], answer["stderr"]) == ("lib\n", ""), answer
    assert http.get(f"/v1/sandboxes/{sandbox}/files/packages/app/package.json").text == manifest


@pytest.mark.parametrize(
    "ask",
    [
        {"command": "npx --no said-so"},
        {"command": "cd packages/app && npx --no said-so"},
        {"command": "npm run --silent say -w app"},
        {"code": "console.log(require('child_process').execSync('said-so') + '')", "language": "javascript"},
    ],
)
def test_a_program_of_a_member_is_found_by_its_name(http: httpx.Client, ask: dict[str, str]) -> None:
    files = {
        **workspace(),
        "packages/lib/cli.js": "#!/usr/bin/env node\nconsole.log(require('./index.js').said)",
    }
    files["packages/lib/package.json"] = '{"name": "@me/lib", "bin": {"said-so": "./cli.js"}}'
    files["packages/app/package.json"] = '{"name": "app", "scripts": {"say": "said-so"}}'
    sandbox = put(http, files)
    run(http, sandbox, command="chmod +x packages/lib/cli.js")

    answer = run(http, sandbox, **ask)

    assert answer["stdout"].strip() == "lib", answer


def test_a_run_can_change_a_member_and_use_it(http: httpx.Client) -> None:
    sandbox = put(http, {**workspace(), "packages/app/main.cjs": CJS})
    change = "echo \"exports.said = 'new'\" > packages/lib/index.js && node packages/app/main.cjs"

    assert run(http, sandbox, command=change)["stdout"] == "new\n"


VERSION = "require('is-number/package.json').version"


@pytest.mark.parametrize("entry", ["main.cjs", "main.mjs"])
def test_a_members_own_packages_are_there_in_the_versions_it_declares(http: httpx.Client, entry: str) -> None:
    files = workspace(f"exports.said = {VERSION}", **{"is-number": "6.0.0"})
    files |= {"packages/app/main.cjs": CJS, "packages/app/main.mjs": ESM}
    sandbox = put(http, files)

    answer = run(http, sandbox, filename=f"packages/app/{entry}")

    assert answer["stdout"] == "6.0.0\n", answer
    assert (answer["installed"], answer["not_installed"]) == (["is-number@6.0.0"], [])


def test_members_and_packages_share_a_scope(http: httpx.Client) -> None:
    files = {
        "package.json": '{"workspaces": ["lib"], "dependencies": {"@sindresorhus/is": "4.6.0"}}',
        "lib/package.json": '{"name": "@sindresorhus/mine", "exports": "./lib.mjs"}',
        "lib/lib.mjs": "import is from '@sindresorhus/is'; export const said = is.default(1)",
        "main.mjs": "import { said } from '@sindresorhus/mine'; console.log(said)",
    }

    assert run(http, put(http, files), filename="main.mjs")["stdout"] == "number\n"


@pytest.mark.parametrize("typed", ["npm install", "npm install @me/lib is-number@6.0.0"])
def test_what_a_run_asks_for_comes_beside_its_members(http: httpx.Client, typed: str) -> None:
    files = {**workspace(), "packages/app/main.mjs": f"{ESM}; import 'is-number'; console.log('both')"}
    files["packages/app/package.json"] = '{"dependencies": {"@me/lib": "*", "is-number": "6.0.0"}}'
    sandbox = put(http, files)

    answer = run(http, sandbox, command=f"cd packages/app && {typed} && node main.mjs")

    assert answer["stdout"].endswith("lib\nboth\n"), answer
    assert answer["installed"] == ["is-number@6.0.0"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../etc", "lib"),
        ("/etc/x", "lib"),
        (".bin", "lib"),
        ("a\0b", "lib"),
        ("x", "../../etc"),
        ("x", "/etc"),
        ("x", "*/../../.."),
        ("x", "out"),
        ("x", "\ud800"),
    ],
)
def test_no_name_or_folder_leads_anywhere_else(http: httpx.Client, name: str, folder: str) -> None:
    files = {
        "package.json": json.dumps({"workspaces": [folder], "dependencies": {name: f"file:{folder}"}}),
        "lib/package.json": json.dumps({"name": name}),
        "main.cjs": "console.log(require('fs').readdirSync('/').includes('node_modules'))",
    }
    sandbox = put(http, files)
    run(http, sandbox, command="ln -s /etc out")

    assert run(http, sandbox, filename="main.cjs")["stdout"] == "false\n"
