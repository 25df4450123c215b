"""What the operator decides about packages, each by its setting, as a run comes to feel it."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Server
from tests.package_index import PackageIndex, wheel
from tests.test_api_environments import script


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    """An index with what should give pause."""
    index = PackageIndex()
    index.add("humanize", "4.0")
    index.add("alpha", "1.0", "humanize")
    index.put("young", "1.0", wheel("young", "1.0"), at=tomorrow())
    index.put("yanked", "1.0", wheel("yanked", "1.0"), yanked=True)
    index.add("my-very-own", "1.0")
    yield index
    index.stop()


def tomorrow() -> str:
    """Return a moment that no package is old enough for, whenever this is run."""
    return "2200-01-01T00:00:00.000000Z"


@pytest.fixture
def ask(new_server: Callable[..., Server], index: PackageIndex) -> Iterator[Callable[..., Any]]:
    """Run code on a server with settings of its own."""
    clients: list[httpx.Client] = []

    def once(code: str, **settings: str) -> dict[str, Any]:
        http = new_server(PETRI_INDEX_URL=index.url, **settings).client()
        clients.append(http)
        answer: dict[str, Any] = http.post("/v1/exec", json={"code": code}).json()
        return answer

    yield once
    for http in clients:
        http.close()


def test_auto_installs_what_is_imported(ask: Callable[..., Any]) -> None:
    assert ask("import humanize")["installed"] == ["humanize==4.0"]


def test_manifest_only_installs_what_is_declared(ask: Callable[..., Any]) -> None:
    imported = ask("import humanize", PETRI_DEPENDENCIES="manifest-only")
    declared = ask(script("humanize", body="import humanize"), PETRI_DEPENDENCIES="manifest-only")

    assert (imported["installed"], imported["exit_code"]) == ([], 1)
    assert declared["installed"] == ["humanize==4.0"]


def test_off_installs_nothing(ask: Callable[..., Any]) -> None:
    answer = ask(script("humanize", body="import humanize"), PETRI_DEPENDENCIES="off")

    assert (answer["installed"], answer["exit_code"]) == ([], 1)


@pytest.mark.parametrize("code", [script("humanize"), "import humanize", script("alpha")])
def test_what_is_denied_is_not_installed_whoever_needs_it(ask: Callable[..., Any], code: str) -> None:
    answer = ask(code, PETRI_DENY_PACKAGES="humanize")

    assert answer["installed"] == []
    assert "humanize" in answer["not_installed"][0]["why"]


def test_an_unknown_name_is_had_where_it_is_allowed(ask: Callable[..., Any]) -> None:
    refused = ask("import my_very_own")
    allowed = ask("import my_very_own", PETRI_ALLOW_PACKAGES="my-very-own")

    assert refused["installed"] == []
    assert "none is guessed" in refused["not_installed"][0]["why"]
    assert allowed["installed"] == ["my-very-own==1.0"]


def test_what_is_too_young_is_refused_unless_any_age_will_do(ask: Callable[..., Any]) -> None:
    refused = ask(script("young"))
    had = ask(script("young"), PETRI_EXCLUDE_NEWER_DAYS="0")

    assert refused["installed"] == []
    assert re.search("young.*(newer|exclude|published)", refused["not_installed"][0]["why"])
    assert had["installed"] == ["young==1.0"]


def test_what_was_yanked_is_refused(ask: Callable[..., Any]) -> None:
    answer = ask(script("yanked"))

    assert answer["installed"] == []
    assert "yanked" in answer["not_installed"][0]["why"]


@pytest.mark.parametrize("code", ["import reqests", script("reqests")])
def test_one_edit_from_a_famous_name_is_refused_with_what_was_meant(
    ask: Callable[..., Any], code: str
) -> None:
    (refused,) = ask(code)["not_installed"]

    assert refused["suggestion"] == "requests"
    assert "looks like a misspelling of `requests`" in refused["why"]


@pytest.mark.parametrize("command", ["pandoc hello", ["pandoc", "hello"], "echo so | pandoc"])
def test_a_command_that_is_not_there_is_told_with_its_debian_package(
    http: httpx.Client, command: str | list[str]
) -> None:
    answer = http.post("/v1/exec", json={"command": command}).json()

    (missing,) = answer["not_installed"]
    assert (missing["name"], missing["suggestion"]) == ("pandoc", "pandoc")
    assert missing["why"] == "there is no command `pandoc` here; in Debian the package `pandoc` has it"
    assert answer["exit_code"] == 127
