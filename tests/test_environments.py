"""Environments: built once, from wheels alone, by hash, and never half."""

import asyncio
import base64
import hashlib
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from petri.engine.fake import FakeEngine
from petri.environment import Because, Lock, Pin, Requirement, Wanted
from petri.environment.building import (
    Completion,
    Environment,
    Environments,
    Outfit,
    Progress,
    PythonPackages,
    Rules,
    Shelf,
    Uv,
)
from petri.environment.building.completing import first_wrong
from petri.environment.building.prefix import weigh
from petri.errors import Unavailable
from petri.settings import for_installers
from tests.package_index import PackageIndex, wheel

pytestmark = pytest.mark.long

UV = str(Path(sys.executable).parent / "uv")
PYTHON = "/usr/bin/python3"
YESTERDAY = time.strftime("%Y-%m-%dT00:00:00Z", time.gmtime(time.time() - 86_400))


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    """An index of our own: `alpha` needs `beta` below 2."""
    index = PackageIndex()
    index.add("alpha", "1.0", "beta<2")
    index.add("beta", "1.0")
    index.add("beta", "2.0")
    yield index
    index.stop()


@asynccontextmanager
async def opened(
    root: Path, index: PackageIndex | None, rules: Rules | None = None, *, room: list[bool] | None = None
) -> AsyncIterator[Environments]:
    """Hold open everything it takes to install, with nothing to compile by."""
    shelf = Shelf(root)
    uv = Uv(UV, PYTHON, shelf.cache, index.url if index else None)
    env = {**for_installers(), "UV_HTTP_RETRIES": "0"}
    room = room if room is not None else [True]
    packages = PythonPackages(uv, env, lambda: room[0])

    async def complete(_: Environment) -> None:
        pass

    async with asyncio.TaskGroup() as tasks:
        environments = Environments(shelf, {"python": packages}, rules or Rules(), tasks, complete)
        yield environments
        environments.stop()


def want(*texts: str, **others: object) -> Wanted:
    """Return a wish for these requirements, found by imports."""
    requirements = tuple(Requirement(_name(text), text, (Because("main.py", 1, text),)) for text in texts)
    return replace(Wanted("python", requirements, source="imports"), **others)  # type: ignore[arg-type]


def _name(text: str) -> str:
    return text.replace("<", "=").replace(">", "=").split("=")[0].strip()


def silent(_: Progress) -> None:
    """Listen to nothing."""


def imported(outfit: Outfit, module: str) -> str:
    """Return what a module of an environment says of itself, asked of the interpreter that cells have."""
    (environment,) = outfit.environments
    site = next((environment.folder / "prefix/lib").glob("python3*/site-packages"))
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {module}; print({module}.version)"
    done = subprocess.run(
        [PYTHON, "-I", "-B", "-c", code, str(site)], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def downloads(index: PackageIndex) -> list[str]:
    return [path for path in index.fetched if path.endswith(".whl")]


async def downloading(index: PackageIndex) -> None:
    """Wait until the installer asks for a wheel."""
    async with asyncio.timeout(20):
        while not downloads(index):  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.01)


