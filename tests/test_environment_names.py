"""Which package a name means. Right, or nothing; never wrong."""

import re
from pathlib import Path

import pytest

from petri.environment import Ask, Code, Language, Policy, Refusal, Requirement, meaning, vetted, wanted
from petri.environment.needs.names.curated import (
    DISTRIBUTION,
    ELSEWHERE,
    GENERIC,
    MISTAKEN,
    NAMESPACES,
    SPECIAL,
    THEMSELVES,
)
from petri.environment.needs.names.debian import package_of
from petri.environment.needs.names.edits import meant
from petri.environment.needs.names.known import ESTABLISHED, SELDOM, is_alike, namesake
from petri.environment.needs.names.npm import package_of as npm_package_of
from petri.environment.needs.names.tables import imports, npm_ranks, provenance, pypi_ranks, without_wheel
from tests.projects import MemoryReader

GOLDEN = Path(__file__).parent / "golden" / "tricky-imports.txt"
TRICKY = [
    (line.split()[0], line.split()[1])
    for line in GOLDEN.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
HELD_OUT = [
    (line.split()[0], line.split()[1].split("|"))
    for line in GOLDEN.with_name("held-out-imports.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
ANYTHING = Policy()


def _rows(name: str) -> list[list[str]]:
    lines = GOLDEN.with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def _means(module: str, policy: Policy = ANYTHING) -> str:
    found = meaning(module, "python", policy)
    return found.name if isinstance(found, Requirement) else "-"


def _says(module: str) -> str:
    found = meaning(module, "python", ANYTHING)
    assert isinstance(found, Refusal)
    return found.sentence


@pytest.mark.parametrize(("module", "distribution"), TRICKY)
def test_a_tricky_name_means_its_package_or_nothing(module: str, distribution: str) -> None:
    assert _means(module) in (distribution, "-")


def test_nearly_all_tricky_names_are_known() -> None:
    right = sum(_means(module) == distribution for module, distribution in TRICKY)

    assert right / len(TRICKY) >= 0.98


def test_names_that_were_held_out_mean_their_package_or_nothing() -> None:
    meant = {module: (_means(module), right) for module, right in HELD_OUT}

    assert {module: found for module, (found, right) in meant.items() if found not in (*right, "-")} == {}
    assert sum(found in right for found, right in meant.values()) / len(meant) >= 0.98


def _is_right(python: str, module: str, right: str) -> bool:
    major, minor = python.split(".")
    code = Ask(Code(f"import {module}"), "python", python=(int(major), int(minor)))
    found = wanted(MemoryReader({}), code)
    named = {name for each in found.refused for name in re.findall("`([^`]+)`", each.sentence)}
    if found.requirements or right in ("-", "="):
        return [each.name for each in found.requirements] in ([each] for each in right.split("|")) or (
            not found.requirements and not (right == "=" and found.refused)
        )
    return right[1:] in named if right.startswith("~") else "-" in right.split("|")


@pytest.mark.parametrize("row", _rows("held-out-imports-2.txt"), ids="-".join)
def test_another_name_that_was_held_out_means_its_package_or_nothing(row: list[str]) -> None:
    python, module, right = row if len(row) == 3 else ["3.11", *row]

    assert _is_right(python, module, right)


@pytest.mark.parametrize(("typed", "right"), _rows("mistyped-packages.txt"))
def test_a_mistyped_package_is_refused_with_the_name_it_has(typed: str, right: str) -> None:
    found = vetted(typed, "python", ANYTHING)

    assert isinstance(found, Refusal)
    assert right == "-" or f"`{right}`" in found.sentence


@pytest.mark.parametrize("module", ["crypto", "shutils", "enumb", "timedelta", "jsonify", "mock_open"])
def test_a_little_used_namesake_of_something_known_is_not_installed(module: str) -> None:
    assert _means(module) == "-"


def test_a_misspelling_is_told_with_what_was_meant() -> None:
    found = meaning("sklern", "python", ANYTHING)

    assert isinstance(found, Refusal)
    assert found.suggestion == "sklearn"
    assert found.sentence == (
        "`sklern` looks like a misspelling of `sklearn` (scikit-learn): nothing was installed for it"
    )


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("scikit_learn", "the package `scikit-learn` is imported as `sklearn`, not as `scikit_learn`"),
        ("beautifulsoup4", "is imported as `bs4`"),
        ("utils", "is what programs call their own modules"),
        ("google.cloud.nothing_such", "is shared by many packages"),
        (
            "hallucinated_helper_lib",
            "no package is known to bring `hallucinated_helper_lib`, and none is guessed",
        ),
        ("win32com.client", "exists only on Windows"),
        ("google.colab", "exists only on Google Colab"),
    ],
)
def test_what_is_refused_is_refused_in_words_to_act_on(module: str, words: str) -> None:
    assert words in _says(module)


def test_allowing_a_name_lets_it_mean_itself() -> None:
    assert _means("in_house_lib") == "-"
    assert _means("in_house_lib.sub", Policy(allow=frozenset({"in-house-lib"}))) == "in-house-lib"


def test_a_denied_package_is_refused_by_whatever_name() -> None:
    policy = Policy(deny=frozenset({"pyyaml"}))

    assert _means("yaml", policy) == "-"
    found = vetted("PyYAML>=6", "python", policy)
    assert isinstance(found, Refusal) and "not to install" in found.sentence


@pytest.mark.parametrize(
    ("typed", "language", "text"),
    [
        ("numpy>=2", "python", "numpy>=2"),
        (
            "Scikit_Learn [extra] == 1.5 ; python_version < '3.13'",
            "python",
            "scikit-learn[extra]==1.5; python_version < '3.13'",
        ),
        ("some-private-thing", "python", "some-private-thing"),
        ("lodash", "javascript", "lodash@*"),
        ("lodash@^4.17", "javascript", "lodash@^4.17"),
        ("@types/node@20", "typescript", "@types/node@20"),
        ("@types/node", "javascript", "@types/node@*"),
    ],
)
def test_what_is_typed_by_name_may_be_unknown(typed: str, language: Language, text: str) -> None:
    found = vetted(typed, language, ANYTHING)

    assert isinstance(found, Requirement) and found.text == text


@pytest.mark.parametrize(
    ("typed", "language"),
    [
        ("reqeusts", "python"),
        ("python-dateutils", "python"),
        ("--index-url=x", "python"),
        ("-e .", "python"),
        ("git+https://x/y", "python"),
        ("numpy @ https://x/y.whl", "python"),
        ("./local", "python"),
        ("numpy\n--hash", "python"),
        ("", "python"),
        ("cv2", "python"),
        ("yaml", "python"),
        ("sklearn", "python"),
        ("docx", "python"),
        ("lodahs", "javascript"),
        ("git+ssh://x", "javascript"),
        ("--registry", "javascript"),
        ("lodash@file:../x", "javascript"),
        ("", "javascript"),
    ],
)
def test_what_is_typed_wrong_is_refused(typed: str, language: Language) -> None:
    assert isinstance(vetted(typed, language, ANYTHING), Refusal)


@pytest.mark.parametrize("name", ["reqests", "requestss", "rquests", "erquests", "requestz", "Requests"])
def test_one_edit_is_a_misspelling(name: str) -> None:
    assert meant(name, {"requests": 1}) == "requests"


@pytest.mark.parametrize("name", ["requests", "rqusts", "six", "requestsss", "x" * 1000])
def test_more_or_less_than_one_edit_is_not(name: str) -> None:
    assert meant(name, {"requests": 1, "sox": 2}) is None


def test_a_known_name_is_no_misspelling_of_a_better_known_one() -> None:
    assert _means("boto") != "boto3"
    assert isinstance(vetted("pytest-rerunfailures", "python", ANYTHING), Requirement)


@pytest.mark.parametrize(
    ("specifier", "package"),
    [
        ("lodash/fp", "lodash"),
        ("@a/b/c", "@a/b"),
        ("lodash@4/x", "lodash"),
        ("npm:lodash@4", "lodash"),
        ("./x", None),
        ("node:fs", None),
        ("node:fs/promises", None),
        ("bun:sqlite", None),
        ("https://x/lodash", None),
        ("virtual:x", None),
        ("fs/promises", None),
        ("@/x", None),
        ("~/x", None),
        ("a b", None),
        ("", None),
    ],
)
def test_a_specifier_names_the_package_it_begins_with(specifier: str, package: str | None) -> None:
    assert npm_package_of(specifier) == package


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("jq", "jq"),
        ("convert", "imagemagick"),
        ("rg", "ripgrep"),
        ("psql", "postgresql-client"),
        ("figlet", "figlet"),
        ("cowsay", "cowsay"),
        ("javac", "default-jdk-headless"),
        ("mvn", "maven"),
        ("vim", "vim"),
        ("nope0", None),
    ],
)
def test_commands_are_in_packages(command: str, package: str | None) -> None:
    assert package_of(command) == package


