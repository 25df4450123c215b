"""What JavaScript and TypeScript programs want."""

import json

import pytest

from petri.environment import Because, Code, Policy, Words
from tests.projects import MANIFEST_ONLY, Files, look, names, optional, refused, texts


@pytest.mark.parametrize(
    "source",
    [
        "import 'lodash'",
        'import _ from "lodash";',
        "import * as _ from 'lodash/fp'",
        "import a, { b as c,\n d } from 'lodash'",
        "import{a}from'lodash'",
        "import type from 'lodash'",
        "import { type T, map } from 'lodash'",
        "import lodash = require('lodash')",
        "export * from 'lodash'",
        "export * as x from 'lodash'",
        "export { map } from 'lodash'",
        "const _ = require('lodash')",
        "const { map } = require ( `lodash` ).x",
        "require.resolve('lodash')",
        "const p = await import('lodash')",
        "import(/* webpackChunkName: 'x' */ 'lodash')",
        "const s = `a ${ require('lodash') } b`",
        "const s = `${`${1}`}`; require('lodash')",
        "const r = /'/; require('lodash') // '",
        "const d = a / b; require('lodash') / c",
        "if (x) /'/.test(y); require('lodash')",
        "function f() { return /`/g } require('lodash')",
        "#!/usr/bin/env node\nrequire('lodash')",
        "import d from './d.json' with { type: 'json' }\nimport 'lodash'",
        "\ufeffimport 'lodash'",
        "x = { a: { b: `${ {c: 1}.c }` } }; require('lodash')",
    ],
)
def test_an_import_is_found_however_it_is_written(source: str) -> None:
    assert names(look({"main.js": source}, "main.js")) == {"lodash"}


@pytest.mark.parametrize(
    "source",
    [
        "// import 'lodash'",
        "/* require('lodash') */",
        "const s = \"import 'lodash'\"",
        "const s = `import 'lodash' ${1} require('lodash')`",
        "const r = /import 'lodash'/",
        "const r = [/require('lodash')/]",
        "if (x) /require('lodash')/.test(y)",
        "import type { T } from 'lodash'",
        "import { type A, type B } from 'lodash'",
        "export type { T } from 'lodash'",
        "type T = import('lodash').X",
        "let x: typeof import('lodash')",
        "obj.require('lodash')",
        "import.meta.resolve",
        "import(name); require(name); import(`${x}/lodash`); require('lod' + 'ash')",
        "import 'fs'; import 'node:test'; require('fs/promises'); require('node:fs')",
        "export const from = 'lodash'",
        "import './lodash'; require('../lodash'); import '/lodash'",
        "import '#lodash'; import 'https://x/lodash'; import 'data:text/javascript,1'",
    ],
)
def test_what_is_no_import_of_a_package_is_not_found(source: str) -> None:
    found = look({"main.ts": source}, "main.ts")

    assert (names(found), optional(found), refused(found)) == (set(), set(), {})


def test_a_require_in_a_try_is_optional() -> None:
    found = look({"main.js": "try { require('lodash') } catch { x = {} }\nrequire('ms')"}, "main.js")

    assert (names(found), optional(found)) == ({"ms"}, {"lodash"})


@pytest.mark.parametrize(
    "files",
    [
        {"main.js": "import './a'", "a.js": "import 'ms'"},
        {"main.js": "require('./a')", "a/index.js": "import 'ms'"},
        {"main.ts": "import './a.js'", "a.ts": "import 'ms'"},
        {"main.ts": "import './a.mjs'", "a.mts": "import 'ms'"},
        {"main.ts": "import './a'", "a.tsx": "import 'ms'"},
        {"src/main.js": "import '../lib/a.js'", "lib/a.js": "import './b.js'", "lib/b.js": "import 'ms'"},
        {
            "main.ts": "import '@/x'",
            "tsconfig.json": '{"compilerOptions": {"paths": {"@/*": ["./src/*"],},} /* c */}',
            "src/x.ts": "import 'ms'",
        },
        {
            "packages/app/main.ts": "import '@mine/lib'; import 'plain/sub.js'",
            "package.json": '{"workspaces": ["packages/*"]}',
            "packages/lib/package.json": '{"name": "@mine/lib", "main": "lib.js"}',
            "packages/lib/lib.js": "import 'ms'",
            "packages/plain/package.json": '{"name": "plain"}',
            "packages/plain/sub.js": "",
        },
        {"main.js": "import './a'", "a.js": "import './main.js'; import 'ms'"},
    ],
)
def test_the_projects_own_files_are_followed(files: Files) -> None:
    entry = next(path for path in files if "main." in path)
    found = look(files, entry)

    assert (names(found), refused(found)) == ({"ms"}, {})


