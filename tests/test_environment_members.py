"""A JavaScript project's own packages: which they are, what they want, how they lie among installed ones."""

import json
import os
from pathlib import Path

import pytest

from petri.environment import Ask, File, Member, Wanted, Words, wanted
from petri.environment.building import node_modules
from petri.environment.building.members import MOST_LINKS
from petri.workspace.viewing import View
from tests.projects import MANIFEST_ONLY, Files, look, refused, texts


def manifest(name: str | None = None, **said: object) -> str:
    return json.dumps({**({} if name is None else {"name": name}), **said})


def linked(found: Wanted) -> dict[str, str]:
    return {each.name: each.folder for each in found.members}


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (manifest(workspaces=["packages/*"]), {"@me/lib": "packages/lib", "app": "packages/app"}),
        (manifest(workspaces={"packages": ["./packages/lib/"]}), {"@me/lib": "packages/lib"}),
        (manifest(workspaces=["packages/l*"]), {"@me/lib": "packages/lib"}),
        (manifest(workspaces=["packages/*", "!packages/app"]), {"@me/lib": "packages/lib"}),
        (
            manifest(workspaces=["packages/**"]),
            {"@me/lib": "packages/lib", "app": "packages/app", "deep": "packages/more/deep"},
        ),
        (manifest(workspaces=["packages/*/deep"]), {"deep": "packages/more/deep"}),
        (manifest(dependencies={"called": "file:./packages/lib"}), {"called": "packages/lib"}),
        (manifest(workspaces=["packages/none", "../x", "/etc", "packages/*/../../.."]), {}),
        (manifest(workspaces="packages/*"), {}),
        ("{", {}),
    ],
)
def test_members_are_what_the_manifest_lists(root: str, expected: dict[str, str]) -> None:
    files = {
        "package.json": root,
        "packages/lib/package.json": manifest("@me/lib"),
        "packages/app/package.json": manifest("app"),
        "packages/app/main.js": "",
        "packages/more/deep/package.json": manifest("deep"),
        "packages/app/node_modules/other/package.json": manifest("other"),
    }

    assert linked(look(files, "packages/app/main.js")) == expected


def test_pnpm_lists_them_in_a_file_of_its_own() -> None:
    files = {
        "pnpm-workspace.yaml": "packages:\n  - 'lib'\n",
        "lib/package.json": manifest("mine"),
        "main.js": "",
    }

    assert linked(look(files, "main.js")) == {"mine": "lib"}


def test_a_command_in_another_folder_finds_the_workspace_of_its_file() -> None:
    files = {
        "sub/package.json": manifest(workspaces=["lib"]),
        "sub/lib/package.json": manifest("mine"),
        "sub/main.js": "require('mine')",
    }
    found = look(files, Words(("node", "sub/main.js")))

    assert (linked(found), refused(found)) == ({"mine": "sub/lib"}, {})


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../x",
        "/etc",
        ".bin",
        "@me",
        "@me/",
        "@me/..",
        "@../x",
        "a/b",
        "a\0b",
        "a\nb",
        "",
        "fs",
        "x" * 215,
    ],
)
def test_what_npm_would_not_take_for_a_name_is_none(name: str) -> None:
    files = {
        "package.json": manifest(workspaces=["lib"], dependencies={name: "file:lib"}),
        "lib/package.json": manifest(name),
        "main.js": "",
    }

    assert linked(look(files, "main.js")) == {}


@pytest.mark.parametrize(
    "pattern",
    ["../outside", "*/../../outside", "*/../lib", "/etc", "link", "l*k", "\ud800", "lib\0", "lib/x"],
)
def test_no_pattern_leads_out_of_the_workspace(tmp_path: Path, pattern: str) -> None:
    top = tmp_path / "workspace"
    for folder, name in ((tmp_path / "outside", "outside"), (top, "root"), (top / "lib", "mine")):
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text(manifest(name, workspaces=[pattern]))
    (top / "link").symlink_to("../outside")
    (top / "main.js").touch()
    opened = os.open(top, os.O_PATH | os.O_DIRECTORY)

    found = wanted(View(opened), Ask(File("main.js"), "javascript"))
    os.close(opened)

    assert linked(found) == {}


APP: Files = {
    "package.json": manifest(workspaces=["packages/*"], dependencies={"ms": "1.0.0", "debug": "4"}),
    "packages/app/package.json": manifest("app", dependencies={"@me/lib": "^1.0.0", "ms": "2.0.0"}),
    "packages/app/main.js": "require('@me/lib')",
    "packages/lib/package.json": manifest(
        "@me/lib",
        version="1.0.0",
        dependencies={"@me/util": "workspace:*", "ms": "2.1.3"},
        devDependencies={"mocha": "*"},
    ),
    "packages/lib/index.js": "",
    "packages/util/package.json": manifest("@me/util", peerDependencies={"lodash": "4.0.0"}),
    "packages/idle/package.json": manifest("@me/idle", dependencies={"express": "*"}),
}


