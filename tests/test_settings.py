"""Every knob: documented, checked, and never silently misspelt."""

import os
from pathlib import Path

import pytest

from petri.errors import Invalid
from petri.settings import PREFIX, Settings, _with_one_bundle, load


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_without_any_setting_a_laptop_is_served(tmp_path: Path) -> None:
    settings = load()

    assert (settings.host, settings.port, settings.api_key) == ("127.0.0.1", 8000, None)
    assert settings.home == tmp_path / ".petri"
    assert settings.workspaces == tmp_path / ".petri" / "workspaces"
    assert settings.ledger == f"sqlite:///{tmp_path / '.petri' / 'ledger.db'}"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_a_sentence(name: str) -> None:
    said = Settings.model_fields[name].description

    assert said
    assert said.endswith(".")


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_documentation(name: str) -> None:
    page = Path(__file__).parents[1] / "docs" / "settings.md"
    if not page.exists():
        pytest.skip("docs/settings.md is not written yet")

    assert f"`{PREFIX}{name.upper()}`" in page.read_text()


@pytest.mark.parametrize(
    ("misspelt", "nearest"),
    [("PETRI_PROT", "PETRI_PORT"), ("PETRI_APIKEY", "PETRI_API_KEY"), ("PETRI_TIMEOUT", "PETRI_TIMEOUT_S")],
)
def test_a_misspelt_setting_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, misspelt: str, nearest: str
) -> None:
    monkeypatch.setenv(misspelt, "1")

    with pytest.raises(Invalid, match=rf"{misspelt}.*{nearest}\b"):
        load()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PETRI_PORT", "-1"),
        ("PETRI_PORT", "http"),
        ("PETRI_API_KEY", "too short"),
        ("PETRI_CPUS", "0"),
        ("PETRI_MEMORY_BYTES", "512M"),
        ("PETRI_CGROUPS", "no"),
        ("PETRI_LOG_LEVEL", "loud"),
        ("PETRI_UID_BASE", "0"),
        ("PETRI_DRAIN_S", "-1"),
        ("PETRI_TIMEOUT_S", "nan"),
        ("PETRI_TIMEOUT_S", "inf"),
        ("PETRI_CPUS", "nan"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(Invalid, match=name) as refused:
        load()
    assert "too short" not in refused.value.message, "a key is not repeated"


def test_defaults_above_their_ceiling_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETRI_TIMEOUT_MAX_S", "5")

    with pytest.raises(Invalid, match=r"PETRI_TIMEOUT_S.*PETRI_TIMEOUT_MAX_S"):
        load()


def test_a_client_s_setting_does_not_stop_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETRI_URL", "http://127.0.0.1:8000")

    load()


def test_paths_may_be_relative_or_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PETRI_HOME", "~/here")
    monkeypatch.setenv("PETRI_WORKSPACE_ROOT", "there")
    monkeypatch.chdir(tmp_path)

    assert load().home == tmp_path / "here"
    assert load().workspaces == tmp_path / "there"


@pytest.mark.parametrize(
    ("given", "is_newer", "named"),
    [
        ({}, False, {"SSL_CERT_FILE"}),
        ({"SSL_CERT_FILE": "BUNDLE", "SSL_CERT_DIR": "FOLDER"}, False, {"SSL_CERT_FILE"}),
        ({"SSL_CERT_FILE": "BUNDLE", "SSL_CERT_DIR": "FOLDER"}, True, {"SSL_CERT_FILE", "SSL_CERT_DIR"}),
        ({}, True, set()),
        ({"SSL_CERT_DIR": "FOLDER"}, False, {"SSL_CERT_DIR"}),
        ({"SSL_CERT_FILE": "/mine.pem"}, False, {"SSL_CERT_FILE"}),
        ({"SSL_CERT_FILE": "/mine.pem", "SSL_CERT_DIR": "FOLDER"}, False, {"SSL_CERT_FILE", "SSL_CERT_DIR"}),
    ],
)
def test_installers_read_the_bundle_unless_the_folder_may_have_more(
    tmp_path: Path, given: dict[str, str], *, is_newer: bool, named: set[str]
) -> None:
    bundle = tmp_path / "ca-certificates.crt"
    bundle.write_text("certificates")
    os.utime(tmp_path, (0, bundle.stat().st_mtime + (3600 if is_newer else 5)))
    places = {"BUNDLE": str(bundle), "FOLDER": str(tmp_path)}
    given = {name: places.get(value, value) for name, value in given.items()}

    found = _with_one_bundle(given, tmp_path)

    assert set(found) == named
    assert found.get("SSL_CERT_FILE", str(bundle)) == given.get("SSL_CERT_FILE", str(bundle))


def test_a_bundle_that_a_crash_left_empty_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca-certificates.crt").touch()

    assert _with_one_bundle({}, tmp_path) == {}
