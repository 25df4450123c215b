"""What is in wheels: nothing of it runs here, leaves its place, or can be changed."""

import base64
import hashlib
import io
import os
import stat
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from petri.engine.fake import FakeEngine
from petri.environment.building import (
    Completion,
    PythonPackages,
    Shelf,
    Uv,
)
from petri.environment.building.completing import first_wrong
from petri.environment.building.prefix import weigh
from petri.errors import Unavailable
from tests.environments import PYTHON, UV, opened, silent, want
from tests.package_index import PackageIndex, wheel

pytestmark = pytest.mark.long


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


def test_what_an_installer_leaves_unreadable_or_open_to_all_is_mended_before_it_is_used(
    tmp_path: Path,
) -> None:
    modes = {"secret": 0o600, "open": 0o666, "program": 0o700, "root's": 0o4755, "fine": 0o644}
    (tmp_path / "folder").mkdir()
    for name, mode in modes.items():
        (tmp_path / "folder" / name).write_text("text")
        (tmp_path / "folder" / name).chmod(mode)
    (tmp_path / "folder").chmod(0o777)
    tmp_path.chmod(0o700)

    weighed = weigh(tmp_path)

    found = _modes(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == found.pop(tmp_path / "folder") == 0o755
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
