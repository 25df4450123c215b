"""What is not installed, and how that is said: conflicts, age, hashes, locks, an index that is down."""

from pathlib import Path

import pytest

from petri.environment import Lock, Pin
from petri.environment.building import NotInstalled, PythonPackages, Rules, Uv
from petri.settings import for_installers
from tests.environments import PYTHON, UV, YESTERDAY, asking, opened, silent, want
from tests.package_index import PackageIndex, wheel

pytestmark = pytest.mark.long


async def test_a_conflict_is_named_and_the_rest_goes_on(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        wanted = want("alpha", "beta==2.0", source="manifest")
        outfit = await environments.prepare(wanted, silent)

    assert outfit.environments == ()
    assert {each.name for each in outfit.refused} == {"alpha", "beta"}
    assert "dependencies: Because" in outfit.refused[0].sentence
    assert "alpha depend on beta<2" in outfit.refused[0].sentence
    assert "beta==2.0" in outfit.refused[0].sentence
    assert "http" not in outfit.refused[0].sentence


async def test_one_import_that_nobody_has_does_not_cost_the_others(
    tmp_path: Path, index: PackageIndex
) -> None:
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha", "nosuch"), silent)
        again = environments.at_hand(want("alpha", "nosuch"))

    assert outfit.installed == ["alpha==1.0", "beta==1.0"]
    assert [each.name for each in outfit.refused] == ["nosuch"]
    assert "not found" in outfit.refused[0].sentence
    assert again is not None
    assert again.refused == outfit.refused


async def test_a_manifest_is_met_in_full_or_not_at_all(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha", "nosuch", source="manifest"), silent)

    assert outfit.environments == ()
    assert [each.name for each in outfit.refused] == ["nosuch"]


async def test_what_is_too_young_is_refused_with_its_date(tmp_path: Path, index: PackageIndex) -> None:
    index.add("young", "1.0", at=YESTERDAY)
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("young"), silent)
        pinned = await environments.prepare(want("young==1.0"), silent)
    async with opened(tmp_path, index, Rules(exclude_newer_days=0)) as environments:
        later = await environments.prepare(want("young"), silent)

    assert outfit.environments == ()
    for each in (outfit.refused[0].sentence, pinned.refused[0].sentence):
        assert YESTERDAY[:10] in each
        assert "PETRI_EXCLUDE_NEWER_DAYS" in each  # and not what uv would have one do, which nobody can here
        assert "exclude-newer" not in each
    assert later.installed == ["young==1.0"]


@pytest.mark.parametrize("text", ["gone", "gone==1.0", "needy"])
async def test_what_was_yanked_is_refused(tmp_path: Path, index: PackageIndex, text: str) -> None:
    index.put("gone", "1.0", wheel("gone", "1.0"), yanked=True)
    index.add("needy", "1.0", "gone==1.0")
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want(text, source="manifest"), silent)

    assert outfit.environments == ()
    assert "yanked" in outfit.refused[0].sentence


async def test_what_was_yanked_since_a_project_was_locked_with_it_is_still_its_own(
    tmp_path: Path, index: PackageIndex
) -> None:
    index.put("gone", "1.0", wheel("gone", "1.0"), yanked=True)
    lock = Lock("requirements.txt", "", (Pin("gone", "1.0"),))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("gone", source="lock", lock=lock), silent)

    assert outfit.installed == ["gone==1.0"]


async def test_another_file_than_was_promised_is_not_installed(tmp_path: Path, index: PackageIndex) -> None:
    index.lies_about_hashes = True
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

        assert environments.shelf.all() == []
    assert "not the file that was promised" in outfit.refused[0].sentence