def test_no_index_is_asked_for_members_and_what_they_declare_is_wanted() -> None:
    for policy in (None, MANIFEST_ONLY):
        found = look(APP, "packages/app/main.js", policy=policy)

        assert texts(found) == {"ms@2.0.0", "lodash@4.0.0", "debug@4"}
        assert refused(found) == {}
        assert '"ms": "2.1.3" of packages/lib/package.json' in found.why


def test_what_is_imported_alone_counts_too() -> None:
    files = {**APP, "packages/app/main.js": "require('@me/idle')"}

    assert "express@*" in texts(look(files, "packages/app/main.js"))


def test_installed_packages_are_linked_beside_members(tmp_path: Path) -> None:
    for name in (".bin", "ms", "mine", "@me/other", "@me/lib", "@else/x", "@else/y"):
        (tmp_path / name).mkdir(parents=True)
    members = [Member("@me/lib", "packages/lib"), Member("mine", "")]

    assert node_modules(members, tmp_path, "/there") == {
        "@me/lib": "/workspace/packages/lib",
        "mine": "/workspace",
        ".bin": "/there/.bin",
        "ms": "/there/ms",
        "@me/other": "/there/@me/other",
        "@else": "/there/@else",
    }


@pytest.mark.long
def test_of_more_than_can_be_linked_those_that_are_wanted_are(tmp_path: Path) -> None:
    for number in range(MOST_LINKS + 5):
        (tmp_path / f"p{number:05}").mkdir()
    last = f"p{MOST_LINKS + 4:05}"

    found = node_modules([Member("mine", "lib")], tmp_path, "/there", {last})

    assert len(found) == MOST_LINKS
    assert {"mine", last} <= found.keys()


@pytest.mark.parametrize(
    ("said", "programs"),
    [
        ("cli.js", {"lib": "packages/lib/cli.js"}),
        ({"a": "./cli.js", "b": "../cli.js"}, {"a": "packages/lib/cli.js", "b": "packages/cli.js"}),
        ({"gone": "gone.js", "out": "../../../etc/passwd", "abs": "/etc/passwd", "n": 1}, {}),
        (dict.fromkeys(("../x", "a/b", ".", "..", "a\0", "", "-x", "é", "x" * 300), "cli.js"), {}),
        (["cli.js"], {}),
    ],
)
def test_programs_of_members_are_files_of_the_workspace(said: object, programs: dict[str, str]) -> None:
    files = {
        "package.json": manifest(workspaces=["packages/*"]),
        "packages/lib/package.json": manifest("@me/lib", bin=said),
        "packages/lib/cli.js": "",
        "packages/cli.js": "",
        "main.js": "",
    }

    assert dict(look(files, "main.js").members[0].programs) == programs


def test_programs_of_members_are_linked_beside_installed_ones(tmp_path: Path) -> None:
    (tmp_path / ".bin").mkdir()
    for name in ("tsc", "tool"):
        (tmp_path / ".bin" / name).touch()
    member = Member("mine", "lib", (("tool", "lib/cli.js"),))

    assert node_modules([member], tmp_path, "/there") == {
        "mine": "/workspace/lib",
        ".bin/tool": "/workspace/lib/cli.js",
        ".bin/tsc": "/there/.bin/tsc",
    }


def _many(count: int, pattern: str) -> Files:
    each = {f"packages/p{number}/package.json": manifest(f"p{number}") for number in range(count)}
    return {"package.json": manifest(workspaces=[pattern]), "main.js": "", **each}


def test_members_beyond_those_that_are_linked_are_told_of() -> None:
    all_of_them = look(_many(500, "packages/*"), "main.js")
    too_many = look(_many(501, "packages/*"), "main.js")

    assert (len(all_of_them.members), refused(all_of_them)) == (500, {})
    assert len(too_many.members) == 500
    assert "more packages of its own than are linked" in refused(too_many)["workspaces"]


def test_members_declared_by_path_beyond_those_that_are_linked_are_told_of() -> None:
    files = _many(501, "packages/p0")
    paths = {f"p{number}": f"file:packages/p{number}" for number in range(501)}

    found = look({**files, "package.json": manifest(dependencies=paths)}, "main.js")

    assert len(found.members) == 500 and "workspaces" in refused(found)


def test_folders_beyond_those_that_are_looked_at_are_told_of() -> None:
    empty = {f"packages/q{number}/x.txt": "" for number in range(4_000)}

    for pattern in ("packages/*", "packages/**"):
        found = look({**_many(3, pattern), **empty}, "main.js")

        assert sorted(linked(found)) == ["p0", "p1", "p2"]  # what comes first is looked at
        assert "4,000 folders" in refused(found)["workspaces"]


def test_as_many_folders_as_are_looked_at_are_all_looked_at() -> None:
    empty = {f"packages/e{number}/x.txt": "" for number in range(3_990)}

    found = look({**_many(3, "packages/**"), **empty}, "main.js")

    assert (sorted(linked(found)), refused(found)) == (["p0", "p1", "p2"], {})