def test_names_are_packages_only_if_people_know_them() -> None:
    source = "require('expres'); require('zzqq-nobody'); import '@aws-sdk/client-any'; import '@nobody0/x'"
    unknown = (
        "not among the well-known npm packages, and none is guessed: if you mean it, "
        "declare it in package.json"
    )

    found = look({"main.js": source}, "main.js")

    assert names(found) == {"@aws-sdk/client-any"}
    assert refused(found) == {
        "expres": "`expres` looks like a misspelling of `express`: nothing was installed for it",
        "zzqq-nobody": "`zzqq-nobody` is " + unknown,
        "@nobody0/x": "`@nobody0/x` is " + unknown,
    }


def test_lists_of_names_have_the_last_word() -> None:
    policy = Policy(allow=frozenset({"zzqq-nobody"}), deny=frozenset({"lodash"}))
    found = look({"main.js": "require('zzqq-nobody'); require('lodash')"}, "main.js", policy=policy)

    assert names(found) == {"zzqq-nobody"}
    assert refused(found) == {"lodash": "`lodash` is on the list of packages not to install here"}


def test_package_json_outranks_imports_which_may_add() -> None:
    said = {
        "dependencies": {"lodash": "^4.17.0", "react": "npm:preact@^10", "own": "workspace:*"},
        "devDependencies": {"vitest": "1.x", "lodashh": "1", "git": "git+ssh://x/y", "zzqq-nobody": ">=1 <2"},
    }
    files = {"package.json": json.dumps(said), "a/main.js": "import 'lodash'; import 'ms'; import 'own'"}

    found = look(files, "a/main.js")

    assert found.source == "manifest"
    assert texts(found) == {
        *("lodash@^4.17.0", "react@npm:preact@^10", "vitest@1.x", "zzqq-nobody@>=1 <2", "ms@*"),
    }
    assert refused(found).keys() == {"lodashh", "git"}
    assert found.why == "package.json declares it; imports add ms"
    assert texts(look(files, "a/main.js", policy=MANIFEST_ONLY)) == texts(found) - {"ms@*"}


def test_a_lock_beside_package_json_is_told() -> None:
    lock = {"packages": {"": {}, "node_modules/ms": {"version": "2.1.3", "integrity": "sha512-x"}, "a": {}}}
    files = {
        "package.json": '{"dependencies": {"ms": "^2"}}',
        "package-lock.json": json.dumps(lock),
        "main.js": "",
    }

    found = look(files, "main.js")

    assert found.source == "lock" and found.lock is not None
    assert [(pin.name, pin.version, pin.hashes) for pin in found.lock.pins] == [
        ("ms", "2.1.3", ("sha512-x",))
    ]


def test_code_and_commands() -> None:
    files = {"main.js": "import 'ms'", "a.js": "import 'lodash'", "package.json": "{}"}

    assert names(look(files, Code("import './a.js'; require('react')"), language="javascript")) == {
        "lodash",
        "react",
    }
    assert names(look(files, Words(("node", "--import", "x", "main.js")))) == {"ms"}
    assert names(look(files, Words(("node", "-e", "require('ms')")))) == {"ms"}
    both = look({**files, "b.py": "import numpy"}, Words(("sh", "-c", "node main.js && python b.py")))
    assert (both.language, names(both), [names(each) for each in both.also]) == (
        "python",
        {"numpy"},
        [{"ms"}],
    )


def test_every_requirement_says_who_needs_it_and_where() -> None:
    (found,) = look({"main.js": "\n\nimport ms from 'ms'"}, "main.js").requirements

    assert found.because == (Because("main.js", 3, 'import "ms"'),)