@pytest.mark.parametrize("form", ["pylock.toml", "requirements.txt"])
async def test_another_file_than_was_locked_is_not_installed_whatever_an_operator_told_uv(
    tmp_path: Path, index: PackageIndex, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv.toml").write_text("[pip]\nverify-hashes = false\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))

    def python(cache: str) -> PythonPackages:
        return PythonPackages(Uv(UV, PYTHON, tmp_path / cache, index.url), for_installers(), lambda: True)

    promised = Pin("beta", "1.0", (index.digest("beta-1.0-py3-none-any.whl"),))
    theirs = Lock("requirements.txt", "", (promised,)) if form == "requirements.txt" else None
    lock = await python("before").resolve(want("beta==1.0", lock=theirs), asking(tmp_path))
    index.put("beta", "1.0", wheel("beta", "1.0", files={"beta.py": "version = 'another'\n"}))

    with pytest.raises(
        NotInstalled, match=r"not the file that was promised, and nothing is installed: Failed"
    ):
        await python("after").install(lock, tmp_path / "there", silent)

    assert lock.form == form


async def test_an_index_that_is_down_is_stated_and_asked_again_later(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.environment.building.environments._SOON_S", 0.0)
    index.refuses = True
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha"), silent)
        index.refuses = False
        later = await environments.prepare(want("alpha"), silent)

    assert outfit.environments == ()
    assert "the package index is out of reach" in outfit.refused[0].sentence
    assert "127.0.0.1" not in outfit.refused[0].sentence
    assert later.installed == ["alpha==1.0", "beta==1.0"]


async def test_with_the_index_down_an_old_answer_is_good_enough(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
    monkeypatch.setattr("petri.environment.building.environments._FRESH_S", -1.0)
    index.refuses = True
    async with opened(tmp_path, index) as environments:
        assert environments.at_hand(want("alpha")) is None
        second = await environments.prepare(want("alpha"), silent)

    assert second.address == first.address
    assert second.refused == ()


@pytest.mark.parametrize(
    "text",
    [
        "alpha @ file:///etc/passwd",
        "alpha @ http://127.0.0.1/x.whl",
        "-r /etc/passwd",
        "--index-url=http://127.0.0.1/",
        "alpha\n--index-url http://127.0.0.1/",
        "git+https://127.0.0.1/x",
        "./local",
        "alpha ; python_version>'3'\n-e .",
        "${HOME}",
    ],
)
async def test_requirement_that_leads_elsewhere_never_reaches_the_installer(
    tmp_path: Path, index: PackageIndex, text: str
) -> None:
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want(text), silent)

    assert outfit.environments == ()
    assert "packages come from the index alone" in outfit.refused[0].sentence
    assert index.fetched == []


async def test_a_projects_lock_decides_the_versions(tmp_path: Path, index: PackageIndex) -> None:
    index.add("gamma", "1.0")
    index.add("gamma", "2.0")
    lock = Lock("requirements.txt", "", (Pin("gamma", "1.0"),))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("gamma", source="lock", lock=lock), silent)

    assert outfit.installed == ["gamma==1.0"]


async def test_a_file_that_the_projects_lock_does_not_know_is_refused(
    tmp_path: Path, index: PackageIndex
) -> None:
    lock = Lock("requirements.txt", "", (Pin("beta", "1.0", ("sha256:" + "1" * 64,)),))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("beta", source="lock", lock=lock), silent)

    assert outfit.environments == ()
    assert "not what the project's lock promises" in outfit.refused[0].sentence


async def test_what_is_denied_is_not_installed_for_somebody_elses_sake_either(
    tmp_path: Path, index: PackageIndex
) -> None:
    async with opened(tmp_path, index) as environments:
        assert (await environments.prepare(want("alpha"), silent)).environments != ()
    async with opened(tmp_path, index, Rules(deny=frozenset({"beta"}))) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

    assert outfit.environments == ()
    assert [each.name for each in outfit.refused] == ["alpha"]
    assert "it needs beta, which is never installed" in outfit.refused[0].sentence


async def test_a_full_disk_is_stated_and_leaves_nothing(tmp_path: Path, index: PackageIndex) -> None:
    room = [False]
    async with opened(tmp_path, index, room=room) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

        assert environments.shelf.all() == []
        assert list((tmp_path / "staging").iterdir()) == []
    assert "no space is left" in outfit.refused[0].sentence
