"""Environments: built once, for everybody, and asked for once."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from petri.environment.building import (
    Progress,
    PythonPackages,
    Uv,
)
from petri.settings import for_installers
from tests.environments import PYTHON, UV, downloading, downloads, imported, opened, silent, want
from tests.package_index import PackageIndex

pytestmark = pytest.mark.long


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


async def test_the_index_that_this_host_is_set_up_for(tmp_path: Path) -> None:
    """Fails within seconds, and says so, where no index can be reached."""
    async with asyncio.timeout(60), opened(tmp_path, None) as environments:
        outfit = await environments.prepare(want("six", "idna>=3"), silent)

    assert outfit.refused == (), "the package index of this host is out of reach"
    assert [each.split("==")[0] for each in outfit.installed] == ["idna", "six"]