async def test_what_is_wanted_is_installed_with_what_it_needs(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

    assert outfit.installed == ["alpha==1.0", "beta==1.0"]
    assert outfit.refused == ()
    assert imported(outfit, "beta") == "1.0"
    assert outfit.environments[0].record.needed_by["beta"] == ("alpha",)


async def test_once_the_interpreter_is_known_the_installer_asks_none(
    tmp_path: Path, index: PackageIndex
) -> None:
    """What uv was told by an interpreter it keeps, a file for each."""
    async with opened(tmp_path, index) as environments:
        cache = environments.shelf.cache
        await PythonPackages(Uv(UV, PYTHON, cache), for_installers(), lambda: True).acquaint()
        known = {path: path.stat().st_mtime_ns for path in cache.glob("interpreter-*/*/*")}
        outfit = await environments.prepare(want("alpha"), silent)

    assert outfit.installed == ["alpha==1.0", "beta==1.0"]
    assert len(known) == 1
    assert {path: path.stat().st_mtime_ns for path in cache.glob("interpreter-*/*/*")} == known


async def test_the_same_packages_have_the_same_address_however_they_were_asked_for(
    tmp_path: Path, index: PackageIndex
) -> None:
    async with opened(tmp_path, index) as environments:
        one = await environments.prepare(want("alpha"), silent)
        fetched = len(downloads(index))
        two = await environments.prepare(want("alpha>=1", "beta==1.0"), silent)

    assert one.address == two.address
    assert len(downloads(index)) == fetched


async def test_second_use_asks_nobody(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        index.stop()

        second = environments.at_hand(want("alpha"))

    assert second is not None
    assert second.address == first.address


async def test_what_wants_nothing_is_at_hand(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        outfit = environments.at_hand(want())

    assert outfit is not None
    assert outfit.environments == ()
    assert index.fetched == []


async def test_a_hundred_at_once_build_once(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        outfits = await asyncio.gather(*(environments.prepare(want("alpha"), silent) for _ in range(100)))

        assert len({outfit.address for outfit in outfits}) == 1
        assert outfits[0].environments[0].users >= 100
    assert len(downloads(index)) == 2


async def test_whoever_joins_late_hears_all_of_it(tmp_path: Path, index: PackageIndex) -> None:
    index.holds.clear()
    heard: list[Progress] = []
    async with opened(tmp_path, index) as environments, asyncio.TaskGroup() as tasks:
        tasks.create_task(environments.prepare(want("alpha"), silent))
        await downloading(index)
        late = tasks.create_task(environments.prepare(want("alpha"), heard.append))
        await asyncio.sleep(0)
        index.holds.set()
        await late

    assert [each.phase for each in heard if each.phase != "downloading"] == [
        "resolving",
        "installing",
        "installed",
    ]
    assert heard[0].packages == ("alpha",)
    assert (heard[-1].size or 0) > 0


async def test_cancelled_half_way_nothing_is_left_and_the_next_one_succeeds(
    tmp_path: Path, index: PackageIndex
) -> None:
    index.holds.clear()
    async with opened(tmp_path, index) as environments:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(environments.prepare(want("alpha"), silent))
            await downloading(index)
            first.cancel()

        assert list((tmp_path / "staging").iterdir()) == []
        assert list((tmp_path / "shelf").iterdir()) == []
        assert _children() == []
        index.holds.set()
        outfit = await environments.prepare(want("alpha"), silent)
    assert outfit.installed == ["alpha==1.0", "beta==1.0"]


async def test_one_who_gives_up_does_not_spoil_it_for_the_other(tmp_path: Path, index: PackageIndex) -> None:
    index.holds.clear()
    async with opened(tmp_path, index) as environments, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(environments.prepare(want("alpha"), silent))
        await downloading(index)
        second = tasks.create_task(environments.prepare(want("alpha"), silent))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        index.holds.set()
        outfit = await second

    assert outfit.address is not None
    assert len(downloads(index)) == 2


def _children() -> list[str]:
    done = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if " pip " in line]


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


async def test_a_source_distribution_is_never_built(tmp_path: Path, index: PackageIndex) -> None:
    index.files["evil-1.0.tar.gz"] = ("evil", b"not even an archive", "2020-01-01T00:00:00Z", False)
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("evil"), silent)

    assert outfit.environments == ()
    assert "evil" in outfit.refused[0].sentence
    assert not any(path.endswith(".tar.gz") for path in index.fetched)


async def test_no_line_of_a_package_runs_here(tmp_path: Path, index: PackageIndex) -> None:
    ran = tmp_path / "ran"
    code = f"import pathlib; pathlib.Path({str(ran)!r}).touch()"
    index.put(
        "evil",
        "1.0",
        wheel("evil", "1.0", files={"evil.py": code, "evil.pth": code, "sitecustomize.py": code}),
    )
    async with opened(tmp_path / "home", index) as environments:
        outfit = await environments.prepare(want("evil"), silent)

    assert outfit.installed == ["evil==1.0"]
    assert not ran.exists()


_DATA = "odd-1.0.data/data"
AT_START = {
    "nothing": ({}, False),
    "code": ({"odd.pth": "import odd\n"}, True),
    "a folder": ({"odd.pth": "/workspace/odd\n"}, True),
    "no name": ({".pth": "import odd\n"}, True),
    "a mark": ({"odd.pth": "\ufeffimport odd\n"}, True),
    "customizing": ({"usercustomize/__init__.py": ""}, True),
    "Debian's hook": ({"apport_python_hook.py": ""}, True),
    "Debian's folder": ({f"{_DATA}/local/lib/python3.11/dist-packages/odd.pth": "import odd\n"}, True),
    "the other folder": ({f"{_DATA}/lib/python3/dist-packages/sitecustomize.py": ""}, True),
    "named as ours": ({f"{_DATA}/lib/python3/dist-packages/zz-host.pth": "import odd\n"}, True),
    "other paths": ({f"{_DATA}/bin/python3._pth": "/workspace\n"}, True),
    "in the place of ours": ({"zz-host.pth": "import odd\n"}, False),
    "another library": ({f"{_DATA}/pyvenv.cfg": "home = /workspace/bin\n"}, False),
}


@pytest.mark.parametrize(("files", "runs_code"), AT_START.values(), ids=AT_START)
async def test_it_is_known_whose_packages_have_every_start_of_python_run_something(
    tmp_path: Path, index: PackageIndex, files: dict[str, str], *, runs_code: bool
) -> None:
    index.put("odd", "1.0", wheel("odd", "1.0", files={"odd.py": "", **files}))
    async with opened(tmp_path / "home", index) as environments:
        outfit = await environments.prepare(want("odd"), silent)

    assert outfit.installed == ["odd==1.0"]
    assert outfit.runs_code_at_start == runs_code
    prefix = outfit.environments[0].folder / "prefix"
    assert "/workspace" not in (prefix / "pyvenv.cfg").read_text()
    assert all("import" not in ours.read_text() for ours in prefix.glob("lib/*/site-packages/zz-host.pth"))


def test_a_record_has_no_file_read_but_those_of_its_packages(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "site-packages"
    (packages / "evil").mkdir(parents=True)
    (packages / "evil-1.0.dist-info").mkdir()
    (tmp_path / "outside").write_text("the host's")
    wrong = "sha256=" + "A" * 43
    record = packages / "evil-1.0.dist-info" / "RECORD"

    record.write_text(
        f"evil/../../../outside,{wrong},1\n../../outside,{wrong},1\n{tmp_path}/outside,{wrong},1\n"
    )
    assert first_wrong(packages) is None

    right = base64.urlsafe_b64encode(hashlib.sha256(b"the host's").digest()).decode().rstrip("=")
    (packages / "evil" / "link").symlink_to(tmp_path / "outside")
    record.write_text(f"evil/link,sha256={right},1\n")
    assert first_wrong(packages) == "evil/link"


async def test_an_environment_that_is_not_what_its_packages_say_goes(
    tmp_path: Path, index: PackageIndex
) -> None:
    promised = {"odd-1.0.dist-info/RECORD": f"odd.py,sha256={'A' * 43},1\nodd-1.0.dist-info/RECORD,,\n"}
    index.put("odd", "1.0", _replaced(wheel("odd", "1.0"), promised))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("odd"), silent)
        (environment,) = outfit.environments
        shelf = environments.shelf
        python = PythonPackages(Uv(UV, PYTHON, shelf.cache), {}, lambda: True)

        with pytest.raises(Unavailable, match=r"odd\.py is not the file that its package has"):
            await Completion(shelf, python, FakeEngine(), None)(environment)

        assert shelf.find(outfit.address) is None
        assert not environment.folder.exists()


def _replaced(packed: bytes, instead: dict[str, str]) -> bytes:
    """Return a wheel with other files in place of its own."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as old, zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            archive.writestr(name, instead.get(name) or old.read(name))
    return new.getvalue()


async def test_a_large_program_of_a_package_is_not_read_into_memory(
    tmp_path: Path, index: PackageIndex
) -> None:
    text = "#!python\n" + "#" * (48 << 20)
    index.put("prog", "1.0", wheel("prog", "1.0", files={"prog-1.0.data/scripts/prog": text}))
    del text
    async with opened(tmp_path / "home", index) as environments:
        tracemalloc.start()
        outfit = await environments.prepare(want("prog"), silent)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    script = outfit.environments[0].folder / "prefix/bin/prog"
    with script.open() as file:
        assert file.readline() == "#!/environment/python/bin/python\n"
    assert script.stat().st_size > 48 << 20
    assert peak < 32 << 20


@pytest.mark.parametrize(
    "way", ["../" * 12, "/", "evil-1.0.data/data/" + "../" * 12, "evil-1.0.data/scripts/../"]
)
async def test_a_wheel_is_unpacked_nowhere_but_in_its_environment(
    tmp_path: Path, index: PackageIndex, way: str
) -> None:
    name = f"got-{tmp_path.name}"
    path = f"{way}{str(tmp_path).lstrip('/')}/{name}" if way.startswith((".", "/")) else f"{way}{name}"
    index.put("evil", "1.0", wheel("evil", "1.0", files={path: "x"}))
    async with opened(tmp_path / "home", index) as environments:
        outfit = await environments.prepare(want("evil"), silent)

    inside = [environment.folder / "prefix" for environment in outfit.environments]
    assert [path for path in _named(tmp_path, name) if not any(map(path.is_relative_to, inside))] == []


def _named(folder: Path, name: str) -> list[Path]:
    """Return what is called `name` below `folder`, but for what the installer keeps for itself."""
    return [path for path in folder.rglob(name) if "cache" not in path.parts]


async def test_everything_can_be_read_by_all_and_once_complete_be_written_by_nobody(
    tmp_path: Path, index: PackageIndex
) -> None:
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha"), silent)
        (environment,) = outfit.environments
        at_once = _modes(environment.folder / "prefix")
        python = PythonPackages(Uv(UV, PYTHON, environments.shelf.cache), {}, lambda: True)
        await Completion(environments.shelf, python, FakeEngine(), None)(environment)
        complete = _modes(environment.folder / "prefix")

    assert [path for path, mode in at_once.items() if mode & 0o022 or not mode & 0o004] == []
    assert [path for path, mode in complete.items() if mode & 0o022 or not mode & 0o004] == []
    assert [path for path, mode in complete.items() if path.is_file() and mode & 0o222] == []


async def test_what_an_installer_leaves_unreadable_or_open_to_all_is_mended_before_it_is_used(
    tmp_path: Path,
) -> None:
    modes = {"secret": 0o600, "open": 0o666, "program": 0o700, "root's": 0o4755, "fine": 0o644}
    (tmp_path / "folder").mkdir()
    for name, mode in modes.items():
        (tmp_path / "folder" / name).write_text("text")
        (tmp_path / "folder" / name).chmod(mode)
    (tmp_path / "folder").chmod(0o777)

    weighed = weigh(tmp_path)

    found = _modes(tmp_path)
    assert found.pop(tmp_path / "folder") == 0o755
    assert {path.name: mode for path, mode in found.items()} == {
        "secret": 0o444,
        "open": 0o444,
        "program": 0o555,
        "root's": 0o555,
        "fine": 0o644,
    }
    assert (weighed.size, weighed.files) == (20, 5)


def _modes(folder: Path) -> dict[Path, int]:
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*") if not path.is_symlink()}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_cells_pass_through_the_shelf_and_nobody_looks_around(tmp_path: Path, umask: int) -> None:
    root, before = tmp_path / "deep" / "environments", os.umask(umask)
    try:
        Shelf(root)
        root.chmod(0o755)  # as an earlier life left it
        Shelf(root)
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.iterdir())}
    assert modes.pop("environments") == modes.pop("shelf") == 0o711
    assert set(modes.values()) == {0o700}, modes


@pytest.mark.parametrize("home", ["home", "a" * 120], ids=["short", "long"])
async def test_programs_of_packages_start_the_interpreter_that_cells_see(
    tmp_path: Path, index: PackageIndex, home: str
) -> None:
    info = {"prog-1.0.dist-info/entry_points.txt": "[console_scripts]\nprog = prog:main\n"}
    index.put("prog", "1.0", wheel("prog", "1.0", files={"prog.py": "def main(): print('hi')\n", **info}))
    async with opened(tmp_path / home, index) as environments:
        outfit = await environments.prepare(want("prog"), silent)

    script = (outfit.environments[0].folder / "prefix/bin/prog").read_text()
    assert script.startswith("#!/environment/python/bin/python\n")


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


# ------------------------------------------------------------------------------------------- next lives


async def test_an_environment_outlives_its_server(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    index.stop()
    async with opened(tmp_path, index) as environments:
        second = environments.at_hand(want("alpha"))

    assert second is not None
    assert second.address == first.address


async def test_one_that_its_server_had_not_completed_is_there_and_the_next_completes_it(
    tmp_path: Path, index: PackageIndex
) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    whole = tmp_path / "shelf" / str(first.address) / "whole"
    whole.unlink()
    index.stop()
    async with opened(tmp_path, index) as environments:
        second = environments.at_hand(want("alpha"))
        environments.resume()
        await _completed(tmp_path)

    assert second is not None
    assert second.address == first.address
    assert whole.exists()


async def test_one_that_may_not_be_on_disk_is_built_again_without_asking_what_it_is(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    (tmp_path / "shelf" / str(first.address) / "whole").unlink()
    monkeypatch.setattr("petri.environment.building.shelf._boot", lambda: "another")
    index.fetched.clear()
    async with opened(tmp_path, index) as environments:
        assert environments.shelf.all() == []
        second = await environments.prepare(want("alpha"), silent)

    assert second.address == first.address
    assert [path for path in index.fetched if "/simple/" in path] == []


@pytest.mark.parametrize("is_torn", [False, True], ids=["as it was", "torn"])
async def test_after_a_power_cut_one_is_used_only_if_it_is_what_it_was(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, *, is_torn: bool
) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    module = next((tmp_path / "shelf" / str(first.address) / "prefix/lib").glob("*/site-packages/beta.py"))
    inode = module.stat().st_ino
    if is_torn:
        module.unlink()
        module.write_bytes(b"")
    monkeypatch.setattr("petri.environment.building.shelf._boot", lambda: "another one")
    async with opened(tmp_path, index) as environments:
        assert environments.at_hand(want("alpha")) is None
        second = await environments.prepare(want("alpha"), silent)

        assert second.address == first.address
        assert imported(second, "beta") == "1.0"
        assert (module.stat().st_ino == inode) is (not is_torn)


async def _completed(root: Path) -> None:
    async with asyncio.timeout(10):
        while not list((root / "shelf").glob("*/whole")):  # noqa: ASYNC110 - made by another task
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_killed_in_the_middle_of_a_build_the_next_life_builds_it(
    tmp_path: Path, index: PackageIndex
) -> None:
    for number in range(20):
        index.add(f"part{number}", "1.0")
    names = [f"part{number}" for number in range(20)]
    for pause_s in (0.05, 0.2, 0.4, 0.6, 0.8):
        code = (
            "import asyncio, sys; from pathlib import Path\n"
            "from tests.test_environments import opened, want, silent\n"
            "class Index: url = sys.argv[2]\n"
            "async def main():\n"
            "    async with opened(Path(sys.argv[1]), Index) as environments:\n"
            "        await environments.prepare(want(*sys.argv[3:]), silent)\n"
            "        await asyncio.sleep(30)\n"
            "asyncio.run(main())\n"
        )
        argv = [sys.executable, "-c", code, str(tmp_path), index.url, *names]
        child = subprocess.Popen(argv)  # noqa: ASYNC220 - it is killed right below
        await asyncio.sleep(0.3 + pause_s)
        child.send_signal(signal.SIGKILL)
        await asyncio.to_thread(child.wait)
        shutil.rmtree(tmp_path / "asked", ignore_errors=True)

        async with opened(tmp_path, index) as environments:
            whole = [each for each in environments.shelf.all() if each.record.files < 20]
            assert whole == []
            assert list((tmp_path / "staging").iterdir()) == []
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want(*names), silent)
    assert len(outfit.installed) == 20


# ----------------------------------------------------------------------------------------------- budget


async def test_over_budget_the_cache_goes_first_then_what_is_longest_unused(
    tmp_path: Path, index: PackageIndex
) -> None:
    index.put("large", "1.0", wheel("large", "1.0", files={"large.py": "version = 1\n" + "#" * 100_000}))
    index.put("other", "1.0", wheel("other", "1.0", files={"other.py": "version = 1\n" + "#" * 100_000}))
    async with opened(tmp_path, index, Rules(budget_bytes=150_000)) as environments:
        old = await environments.prepare(want("large"), silent)
        environments.give_back(old)
        await _completed(tmp_path)
        new = await environments.prepare(want("other"), silent)
        environments.give_back(new)
        await _gone(environments, old)

        await environments.sweep()

        assert [each.address for each in environments.shelf.all()] == [new.address]
        assert environments.shelf.record(str(old.address)) is not None


async def test_the_cache_stays_for_who_comes_while_it_is_weighed(tmp_path: Path, index: PackageIndex) -> None:
    index.holds.clear()
    async with opened(tmp_path, index, Rules(budget_bytes=1)) as environments, asyncio.TaskGroup() as tasks:
        (environments.shelf.cache / "wheel").write_bytes(b"needed")
        sweeping = tasks.create_task(environments.sweep())
        await asyncio.sleep(0)  # it has begun
        asked = tasks.create_task(environments.prepare(want("alpha"), silent))
        await sweeping

        kept = [each.name for each in environments.shelf.cache.glob("wheel")]
        index.holds.set()
        environments.give_back(await asked)

    assert kept == ["wheel"]


async def test_what_is_in_use_stays_whatever_the_budget(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index, Rules(budget_bytes=1)) as environments:
        outfit = await environments.prepare(want("alpha"), silent)
        await _idle(outfit.environments[0], but_for=1)
        await environments.sweep()

        assert environments.shelf.find(outfit.address) is not None
        environments.give_back(outfit)
        await environments.sweep()
        assert environments.shelf.find(outfit.address) is None


def _age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * 86_400,) * 2)


async def test_what_nobody_will_ask_for_is_forgotten(tmp_path: Path, index: PackageIndex) -> None:
    async def run_in() -> set[str]:
        return {str(ran.address)}

    async with opened(tmp_path, index, Rules(budget_bytes=1)) as environments:
        ran = await environments.prepare(want("alpha"), silent)
        never = await environments.prepare(want("beta==2.0"), silent)
        fresh = await environments.prepare(want("beta==1.0"), silent)
        for outfit in (ran, never, fresh):
            environments.give_back(outfit)
            await _idle(outfit.environments[0], but_for=0)
        await environments.sweep()
        for each in (tmp_path / "asked").iterdir():
            if str(fresh.address) not in each.read_text():
                _age(each, 29)
        for each in (tmp_path / "records").iterdir():
            _age(each, 2)

        await environments.forget(run_in)

        assert len(list((tmp_path / "asked").iterdir())) == 1
        assert environments.shelf.record(str(ran.address)) is not None, "a run had it"
        assert environments.shelf.record(str(fresh.address)) is not None, "it would be the answer today"
        assert environments.shelf.record(str(never.address)) is None


async def test_what_is_on_the_shelf_or_new_is_not_forgotten(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        shelved = await environments.prepare(want("alpha"), silent)
        new = await environments.prepare(want("beta==2.0"), silent)
        environments.give_back(new)
        await _idle(new.environments[0], but_for=0)
        environments.shelf.drop(new.environments[0])
        _age(tmp_path / "records" / str(shelved.address), 2)
        for each in (tmp_path / "asked").iterdir():
            each.unlink()

        await environments.forget(_nobody)

        assert environments.shelf.record(str(shelved.address)) is not None
        assert environments.shelf.record(str(new.address)) is not None


async def test_there_are_only_so_many_answers(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.environment.building.tidying._MOST_ANSWERS", 3)
    async with opened(tmp_path, index) as environments:
        for number in range(5):
            environments.shelf.keep_answer(f"k{number}", {"address": None})
            _age(tmp_path / "asked" / f"k{number}", 5 - number)

        await environments.forget(_nobody)

    assert {each.name for each in (tmp_path / "asked").iterdir()} == {"k2", "k3", "k4"}


async def _nobody() -> set[str]:
    return set()


async def _idle(environment: Environment, *, but_for: int) -> None:
    async with asyncio.timeout(10):
        while environment.users > but_for:  # noqa: ASYNC110 - another task completes it
            await asyncio.sleep(0.01)


async def _gone(environments: Environments, outfit: Outfit) -> None:
    async with asyncio.timeout(10):
        while environments.shelf.find(outfit.address) is not None:  # noqa: ASYNC110 - another task drops it
            await asyncio.sleep(0.01)


# ----------------------------------------------------------------------------------------- the real index


async def test_the_index_that_this_host_is_set_up_for(tmp_path: Path) -> None:
    """Fails within seconds, and says so, where no index can be reached."""
    async with asyncio.timeout(60), opened(tmp_path, None) as environments:
        outfit = await environments.prepare(want("six", "idna>=3"), silent)

    assert outfit.refused == (), "the package index of this host is out of reach"
    assert [each.split("==")[0] for each in outfit.installed] == ["idna", "six"]