def test_the_tables_say_where_they_are_from() -> None:
    for table in ("imports", "pypi", "npm", "commands"):
        assert provenance(table).startswith("# ") and "scripts/build-tables" in provenance(table)
    assert len(imports()) > 15_000 and len(pypi_ranks()) > 10_000 and len(npm_ranks()) > 5_000


def test_what_a_person_decided_is_not_what_the_wheels_say_anyway() -> None:
    listed = {module: imports()[module].split() for module in DISTRIBUTION if module in imports()}
    decided = {module: namesake(module, those) or those[0] for module, those in listed.items()}

    unsure = {
        module
        for module, name in decided.items()
        if pypi_ranks()[name] >= ESTABLISHED and not is_alike(module, name)
    }
    assert {module for module, name in decided.items() if DISTRIBUTION[module] == name} == unsure & {"ee"}


@pytest.mark.parametrize("module", sorted(THEMSELVES))
def test_what_is_known_to_be_itself_would_be_refused_else(module: str) -> None:
    name = _means(module)

    assert pypi_ranks()[name] >= ESTABLISHED and (name in without_wheel() or pypi_ranks()[name] >= SELDOM)


def test_no_name_is_in_two_lists() -> None:
    assert not SPECIAL.keys() & (
        DISTRIBUTION.keys() | ELSEWHERE.keys() | MISTAKEN.keys() | GENERIC | THEMSELVES
    )
    assert not DISTRIBUTION.keys() & ELSEWHERE.keys()
    assert not MISTAKEN.keys() & (DISTRIBUTION.keys() | ELSEWHERE.keys())


@pytest.mark.parametrize("module", sorted(MISTAKEN))
def test_what_is_imported_instead_of_a_mistaken_name_is_known(module: str) -> None:
    assert _means(module) == "-"
    assert f"`{MISTAKEN[module]}`" in _says(module)
    assert MISTAKEN[module] == "google.cloud" or _means(MISTAKEN[module]) != "-"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("mysqlclient", "the package `mysqlclient` is imported as `MySQLdb`, not as `mysqlclient`"),
        ("python_ldap", "is imported as `ldap`"),
        ("livekit.plugins.nosuch", "`livekit` is shared by many packages, and none is known to bring"),
        ("pyasn", "`pyasn` looks like a misspelling of `pyasn1`"),
        ("types_requests", "no package is known to bring `types_requests`"),
    ],
)
def test_one_of_that_name_that_was_not_looked_into_is_no_reason(module: str, words: str) -> None:
    assert words in _says(module)
    assert not GENERIC & (DISTRIBUTION.keys() | ELSEWHERE.keys() | NAMESPACES)


@pytest.mark.parametrize("name", ["annoy", "clint", "dlib", "wget"])
def test_a_well_known_name_without_a_wheel_means_itself(name: str) -> None:
    assert name in without_wheel()
    assert name not in imports()

    assert _means(name) == name
